"""A mock provider driven by a script file, as a program: `python -m shoal.testing.servers`.

The script format is that of model scripts; a step may also have `faults`, a list of mappings whose `type` is
the fault's tag (`http_error` for `HttpErrorFault`) and whose other fields are the fault's:

    [{"match": "hello", "text": "Hello.", "faults": [{"type": "cut", "after": 3}]},
     {"faults": [{"type": "http_error", "status": 429, "retry_after": 0.1}]}]

The first line on standard output is the server's URL. It ends on TERM, INT, or the end of standard input
with `--with-parent`, and then prints one line of JSON: requests, answered, reported, unsettled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import SettingsError
from shoal.testing.chat_format import MockChatCompletionsApiFormat
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import AnyFault, DelayedReplyFault, MockReply, ReplyLike, RequestBody
from shoal.testing.reply_sender import MockProviderApiFormat
from shoal.testing.responses_format import MockResponsesApiFormat
from shoal.testing.servers import MockServer
from shoal.wire.model_script_codec import (
    ModelScriptMatchContext,
    ModelScriptStep,
    RemainingModelScriptSteps,
    read_model_script,
)

_FORMS: dict[str, Callable[[], MockProviderApiFormat]] = {
    "messages": MockMessagesApiFormat,
    "chat": MockChatCompletionsApiFormat,
    "responses": MockResponsesApiFormat,
}


class MockServerScriptStep(ModelScriptStep, frozen=True):
    faults: tuple[AnyFault, ...] = ()


def build_script_responder(steps: Sequence[MockServerScriptStep]) -> Callable[[RequestBody], ReplyLike]:
    """Return the responder that plays these steps."""
    remaining = RemainingModelScriptSteps(steps)

    def respond(body: RequestBody) -> ReplyLike:
        step = remaining.take_matching_step(_build_script_match_context(body))
        if step is None:
            raise LookupError(f"no step of the script is left for: {_get_last_input_text(body)[:200]!r}")
        delay_faults = (DelayedReplyFault(seconds=step.delay),) if step.delay else ()
        return MockReply(
            content=step.content,
            usage=step.usage,
            stop_reason=step.stop_reason,
            faults=delay_faults + step.faults,
        )

    return respond


def _build_script_match_context(body: RequestBody) -> ModelScriptMatchContext:
    return ModelScriptMatchContext(
        latest_input=lambda: _get_last_input_text(body),
        system_prompt=lambda: _get_system_prompt(body),
        answer_count=lambda: _count_model_answers(body),
    )


def _count_model_answers(body: RequestBody) -> int:
    """Count the model's answers: items of one answer are consecutive."""
    is_model_output = [_is_model_output(message) for message in _get_request_messages(body)]
    return sum(
        is_its and not before
        for is_its, before in zip(is_model_output, [False, *is_model_output], strict=False)
    )


def _is_model_output(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("type") in ("reasoning", "function_call")


def _get_request_messages(body: RequestBody) -> Sequence[Mapping[str, Any]]:
    messages = body.get("messages") or body.get("input") or ()
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _get_last_input_text(body: RequestBody) -> str:
    """Return the text after the model's last answer, in any provider's format."""
    texts: list[str] = []
    for message in reversed(_get_request_messages(body)):
        if _is_model_output(message) or message.get("role") == "system":
            break
        texts.append(_extract_content_text(message.get("content") or message.get("output")))
    return "\n".join(reversed(texts))


def _get_system_prompt(body: RequestBody) -> str:
    if "instructions" in body:
        return _extract_content_text(body["instructions"])
    if "system" in body:
        return _extract_content_text(body["system"])
    systems = (m for m in _get_request_messages(body) if m.get("role") in ("system", "developer"))
    return "\n".join(_extract_content_text(message.get("content")) for message in systems)


def _extract_content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(
        part["text"] if "text" in part else _extract_content_text(part.get("content")) for part in parts
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m shoal.testing.servers", description="A mock model provider on loopback."
    )
    parser.add_argument("--api", choices=tuple(_FORMS), default="messages")
    parser.add_argument("--script", type=Path, required=True, metavar="FILE")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--model", action="append", dest="models", metavar="NAME", help="a model name that it offers"
    )
    parser.add_argument(
        "--lenient", action="store_true", help="also answer requests that a real provider would reject"
    )
    parser.add_argument("--with-parent", action="store_true", help="exit when standard input (a pipe) closes")
    options = parser.parse_args(argv)
    try:
        steps = read_model_script(options.script, MockServerScriptStep)
    except SettingsError as error:
        parser.error(str(error))
    server = MockServer(
        _FORMS[options.api](),
        build_script_responder(steps),
        models=options.models or ["mock"],
        strict=not options.lenient,
        keep_requests=False,
    )
    asyncio.run(_run_server_until_signal(server, port=options.port, with_parent=options.with_parent))


async def _run_server_until_signal(server: MockServer, *, port: int, with_parent: bool) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), end.set)
    await server.start(port=port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await end.wait()
    await server.stop()
    for error in server.responder_errors:
        sys.stderr.write(f"{error}\n")
    report = {
        "requests": server.request_count,
        "answered": server.replies_sent,
        "reported": server.reported_usage,
        "unsettled": server.unsettled_usage,
    }
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
