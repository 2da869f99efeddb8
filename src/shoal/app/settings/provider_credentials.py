"""Credentials of model providers, and the variables that hold them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

ACCESS_VARIABLES = {
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


class ProviderCredentials(Struct, frozen=True, kw_only=True):
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
        set_fields = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"ProviderCredentials({', '.join(set_fields)})"


def apply_credential_variables(
    access: ProviderCredentials, variables: Mapping[str, str | None]
) -> ProviderCredentials:
    """Return the credentials as if these variables were set."""
    names = {variable: name for name, variable in ACCESS_VARIABLES.items()}
    return replace(access, **{names[variable]: value or None for variable, value in variables.items()})


def select_stored_provider_variables(
    stored: Mapping[str, Mapping[str, str]], variables_in_use: Mapping[str, str]
) -> dict[str, str]:
    """Return stored variables of providers with no other setting: a key must not go to another address."""
    selected: dict[str, str] = {}
    for provider, variables in stored.items():
        names = PROVIDER_VARIABLES.get(provider, ())
        if not any(variables_in_use.get(name) for name in names):
            selected |= {name: variables[name] for name in names if variables.get(name)}
    return selected
