"""Environment variables and settings keys of Claude Code that configure models, tools and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.core.unused_items import UnusedItem
from shoal.wire.settings_codec import SettingsDocument, TeammateMode, has_settings_key

_CLOUD_VARIABLES = {
    "CLAUDE_CODE_USE_BEDROCK": "Amazon Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Google Vertex AI",
    "CLAUDE_CODE_USE_FOUNDRY": "Microsoft Foundry",
}
_ALIAS_VARIABLES = {
    "opus": ("ANTHROPIC_DEFAULT_OPUS_MODEL",),
    "sonnet": ("ANTHROPIC_DEFAULT_SONNET_MODEL",),
    "haiku": ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"),
    "fable": ("ANTHROPIC_DEFAULT_FABLE_MODEL",),
}
_TRUE_VALUES = ("1", "true", "yes", "on")
_FALSE_VALUES = ("0", "false", "no", "off")
_DEFAULT_HELPER_TTL_MS = 300_000
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_MAX_FALLBACKS = 3
_TEAMMATE_MODES: Mapping[str, TeammateMode] = {
    "in-process": "in-process",
    "auto": "auto",
    "tmux": "tmux",
    "iterm2": "iterm2",
}


class KeyHelperSettings(Struct, frozen=True, kw_only=True):
    """Shell command line that prints an API key, and how long its output may be used."""

    command: str
    location: str
    """File and line of the setting."""
    ttl: float
    """Seconds after which the command runs again."""


class AllowedModelList(Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    location: str
    """File and line of the list."""
    meanings: frozenset[tuple[str, str]] | None = None
    """Names and what managed files let them mean, for a managed list; None if the user's aliases count."""


class ForeignAccessVariables(Struct, frozen=True, kw_only=True):
    """Access to Anthropic's API or its gateway."""

    cloud: str = ""
    """Variable that selects a cloud provider, with its name; empty if none does."""
    oauth_token: str | None = None
    """Token of a Claude subscription, which Shoal cannot use."""
    key_helper: KeyHelperSettings | None = None
    custom_headers: tuple[tuple[str, str], ...] = ()
    """Headers added to each request."""

    def __repr__(self) -> str:
        return "ForeignAccessVariables()"  # headers and tokens may be secret


class ForeignModelVariables(Struct, frozen=True, kw_only=True):
    aliases: Mapping[str, str] = {}
    """Meaning of the aliases opus, sonnet, haiku and fable for Anthropic's API."""
    default: str | None = None
    """Model if no file and no other variable names one."""
    fallbacks: tuple[str, ...] = ()
    available: tuple[AllowedModelList, ...] = ()
    """Lists of models; a model can be used only if each list names it."""
    overrides: Mapping[str, str] = {}
    """A gateway's ids for Anthropic's models."""


class ForeignThinkingVariables(Struct, frozen=True, kw_only=True):
    effort: str | None = None
    """Effort from the environment, which overrides flags."""
    effort_level: str | None = None
    """Effort from a settings file."""
    max_tokens: int | None = None
    is_always_on: bool | None = None


class ForeignToolVariables(Struct, frozen=True, kw_only=True):
    """Limits of shell commands and MCP servers."""

    bash_timeout: int | None = None
    """Default timeout of a shell command in milliseconds."""
    bash_max_timeout: int | None = None
    bash_output_length: int | None = None
    """Maximum number of characters of a shell command's output in the conversation."""
    mcp_start_timeout: float | None = None
    """Timeout in seconds for the start of an MCP server."""
    waits_for_mcp_servers: bool = False
    """True if the first request waits for all MCP servers."""
    mcp_call_timeout: float | None = None
    mcp_output_tokens: int | None = None
    is_background_disabled: bool = False
    is_environment_scrubbed: bool = False
    """True if processes that tools start do not get provider keys."""


class ForeignVariables(Struct, frozen=True, kw_only=True):
    """Values from variables and keys that Claude Code reads too. None means not set."""

    access: ForeignAccessVariables = ForeignAccessVariables()
    models: ForeignModelVariables = ForeignModelVariables()
    thinking: ForeignThinkingVariables = ForeignThinkingVariables()
    tools: ForeignToolVariables = ForeignToolVariables()
    max_output_tokens: int | None = None
    request_timeout: float | None = None
    """Timeout in seconds for a model's complete answer."""
    max_retries: int | None = None
    is_compaction_disabled: bool = False
    task_list: str | None = None
    """Name of the task list that sessions share."""
    teammate_mode: TeammateMode | None = None


class VariableReading(NamedTuple):
    variables: ForeignVariables
    warnings: tuple[str, ...]
    """Sentences about values of the shell."""
    unused_items: tuple[UnusedItem, ...]
    """Values of settings files."""


class _VariableReader:
    """Reads typed values; an unusable value is ignored, because none of these variables restricts."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.problems: list[tuple[str, str]] = []
        """Names and problems."""

    def get_text(self, *names: str) -> str | None:
        return next((value for name in names if (value := self._variables.get(name, "").strip())), None)

    def is_true(self, name: str) -> bool:
        return self._variables.get(name, "").strip().lower() in _TRUE_VALUES

    def get_switch(self, name: str) -> bool | None:
        text = self.get_text(name)
        if text is None:
            return None
        if text.lower() in (*_TRUE_VALUES, *_FALSE_VALUES):
            return text.lower() in _TRUE_VALUES
        self.problems.append((name, f"is {text!r}, but must be true or false"))
        return None

    def get_count(self, name: str, *, minimum: int = 1) -> int | None:
        text = self.get_text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < minimum:
            self.problems.append((name, f"is {text!r}, but must be an integer of at least {minimum}"))
            return None
        return int(text)

    def get_choice(self, name: str, choices: Sequence[str]) -> str | None:
        text = (self.get_text(name) or "").lower()
        if text and text not in choices and text != "auto":
            self.problems.append((name, f"is {text!r}, but must be one of {', '.join(choices)}"))
        return text if text in choices else None

    def get_seconds(self, name: str) -> float | None:
        """Return a variable in milliseconds as seconds."""
        milliseconds = self.get_count(name)
        return None if milliseconds is None else milliseconds / 1000

    def get_headers(self, name: str) -> tuple[tuple[str, str], ...]:
        headers: list[tuple[str, str]] = []
        for line in (self.get_text(name) or "").splitlines():
            header, colon, value = (part.strip() for part in line.partition(":"))
            if not line.strip():
                continue
            name_letters = header.replace("-", "").replace("_", "")
            if not colon or not name_letters.isalnum() or not header.isascii():
                # The line may hold a secret, so it is not shown.
                self.problems.append((name, "has a line that is not `Name: value`"))
                continue
            headers.append((header, value))
        return tuple(headers)


def read_foreign_variables(
    *,
    environ: Mapping[str, str],
    user_env: Mapping[str, str],
    env: Mapping[str, str],
    documents: Sequence[SettingsDocument],
) -> VariableReading:
    """Read the variables from the environment, `env` of settings, and keys of the documents.

    A value in `env` replaces that of the shell; for models, only `user_env` from the user's files counts.
    Raises `SettingsError`.
    """
    reader, tools = _VariableReader({**environ, **user_env}), _VariableReader({**environ, **env})
    keys = _SettingsKeyReader(documents)
    shell = tools.get_text("CLAUDE_CODE_SHELL") or "bash"
    if shell.rpartition("/")[2] not in ("bash", "zsh"):
        tools.problems.append(("CLAUDE_CODE_SHELL", f"is {shell!r}, but must be bash or zsh"))
    search = tools.get_text("ENABLE_TOOL_SEARCH") or "auto"
    if not re.fullmatch(r"true|1|yes|on|false|0|no|off|auto(:\d{1,3})?", search, re.IGNORECASE):
        expected = "true, false, auto or auto:N with N percent"
        tools.problems.append(("ENABLE_TOOL_SEARCH", f"is {search!r}, but must be {expected}"))
    variables = ForeignVariables(
        access=ForeignAccessVariables(
            cloud=next(
                (f"{name} ({cloud})" for name, cloud in _CLOUD_VARIABLES.items() if reader.is_true(name)), ""
            ),
            oauth_token=reader.get_text("CLAUDE_CODE_OAUTH_TOKEN"),
            key_helper=_find_key_helper(documents, reader.get_seconds("CLAUDE_CODE_API_KEY_HELPER_TTL_MS")),
            custom_headers=reader.get_headers("ANTHROPIC_CUSTOM_HEADERS"),
        ),
        models=ForeignModelVariables(
            aliases={
                alias: name for alias, names in _ALIAS_VARIABLES.items() if (name := reader.get_text(*names))
            },
            default=reader.get_text("ANTHROPIC_DEFAULT_MODEL"),
            fallbacks=keys.get_names("fallbackModel")[:_MAX_FALLBACKS],
            available=tuple(_find_allowed_models(documents)),
            overrides=_find_model_overrides(documents),
        ),
        thinking=ForeignThinkingVariables(
            effort=reader.get_choice("CLAUDE_CODE_EFFORT_LEVEL", _EFFORTS),
            effort_level=keys.get_choice("effortLevel", _EFFORTS),
            max_tokens=reader.get_count("MAX_THINKING_TOKENS", minimum=0),
            is_always_on=keys.get_switch("alwaysThinkingEnabled"),
        ),
        tools=ForeignToolVariables(
            bash_timeout=tools.get_count("BASH_DEFAULT_TIMEOUT_MS"),
            bash_max_timeout=tools.get_count("BASH_MAX_TIMEOUT_MS"),
            bash_output_length=tools.get_count("BASH_MAX_OUTPUT_LENGTH"),
            mcp_start_timeout=tools.get_seconds("MCP_TIMEOUT"),
            waits_for_mcp_servers=tools.get_switch("MCP_CONNECTION_NONBLOCKING") is False,
            mcp_call_timeout=tools.get_seconds("MCP_TOOL_TIMEOUT"),
            mcp_output_tokens=tools.get_count("MAX_MCP_OUTPUT_TOKENS"),
            is_background_disabled=tools.is_true("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"),
            is_environment_scrubbed=tools.is_true("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB")
            or reader.is_true("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB"),
        ),
        max_output_tokens=reader.get_count("CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
        request_timeout=reader.get_seconds("API_TIMEOUT_MS"),
        max_retries=reader.get_count("CLAUDE_CODE_MAX_RETRIES", minimum=0),
        is_compaction_disabled=tools.is_true("DISABLE_AUTO_COMPACT")
        or keys.get_switch("autoCompactEnabled") is False,
        task_list=tools.get_text("CLAUDE_CODE_TASK_LIST_ID"),
        teammate_mode=_TEAMMATE_MODES.get(keys.get_choice("teammateMode", tuple(_TEAMMATE_MODES)) or ""),
    )
    problems = dict.fromkeys((*reader.problems, *tools.problems))
    sources = {
        name: document.locate_key(("env", name))
        for document in reversed(documents)
        for name, _ in problems
        if has_settings_key(document, ("env", name))
    }
    return VariableReading(
        variables,
        tuple(f"{name} {problem}. It is ignored." for name, problem in problems if name not in sources),
        (
            *(
                UnusedItem(location=sources[name], name=f"env.{name}", reason=f"the value {problem}")
                for name, problem in problems
                if name in sources
            ),
            *keys.unused_items,
        ),
    )


class _SettingsKeyReader:
    """Reads keys from the file with the highest precedence that sets them; an unusable value is not used."""

    def __init__(self, documents: Sequence[SettingsDocument]) -> None:
        self._documents = documents
        self.unused_items: list[UnusedItem] = []

    def _note_unused(self, location: str, key: str, reason: str) -> None:
        self.unused_items.append(UnusedItem(location=location, name=key, reason=reason))

    def _find_value(self, key: str) -> tuple[Any, str]:
        for document in self._documents:
            if has_settings_key(document, (key,)):
                return document.raw[key], document.locate_key((key,))
        return None, ""

    def get_switch(self, key: str) -> bool | None:
        value, location = self._find_value(key)
        if value is None or isinstance(value, bool):
            return value
        self._note_unused(location, key, "expected true or false")
        return None

    def get_choice(self, key: str, choices: Sequence[str]) -> str | None:
        value, location = self._find_value(key)
        if value is None:
            return None
        if isinstance(value, str) and value in choices:
            return value
        self._note_unused(location, key, f"expected one of {', '.join(choices)}")
        return None

    def get_names(self, key: str) -> tuple[str, ...]:
        value, location = self._find_value(key)
        names = [value] if isinstance(value, str) else [] if value is None else value
        if isinstance(names, list) and all(isinstance(name, str) and name.strip() for name in names):
            return tuple(name.strip() for name in names)
        self._note_unused(location, key, "expected a list of names")
        return ()


def _find_allowed_models(documents: Sequence[SettingsDocument]) -> Iterator[AllowedModelList]:
    """Yield the lists of all files. A list that cannot be read would allow every model, so it is refused."""
    for document in documents:
        if "availableModels" not in document.raw or document.raw["availableModels"] is None:
            continue
        names, location = document.raw["availableModels"], document.locate_key(("availableModels",))
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            message = f"{location}: availableModels: expected a list of model names."
            raise SettingsError(message, path=document.path)
        meanings = frozenset(_iter_managed_meanings(documents)) if document.kind == "managed" else None
        yield AllowedModelList(
            names=tuple(name.strip() for name in names), location=location, meanings=meanings
        )


def _iter_managed_meanings(documents: Sequence[SettingsDocument]) -> Iterator[tuple[str, str]]:
    """Yield each alias and id with the model that a managed file gives it."""
    for document in documents:
        if document.kind != "managed":
            continue
        own = _get_object(document.raw, "shoal")
        env, overrides = (_get_object(document.raw, key) for key in ("env", "modelOverrides"))
        for alias, variables in _ALIAS_VARIABLES.items():
            yield from ((alias, str(env[name])) for name in variables if env.get(name))
        for names in (overrides, _get_object(own, "aliases")):
            yield from ((name, str(meaning)) for name, meaning in names.items())


def _get_object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _find_model_overrides(documents: Sequence[SettingsDocument]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for document in reversed([each for each in documents if each.is_user_controlled]):
        raw = document.raw.get("modelOverrides")
        if isinstance(raw, dict):
            overrides |= {key: value for key, value in raw.items() if isinstance(value, str) and value}
    return overrides


def _find_key_helper(documents: Sequence[SettingsDocument], ttl: float | None) -> KeyHelperSettings | None:
    for document in documents:
        if has_settings_key(document, ("apiKeyHelper",)):
            command: Any = document.raw["apiKeyHelper"]
            location = document.locate_key(("apiKeyHelper",))
            if not isinstance(command, str):
                raise SettingsError(
                    f"{location}: apiKeyHelper: expected a shell command.", path=document.path
                )
            if not command.strip():
                return None
            seconds = _DEFAULT_HELPER_TTL_MS / 1000 if ttl is None else ttl
            return KeyHelperSettings(command=command, location=location, ttl=seconds)
    return None


def warn_unused_oauth_token(foreign: ForeignVariables, variables: Mapping[str, str]) -> Iterator[str]:
    """Say that requests to a gateway have no credentials if there is only a token that Shoal cannot use."""
    has_key = any(variables.get(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
    access = foreign.access
    if access.oauth_token and variables.get("ANTHROPIC_BASE_URL") and not (has_key or access.key_helper):
        yield (
            f"Shoal does not send CLAUDE_CODE_OAUTH_TOKEN to {variables['ANTHROPIC_BASE_URL']}, because it "
            "belongs to a Claude subscription. Requests have no key. If the server needs one, set "
            "ANTHROPIC_AUTH_TOKEN or ANTHROPIC_API_KEY."
        )


def replace_variables(environ: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the variables of the key `env`, whose empty values unset variables."""
    if not env:
        return environ
    return {name: value for name, value in {**environ, **env}.items() if value or name not in env}


def convert_env_values_to_text(env: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in env.items()
    }


def find_first_set_variable(names: Sequence[str], variables: Mapping[str, str]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)
