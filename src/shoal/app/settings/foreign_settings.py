"""Settings of other programs that restrict agents: Shoal enforces each one, or refuses to start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import HttpHookLimits
from shoal.wire.settings_codec import SandboxSettings, SettingsDocument, has_settings_key

_HTTP_URLS_KEY, _HTTP_VARIABLES_KEY = "allowedHttpHookUrls", "httpHookAllowedEnvVars"
_BYPASS_KEYS = ("permissions", "disableBypassPermissionsMode")
MANAGED_READ_KEY = "allowManagedReadPathsOnly"
_DOMAIN_KEYS = ("allowedDomains", "deniedDomains", "strictAllowlist")


def find_http_hook_limits(documents: Sequence[SettingsDocument]) -> HttpHookLimits:
    """Return the limits on hooks of type http. Raises `SettingsError` for a list that is not understood."""
    urls, variables = (
        tuple(_read_text_list(document, key) for document in documents if document.raw.get(key) is not None)
        for key in (_HTTP_URLS_KEY, _HTTP_VARIABLES_KEY)
    )
    return HttpHookLimits(url_lists=urls, variable_lists=variables)


def _read_text_list(document: SettingsDocument, key: str) -> tuple[str, ...]:
    value = document.raw[key]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        _refuse(document, (key,), "expected a list of strings")
    return tuple(value)


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


def is_sandbox_key_enabled(documents: Sequence[SettingsDocument]) -> bool:
    """Return True if the key `sandbox` turns the sandbox on; a project can turn it on but not off."""
    sections = [(document, _read_sandbox_section(document)) for document in documents]
    own_choices = (
        raw["enabled"] for document, raw in sections if document.is_user_controlled and "enabled" in raw
    )
    project_choices = (raw.get("enabled") for document, raw in sections if not document.is_user_controlled)
    return next(own_choices, False) or any(project_choices)


def apply_sandbox_key(documents: Sequence[SettingsDocument], own: SandboxSettings) -> SandboxSettings:
    """Return the sandbox with the effect of the key `sandbox`; the lists of all files are joined.

    Only user files can make it more permissive.
    """
    if not is_sandbox_key_enabled(documents):
        return replace(own, enabled="worktrees") if _is_sandbox_turned_off(documents, own) else own
    if own.enabled is False and _has_user_choice(documents, "enabled"):
        return own
    # Commands could reach every domain, while Claude Code asks for each one that is not listed.
    has_network = own.network and _has_user_choice(documents, "network")
    own = replace(own, enabled=True, network=has_network, private_temp=True)
    for document in reversed(documents):
        if raw := _read_sandbox_section(document):
            own = _restrict_sandbox_by_key(document, raw, own)
    return own


class SandboxReadLists(Struct, frozen=True):
    """Paths that files hide from commands, and those inside them that stay readable."""

    denied: tuple[str, ...]
    allowed: tuple[str, ...] = ()


def list_sandbox_read_lists(
    documents: Sequence[SettingsDocument], hidden: Sequence[str]
) -> list[SandboxReadLists]:
    """Return the lists that apply to all `hidden` paths of the sandbox.

    `allowRead` in a user's file applies to all paths in `denyRead`; in a project's file, it applies only to
    those in the same file. Nothing shows a path again that `shoal.sandbox.hidden` or `credentials` name.
    """
    own_denied: list[str] = []
    own_allowed: list[str] = []
    of_projects: list[SandboxReadLists] = []
    is_managed_only = any(map(_allows_only_managed_paths, documents))
    for document in documents:
        files = _read_section(document, _read_sandbox_section(document), "filesystem")
        texts = _list_texts(document, files, "filesystem", "denyRead")
        denied = [path for path in _restrict_paths(document, texts) if path in hidden]
        allowed = [*_list_allowed_paths(document, files)]
        if is_managed_only and document.kind != "managed":
            allowed = []
        if document.is_user_controlled:
            own_denied += denied
            own_allowed += allowed
        elif denied:
            of_projects.append(SandboxReadLists(tuple(denied), tuple(allowed)))
    known = {*own_denied, *(path for each in of_projects for path in each.denied)}
    known -= {path for document in documents for path in _list_always_hidden_paths(document)}
    return [
        SandboxReadLists(tuple(own_denied), tuple(own_allowed)),
        *(replace(each, allowed=(*each.allowed, *own_allowed)) for each in of_projects),
        SandboxReadLists(tuple(path for path in hidden if path not in known)),
    ]


def _list_always_hidden_paths(document: SettingsDocument) -> Iterator[str]:
    credentials = _read_section(document, _read_sandbox_section(document), "credentials")
    yield from _restrict_paths(document, _list_credentials(document, credentials, "files", "path"))
    if has_settings_key(document, ("shoal", "sandbox", "hidden")):
        yield from document.raw["shoal"]["sandbox"]["hidden"]


def _allows_only_managed_paths(document: SettingsDocument) -> bool:
    """Return True if a managed file limits `allowRead` to managed files. Raises `SettingsError`."""
    if document.kind != "managed":
        return False
    files = _read_section(document, _read_sandbox_section(document), "filesystem")
    value = files.get(MANAGED_READ_KEY, False)
    if not isinstance(value, bool):
        _refuse(document, ("sandbox", "filesystem", MANAGED_READ_KEY), "expected true or false")
    return value


def _list_allowed_paths(document: SettingsDocument, files: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of `allowRead`. A relative path in the user's file starts at the file's directory."""
    for path in map(_convert_path, _list_texts(document, files, "filesystem", "allowRead")):
        is_relative = not path.startswith(("/", "~"))
        has_directory = document.kind == "user" and document.path is not None
        yield str(document.path.parent / path) if is_relative and has_directory and document.path else path


def _is_sandbox_turned_off(documents: Sequence[SettingsDocument], own: SandboxSettings) -> bool:
    """Return True if the user turns the sandbox off, and nothing under `shoal` needs it."""
    choices = (_read_sandbox_section(each).get("enabled") for each in documents if each.is_user_controlled)
    is_needed = own.auto_allow or own.hidden or own.read_only or not own.network or own.enabled != "auto"
    return (
        next((choice for choice in choices if choice is not None), None) is False
        and not is_needed
        and not _has_user_choice(documents, "enabled")
    )


def _has_user_choice(documents: Sequence[SettingsDocument], key: str) -> bool:
    """Return True if the user sets a key under `shoal.sandbox`, and no managed file overrides it."""
    for document in documents:
        if document.is_user_controlled and has_settings_key(document, ("shoal", "sandbox", key)):
            return True
        if document.kind == "managed" and _read_sandbox_section(document).get("enabled"):
            return False
    return False


def _read_sandbox_section(document: SettingsDocument) -> dict[str, Any]:
    raw = document.raw.get("sandbox")
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        _refuse(document, ("sandbox",), "expected an object")
    section = {key: value for key, value in raw.items() if value is not None}
    for key in ("enabled", "failIfUnavailable"):
        if not isinstance(section.get(key, False), bool):
            _refuse(document, ("sandbox", key), "expected true or false")
    return section


def _restrict_sandbox_by_key(
    document: SettingsDocument, raw: Mapping[str, Any], own: SandboxSettings
) -> SandboxSettings:
    files, network, credentials = (_read_section(document, raw, name) for name in _SECTIONS)
    hidden = (
        *_list_texts(document, files, "filesystem", "denyRead"),
        *_list_credentials(document, credentials, "files", "path"),
    )
    read_only = _list_texts(document, files, "filesystem", "denyWrite")
    _list_texts(document, files, "filesystem", "allowRead")
    _allows_only_managed_paths(document)
    has_domains = any(network.get(key) for key in _DOMAIN_KEYS)
    writable = _list_texts(document, files, "filesystem", "allowWrite") if document.is_user_controlled else ()
    return replace(
        own,
        network=own.network and not has_domains,
        hidden=_join(own.hidden, _restrict_paths(document, hidden)),
        read_only=_join(own.read_only, _restrict_paths(document, read_only)),
        writable=_join(own.writable, map(_convert_path, writable)),
        withheld_variables=_join(
            own.withheld_variables, _list_credentials(document, credentials, "envVars", "name")
        ),
    )


def _join(first: tuple[str, ...], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


_SECTIONS = ("filesystem", "network", "credentials")


def _read_section(document: SettingsDocument, raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name) or {}
    if not isinstance(section, Mapping):
        _refuse(document, ("sandbox", name), "expected an object")
    return dict(section)


def _restrict_paths(document: SettingsDocument, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths; a relative path in the user's file applies to the project and to the file's directory.

    Claude Code starts at the directory. Files in the project, which it meant here before, stay restricted.
    """
    for path in map(_convert_path, paths):
        yield path
        if document.kind == "user" and document.path is not None and not path.startswith(("/", "~")):
            yield str(document.path.parent / path)


def _convert_path(path: str) -> str:
    # Two slashes begin an absolute path in these files.
    return path[1:] if path.startswith("//") else path


def _list_credentials(
    document: SettingsDocument, section: Mapping[str, Any], key: str, field: str
) -> Iterator[str]:
    """Yield the files or variables, written as texts or as objects with a mode.

    `mask` replaces a value and inserts the real one into requests. Without that, the value is withheld.
    """
    entries = section.get(key) or []
    if not isinstance(entries, list):
        _refuse(document, ("sandbox", "credentials", key), "expected a list")
    for entry in entries:
        text = entry.get(field) if isinstance(entry, Mapping) else entry
        if not isinstance(text, str) or not text:
            problem = f'expected objects like {{"{field}": "…", "mode": "deny"}}'
            _refuse(document, ("sandbox", "credentials", key), problem)
        yield text


def _list_texts(
    document: SettingsDocument, section: Mapping[str, Any], name: str, key: str
) -> tuple[str, ...]:
    texts = section.get(key) or []
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        _refuse(document, ("sandbox", name, key), "expected a list of strings")
    return tuple(texts)


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
        if not isinstance(entry, Mapping) or not _is_server_entry(entry):
            _refuse(document, (key,), "expected objects with serverName, serverCommand or serverUrl")
        yield entry


def _is_server_entry(entry: Mapping[str, Any]) -> bool:
    command = entry.get("serverCommand", [])
    return (
        bool(entry)
        and not set(entry) - {"serverName", "serverCommand", "serverUrl"}
        and all(isinstance(entry.get(key, ""), str) for key in ("serverName", "serverUrl"))
        and isinstance(command, list)
        and all(isinstance(word, str) for word in command)
    )


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


def check_skill_keys(documents: Sequence[SettingsDocument]) -> None:
    """Raise `SettingsError` for a key that restricts skills and has a value of the wrong kind."""
    for document in documents:
        for key, kind, expected in _SKILL_KEYS:
            value = document.raw.get(key)
            if value is not None and not isinstance(value, kind):
                message = f"{document.locate_key((key,))}: {key}: expected {expected}."
                raise SettingsError(message, path=document.path)


_SKILL_KEYS = (
    ("disableSkillShellExecution", bool, "true or false"),
    ("skillOverrides", dict, "an object with names of skills"),
)
