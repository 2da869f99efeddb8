"""Switches of managed settings files that limit where rules, hooks, skills, agents and servers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from shoal.core.errors import SettingsError
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.settings_codec import SettingsDocument

MANAGED_HOOKS_KEY = "allowManagedHooksOnly"
MANAGED_RULES_KEY = "allowManagedPermissionRulesOnly"
SIDELOAD_KEY = "disableSideloadFlags"
PLUGIN_ONLY_KEY = "strictPluginOnlyCustomization"
CHANNELS_KEY = "channelsEnabled"
# The last one always holds: the list of every file must permit a server.
SWITCHES = (MANAGED_HOOKS_KEY, MANAGED_RULES_KEY, SIDELOAD_KEY, CHANNELS_KEY, "allowManagedMcpServersOnly")

LockedPart: TypeAlias = Literal["skills", "agents", "hooks", "mcp"]
_LOCKED_PARTS: tuple[LockedPart, ...] = get_args(LockedPart)


def check_managed_switches(documents: Sequence[SettingsDocument]) -> None:
    """Raise `SettingsError` for a switch with a value that is not understood."""
    for document in _iter_managed_documents(documents):
        for key in SWITCHES:
            if not isinstance(document.raw.get(key, False), bool):
                _refuse(document, key, "expected true or false")
        parts = document.raw.get(PLUGIN_ONLY_KEY, False)
        if not isinstance(parts, bool) and not (
            isinstance(parts, list) and all(each in _LOCKED_PARTS for each in parts)
        ):
            _refuse(
                document, PLUGIN_ONLY_KEY, f"expected true, false or a list with {', '.join(_LOCKED_PARTS)}"
            )


def allows_only_managed_hooks(documents: Sequence[SettingsDocument]) -> bool:
    """Return True if a managed file permits only the hooks of managed files and of the calling program."""
    return _find_switch(documents, MANAGED_HOOKS_KEY) is not None


def allows_only_managed_rules(documents: Sequence[SettingsDocument]) -> bool:
    """Return True if a managed file permits only the allow rules of managed files."""
    return _find_switch(documents, MANAGED_RULES_KEY) is not None


def is_plugin_only(documents: Sequence[SettingsDocument], part: LockedPart) -> bool:
    """Return True if a managed file limits these parts to plug-ins and managed files."""
    values = (document.raw.get(PLUGIN_ONLY_KEY) for document in _iter_managed_documents(documents))
    return any(value is True or (isinstance(value, list) and part in value) for value in values)


def refuse_sideload_options(
    documents: Sequence[SettingsDocument],
    *,
    plugin_dirs: bool,
    agents: bool,
    mcp_config: Sequence[str | Mapping[str, Any]],
) -> None:
    """Raise `SettingsError` if a managed file forbids an option of this session."""
    document = _find_switch(documents, SIDELOAD_KEY)
    if document is None:
        return
    has_servers = any(not _has_only_sdk_servers(each) for each in mcp_config)
    for flag, is_given in (
        ("--plugin-dir", plugin_dirs),
        ("--agents", agents),
        ("--mcp-config", has_servers),
    ):
        if is_given:
            location = document.locate_key((SIDELOAD_KEY,))
            raise SettingsError(
                f"{flag} cannot be used: {location} sets {SIDELOAD_KEY}. Start without it, or ask the "
                "administrator of this machine.",
                path=document.path,
            )


def refuse_channels(documents: Sequence[SettingsDocument]) -> None:
    """Raise `SettingsError` if a managed file turns channels off."""
    for document in _iter_managed_documents(documents):
        if document.raw.get(CHANNELS_KEY) is False:
            location = document.locate_key((CHANNELS_KEY,))
            raise SettingsError(
                f"Channels cannot be used: {location} sets {CHANNELS_KEY} to false. Start without "
                "--channels, and remove shoal.channels from your settings.",
                path=document.path,
            )


def _has_only_sdk_servers(config: str | Mapping[str, Any]) -> bool:
    """Return True if all servers run in the calling program, which gave them itself."""
    if isinstance(config, str):
        try:
            config, _ = decode_commented_json(config)
        except ValueError:  # the path of a file
            return False
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    return isinstance(servers, Mapping) and all(
        isinstance(server, Mapping) and server.get("type") == "sdk" for server in servers.values()
    )


def _find_switch(documents: Sequence[SettingsDocument], key: str) -> SettingsDocument | None:
    return next((each for each in _iter_managed_documents(documents) if each.raw.get(key) is True), None)


def _iter_managed_documents(documents: Sequence[SettingsDocument]) -> Iterator[SettingsDocument]:
    return (document for document in documents if document.kind == "managed")


def _refuse(document: SettingsDocument, key: str, problem: str) -> NoReturn:
    raise SettingsError(f"{document.locate_key((key,))}: {key}: {problem}.", path=document.path)
