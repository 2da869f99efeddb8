"""Rows for every setting with its value and origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.settings.claude_keys import CLAUDE_KEYS, find_claude_key, iter_keys_below
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_trust import PermissionEscalation, TrustState
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.wire.settings_codec import has_settings_key, merge_settings_documents

_SECRET = compile_on_first_use(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_NUMBERS = frozenset(
    {"CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"}
    | {"MAX_MCP_OUTPUT_TOKENS", "MAX_THINKING_TOKENS"}
)
"""Variables that contain a number, although their names look like those of secrets."""
HIDDEN_VALUE = "(hidden)"
_SECTION_KEYS = ("env", "permissions", "sandbox")
"""Keys that have one row per part."""
_JOINED_KEYS = frozenset(
    {
        "hooks",
        "claudeMdExcludes",
        "deniedMcpServers",
        "disabledMcpjsonServers",
        "disabledMcpServers",
        "enabledMcpjsonServers",
        "sandbox.filesystem.allowRead",
        "sandbox.filesystem.allowWrite",
        "sandbox.filesystem.denyRead",
        "sandbox.filesystem.denyWrite",
        "sandbox.credentials.envVars",
        "sandbox.credentials.files",
    }
)
"""Keys whose values in all files apply together."""


class SettingRow(Struct, frozen=True, kw_only=True):
    key: str
    value: Any
    origin: str


class EffectiveSettingRow(SettingRow, frozen=True, kw_only=True):
    is_used: bool = True
    """False for a key in a file that has no effect."""


class EscalationTrustRow(SettingRow, frozen=True, kw_only=True):
    trust: TrustState


def is_secret_variable_name(name: str) -> bool:
    """Return True for names of variables or headers that may contain a secret; errs on the side of hiding."""
    return name not in _NUMBERS and _SECRET.search(name) is not None


def list_setting_rows(settings: Settings) -> Iterator[EffectiveSettingRow]:
    """Yield the settings, then the other keys of the files; secrets are hidden."""
    rows = tuple(_iter_fixed_rows(settings))
    yield from rows
    listed = {row.key for row in rows}
    merged = dict(_iter_keys_of_files(merge_settings_documents(settings.documents)))
    used = (key.name for key in CLAUDE_KEYS if key.use == "used" and key.name not in _SECTION_KEYS)
    for key in dict.fromkeys((*used, *merged)):
        if key not in listed:
            value, origin = merged.get(key), settings.find_setting_origin(key)
            if key in _JOINED_KEYS:
                value, origin = _join_values(settings, key) or (value, origin)
            value = _hide_secrets(value, key.rpartition(".")[2])
            is_used = find_claude_key(key).use == "used"
            yield EffectiveSettingRow(key=key, value=value, origin=origin, is_used=is_used)


def _join_values(settings: Settings, key: str) -> tuple[Any, str] | None:
    """Return the joined lists of all files, or hooks by event, and their origins; None if one file has it."""
    names = key.split(".")
    documents = [each for each in settings.documents if has_settings_key(each, names)]
    if len(documents) < 2:
        return None
    values: list[Any] = []
    for document in documents:
        values.append(document.raw)
        for name in names:
            values[-1] = values[-1][name]
    joined: Any = None
    if all(isinstance(each, list) for each in values):
        joined = [entry for number, value in enumerate(values) for entry in value
                  if all(entry not in earlier for earlier in values[:number])]  # fmt: skip
    elif all(isinstance(each, dict) for each in values):
        events = dict.fromkeys(event for value in values for event in value)
        joined = {event: [hook for value in values for hook in value.get(event) or ()] for event in events}
    origins = ", ".join(document.locate_key(names) for document in documents)
    return None if joined is None else (joined, origins)


def _iter_keys_of_files(raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        # Listed part by part above.
        if name not in ("env", "shoal", "$schema"):
            yield from iter_keys_below(name, value)


def _iter_fixed_rows(settings: Settings) -> Iterator[EffectiveSettingRow]:
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
    if isinstance(value, list):
        return [_hide_secrets(each, name) for each in value]
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
