"""Rows for every setting with its value and origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_trust import PermissionEscalation, TrustState
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.wire.settings_codec import has_settings_key

_SECRET = compile_on_first_use(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
HIDDEN_VALUE = "(hidden)"


class EffectiveSettingRow(Struct, frozen=True, kw_only=True):
    key: str
    value: Any
    origin: str


class EscalationTrustRow(EffectiveSettingRow, frozen=True, kw_only=True):
    trust: TrustState


def is_secret_variable_name(name: str) -> bool:
    """Return True for names of variables or headers that may contain a secret; errs on the side of hiding."""
    return _SECRET.search(name) is not None


def list_setting_rows(settings: Settings) -> Iterator[EffectiveSettingRow]:
    """Yield the settings in a fixed order; keys and tokens are not shown."""
    yield _make_setting_row(settings, "home", str(settings.home))
    yield _make_setting_row(settings, "model", settings.models.main)
    yield _make_setting_row(settings, "cleanupPeriodDays", settings.cleanup_period_days)
    rules = msgspec.to_builtins(settings.permissions.entries)
    for key, value in rules.items():
        yield _make_setting_row(settings, f"permissions.{key}", value)
    for name, value in settings.env.items():
        yield _make_setting_row(
            settings, f"env.{name}", HIDDEN_VALUE if is_secret_variable_name(name) else value
        )
    for key, value in msgspec.to_builtins(settings.own).items():
        yield _make_setting_row(settings, f"shoal.{key}", value)
    for name in settings.access.__struct_fields__:
        if getattr(settings.access, name) is not None:
            yield _make_setting_row(
                settings,
                name,
                HIDDEN_VALUE if is_secret_variable_name(name) else getattr(settings.access, name),
            )


def list_user_setting_rows(settings: Settings) -> Iterator[EffectiveSettingRow]:
    """Yield the settings in the user's own file, used or not."""
    for document in settings.documents:
        if document.path == settings.home / "settings.json":
            for name, value in document.raw.items():
                is_section = isinstance(value, dict) and name in ("env", "permissions", "shoal")
                values = (
                    {(name, key): each for key, each in value.items()} if is_section else {(name,): value}
                )
                for keys, each in values.items():
                    yield EffectiveSettingRow(
                        key=".".join(keys),
                        value=_hide_secrets(each, keys[-1]),
                        origin=document.locate_key(keys),
                    )


def list_setting_keys(settings: Settings) -> tuple[str, ...]:
    """Return the keys of all settings, set or not."""
    names = (row.key for row in list_setting_rows(settings))
    return tuple(dict.fromkeys((*names, *(key.name for key in CLAUDE_KEYS))))


def find_setting_value(settings: Settings, key: str, *, user_only: bool = False) -> Any:
    """Return the effective value of a key, or the one in the user's file; None if it is not set."""
    row = None if user_only else next((row for row in list_setting_rows(settings) if row.key == key), None)
    if row is not None:
        return row.value
    names = key.split(".")
    for document in settings.documents:
        if has_settings_key(document, names) and (document.kind == "user" or not user_only):
            value: Any = document.raw
            for name in names:
                value = value[name]
            return _hide_secrets(value, names[-1])
    return None


def _hide_secrets(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _hide_secrets(each, key) for key, each in value.items()}
    return HIDDEN_VALUE if isinstance(value, str) and is_secret_variable_name(name) else value


def list_escalation_trust_rows(escalations: Sequence[PermissionEscalation]) -> Iterator[EscalationTrustRow]:
    """Yield the project settings that need the user's trust, with their trust state."""
    for escalation in escalations:
        is_hidden = escalation.keys[0] == "env" and is_secret_variable_name(escalation.keys[-1])
        value = HIDDEN_VALUE if is_hidden else escalation.value
        yield EscalationTrustRow(
            key=escalation.key, value=value, origin=escalation.location, trust=escalation.trust
        )


def _make_setting_row(settings: Settings, key: str, value: Any) -> EffectiveSettingRow:
    return EffectiveSettingRow(key=key, value=value, origin=settings.find_setting_origin(key))
