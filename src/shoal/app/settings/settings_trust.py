"""Trust in the parts of project settings that extend permissions; untrusted parts are ignored."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.project_directories import iter_project_directories
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.policy.mode_inheritance import is_wider_permission_mode
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import (
    AgentLimitSettings,
    SettingsDocument,
    SettingsSchema,
    ShoalSettings,
    convert_to_settings_schema,
    merge_settings_documents,
)
from shoal.wire.trust_codec import TrustDecision
from shoal.workspaces.git_index import list_tracked_paths

if TYPE_CHECKING:
    from shoal.app.settings.settings import Settings

TrustState: TypeAlias = Literal["trusted", "refused", "unasked"]
_FILE_NAMES = {"local": "settings.local.json", "project": "settings.json", "mcp": ".mcp.json"}
_APPROVERS = ("user", "lead", "auto")
"""Ordered: each approves more plans than the one before."""
_UNSIGNED_MAIL_TRUST = ("never", "ask", "always")
"""Ordered: each accepts more mail than the one before."""
_FILE_MODEL_PREFIXES = ("scripted:", "replay:")
"""Models that are files: the author of the project would control the lead."""
_LIMITS = (
    "max_turns",
    "max_budget_usd",
    "max_total_tokens",
    "max_requests",
    "max_seconds",
    "max_agents",
    "max_concurrent",
    "max_depth",
)
_LIMITS_THAT_NULL_TURNS_OFF = ("fan_out_preview", "max_repeated_calls", "max_unproductive_messages")


def find_limits_raised_by_project(own: ShoalSettings, person: ShoalSettings) -> Iterator[str]:
    """Yield the settings that raise a limit; a limit raises nothing if the user has none."""
    for key in _LIMITS:
        if _is_higher_limit(getattr(own, key), getattr(person, key)):
            yield key
    for key in _LIMITS_THAT_NULL_TURNS_OFF:
        if _is_higher_or_off(getattr(own, key), getattr(person, key)):
            yield key
    if _has_any_higher_agent_limit(own.agent_limits, person.agent_limits):
        yield "agent_limits"
    user_limits = person.agent_type_limits
    if any(
        _has_any_higher_agent_limit(limits, user_limits[kind])
        for kind, limits in own.agent_type_limits.items()
        if kind in user_limits
    ):
        yield "agent_type_limits"


def _is_higher_limit(project_limit: float | None, user_limit: float | None) -> bool:
    """Return True if their limit is higher. None means not set for theirs, and no limit for mine."""
    return project_limit is not None and user_limit is not None and project_limit > user_limit


def _has_any_higher_agent_limit(project_limits: AgentLimitSettings, user_limits: AgentLimitSettings) -> bool:
    return any(
        _is_higher_limit(getattr(project_limits, key), getattr(user_limits, key))
        for key in user_limits.__struct_fields__
    )


def _is_higher_or_off(project_limit: int | None, user_limit: int | None) -> bool:
    """Return True if the user is asked later or never; here None means never."""
    return user_limit is not None and (project_limit is None or project_limit > user_limit)


class PermissionEscalation(Struct, frozen=True, kw_only=True):
    """Setting in a project file that allows agents more than the user's own settings."""

    document: SettingsDocument
    keys: tuple[str, ...]
    value: Any
    trust: TrustState

    @property
    def key(self) -> str:
        return ".".join(self.keys)

    @property
    def location(self) -> str:
        return self.document.locate_key(self.keys)


class TrustFilteredSettingsDocuments(Struct, frozen=True, kw_only=True):
    """Settings files after the trust check."""

    documents: tuple[SettingsDocument, ...]
    """Documents without their untrusted parts."""
    escalations: tuple[PermissionEscalation, ...]
    """Everything in the project's files that needs trust, trusted or not."""
    warnings: tuple[str, ...]


def remove_untrusted_settings(
    documents: Sequence[SettingsDocument], home: Path, project: Path, *, is_trusted_in_claude_code: bool
) -> TrustFilteredSettingsDocuments:
    approving = [
        each
        for each in documents
        if can_approve_servers(each, is_trusted_in_claude_code=is_trusted_in_claude_code)
    ]
    user_settings = merge_user_controlled_documents(documents)
    trust_file = ProjectTrustFile(home)
    effective: list[SettingsDocument] = []
    escalations: list[PermissionEscalation] = []
    warnings: dict[str, None] = {}
    for document in documents:
        parts = () if document.is_user_controlled else find_escalating_settings(document, user_settings)
        parts = tuple(
            part for part in parts if not _is_approved_by_user(document, part[0], documents, approving)
        )
        if not parts:
            effective.append(document)
            continue
        try:
            trust = read_document_trust(trust_file, project, document, parts)
        except StateFileError as error:
            trust = "unasked"
            warnings[f"Shoal trusts no project settings because it cannot read the stored trust: {error}"] = (
                None
            )
        escalations += (
            PermissionEscalation(document=document, keys=keys, value=value, trust=trust)
            for keys, value in parts
        )
        effective.append(
            document if trust == "trusted" else _remove_document_keys(document, [keys for keys, _ in parts])
        )
    untrusted = [each for each in escalations if each.trust != "trusted"]
    return TrustFilteredSettingsDocuments(
        documents=tuple(effective),
        escalations=tuple(escalations),
        warnings=(*warnings, *([_format_untrusted_warning(untrusted)] if untrusted else ())),
    )


def can_approve_servers(document: SettingsDocument, *, is_trusted_in_claude_code: bool) -> bool:
    """Return True if the user wrote the approvals of servers in a file.

    Claude Code stores them in the local file. It is the user's own if Claude Code's state says that the user
    trusted the project, and if git does not track it: otherwise it may be part of the project.
    """
    if document.kind != "local" or document.path is None:
        return document.is_user_controlled
    is_link = os.path.realpath(document.path) != str(document.path.absolute())
    return is_trusted_in_claude_code and not is_link and not list_tracked_paths([document.path])


def _is_approved_by_user(
    document: SettingsDocument,
    keys: Sequence[str],
    documents: Sequence[SettingsDocument],
    approving: Sequence[SettingsDocument],
) -> bool:
    """Return True if the user's own files approve a server of `.mcp.json`, or enable the same plug-in."""
    name = keys[-1]
    if keys[0] == "enabledPlugins":
        own = [each.raw for each in documents if each.is_user_controlled]
        return any((raw.get("enabledPlugins") or {}).get(name) for raw in own)
    if document.kind != "mcp":
        return False
    return any(
        raw.get("enableAllProjectMcpServers") is True or name in (raw.get("enabledMcpjsonServers") or ())
        for raw in (each.raw for each in approving)
    )


def merge_user_controlled_documents(documents: Sequence[SettingsDocument]) -> SettingsSchema:
    return convert_to_settings_schema(
        merge_settings_documents([document for document in documents if document.is_user_controlled])
    )


_TrustKey: TypeAlias = tuple[Path, str]
_EscalatingParts: TypeAlias = tuple[tuple[tuple[str, ...], Any], ...]


def find_escalating_settings(document: SettingsDocument, user: SettingsSchema) -> _EscalatingParts:
    """Return key path and value of each setting in a project file that allows more than the user's settings.

    Settings that a project can never set (skipping permissions, loosening the sandbox, provider addresses)
    are not included.
    """
    settings, raw = convert_to_settings_schema(document.raw), document.raw
    found: list[tuple[str, ...]] = []
    found += [
        ("permissions", key)
        for key in ("allow", "additionalDirectories")
        if _has_nested_value(raw, "permissions", key)
    ]
    mode, user_mode = settings.permissions.default_mode, user.permissions.default_mode or "default"
    if mode is not None and mode != "bypassPermissions" and is_wider_permission_mode(mode, user_mode):
        found.append(("permissions", "defaultMode"))
    found += [("env", name) for name in settings.env]
    found += [("hooks",)] if raw.get("hooks") else []
    found += [("apiKeyHelper",)] if raw.get("apiKeyHelper") else []  # a program that runs
    # Its prompt and its model would be those of the lead.
    found += [("agent",)] if raw.get("agent") else []
    # A server is a program that runs, or an address that receives what agents send.
    found += [("mcpServers", name) for name in raw.get("mcpServers") or ()]
    enabled = raw.get("enabledPlugins")
    found += [
        ("enabledPlugins", id_)
        for id_, value in (enabled.items() if isinstance(enabled, dict) else ())
        if value
    ]
    models = {("model",): settings.model, ("shoal", "model"): settings.shoal.model}
    found += [
        keys for keys, name in models.items() if name is not None and name.startswith(_FILE_MODEL_PREFIXES)
    ]
    found += [
        ("shoal", key)
        for key in _iter_escalating_shoal_keys(settings.shoal, user.shoal)
        if _is_shoal_key_set(raw, key)
    ]
    return tuple((keys, _get_nested_value(raw, keys)) for keys in found)


def read_document_trust(
    file: ProjectTrustFile, project: Path, document: SettingsDocument, parts: _EscalatingParts
) -> TrustState:
    """Return the stored trust. Raises `StateFileError` if it cannot be read."""
    decision = file.get_trust_decision(*_make_trust_key(document, project))
    if decision is None or decision.digest != _hash_escalating_settings(parts):
        return "unasked"
    return "trusted" if decision.trusted else "refused"


def save_trust_in_documents(
    home: Path, project: Path, documents: Sequence[SettingsDocument], user: SettingsSchema
) -> None:
    """Store the user's trust in these project files in their current state. Raises `StateFileError`."""
    found = {
        _make_trust_key(document, project): find_escalating_settings(document, user) for document in documents
    }
    _store_trust_decisions(home, project, found, trusted=True)


def save_project_trust_decision(
    settings: Settings,
    project: Path,
    *,
    trusted: bool,
    escalations: Sequence[PermissionEscalation] | None = None,
) -> None:
    """Store the user's answer about the project's escalations: all of them, or those that were shown.

    It applies to the values in these settings, even if the files have changed since. Raises `StateFileError`.
    """
    parts: dict[_TrustKey, _EscalatingParts] = {}
    for escalation in settings.findings.escalations if escalations is None else escalations:
        key = _make_trust_key(escalation.document, project)
        parts[key] = (*parts.get(key, ()), (escalation.keys, escalation.value))
    _store_trust_decisions(settings.home, project, parts, trusted=trusted)


def _store_trust_decisions(
    home: Path, project: Path, parts: Mapping[_TrustKey, _EscalatingParts], *, trusted: bool
) -> None:
    decisions: dict[Path, dict[str, TrustDecision]] = {project: {}}
    for (directory, name), part in parts.items():
        if part:
            decisions.setdefault(directory, {})[name] = _make_trust_decision(part, trusted=trusted)
    for directory, by_file in decisions.items():
        ProjectTrustFile(home).store_trust_decisions(directory, by_file)


def forget_project_trust(home: Path, project: Path) -> None:
    """Remove all answers about a project. Raises `StateFileError`."""
    ProjectTrustFile(home).remove_project_decisions(project)
    forget_mcp_trust(home, project)
    _forget_file_trust(home, project, _FILE_NAMES["local"])


def forget_mcp_trust(home: Path, project: Path) -> None:
    """Remove the answers about the `.mcp.json` of a project and of its parents. Raises `StateFileError`."""
    _forget_file_trust(home, project, _FILE_NAMES["mcp"])


def _forget_file_trust(home: Path, project: Path, name: str) -> None:
    for directory in iter_project_directories(project):
        ProjectTrustFile(home).store_trust_decisions(directory, {name: None})


def _make_trust_key(document: SettingsDocument, project: Path) -> _TrustKey:
    """Return the directory and the name under which an answer about a file is stored."""
    # These files apply in the directories below them too, with one answer for all of them.
    directory = project
    if document.path is not None and document.kind in ("mcp", "local"):
        directory = document.path.parents[0 if document.kind == "mcp" else 1]
    return directory, _make_trust_document_key(document)


def _make_trust_decision(parts: _EscalatingParts, *, trusted: bool) -> TrustDecision:
    return TrustDecision(digest=_hash_escalating_settings(parts), trusted=trusted, at=SystemClock().now())


def _iter_escalating_shoal_keys(project: ShoalSettings, user: ShoalSettings) -> Iterator[str]:
    yield from ("models", "aliases")  # a budget is computed with their prices
    if _APPROVERS.index(project.plan_approver) > _APPROVERS.index(user.plan_approver):
        yield "plan_approver"
    if _UNSIGNED_MAIL_TRUST.index(project.trust_unsigned_mail) > _UNSIGNED_MAIL_TRUST.index(
        user.trust_unsigned_mail
    ):
        yield "trust_unsigned_mail"
    yield from ("teammate_programs", "plugins")
    yield from find_limits_raised_by_project(project, user)


def _has_nested_value(raw: dict[str, Any], *keys: str) -> bool:
    return bool(_get_nested_value(raw, keys))


def _is_shoal_key_set(raw: dict[str, Any], key: str) -> bool:
    """Return True if the key is set, also to null, which matters for limits, but not to `{}`."""
    return bool((raw.get("shoal") or {}).get(key, {}) != {})


def _get_nested_value(raw: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _remove_document_keys(document: SettingsDocument, paths: Sequence[tuple[str, ...]]) -> SettingsDocument:
    raw = document.raw
    for path in paths:
        raw = _remove_nested_key(raw, path)
    return replace(document, raw=raw)


def _remove_nested_key(raw: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {key: value for key, value in raw.items() if key != first}
    return {**raw, first: _remove_nested_key(raw[first], rest)}


def _hash_escalating_settings(parts: _EscalatingParts) -> str:
    pairs = [[list(keys), value] for keys, value in parts]
    # Front matter can hold dates, which JSON cannot.
    text = json.dumps(pairs, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _make_trust_document_key(document: SettingsDocument) -> str:
    if document.kind in ("agent", "plugin", "workflow"):
        # Each of these files is trusted separately.
        return f"{document.kind}:{document.path}"
    return _FILE_NAMES.get(document.kind, _FILE_NAMES["project"])


def _format_untrusted_warning(left_out: Sequence[PermissionEscalation]) -> str:
    keys = ", ".join(dict.fromkeys("env" if each.keys[0] == "env" else each.key for each in left_out))
    return (
        f"This project's settings are not trusted, so Shoal ignores the permissions they would grant "
        f"({keys}). "
        "To see them, run `shoal trust --show`. To trust them, run `shoal trust`."
    )
