"""JSON requests and replies: bounded bodies, and an error message for every refusal."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shoal.core.errors import InvalidName, SessionNotFound, ShoalError
from shoal.wire.json_codec import encode_json

MOST_BYTES = 1 << 20
"""Maximum number of bytes that a client may send."""

_Value = TypeVar("_Value")


class WebApiRequestRefusedError(Exception):
    """A request that is refused; `status` is the HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def build_json_reply(value: object, status: int = 200) -> Response:
    return Response(encode_json(value), status, {"Cache-Control": "no-store"}, "application/json")


def reply_to_refusal(_: Request, error: Exception) -> Response:
    """Reply to an exception that was raised on purpose."""
    return build_json_reply({"error": str(error)}, _get_error_status_code(error))


def reply_to_server_error(_: Request, error: Exception) -> Response:
    return build_json_reply({"error": f"The server failed: {type(error).__name__}: {error}"}, 500)


def _get_error_status_code(error: Exception) -> int:
    match error:
        case WebApiRequestRefusedError(status=status):
            return status
        case SessionNotFound():
            return 404
        case InvalidName():
            return 400
        case ShoalError():
            return 409
        case _:
            return getattr(error, "status_code", 500)


async def decode_request_body(request: Request, kind: type[_Value]) -> _Value:
    """Decode the request's JSON as that type."""
    try:
        return msgspec.json.decode(await read_bounded_request_body(request), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebApiRequestRefusedError(400, f"Cannot parse the request: {error}.") from error


async def read_bounded_request_body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise WebApiRequestRefusedError(413, f"The request is longer than {MOST_BYTES:,} bytes.")
        parts.append(part)
    return b"".join(parts)


def get_bounded_query_number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """Return a number from the query, within its bounds."""
    raw_value = request.query_params.get(name)
    if not raw_value:
        return default
    try:
        return max(least, min(most, int(raw_value)))
    except ValueError:
        raise WebApiRequestRefusedError(400, f"{name} must be an integer.") from None


def get_path_param(request: Request, name: str) -> Any:
    """Return a parameter of the path."""
    return request.path_params[name]
