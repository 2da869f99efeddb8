"""Maps provider failures to model errors: HTTP statuses, error bodies of any shape, stream events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from msgspec import Struct

from shoal.core.errors import (
    BadReply,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    RateLimited,
    ServerFault,
    Transient,
    Unauthorized,
    UnknownModel,
)
from shoal.core.secrets import SHAPES_ALONE
from shoal.models.catalogue import similar
from shoal.models.http1 import Head
from shoal.models.json_text import decoded

_SAID_LIMIT = 400
# Strings, not compiled patterns: most runs never see an error.
_TOO_LONG = (
    r"(?i)context.?length|context.?window|context.?size|prompt is too long|maximum context|too many tokens"
    r"|exceed\w* (?:the )?(?:context|max\w* (?:input|prompt|number of tokens))|request_too_large"
)
_NO_SUCH_MODEL = (
    r"(?is)model_not_found|not a valid model|(?:unknown|no such|invalid) model|not_found_error.*model:"
    r"|(?:model|deployment)\b.{0,80}?(?:not found|not exist|is unknown)"
)
_NO_MONEY = r"(?i)insufficient_quota|credit balance is too low|insufficient (?:balance|credits)"
_TRANSIENT_TYPES: Mapping[str, type[Transient]] = {
    "overloaded": Overloaded,
    "unavailable": Overloaded,
    "rate_limit": RateLimited,
    "timeout": ServerFault,
    "server_error": ServerFault,
    "api_error": ServerFault,
    "internal": ServerFault,
}


SENSELESS = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""Exceptions raised when parsing data of an unexpected shape."""


class Asked(Struct, frozen=True, kw_only=True):
    """Provider, model and address of a request, for error messages."""

    provider: str
    model: str
    url: str
    key_variable: str = ""
    """Variable that holds the key; empty if no key is needed."""

    def fault(self, kind: type[ModelError], why: str, *, status: int | None = None) -> ModelError:
        return kind(why, provider=self.provider, model=self.model, status=status)

    def senseless(self, what: str, error: Exception) -> ModelError:
        """Return the error for data that does not follow the protocol."""
        return self.fault(BadReply, f"{self.provider} sent {what} ({error!r})")


def refusal(asked: Asked, head: Head, body: bytes, *, now_ms: int) -> ModelError:
    """Return the error for a response that is not an answer."""
    code, said = said_in(body)
    return _error(asked, head.status, code, said, retry_after=retry_after(head.headers, now_ms=now_ms))


def stream_error(asked: Asked, error: Any) -> ModelError:
    """Return the error for an error event in a stream that had started."""
    code, said = _from_json({"error": error})
    status = _status_in(error)
    if status is not None and status >= 400:
        return _begun(_error(asked, status, code, said, retry_after=None))
    for words in (code.lower(), said.lower()):
        for mark, kind in _TRANSIENT_TYPES.items():
            if mark in words:
                return _begun(_transient(kind, asked, None, said or code, retry_after=None))
    return _error(asked, 400, code, said, retry_after=None)


def _begun(error: ModelError) -> ModelError:
    """Mark the error as billed: an answer that started may be charged, although it did not end."""
    if isinstance(error, Transient):
        error.billed = True
    return error


def _status_in(error: Any) -> int | None:
    if not isinstance(error, Mapping):
        return None
    for key in ("code", "status", "http_code"):
        value = error.get(key)
        if isinstance(value, int):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def _error(asked: Asked, status: int, code: str, said: str, *, retry_after: float | None) -> ModelError:
    final = _final_kind(status, f"{code} {said}")
    passing = _transient_kind(status)
    if final is None and passing is not None:
        return _transient(passing, asked, status, said, retry_after=retry_after)
    kind = final or BadRequest
    return asked.fault(kind, _final_words(kind, asked, status, said), status=status)


def _final_kind(status: int, known: str) -> type[ModelError] | None:
    """Return the error type if a retry would not help, even if the status suggests a transient failure."""
    if status in (401, 403):
        return Unauthorized
    if status == 402 or re.search(_NO_MONEY, known):
        return BadRequest
    if status == 413 or (status in (400, 422, 500) and re.search(_TOO_LONG, known)):
        return ContextTooLong
    if status == 404 or (status in (400, 422) and re.search(_NO_SUCH_MODEL, known)):
        return UnknownModel
    return None


def _final_words(kind: type[ModelError], asked: Asked, status: int, said: str) -> str:
    where = f"{asked.provider} ({asked.url})"
    end = "" if said.endswith((".", "!", "?", "…")) else "."
    words = f"(status {status}){f': {said}' if said else ''}{end}"
    if kind is Unauthorized:
        way = f"Check {asked.key_variable}." if asked.key_variable else "Check the key for this address."
        return f"{where} did not accept the key {words} {way}"
    if kind is UnknownModel:
        close = similar(asked.model)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        check = " Check the model's name and the base URL."
        return f"{asked.provider} has no model {asked.model!r} at {asked.url} {words}{meant}{check}"
    if kind is ContextTooLong:
        return f"The conversation no longer fits {asked.model} {words}"
    if 300 <= status < 400:
        return f"{where} sends requests elsewhere {words} Set the base URL to the address itself."
    return f"{where} refused the request {words}"


def _transient_kind(status: int) -> type[Transient] | None:
    if status == 429:
        return RateLimited
    if status in (503, 529):
        return Overloaded
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        return ServerFault
    return None


def _transient(
    kind: type[Transient], asked: Asked, status: int | None, said: str, *, retry_after: float | None
) -> Transient:
    what = {RateLimited: "limits the rate", Overloaded: "is overloaded"}.get(kind, "has a fault")
    number = f" (status {status})" if status is not None else ""
    return kind(
        f"{asked.provider} {what}{number}{f': {said}' if said else '.'}",
        provider=asked.provider,
        model=asked.model,
        status=status,
        retry_after=retry_after,
    )


def not_a_stream(asked: Asked, head: Head, body: bytes) -> ModelError:
    """Return the error for a response with status 200 that is not a stream."""
    kind = head.headers.get("content-type", "no content type")
    code, said = said_in(body)
    if code or kind.startswith("application/json"):
        try:
            parsed = decoded(body)
        except ValueError:
            parsed = None
        if isinstance(parsed, Mapping) and "error" in parsed:
            return stream_error(asked, parsed["error"])
    return asked.fault(
        BadReply,
        f"{asked.provider} ({asked.url}) answered with {kind} instead of a stream: {said or 'nothing'}. "
        "Check the base URL, and whether a proxy answers in its place.",
        status=head.status,
    )


def retry_after(headers: Mapping[str, str], *, now_ms: int) -> float | None:
    """Return the seconds to wait, from `Retry-After` as seconds or as a date."""
    millis = headers.get("retry-after-ms")
    value = headers.get("retry-after")
    try:
        if millis is not None:
            return _seconds(float(millis) / 1000)
        if value is None:
            return None
        return _seconds(float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return _seconds(parsedate_to_datetime(value or "").timestamp() - now_ms / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):  # the date parser has no error type of its own
        return None


def _seconds(told: float) -> float | None:
    """Return None for infinite or NaN values, which would block retries forever."""
    return max(0.0, told) if isfinite(told) else None


def said_in(body: bytes) -> tuple[str, str]:
    """Return an error's code and message, from JSON of any shape, an HTML page or plain text."""
    try:
        return _from_json(decoded(body))
    except ValueError:
        text = body.decode("utf-8", "replace")
    if "<" in text[:200]:
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text, re.IGNORECASE | re.DOTALL)
        text = title.group(2) if title else re.sub(r"<[^>]*>", " ", text)
        return "", _shortened(f"a web page that says {' '.join(text.split())!r}")
    return "", _shortened(text)


def _from_json(value: Any) -> tuple[str, str]:
    code = ""
    for _ in range(6):  # errors may be nested in errors, but not endlessly
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, Mapping):
            code = _code_in(value) or code
            inner = next((value[k] for k in ("error", "detail", "message", "msg") if value.get(k)), None)
            if inner is None:
                return code, ""
            value = inner
        else:
            break
    return code, "" if value is None else _shortened(str(value))


def _code_in(error: Mapping[str, Any]) -> str:
    parts = (error.get(key) for key in ("type", "code"))
    return " ".join(part for part in parts if isinstance(part, str) and part != "error")


def _shortened(text: str) -> str:
    # Providers repeat the key they rejected.
    text = SHAPES_ALONE.redacted(" ".join(text.split()))
    return text if len(text) <= _SAID_LIMIT else f"{text[:_SAID_LIMIT]}…"
