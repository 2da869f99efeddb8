"""Settings of other programs that restrict agents: Shoal enforces each one, or refuses to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.wire.settings_codec import SandboxSettings, SettingsDocument, has_settings_key

_MANAGED_HOOKS_KEY = "allowManagedHooksOnly"
# The second one always holds: the list of every file must permit a server.
_MANAGED_SWITCHES = (_MANAGED_HOOKS_KEY, "allowManagedMcpServersOnly")
_MANAGED_KEYS = (
    "allowManagedPermissionRulesOnly",
    "disableSideloadFlags",
    "strictPluginOnlyCustomization",
)
_HTTP_HOOK_KEYS = ("allowedHttpHookUrls", "httpHookAllowedEnvVars")
_BYPASS_KEYS = ("permissions", "disableBypassPermissionsMode")
_UNSUPPORTED_SANDBOX_KEYS = (
    ("sandbox", "filesystem", "denyWrite"),
    ("sandbox", "credentials", "envVars"),
)
_DOMAIN_KEYS = ("allowedDomains", "deniedDomains", "strictAllowlist")


def refuse_unsupported_restrictions(documents: Sequence[SettingsDocument]) -> None:
    """Raise `SettingsError` for a restriction that Shoal does not enforce, with its file and line."""
    for document in documents:
        for key in _MANAGED_KEYS if document.kind == "managed" else ():
            if document.raw.get(key) not in (None, False):
                _refuse(document, (key,), "Shoal cannot enforce it and refuses to start")
        for key in _MANAGED_SWITCHES if document.kind == "managed" else ():
            if not isinstance(document.raw.get(key, False), bool):
                _refuse(document, (key,), "expected true or false")
        for key in _HTTP_HOOK_KEYS:
            if document.raw.get(key) is not None:
                _refuse(document, (key,), "Shoal does not enforce it; remove the key and check your hooks")
        for keys in _UNSUPPORTED_SANDBOX_KEYS:
            if document.raw.get("sandbox") and has_settings_key(document, keys):
                hint = "deny it with permissions.deny" if keys[-1] == "denyWrite" else "unset the variables"
                _refuse(document, keys, f"Shoal cannot enforce it; {hint}, and remove the key")


def allows_only_managed_hooks(documents: Sequence[SettingsDocument]) -> bool:
    """Return True if a managed file permits only the hooks of managed files and of the calling program."""
    return any(each.kind == "managed" and each.raw.get(_MANAGED_HOOKS_KEY) is True for each in documents)


def find_bypass_ban(documents: Sequence[SettingsDocument]) -> str | None:
    """Return the file and line of a setting that forbids skipping permissions. Raises `SettingsError`."""
    for document in documents:
        if not has_settings_key(document, _BYPASS_KEYS):
            continue
        value = document.raw["permissions"][_BYPASS_KEYS[1]]
        if value == "disable":
            return document.locate_key(_BYPASS_KEYS)
        _refuse(document, _BYPASS_KEYS, f'expected "disable", got {value!r}')
    return None


def apply_sandbox_key(documents: Sequence[SettingsDocument], own: SandboxSettings) -> SandboxSettings:
    """Return the sandbox with the restrictions of the key `sandbox`; only user files can make it more
    permissive."""
    for document in reversed(documents):
        raw = document.raw.get("sandbox")
        if raw is None:
            continue
        if not isinstance(raw, Mapping):
            _refuse(document, ("sandbox",), "expected an object")
        if raw.get("enabled") is True:
            own = _restrict_sandbox_by_key(document, raw, own)
    return own


def _restrict_sandbox_by_key(
    document: SettingsDocument, raw: Mapping[str, Any], own: SandboxSettings
) -> SandboxSettings:
    files, network, credentials = (_read_section(document, raw, name) for name in _SECTIONS)
    hidden = (
        *_list_paths(document, files, "filesystem", "denyRead"),
        *_list_paths(document, credentials, "credentials", "files"),
    )
    has_domains = any(network.get(key) for key in _DOMAIN_KEYS)
    writable = _list_paths(document, files, "filesystem", "allowWrite") if document.is_user_controlled else ()
    is_required = raw.get("failIfUnavailable") is True or bool(hidden) or has_domains
    return replace(
        own,
        enabled=True if is_required else own.enabled,
        network=own.network and not has_domains,
        hidden=(*own.hidden, *(path for path in hidden if path not in own.hidden)),
        writable=(*own.writable, *(path for path in writable if path not in own.writable)),
    )


_SECTIONS = ("filesystem", "network", "credentials")


def _read_section(document: SettingsDocument, raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name, {})
    if not isinstance(section, Mapping):
        _refuse(document, ("sandbox", name), "expected an object")
    return dict(section)


def _list_paths(
    document: SettingsDocument, section: Mapping[str, Any], name: str, key: str
) -> tuple[str, ...]:
    paths = section.get(key, [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        _refuse(document, ("sandbox", name, key), "expected a list of paths")
    # Two slashes begin an absolute path in these files.
    return tuple(path[1:] if path.startswith("//") else path for path in paths)


def is_mcp_server_permitted(
    documents: Sequence[SettingsDocument], name: str, command: Sequence[str], url: str
) -> bool:
    """Return True if no file denies an MCP server, and every list of permitted ones names it."""
    for document in documents:
        for key in ("deniedMcpServers", "allowedMcpServers"):
            if key not in document.raw:
                continue
            is_named = any(
                _is_named_server(entry, name, command, url) for entry in _iter_server_entries(document, key)
            )
            if is_named == (key == "deniedMcpServers"):
                return False
    return True


def _iter_server_entries(document: SettingsDocument, key: str) -> Iterator[Mapping[str, Any]]:
    entries = document.raw[key]
    if not isinstance(entries, list):
        _refuse(document, (key,), "expected a list")
    for entry in entries:
        if not isinstance(entry, Mapping) or set(entry) - {"serverName", "serverCommand", "serverUrl"}:
            _refuse(document, (key,), "expected objects with serverName, serverCommand or serverUrl")
        yield entry


def _is_named_server(entry: Mapping[str, Any], name: str, command: Sequence[str], url: str) -> bool:
    if "serverName" in entry:
        return bool(entry["serverName"] == name)
    if "serverCommand" in entry:
        return entry["serverCommand"] == list(command) and bool(command)
    from fnmatch import fnmatchcase

    return bool(url) and fnmatchcase(url, str(entry.get("serverUrl", "")))


def _refuse(document: SettingsDocument, keys: Sequence[str], problem: str) -> NoReturn:
    location = document.locate_key(keys)
    raise SettingsError(f"{location}: {'.'.join(keys)}: {problem}.", path=document.path)
