"""Settings merged from the environment and the settings files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings import settings_files
from shoal.app.settings.claude_json import ClaudeJson, read_claude_json
from shoal.app.settings.claude_keys import THEMES, find_unused_keys, note_zero_cleanup_period
from shoal.app.settings.configured_rules import find_skipped_rules, load_permission_rules
from shoal.app.settings.foreign_settings import (
    apply_sandbox_key,
    check_skill_keys,
    find_bypass_ban,
    find_http_hook_limits,
    is_mcp_server_permitted,
)
from shoal.app.settings.foreign_variables import (
    ForeignVariables,
    convert_env_values_to_text,
    find_first_set_variable,
    read_foreign_variables,
    replace_variables,
    warn_unused_oauth_token,
)
from shoal.app.settings.managed_switches import check_managed_switches
from shoal.app.settings.mcp_files import (
    collect_mcp_server_variables,
    read_project_mcp_files,
)
from shoal.app.settings.provider_credentials import (
    ACCESS_VARIABLES,
    PROVIDER_KEYS,
    ProviderCredentials,
    select_stored_provider_variables,
)
from shoal.app.settings.proxy_variables import ProxyVariables, read_proxy_variables
from shoal.app.settings.settings_files import (
    filter_documents_by_source,
    find_unused_parent_files,
    list_settings_files,
    read_settings_documents,
)
from shoal.app.settings.settings_trust import (
    PermissionEscalation,
    merge_user_controlled_documents,
    remove_untrusted_settings,
)
from shoal.core.errors import SettingsError, StateFileError
from shoal.core.text.redaction import SecretRedactor
from shoal.core.unused_items import UnusedItem
from shoal.core.user_environment import UserEnvironment, find_account_home, get_user_environment
from shoal.policy.permission_rules import PermissionRuleSet
from shoal.stores.files.home.credential_file import get_credentials_path, load_provider_credentials
from shoal.wire.settings_codec import (
    AttributionSettings,
    PermissionSettings,
    SandboxSettings,
    SettingsDocument,
    SettingsSchema,
    ShoalSettings,
    WorktreeGuard,
    convert_to_settings_schema,
    describe_unknown_shoal_settings,
    has_settings_key,
    merge_settings_documents,
)


class ConfiguredModels(Struct, frozen=True, kw_only=True):
    main: str | None = None
    """Model named by the environment or a file; None if neither names one."""
    subagents: str | None = None
    """Model for every child agent, regardless of its definition; None if not set."""
    betas: tuple[str, ...] = ()
    """Betas of the Messages API, requested by the program that opened the session."""


class ConfiguredPermissions(Struct, frozen=True, kw_only=True):
    entries: PermissionSettings
    """Merged entries of the files."""
    rules: PermissionRuleSet
    """Parsed rules of all files, each with its source."""
    bypass_ban: str | None = None
    """File and line of a setting that forbids skipping permissions."""


class WritingSettings(Struct, frozen=True, kw_only=True):
    """Settings for the texts that agents write."""

    language: str | None = None
    """Language in which the lead answers."""
    attribution: AttributionSettings = AttributionSettings()
    """Text for commits and pull requests."""
    plans_directory: Path


class SettingsFindings(Struct, frozen=True, kw_only=True):
    """Findings in the settings files that people should see."""

    warnings: tuple[str, ...]
    escalations: tuple[PermissionEscalation, ...]
    """Project settings that need the user's trust, trusted or not."""
    unused_items: tuple[UnusedItem, ...] = ()
    """Entries of the files that have no effect, but narrow nothing."""

    @property
    def untrusted_escalations(self) -> tuple[PermissionEscalation, ...]:
        return tuple(each for each in self.escalations if each.trust != "trusted")


class Settings(Struct, frozen=True, kw_only=True):
    home: Path
    access: ProviderCredentials
    stored: Mapping[str, Mapping[str, str]] = {}
    """Variables that `shoal setup` stored for each provider, in use or not."""
    models: ConfiguredModels
    permissions: ConfiguredPermissions
    agent: str | None = None
    """Agent whose prompt, tools and model the lead uses."""
    writing: WritingSettings
    env: Mapping[str, str]
    """Variables that the settings set for tools."""
    cleanup_period_days: int
    """Retention in days, from the user's own files only."""
    own: ShoalSettings
    """Settings under `shoal`."""
    foreign: ForeignVariables = ForeignVariables()
    """Variables and keys that Claude Code reads too."""
    proxies: ProxyVariables = ProxyVariables()
    environ: Mapping[str, str]
    """Environment of this process at startup."""
    documents: tuple[SettingsDocument, ...]
    """Settings files, highest precedence first, without their untrusted parts."""
    findings: SettingsFindings

    def __repr__(self) -> str:
        return f"Settings(home={self.home}, model={self.models.main!r}, documents={self.documents})"

    def find_setting_origin(self, key: str) -> str:
        """Return the origin of a value, for keys like `model`, `shoal.compact_at` or `permissions.allow`."""
        variables = _KEY_VARIABLES.get(key) or tuple(filter(None, [ACCESS_VARIABLES.get(key)]))
        own_files = [document for document in self.documents if document.is_user_controlled]
        for variable in variables:
            is_replaced = key in _REPLACEABLE_KEYS and any(
                has_settings_key(document, ("env", variable)) for document in own_files
            )
            if self.environ.get(variable) and not is_replaced:
                return f"${variable}"
        for keys in _list_setting_key_paths(key):
            found = [document for document in self.documents if has_settings_key(document, keys)]
            if key in _USER_ONLY_KEYS or (keys[0] == "env" and key in _REPLACEABLE_KEYS):
                found = [document for document in found if document.is_user_controlled]
            if keys[0] == "permissions" and keys[-1] != "defaultMode":
                return ", ".join(document.locate_key(keys) for document in found) or "default"
            if keys == ("permissions", "defaultMode"):
                found = [document for document in found if not is_project_bypass_mode(document)]
            # Without a model in `env`, another key may name one.
            is_unset = keys[0] == "env" and key == "model" and found and not found[0].raw["env"][keys[-1]]
            if found and not is_unset:
                return found[0].locate_key(keys)
        if any(ACCESS_VARIABLES.get(key) in variables for variables in self.stored.values()):
            return str(get_credentials_path(self.home))
        return "default"

    @property
    def user(self) -> UserEnvironment:
        """User whose home `~` means."""
        return get_user_environment(self.environ)

    @property
    def has_anthropic_access(self) -> bool:
        """True if requests to Anthropic's API or its gateway have a key, or need none."""
        access = self.access
        return bool(
            access.anthropic_api_key
            or access.anthropic_auth_token
            or self.foreign.access.key_helper
            or (access.anthropic_base_url and self.foreign.access.custom_headers)
        )

    def find_key_source(self, provider: str) -> str:
        """Return the variable with the key of a provider, `apiKeyHelper`, or `none`."""
        # A token precedes a key.
        for name in reversed(PROVIDER_KEYS.get(provider.removesuffix("-responses"), ())):
            if getattr(self.access, name):
                return ACCESS_VARIABLES[name]
        has_helper = provider == "anthropic" and self.foreign.access.key_helper is not None
        return "apiKeyHelper" if has_helper else "none"

    @property
    def model_aliases(self) -> Mapping[str, str]:
        """Aliases of model names: those under `shoal`, else those that variables set for Anthropic's API."""
        if not self.has_anthropic_access and (self.access.openai_api_key or self.access.openrouter_api_key):
            return self.own.aliases
        names = self.foreign.models.aliases
        return {**{alias: qualify_anthropic_name(name) for alias, name in names.items()}, **self.own.aliases}

    @property
    def are_forks_enabled(self) -> bool:
        return self.own.forks or any(
            self.environ.get(name, "").lower() in _TRUE_VALUES for name in _FORK_VARIABLES
        )

    @property
    def hides_session_state_events(self) -> bool:
        """True if a library reads session state events that its program did not request."""
        reads_state, emits_state = (
            self.environ.get(name, "").lower() in _TRUE_VALUES for name in _SESSION_STATE_VARIABLES
        )
        return reads_state and not emits_state

    @property
    def tool_environment(self) -> Mapping[str, str]:
        """Environment of processes that tools start."""
        env = replace_variables(self.environ, self.env)
        if not self.foreign.tools.is_environment_scrubbed:
            return env
        return {name: value for name, value in env.items() if name not in _SCRUBBED_VARIABLES}

    @property
    def command_environment(self) -> Mapping[str, str]:
        """Environment of shell commands."""
        withheld = self.own.sandbox.withheld_variables
        if not withheld:
            return self.tool_environment
        return {name: value for name, value in self.tool_environment.items() if name not in withheld}

    @property
    def secret_redactor(self) -> SecretRedactor:
        """Secrets that must not be written to logs, journals or recordings."""
        return SecretRedactor(self.secret_candidates)

    @property
    def secret_candidates(self) -> dict[str, str]:
        """Variables whose names tell which of their values are secret."""
        credentials = {name: value for name in ACCESS_VARIABLES if (value := getattr(self.access, name))}
        left_out = {
            each.keys[-1]: str(each.value)
            for each in self.findings.untrusted_escalations
            if each.keys[0] == "env"
        }
        credential_variables = {ACCESS_VARIABLES[name]: value for name, value in credentials.items()}
        # An overridden value is just as secret. The prefix keeps it from being replaced by the other.
        stored = {f"STORED_{name}": value for each in self.stored.values() for name, value in each.items()}
        servers = collect_mcp_server_variables(self.documents)
        return {**servers, **left_out, **self.environ, **self.env, **credential_variables, **stored}


def qualify_anthropic_name(name: str) -> str:
    """Return the name with the provider, unless it names one of the known providers itself."""
    return name if name.partition(":")[0] in (*PROVIDER_KEYS, "openai-responses") else f"anthropic:{name}"


_SCRUBBED_VARIABLES = frozenset(
    {
        *(
            variable
            for field, variable in ACCESS_VARIABLES.items()
            if "url" not in field and "host" not in field
        ),
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AZURE_CLIENT_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
    }
)
"""Variables that `CLAUDE_CODE_SUBPROCESS_ENV_SCRUB` keeps from processes that tools start."""
_REPLACEABLE_KEYS = frozenset((*ACCESS_VARIABLES, "model", "subagent_model"))
"""Keys whose variables a user's file can set instead of the shell."""
_HOME_VARIABLES = ("SHOAL_HOME", "CLAUDE_CONFIG_DIR")
_MODEL_VARIABLES = ("SHOAL_MODEL", "ANTHROPIC_MODEL")
_FORK_VARIABLES = ("SHOAL_FORK_SUBAGENT", "FEATURE_FORK_SUBAGENT")
_SESSION_STATE_VARIABLES = ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
_TRUE_VALUES = ("1", "true", "yes", "on")
_SUBAGENT_MODEL_VARIABLES = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
_COORDINATOR_VARIABLES = ("SHOAL_COORDINATOR_MODE", "CLAUDE_CODE_COORDINATOR_MODE")
_PLAIN_VARIABLES = ("SHOAL_PLAIN",)
_STORE_VARIABLES = ("SHOAL_STORE",)
_KEY_VARIABLES = {
    "home": _HOME_VARIABLES,
    "model": _MODEL_VARIABLES,
    "subagent_model": _SUBAGENT_MODEL_VARIABLES,
    "shoal.coordinator": _COORDINATOR_VARIABLES,
    "shoal.plain": _PLAIN_VARIABLES,
    "shoal.store": _STORE_VARIABLES,
    "shoal.max_output_tokens": ("CLAUDE_CODE_MAX_OUTPUT_TOKENS",),
    "shoal.request_deadline": ("API_TIMEOUT_MS",),
    "shoal.mcp_deadline": ("MCP_TOOL_TIMEOUT",),
    "shoal.background_agents": ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",),
    "shoal.auto_background": ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",),
}
_USER_ONLY_KEYS = frozenset({"cleanupPeriodDays"})
_SWITCH_VALUES = {
    **dict.fromkeys(_TRUE_VALUES, True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _list_setting_key_paths(key: str) -> tuple[tuple[str, ...], ...]:
    if key == "model":
        return (("shoal", "model"), *(("env", variable) for variable in _MODEL_VARIABLES), ("model",))
    if key == "subagent_model":
        return tuple(("env", variable) for variable in _SUBAGENT_MODEL_VARIABLES)
    if key in ACCESS_VARIABLES:
        return (("env", ACCESS_VARIABLES[key]),)
    if key.startswith("shoal.") and key in _KEY_VARIABLES:
        return (*(("env", variable) for variable in _KEY_VARIABLES[key]), tuple(key.split(".")))
    return (tuple(key.split(".")),)


@lru_cache(maxsize=1)
def _share_environment(variables: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return one copy for all sessions of this process, which may have thousands."""
    return dict(variables)


def load_settings(
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    given: str | None = None,
    managed: Sequence[Path] | None = None,
    sources: Sequence[str] | None = None,
    contents: Mapping[str, bytes | None] | None = None,
) -> Settings:
    """Load the settings. `given` is the value of `--settings`: a path or JSON. Raises `SettingsError`.

    `sources` limits the kinds of files, except for flags and managed files; None means all. `contents` holds
    the contents of files that are not read.
    """
    environ = _share_environment(tuple(os.environ.items())) if environ is None else dict(environ)
    home, user = resolve_shoal_home(environ, cwd), get_user_environment(environ)
    servers, server_problems = read_project_mcp_files(cwd)
    claude_json = read_claude_json(home, cwd)
    managed = settings_files.MANAGED_FILES if managed is None else managed
    files = list_settings_files(home, cwd, given and user.expand_home(given), managed)
    documents_of_files = read_settings_documents(files, given, managed, contents or {})
    all_documents = tuple(
        filter_documents_by_source((*documents_of_files, *claude_json.documents, *servers), sources)
    )
    check_managed_switches(all_documents)
    check_skill_keys(all_documents)
    find_http_hook_limits(all_documents)  # report a mistake before a hook is there
    bypass_ban = find_bypass_ban(all_documents)
    is_mcp_server_permitted(all_documents, "", (), "")  # report a mistake before a server is there
    trust = remove_untrusted_settings(
        all_documents, home, cwd, is_trusted_in_claude_code=claude_json.is_project_trusted
    )
    documents = trust.documents
    if documents != all_documents:
        load_permission_rules(all_documents, cwd, user)  # report a mistake whether it takes effect or not
    merged, trusted = (
        convert_to_settings_schema(merge_settings_documents(documents)),
        merge_user_controlled_documents(documents),
    )
    # A project may come from anyone: it must not redirect requests, including keys, to its own address.
    user_env = convert_env_values_to_text(trusted.env)
    provider_variables = {name: value for name, value in {**environ, **user_env}.items() if value}
    stored, credential_problems = _load_stored_credentials(home)
    provider_variables |= select_stored_provider_variables(stored, provider_variables)
    permissions, permission_warnings = _ignore_project_bypass_mode(merged.permissions, documents)
    own, shoal_warnings = _restrict_shoal_settings(merged.shoal, trusted.shoal, environ)
    own = replace(
        own,
        sandbox=apply_sandbox_key(all_documents, own.sandbox),
        theme=own.theme or THEMES.get(merged.theme or ""),
    )
    foreign, variable_warnings, unusable_values = read_foreign_variables(
        environ=environ,
        user_env=user_env,
        env=convert_env_values_to_text(merged.env),
        documents=documents,
    )
    has_own_mode = any(has_settings_key(document, ("shoal", "teammate_mode")) for document in documents)
    own = _apply_foreign_variables(own, foreign, has_own_teammate_mode=has_own_mode)
    plans_directory, unused_plans_directory = _resolve_plans_directory(
        documents, merged.plans_directory, home / "plans", cwd, user
    )
    return Settings(
        home=home,
        access=ProviderCredentials(
            **{name: provider_variables.get(variable) or None for name, variable in ACCESS_VARIABLES.items()}
        ),
        stored=stored,
        models=ConfiguredModels(
            main=find_first_set_variable(
                _MODEL_VARIABLES, {name: value for name, value in environ.items() if name not in user_env}
            )
            or own.model
            or find_first_set_variable(_MODEL_VARIABLES, provider_variables)
            or merged.model
            or (qualify_anthropic_name(foreign.models.default) if foreign.models.default else None),
            subagents=find_first_set_variable(_SUBAGENT_MODEL_VARIABLES, provider_variables),
        ),
        permissions=ConfiguredPermissions(
            entries=permissions, rules=load_permission_rules(documents, cwd, user), bypass_ban=bypass_ban
        ),
        agent=merged.agent or None,
        writing=WritingSettings(
            language=merged.language or None,
            attribution=_resolve_attribution(merged),
            plans_directory=plans_directory,
        ),
        env=convert_env_values_to_text(merged.env),
        # A project may come from anyone: it must not have the user's sessions removed.
        cleanup_period_days=trusted.cleanup_period_days,
        own=own,
        foreign=foreign,
        proxies=read_proxy_variables(environ, user_env),
        environ=environ,
        documents=documents,
        findings=SettingsFindings(
            warnings=(
                *permission_warnings,
                *shoal_warnings,
                *_warn_project_cleanup_period(merged.cleanup_period_days, trusted.cleanup_period_days),
                *trust.warnings,
                *credential_problems,
                *server_problems,
                *variable_warnings,
                *warn_unused_oauth_token(foreign, provider_variables),
                *claude_json.problems,
                *_describe_foreign_trust(trust.escalations, claude_json),
                *note_zero_cleanup_period(documents),
                *(warning for document in documents for warning in describe_unknown_shoal_settings(document)),
            ),
            escalations=trust.escalations,
            unused_items=(
                *(item for document in documents for item in document.unused),
                *claude_json.unused,
                *unusable_values,
                *find_skipped_rules(documents),
                *find_unused_keys(documents),
                *unused_plans_directory,
                *(find_unused_parent_files(home, cwd) if sources is None or "project" in sources else ()),
            ),
        ),
    )


def _apply_foreign_variables(
    own: ShoalSettings, foreign: ForeignVariables, *, has_own_teammate_mode: bool
) -> ShoalSettings:
    """Return the settings under `shoal` with the values that variables and keys of another program set."""
    return replace(
        own,
        max_output_tokens=foreign.max_output_tokens or own.max_output_tokens,
        request_deadline=foreign.request_timeout or own.request_deadline,
        mcp_deadline=foreign.tools.mcp_call_timeout or own.mcp_deadline,
        background_agents=own.background_agents and not foreign.tools.is_background_disabled,
        auto_background=0.0 if foreign.tools.is_background_disabled else own.auto_background,
        teammate_mode=own.teammate_mode
        if has_own_teammate_mode
        else foreign.teammate_mode or own.teammate_mode,
    )


def _resolve_attribution(settings: SettingsSchema) -> AttributionSettings:
    texts = settings.attribution
    if settings.include_co_authored_by is False and texts.commit is None and texts.pr is None:
        return AttributionSettings(commit="", pr="")
    return texts


def _resolve_plans_directory(
    documents: Sequence[SettingsDocument],
    setting: str | None,
    default: Path,
    cwd: Path,
    user: UserEnvironment,
) -> tuple[Path, tuple[UnusedItem, ...]]:
    """Return the directory for plans, and the setting if it is not used."""
    if not setting:
        return default, ()
    directory = (cwd / user.expand_home(setting)).resolve()
    if directory.is_relative_to(cwd.resolve()) or directory == default.resolve():
        return directory, ()
    key = "plansDirectory"
    document = next(each for each in documents if has_settings_key(each, (key,)))
    location = document.locate_key((key,))
    return default, (UnusedItem(location=location, name=key, reason="it is outside the project"),)


def _restrict_shoal_settings(
    merged: ShoalSettings, trusted: ShoalSettings, environ: Mapping[str, str]
) -> tuple[ShoalSettings, tuple[str, ...]]:
    """Return the effective settings under `shoal`, and warnings about those without effect."""
    sandbox, warnings = _restrict_sandbox(merged.sandbox, trusted.sandbox)
    effective = replace(
        merged,
        sandbox=sandbox,
        unattended_allow=trusted.unattended_allow,
        channels=trusted.channels,
        # Queries go there, and the key of a service.
        web_search=trusted.web_search,
        # A project's file must not make agents' messages leave the machine.
        telemetry=trusted.telemetry,
        store=find_first_set_variable(_STORE_VARIABLES, environ) or trusted.store,
        # Code runs only on a cluster that the user named.
        cluster=trusted.cluster,
        coordinator=_read_boolean_variable(environ, _COORDINATOR_VARIABLES, default=merged.coordinator),
        plain=_read_boolean_variable(environ, _PLAIN_VARIABLES, default=merged.plain),
        worktree_guard=_choose_stricter_worktree_guard(merged.worktree_guard, trusted.worktree_guard),
    )
    return effective, warnings


def _load_stored_credentials(home: Path) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    try:
        return load_provider_credentials(home), ()
    except StateFileError as error:
        return {}, (str(error),)


def _read_boolean_variable(environ: Mapping[str, str], variables: Sequence[str], *, default: bool) -> bool:
    for variable in variables:
        if value := environ.get(variable):
            if value.lower() not in _SWITCH_VALUES:
                raise SettingsError(f"The environment variable {variable} is {value!r}, but must be 1 or 0.")
            return _SWITCH_VALUES[value.lower()]
    return default


def is_project_bypass_mode(document: SettingsDocument) -> bool:
    """Return True if a project's file asks to skip permissions, which is ignored."""
    permissions = document.raw.get("permissions")
    return (
        not document.is_user_controlled
        and isinstance(permissions, Mapping)
        and permissions.get("defaultMode") == "bypassPermissions"
    )


def _ignore_project_bypass_mode(
    merged: PermissionSettings, documents: Sequence[SettingsDocument]
) -> tuple[PermissionSettings, tuple[str, ...]]:
    """Ignore `bypassPermissions` from a project: its files may come from anyone.

    The mode is then that of the next file, which may be another file of the project.
    """
    others = [document for document in documents if not is_project_bypass_mode(document)]
    if merged.default_mode != "bypassPermissions" or len(others) == len(documents):
        return merged, ()
    mode = convert_to_settings_schema(merge_settings_documents(others)).permissions.default_mode
    if mode == merged.default_mode:
        return merged, ()
    warning = (
        "The project's settings ask to skip permissions. Shoal ignores this, because only your own settings "
        "or a flag can skip permissions."
    )
    return replace(merged, default_mode=mode), (warning,)


def _restrict_sandbox(
    merged: SandboxSettings, trusted: SandboxSettings
) -> tuple[SandboxSettings, tuple[str, ...]]:
    """Let a project restrict the sandbox and hide more; it cannot loosen the sandbox."""
    restricted = replace(
        trusted,
        enabled=trusted.enabled if merged.enabled is not True else True,
        network=trusted.network and merged.network,
        private_temp=trusted.private_temp or merged.private_temp,
        hidden=tuple(dict.fromkeys((*trusted.hidden, *merged.hidden))),
        read_only=tuple(dict.fromkeys((*trusted.read_only, *merged.read_only))),
        withheld_variables=tuple(dict.fromkeys((*trusted.withheld_variables, *merged.withheld_variables))),
    )
    loosens = (
        (merged.enabled in (False, "worktrees") and trusted.enabled not in (False, merged.enabled))
        or (merged.auto_allow and not trusted.auto_allow)
        or merged.writable != trusted.writable
    )
    warning = (
        "The project's settings would weaken the sandbox. Shoal ignores this, because only your own settings "
        "can weaken it."
    )
    return restricted, (warning,) if loosens else ()


def _warn_project_cleanup_period(merged: int, trusted: int) -> Iterator[str]:
    if merged != trusted:
        yield (
            "The project's settings specify how long to keep sessions. Shoal ignores this, because only your "
            "own settings can specify it."
        )


def _choose_stricter_worktree_guard(merged: WorktreeGuard, trusted: WorktreeGuard) -> WorktreeGuard:
    return "weak" if merged == trusted == "weak" else "sandbox"


def find_process_shoal_home() -> Path:
    """Return the home of this process, for code that needs no other setting."""
    return resolve_shoal_home(os.environ, Path.cwd())


def resolve_shoal_home(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the home, which holds all state: `$SHOAL_HOME`, `$CLAUDE_CONFIG_DIR` or `~/.claude`."""
    for variable in _HOME_VARIABLES:
        if environ.get(variable):
            return cwd / get_user_environment(environ).expand_home(environ[variable])
    if environ.get("HOME"):
        return Path(environ["HOME"]) / ".claude"
    if (home := find_account_home()) is None:
        raise SettingsError("This user has no home directory. Choose one with SHOAL_HOME=DIRECTORY.")
    return Path(home) / ".claude"


def _describe_foreign_trust(
    escalations: Sequence[PermissionEscalation], claude_json: ClaudeJson
) -> Iterator[str]:
    if claude_json.is_project_trusted and any(each.trust == "unasked" for each in escalations):
        yield "You trust this project in Claude Code. Trust it in Shoal too: shoal trust"
