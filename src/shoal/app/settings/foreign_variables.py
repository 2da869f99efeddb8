"""Environment variables and settings keys of Claude Code that configure models, tools and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.wire.settings_codec import SettingsDocument, has_settings_key

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
_DEFAULT_HELPER_TTL_MS = 300_000


class KeyHelperSettings(Struct, frozen=True, kw_only=True):
    """Shell command line that prints an API key, and how long its output may be used."""

    command: str
    location: str
    """File and line of the setting."""
    ttl: float
    """Seconds after which the command runs again."""


class ForeignVariables(Struct, frozen=True, kw_only=True):
    """Values from variables and keys that Claude Code reads too. None means not set."""

    cloud: str = ""
    """Variable that selects a cloud provider, with its name; empty if none does."""
    oauth_token: str | None = None
    """Token of a Claude subscription, which Shoal cannot use."""
    key_helper: KeyHelperSettings | None = None
    model_aliases: Mapping[str, str] = {}
    """Meaning of the aliases opus, sonnet, haiku and fable for Anthropic's API."""
    default_model: str | None = None
    """Model if no file and no other variable names one."""
    custom_headers: tuple[tuple[str, str], ...] = ()
    """Headers added to each request to Anthropic's API or its gateway."""
    max_output_tokens: int | None = None
    request_timeout: float | None = None
    """Seconds for one whole answer of a model."""

    def __repr__(self) -> str:
        return "ForeignVariables()"  # headers and tokens may be secret


class VariableReading(NamedTuple):
    variables: ForeignVariables
    warnings: tuple[str, ...]


class _VariableReader:
    """Reads typed values; an unusable value is a warning, because none of these variables restricts."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.warnings: list[str] = []

    def get_text(self, *names: str) -> str | None:
        return next((value for name in names if (value := self._variables.get(name, "").strip())), None)

    def is_true(self, name: str) -> bool:
        return self._variables.get(name, "").strip().lower() in _TRUE_VALUES

    def get_count(self, name: str, *, minimum: int = 1) -> int | None:
        text = self.get_text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < minimum:
            self.warnings.append(f"{name} is {text!r}, not a whole number from {minimum} up. It is ignored.")
            return None
        return int(text)

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
            if not colon or not header or not header.replace("-", "").replace("_", "").isalnum():
                # The line may hold a secret, so it is not shown.
                self.warnings.append(f"{name} has a line that is not `Name: value`. The line is ignored.")
                continue
            headers.append((header, value))
        return tuple(headers)


def read_foreign_variables(
    *,
    environ: Mapping[str, str],
    user_env: Mapping[str, str],
    documents: Sequence[SettingsDocument],
) -> VariableReading:
    """Read the variables from the environment, `env` of the user's files, and keys of the documents.

    A value in `env` replaces that of the shell. Raises `SettingsError`.
    """
    reader = _VariableReader({**environ, **user_env})
    variables = ForeignVariables(
        cloud=next(
            (f"{name} ({cloud})" for name, cloud in _CLOUD_VARIABLES.items() if reader.is_true(name)), ""
        ),
        oauth_token=reader.get_text("CLAUDE_CODE_OAUTH_TOKEN"),
        key_helper=_find_key_helper(documents, reader.get_seconds("CLAUDE_CODE_API_KEY_HELPER_TTL_MS")),
        model_aliases={
            alias: name for alias, names in _ALIAS_VARIABLES.items() if (name := reader.get_text(*names))
        },
        default_model=reader.get_text("ANTHROPIC_DEFAULT_MODEL"),
        custom_headers=reader.get_headers("ANTHROPIC_CUSTOM_HEADERS"),
        max_output_tokens=reader.get_count("CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
        request_timeout=reader.get_seconds("API_TIMEOUT_MS"),
    )
    return VariableReading(variables, tuple(reader.warnings))


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
