"""Codec between mail bodies and the JSON text of a mail message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.bodies import Body, PermissionUpdate, entitled
from shoal.core.mail import Mail
from shoal.wire.content import dump
from shoal.wire.foreign import converted, value_of


def body_text(body: Body) -> str:
    return dump(body).decode()


def read_body(text: str) -> Body | None:
    """Parse the body; return None for plain text, including text that only looks like a body."""
    if not text.lstrip().startswith("{"):
        return None
    value = value_of(text.encode(errors="surrogatepass"))
    if not isinstance(value, Mapping):
        return None
    try:
        body: Body = converted(_with_known_updates(value), Body)  # type: ignore[arg-type]
    except msgspec.ValidationError:
        return None
    return body


def body_of(mail: Mail) -> Body | None:
    """Return the body to obey; None for plain messages (which have a summary) and unauthorized senders."""
    body = read_body(mail.text) if mail.summary is None else None
    return body if body is not None and entitled(mail.sender, body) else None


def _with_known_updates(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop unknown permission updates: dropping one grants less, never more."""
    if value.get("type") == "permission_request" and "permission_suggestions" in value:
        return {**value, "permission_suggestions": _known(value["permission_suggestions"])}
    response = value.get("response")
    if isinstance(response, Mapping) and "permission_updates" in response:
        updates = _known(response["permission_updates"])
        return {**value, "response": {**response, "permission_updates": updates}}
    return value


def _known(updates: Any) -> Any:
    return [each for each in updates if _is_known(each)] if isinstance(updates, list) else updates


def _is_known(update: Any) -> bool:
    try:
        converted(update, PermissionUpdate)  # type: ignore[arg-type]
    except msgspec.ValidationError:
        return False
    return True
