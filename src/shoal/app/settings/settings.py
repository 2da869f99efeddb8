"""Settings merged from the environment and the settings files. Only this module reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.mcp_files import project_servers, server_variables
from shoal.app.settings.standing import standing_rules
from shoal.app.settings.trust import Widening, judged, persons_part
from shoal.core.errors import SettingsError, StoreError
from shoal.core.secrets import Secrets
from shoal.policy.rules import Standing
from shoal.stores.files.credentials import credentials_path, stored_credentials
from shoal.wire.settings import (
    Document,
    Kind,
    Own,
    Rules,
    SandboxSettings,
    WorktreeGuard,
    holds,
    known_part,
    merged,
    read_document,
    unknown_keys,
)

_MANAGED = {
    "linux": ("/etc/shoal/managed-settings.json", "/etc/claude-code/managed-settings.json"),
    "darwin": (
        "/Library/Application Support/Shoal/managed-settings.json",
        "/Library/Application Support/ClaudeCode/managed-settings.json",
    ),
}
MANAGED = tuple(Path(path) for path in _MANAGED.get(sys.platform, ()))

_VARIABLES = {
    "anthropic_api_key": "ANTHROPIC_API_KEY",
    "anthropic_auth_token": "ANTHROPIC_AUTH_TOKEN",
    "anthropic_base_url": "ANTHROPIC_BASE_URL",
    "openai_api_key": "OPENAI_API_KEY",
    "openai_base_url": "OPENAI_BASE_URL",
    "openrouter_api_key": "OPENROUTER_API_KEY",
    "ollama_host": "OLLAMA_HOST",
}


PROVIDER_KEYS = {
    "anthropic": ("anthropic_api_key", "anthropic_auth_token"),
    "openai": ("openai_api_key",),
    "openrouter": ("openrouter_api_key",),
    "ollama": (),
}
"""Fields of `ProviderCredentials` with keys; the two APIs of OpenAI are one provider here."""
PROVIDER_VARIABLES = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "ollama": ("OLLAMA_HOST",),
}


class Access(Struct, frozen=True, kw_only=True):
    """Keys and addresses of providers; None if not set."""

    anthropic_api_key: str | None = None
    anthropic_auth_token: str | None = None
    anthropic_base_url: str | None = None
    openai_api_key: str | None = None
    openai_base_url: str | None = None
    openrouter_api_key: str | None = None
    ollama_host: str | None = None

    def __repr__(self) -> str:
        # Keys must not appear in logs.
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"Access({', '.join(given)})"


def with_variables(access: Access, variables: Mapping[str, str | None]) -> Access:
    """Return the credentials as if these variables were set."""
    names = {variable: name for name, variable in _VARIABLES.items()}
    return replace(access, **{names[variable]: value or None for variable, value in variables.items()})


class Settings(Struct, frozen=True, kw_only=True):
    home: Path
    access: Access
    model: str | None
    """Model named by the environment or a file; None if neither does."""
    subagent_model: str | None
    """Model for every child agent, regardless of its definition; None if not set."""
    permissions: Rules
    env: Mapping[str, str]
    """Variables that the settings set for tools."""
    cleanup_period_days: int
    """Retention in days, from the user's own files only."""
    own: Own
    """Settings under `shoal`."""
    warnings: tuple[str, ...]
    environ: Mapping[str, str]
    """Environment of this process at start."""
    documents: tuple[Document, ...]
    """Settings files, the strongest first, without their untrusted parts."""
    widening: tuple[Widening, ...]
    """Project settings that need the user's trust, trusted or not."""
    standing: Standing
    """Permission rules of all files, each with its source."""
    betas: tuple[str, ...] = ()
    """Betas of the Messages API, requested by the program that opened the session."""
    stored: Mapping[str, Mapping[str, str]] = {}
    """Variables that `shoal setup` stored for each provider, in use or not."""

    def __repr__(self) -> str:
        return f"Settings(home={self.home}, model={self.model!r}, documents={self.documents})"

    def origin(self, key: str) -> str:
        """Return the origin of a value, for keys like `model`, `shoal.compact_at` or `permissions.allow`."""
        variables = _CHOICES.get(key) or tuple(filter(None, [_VARIABLES.get(key)]))
        for variable in variables:
            if self.environ.get(variable):
                return f"${variable}"
        for keys in _places(key):
            found = [document for document in self.documents if holds(document, keys)]
            if key in _PERSONS_ALONE or (keys[0] == "env" and key in (*_VARIABLES, "subagent_model")):
                found = [document for document in found if document.is_persons]
            if keys[0] == "permissions" and keys[-1] != "defaultMode":
                return ", ".join(document.place(keys) for document in found) or "default"
            if found:
                return found[0].place(keys)
        if any(_VARIABLES.get(key) in variables for variables in self.stored.values()):
            return str(credentials_path(self.home))
        return "default"

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for a URL from the usual variables."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host in _LOOPBACK or _excepted(host, self._variable("no_proxy")):
            return None
        return self._variable(f"{parts.scheme}_proxy") or self._variable("all_proxy") or None

    def _variable(self, name: str) -> str:
        return self.environ.get(name) or self.environ.get(name.upper()) or ""

    @property
    def forks(self) -> bool:
        return self.own.forks or any(self.environ.get(name, "").lower() in _TRUE for name in _FORKS)

    @property
    def hides_states(self) -> bool:
        """True if a library reads session state events that its program did not request."""
        reads, shows = (self.environ.get(name, "").lower() in _TRUE for name in _STATES)
        return reads and not shows

    @property
    def tool_environment(self) -> dict[str, str]:
        """Environment of processes that tools start."""
        return {**self.environ, **self.env}

    @property
    def secrets(self) -> Secrets:
        """Secrets that must not be written to logs, journals or recordings."""
        given = {name: value for name in _VARIABLES if (value := getattr(self.access, name))}
        left_out = {each.keys[-1]: str(each.value) for each in self.left_out if each.keys[0] == "env"}
        named = {_VARIABLES[name]: value for name, value in given.items()}
        # An overridden value is just as secret. The prefix keeps it from being replaced by the other.
        stored = {f"STORED_{name}": value for each in self.stored.values() for name, value in each.items()}
        servers = server_variables(self.documents)
        return Secrets({**servers, **left_out, **self.tool_environment, **named, **stored})

    @property
    def left_out(self) -> tuple[Widening, ...]:
        return tuple(each for each in self.widening if each.trust != "trusted")


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _excepted(host: str, exceptions: str) -> bool:
    names = [name.strip().lstrip(".") for name in exceptions.split(",") if name.strip()]
    return "*" in names or any(host == name or host.endswith(f".{name}") for name in names)


_HOMES = ("SHOAL_HOME", "CLAUDE_CONFIG_DIR")
_MODELS = ("SHOAL_MODEL", "ANTHROPIC_MODEL")
_FORKS = ("SHOAL_FORK_SUBAGENT", "FEATURE_FORK_SUBAGENT")
_STATES = ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
_TRUE = ("1", "true", "yes", "on")
_SUBAGENT_MODELS = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
_COORDINATOR = ("SHOAL_COORDINATOR_MODE", "CLAUDE_CODE_COORDINATOR_MODE")
_PLAIN = ("SHOAL_PLAIN",)
_CHOICES = {
    "home": _HOMES,
    "model": _MODELS,
    "subagent_model": _SUBAGENT_MODELS,
    "shoal.coordinator": _COORDINATOR,
    "shoal.plain": _PLAIN,
}
_PERSONS_ALONE = frozenset({"cleanupPeriodDays"})
_SOURCES: tuple[Kind, ...] = ("user", "project", "local")
_SWITCH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _places(key: str) -> tuple[tuple[str, ...], ...]:
    if key == "model":
        return (("shoal", "model"), *(("env", variable) for variable in _MODELS), ("model",))
    if key == "subagent_model":
        return tuple(("env", variable) for variable in _SUBAGENT_MODELS)
    if key in _VARIABLES:
        return (("env", _VARIABLES[key]),)
    return (tuple(key.split(".")),)


def load_settings(
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    given: str | None = None,
    managed: Sequence[Path] = MANAGED,
    sources: Sequence[str] | None = None,
) -> Settings:
    """Load the settings. `given` is the value of `--settings`: a path or JSON. Raises `SettingsError`.

    `sources` limits the file kinds in addition to flags and managed files; None means all.
    """
    environ = dict(os.environ if environ is None else environ)
    home = find_home(environ, cwd)
    servers, unreadable = project_servers(cwd)
    read = tuple(_of_sources((*_documents(home, cwd, given, managed), *servers), sources))
    trust = judged(read, home, cwd)
    documents = trust.documents
    if documents != read:
        standing_rules(read, cwd)  # report a mistake whether it takes effect or not
    known, trusted = known_part(merged(documents)), persons_part(documents)
    # A project may come from anyone: it must not redirect requests, including keys, to its own address.
    reachable = {**_texts(trusted.env), **{name: value for name, value in environ.items() if value}}
    stored, unread = _stored(home)
    reachable |= _counting(stored, reachable)
    permissions, refused = _own_authority(known.permissions, trusted.permissions)
    own, loosened = _own_part(known.shoal, trusted.shoal, environ)
    return Settings(
        home=home,
        access=Access(**{name: reachable.get(variable) or None for name, variable in _VARIABLES.items()}),
        model=_first_set(_MODELS, environ) or own.model or _first_set(_MODELS, reachable) or known.model,
        subagent_model=_first_set(_SUBAGENT_MODELS, reachable),
        permissions=permissions,
        env=_texts(known.env),
        # A project may come from anyone: it must not have the user's sessions removed.
        cleanup_period_days=trusted.cleanup_period_days,
        own=own,
        warnings=(
            *refused,
            *loosened,
            *_own_period(known.cleanup_period_days, trusted.cleanup_period_days),
            *trust.warnings,
            *unread,
            *unreadable,
            *(warning for document in documents for warning in unknown_keys(document)),
        ),
        environ=environ,
        documents=documents,
        widening=trust.widening,
        standing=standing_rules(documents, cwd),
        stored=stored,
    )


def _first_set(names: Sequence[str], variables: Mapping[str, str]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def _own_part(own: Own, trusted: Own, environ: Mapping[str, str]) -> tuple[Own, tuple[str, ...]]:
    """Return the effective settings under `shoal`, and warnings about those without effect."""
    sandbox, loosened = _own_sandbox(own.sandbox, trusted.sandbox)
    counting = replace(
        own,
        sandbox=sandbox,
        unattended_allow=trusted.unattended_allow,
        channels=trusted.channels,
        # A project's file must not make agents' messages leave the machine.
        telemetry=trusted.telemetry,
        coordinator=_switched(environ, _COORDINATOR, usual=own.coordinator),
        plain=_switched(environ, _PLAIN, usual=own.plain),
        worktree_guard=_tighter(own.worktree_guard, trusted.worktree_guard),
    )
    return counting, loosened


def _stored(home: Path) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    try:
        return stored_credentials(home), ()
    except StoreError as error:
        return {}, (str(error),)


def _counting(stored: Mapping[str, Mapping[str, str]], given: Mapping[str, str]) -> dict[str, str]:
    """Return stored variables of providers with no other setting: a key must not go to another address."""
    counting: dict[str, str] = {}
    for provider, variables in stored.items():
        own = PROVIDER_VARIABLES.get(provider, ())
        if not any(given.get(name) for name in own):
            counting |= {name: variables[name] for name in own if variables.get(name)}
    return counting


def _switched(environ: Mapping[str, str], variables: Sequence[str], *, usual: bool) -> bool:
    for variable in variables:
        if value := environ.get(variable):
            if value.lower() not in _SWITCH:
                raise SettingsError(f"${variable} is {value!r}: set it to 1 or 0.")
            return _SWITCH[value.lower()]
    return usual


def _own_authority(rules: Rules, trusted: Rules) -> tuple[Rules, tuple[str, ...]]:
    """Ignore `bypassPermissions` from a project: its files may come from anyone."""
    if rules.default_mode != "bypassPermissions" or trusted.default_mode == rules.default_mode:
        return rules, ()
    told = "The project's settings ask to skip permissions; only your own settings or a flag can. Not done."
    return replace(rules, default_mode=trusted.default_mode), (told,)


def _own_sandbox(given: SandboxSettings, trusted: SandboxSettings) -> tuple[SandboxSettings, tuple[str, ...]]:
    """Let a project restrict the sandbox and hide more; it cannot loosen the sandbox."""
    held = replace(
        trusted,
        enabled=trusted.enabled if given.enabled is not True else True,
        network=trusted.network and given.network,
        hidden=(*trusted.hidden, *(path for path in given.hidden if path not in trusted.hidden)),
    )
    opens = (
        (not given.enabled and bool(trusted.enabled))
        or (given.auto_allow and not trusted.auto_allow)
        or given.writable != trusted.writable
    )
    told = "The project's settings would open the sandbox; only your own settings can. Not done."
    return held, (told,) if opens else ()


def _own_period(given: int, trusted: int) -> Iterator[str]:
    if given != trusted:
        yield "The project's settings say how long sessions are kept; only your own settings can. Not done."


def _tighter(given: WorktreeGuard, trusted: WorktreeGuard) -> WorktreeGuard:
    return "weak" if given == trusted == "weak" else "sandbox"


def home_directory() -> Path:
    """Return the home of this process, for code that needs no other setting."""
    return find_home(os.environ, Path.cwd())


def find_home(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the home, which holds all state: `$SHOAL_HOME`, `$CLAUDE_CONFIG_DIR` or `~/.claude`."""
    for variable in _HOMES:
        if environ.get(variable):
            return cwd / Path(environ[variable]).expanduser()
    if environ.get("HOME"):
        return Path(environ["HOME"]) / ".claude"
    try:
        return Path.home() / ".claude"
    except RuntimeError as error:
        raise SettingsError(
            "This user has no home directory. Say where to keep state with SHOAL_HOME=DIRECTORY."
        ) from error


def _documents(home: Path, cwd: Path, given: str | None, managed: Sequence[Path]) -> Iterator[Document]:
    files = settings_files(home, cwd, given, managed)
    for path, kind in files[: len(managed)]:
        yield from _from_file(path, kind)
    if given is not None and given.lstrip().startswith("{"):
        yield read_document(given, name="--settings", kind="command line", path=None)
    for path, kind in files[len(managed) :]:
        yield from _from_file(path, kind)


def _of_sources(documents: Iterable[Document], sources: Sequence[str] | None) -> Iterator[Document]:
    """Yield the documents of the given sources; managed files and flags always count."""
    for document in documents:
        kind = "project" if document.kind == "mcp" else document.kind
        if sources is None or kind not in _SOURCES or kind in sources:
            yield document


def settings_files(
    home: Path, cwd: Path, given: str | None, managed: Sequence[Path] = MANAGED
) -> tuple[tuple[Path, Kind], ...]:
    """Return every file that may hold settings, the strongest first."""
    files: list[tuple[Path, Kind]] = [(path, "managed") for path in managed]
    if given is not None and not given.lstrip().startswith("{"):
        files.append((cwd / Path(given).expanduser(), "command line"))
    project = cwd / ".claude"
    if project.resolve() != home.resolve():
        files.append((project / "settings.local.json", "local"))
        files.append((project / "settings.json", "project"))
    return (*files, (home / "settings.json", "user"))


def _from_file(path: Path, kind: Kind) -> Iterator[Document]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if kind == "command line":
            told = f"There is no settings file {path}. --settings takes the path of a file, or JSON."
            raise SettingsError(told, path=path) from None
        return
    except OSError as error:
        raise SettingsError(f"The settings in {path} cannot be read: {error.strerror}.", path=path) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"The settings in {path} are not UTF-8 text.", path=path) from error
    yield read_document(text, name=str(path), kind=kind, path=path)


def _texts(env: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in env.items()
    }
