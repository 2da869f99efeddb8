"""Codec between mail bodies and the JSON text of a mail message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import MailBody, PermissionUpdate, can_send_mail_body
from shoal.wire.foreign_json import convert_to_schema, parse_foreign_json
from shoal.wire.json_codec import encode_json


def encode_mail_body(body: MailBody) -> str:
    return encode_json(body).decode()


def parse_mail_body(text: str) -> MailBody | None:
    """Parse the body; return None for plain text, including text that only looks like a body."""
    if not text.lstrip().startswith("{"):
        return None
    value = parse_foreign_json(text.encode(errors="surrogatepass"))
    if not isinstance(value, Mapping):
        return None
    try:
        body: MailBody = convert_to_schema(_drop_unknown_permission_updates(value), MailBody)  # type: ignore[arg-type]
    except msgspec.ValidationError:
        return None
    return body


def get_authorized_mail_body(mail: MailMessage) -> MailBody | None:
    """Return the body to obey; None for plain messages (which have a summary) and unauthorized senders."""
    body = parse_mail_body(mail.text) if mail.summary is None else None
    return body if body is not None and can_send_mail_body(mail.sender, body) else None


def _drop_unknown_permission_updates(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop unknown permission updates: dropping one grants less, never more."""
    if value.get("type") == "permission_request" and "permission_suggestions" in value:
        return {
            **value,
            "permission_suggestions": _filter_known_permission_updates(value["permission_suggestions"]),
        }
    response = value.get("response")
    if isinstance(response, Mapping) and "permission_updates" in response:
        updates = _filter_known_permission_updates(response["permission_updates"])
        return {**value, "response": {**response, "permission_updates": updates}}
    return value


def _filter_known_permission_updates(updates: Any) -> Any:
    return (
        [each for each in updates if _is_known_permission_update(each)]
        if isinstance(updates, list)
        else updates
    )


def _is_known_permission_update(update: Any) -> bool:
    try:
        convert_to_schema(update, PermissionUpdate)  # type: ignore[arg-type]
    except msgspec.ValidationError:
        return False
    return True
