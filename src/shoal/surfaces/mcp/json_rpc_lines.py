"""Lines of an MCP client: each request gets an answer, even one that the protocol's library cannot read."""

from __future__ import annotations

import json
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from shoal.core.text.encodable_text import repair_surrogates
from shoal.core.text.model_texts import ModelTexts, fill_template
from shoal.wire.foreign_json import InvalidFileContent, parse_foreign_json

if TYPE_CHECKING:
    from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream

_TEXTS = ModelTexts(Path(__file__).parent / "prompts").load_sections("server")
_MAX_REASON_CHARS = 300


class RepairedMessageStream:
    """Messages of a client. A line that cannot be a message gets an error; the library would ignore it.

    Lines with half a surrogate pair or a byte order mark, which the library cannot parse, are repaired.
    """

    def __init__(
        self,
        messages: ContextReceiveStream[SessionMessage | Exception],
        answers: ContextSendStream[SessionMessage],
    ) -> None:
        self._messages = messages
        self._answers = answers

    @property
    def last_context(self) -> Context | None:
        return self._messages.last_context

    async def receive(self) -> SessionMessage | Exception:
        while True:
            received = await self._messages.receive()
            if not isinstance(received, ValidationError):
                return received
            message = repair_or_refuse_line(received)
            if isinstance(message, JSONRPCError):
                with suppress(BrokenResourceError, ClosedResourceError):
                    await self._answers.send(SessionMessage(message))
            elif message is not None:
                return message

    async def aclose(self) -> None:
        await self._messages.aclose()

    def __aiter__(self) -> RepairedMessageStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> RepairedMessageStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def repair_or_refuse_line(error: ValidationError) -> SessionMessage | JSONRPCError | None:
    """Return the message of a line that could not be read, or the answer to it; None if it needs neither."""
    problems = error.errors(include_url=False)
    if problems[0]["type"] != "json_invalid":
        return _refuse_value(next((each["input"] for each in problems if each["type"] == "missing"), None))
    line = str(problems[0]["input"])
    if not line.strip():
        return None
    value = parse_foreign_json(line.encode(errors="surrogatepass"))
    if isinstance(value, InvalidFileContent):
        return _build_error(None, PARSE_ERROR, value.reason)
    text = repair_surrogates(json.dumps(value, ensure_ascii=False))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValidationError as second_error:
        reason = second_error.errors(include_url=False)[0]
        if reason["type"] == "json_invalid":
            return _build_error(_find_id(value), PARSE_ERROR, reason["msg"])
        return _refuse_value(value)


def _refuse_value(value: Any) -> JSONRPCError | None:
    """Return the answer to a value that cannot be a message; None if it seems to be an answer itself."""
    if isinstance(value, dict) and "method" not in value and value.keys() & {"result", "error"}:
        return None
    return _build_error(_find_id(value), INVALID_REQUEST, _TEXTS["error:no_request"])


def _find_id(value: Any) -> int | str | None:
    id_ = value.get("id") if isinstance(value, dict) else None
    return id_ if isinstance(id_, int | str) and not isinstance(id_, bool) else None


def _build_error(id_: int | str | None, code: int, reason: str) -> JSONRPCError:
    text = fill_template(_TEXTS["error:unreadable_line"], reason=reason[:_MAX_REASON_CHARS])
    return JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=text))
