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
    QuotaExceeded,
    RateLimited,
    ServerFault,
    TransientModelError,
    Unauthorized,
    UnknownModel,
)
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.models.catalogue import suggest_similar_model_names
from shoal.models.http_parser import HttpResponseHead
from shoal.models.provider_json import decode_json

_MAX_MESSAGE_CHARACTERS = 400
# Strings, not compiled patterns: most runs never see an error.
_CONTEXT_TOO_LONG = (
    r"(?i)context.?length|context.?window|context.?size|prompt is too long|maximum context|too many tokens"
    r"|exceed\w* (?:the )?(?:context|max\w* (?:input|prompt|number of tokens))|request_too_large"
)
_NO_SUCH_MODEL = (
    r"(?is)model_not_found|not a valid model|(?:unknown|no such|invalid) model|not_found_error.*model:"
    r"|(?:model|deployment)\b.{0,80}?(?:not found|not exist|is unknown)"
)
_NO_CREDIT = r"(?i)insufficient_quota|credit balance is too low|insufficient (?:balance|credits)"
_TRANSIENT_TYPES: Mapping[str, type[TransientModelError]] = {
    "overloaded": Overloaded,
    "unavailable": Overloaded,
    "rate_limit": RateLimited,
    "timeout": ServerFault,
    "server_error": ServerFault,
    "api_error": ServerFault,
    "internal": ServerFault,
}


PARSE_ERRORS = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""Exceptions raised when parsing data of an unexpected shape."""


class ModelRequestTarget(Struct, frozen=True, kw_only=True):
    """Provider, model and address of a request, for error messages."""

    provider: str
    model: str
    url: str
    key_variable: str = ""
    """Variable that holds the key; empty if no key is needed."""

    def build_error(self, kind: type[ModelError], why: str, *, status: int | None = None) -> ModelError:
        return kind(why, provider=self.provider, model=self.model, status=status)

    def build_parse_error(self, what: str, error: Exception) -> ModelError:
        """Return the error for data that does not follow the protocol."""
        return self.build_error(BadReply, f"{self.provider} sent {what} ({error!r})")


def build_model_response_error(
    target: ModelRequestTarget, head: HttpResponseHead, body: bytes, *, now_ms: int
) -> ModelError:
    """Return the error for a response that is not an answer."""
    code, message = parse_error_body(body)
    return _build_http_status_error(
        target, head.status, code, message, retry_after=parse_retry_after(head.headers, now_ms=now_ms)
    )


def build_stream_event_error(target: ModelRequestTarget, error: Any) -> ModelError:
    """Return the error for an error event in a stream that had started."""
    code, message = _extract_error_code_and_message({"error": error})
    status = _find_http_status(error)
    if status is not None and status >= 400:
        return _mark_error_billed(_build_http_status_error(target, status, code, message, retry_after=None))
    for text in (code.lower(), message.lower()):
        for marker, kind in _TRANSIENT_TYPES.items():
            if marker in text:
                return _mark_error_billed(
                    _build_transient_error(kind, target, None, message or code, retry_after=None)
                )
    return _build_http_status_error(target, 400, code, message, retry_after=None)


def _mark_error_billed(error: ModelError) -> ModelError:
    """Mark the error as billed: an answer that started may be charged, although it did not end."""
    if isinstance(error, TransientModelError):
        error.billed = True
    return error


def _find_http_status(error: Any) -> int | None:
    if not isinstance(error, Mapping):
        return None
    for key in ("code", "status", "http_code"):
        value = error.get(key)
        if isinstance(value, int):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def _build_http_status_error(
    target: ModelRequestTarget, status: int, code: str, message: str, *, retry_after: float | None
) -> ModelError:
    permanent_type = _select_permanent_error_type(status, f"{code} {message}")
    transient_type = _select_transient_error_type(status)
    if permanent_type is None and transient_type is not None:
        return _build_transient_error(transient_type, target, status, message, retry_after=retry_after)
    kind = permanent_type or BadRequest
    return target.build_error(kind, _format_permanent_error(kind, target, status, message), status=status)


def _select_permanent_error_type(status: int, text: str) -> type[ModelError] | None:
    """Return the error type if a retry would not help, even if the status suggests a transient failure."""
    if status in (401, 403):
        return Unauthorized
    if status == 402 or re.search(_NO_CREDIT, text):
        return QuotaExceeded
    if status == 413 or (status in (400, 422, 500) and re.search(_CONTEXT_TOO_LONG, text)):
        return ContextTooLong
    if status == 404 or (status in (400, 422) and re.search(_NO_SUCH_MODEL, text)):
        return UnknownModel
    return None


def _format_permanent_error(
    kind: type[ModelError], target: ModelRequestTarget, status: int, message: str
) -> str:
    server = f"{target.provider} ({target.url})"
    end = "" if message.endswith((".", "!", "?", "…")) else "."
    details = f"(status {status}){f': {message}' if message else ''}{end}"
    if kind is Unauthorized:
        advice = f"Check {target.key_variable}." if target.key_variable else "Check the key for this URL."
        return f"{server} did not accept the key {details} {advice}"
    if kind is UnknownModel:
        close = suggest_similar_model_names(target.model)
        suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
        check = " Check the model's name and the base URL."
        return f"{target.provider} has no model {target.model!r} at {target.url} {details}{suggestion}{check}"
    if kind is ContextTooLong:
        return f"The conversation no longer fits the context window of {target.model} {details}"
    if 300 <= status < 400:
        return f"{server} redirects requests {details} Set the base URL to the final URL."
    return f"{server} refused the request {details}"


def _select_transient_error_type(status: int) -> type[TransientModelError] | None:
    if status == 429:
        return RateLimited
    if status in (503, 529):
        return Overloaded
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        return ServerFault
    return None


def _build_transient_error(
    kind: type[TransientModelError],
    target: ModelRequestTarget,
    status: int | None,
    message: str,
    *,
    retry_after: float | None,
) -> TransientModelError:
    what = {RateLimited: "reached its rate limit", Overloaded: "is overloaded"}.get(
        kind, "had an internal error"
    )
    status_text = f" (status {status})" if status is not None else ""
    return kind(
        f"{target.provider} {what}{status_text}{f': {message}' if message else '.'}",
        provider=target.provider,
        model=target.model,
        status=status,
        retry_after=retry_after,
    )


def build_non_stream_error(target: ModelRequestTarget, head: HttpResponseHead, body: bytes) -> ModelError:
    """Return the error for a response with status 200 that is not a stream."""
    content_type = head.headers.get("content-type", "no content type")
    code, message = parse_error_body(body)
    if code or content_type.startswith("application/json"):
        try:
            parsed = decode_json(body)
        except ValueError:
            parsed = None
        if isinstance(parsed, Mapping) and "error" in parsed:
            return build_stream_event_error(target, parsed["error"])
    return target.build_error(
        BadReply,
        f"{target.provider} ({target.url}) answered with {content_type} instead of a stream: "
        f"{message or 'nothing'}. Check the base URL, and whether a proxy is answering instead.",
        status=head.status,
    )


def parse_retry_after(headers: Mapping[str, str], *, now_ms: int) -> float | None:
    """Return the seconds to wait, from `Retry-After` as seconds or as a date."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return _clamp_retry_seconds(float(milliseconds) / 1000)
        if value is None:
            return None
        return _clamp_retry_seconds(float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return _clamp_retry_seconds(parsedate_to_datetime(value or "").timestamp() - now_ms / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):  # the date parser has no error type of its own
        return None


def _clamp_retry_seconds(seconds: float) -> float | None:
    """Return None for infinite or NaN values, which would block retries forever."""
    return max(0.0, seconds) if isfinite(seconds) else None


def parse_error_body(body: bytes) -> tuple[str, str]:
    """Return an error's code and message, from JSON of any shape, an HTML page or plain text."""
    try:
        return _extract_error_code_and_message(decode_json(body))
    except ValueError:
        text = body.decode("utf-8", "replace")
    if "<" in text[:200]:
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text, re.IGNORECASE | re.DOTALL)
        text = title.group(2) if title else re.sub(r"<[^>]*>", " ", text)
        return "", _redact_and_shorten_error_message(f"a web page with the text {' '.join(text.split())!r}")
    return "", _redact_and_shorten_error_message(text)


def _extract_error_code_and_message(value: Any) -> tuple[str, str]:
    code = ""
    for _ in range(6):  # errors may be nested in errors, but not endlessly
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, Mapping):
            code = _find_error_code(value) or code
            inner = next((value[k] for k in ("error", "detail", "message", "msg") if value.get(k)), None)
            if inner is None:
                return code, ""
            value = inner
        else:
            break
    return code, "" if value is None else _redact_and_shorten_error_message(str(value))


def _find_error_code(error: Mapping[str, Any]) -> str:
    parts = (error.get(key) for key in ("type", "code"))
    return " ".join(part for part in parts if isinstance(part, str) and part != "error")


def _redact_and_shorten_error_message(text: str) -> str:
    # Providers repeat the key they rejected.
    text = KEY_SHAPE_REDACTOR.redact_text(" ".join(text.split()))
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}…"
