"""Message bodies ⇄ the JSON text of a message."""

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
    """The body; None for plain text, and text that only looks like a body is plain."""
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
    """The body to obey. None for a plain message (those have a summary) or a sender not entitled."""
    body = read_body(mail.text) if mail.summary is None else None
    return body if body is not None and entitled(mail.sender, body) else None


def _with_known_updates(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the updates of permissions we do not know: to leave one out grants less, never more."""
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
