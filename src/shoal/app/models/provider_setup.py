"""Provider setup: what the user enters is first tried and then stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.provider_credentials import PROVIDER_VARIABLES, apply_credential_variables
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_writer import save_default_model
from shoal.core.errors import SettingsError
from shoal.stores.files.home.credential_file import store_provider_credentials

ProviderChoice: TypeAlias = Literal["anthropic", "openai", "openrouter", "ollama", "server"]
DEFAULT_MODELS: Mapping[ProviderChoice, str] = {
    "anthropic": "sonnet",
    "openai": "sonnet",
    "openrouter": "sonnet",
}
_KEY_VARIABLES: Mapping[ProviderChoice, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "server": "OPENAI_API_KEY",
}
_ADDRESS_VARIABLES: Mapping[ProviderChoice, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "server": "OPENAI_BASE_URL",
    "ollama": "OLLAMA_HOST",
}


class ProviderSetup(Struct, frozen=True, kw_only=True):
    """Provider settings entered by the user; `server` is a custom server with an OpenAI-compatible API."""

    choice: ProviderChoice
    key: str = ""
    base_url: str = ""

    def __repr__(self) -> str:
        return f"ProviderSetup({self.choice})"

    @property
    def provider(self) -> str:
        return "openai" if self.choice == "server" else self.choice

    @property
    def variables(self) -> dict[str, str]:
        """Variables to store. Raises `SettingsError` if a value is missing or invalid."""
        key, address = self.key.strip(), self.base_url.strip()
        if any(character.isspace() or not character.isprintable() for character in key):
            raise SettingsError("The key is not valid: it must be one line without spaces.")
        if address and "://" not in address and self.choice != "ollama":
            raise SettingsError(f"{address!r} is not a URL. It must start with http:// or https://.")
        if self.choice == "server" and not address:
            raise SettingsError("Your own server needs a URL: --base-url http://HOST:PORT/v1")
        if self.choice in ("anthropic", "openai", "openrouter") and not key and not address:
            raise SettingsError(
                f"There is no key for {self.choice}. Paste it at the prompt, or pipe it in: … | shoal "
                f"setup --provider {self.choice} --key-stdin"
            )
        if address and self.choice not in _ADDRESS_VARIABLES:
            raise SettingsError(f"{self.choice} has a fixed URL. Leave out --base-url.")
        variables = {_KEY_VARIABLES[self.choice]: key} if key and self.choice in _KEY_VARIABLES else {}
        return variables | ({_ADDRESS_VARIABLES[self.choice]: address} if address else {})


def find_overriding_variables(settings: Settings, provider: str) -> tuple[str, ...]:
    """Return the variables set elsewhere, which override what is stored for the provider."""
    overriding = [name for name in PROVIDER_VARIABLES[provider] if _is_variable_set_elsewhere(settings, name)]
    return tuple(overriding)


def _is_variable_set_elsewhere(settings: Settings, variable: str) -> bool:
    variables = {**_merge_user_settings_env(settings), **settings.environ}
    return bool(variables.get(variable))


def _merge_user_settings_env(settings: Settings) -> dict[str, str]:
    variables: dict[str, str] = {}
    for document in reversed(settings.documents):
        env = document.raw.get("env")
        if document.is_user_controlled and isinstance(env, dict):
            variables |= {str(name): str(value) for name, value in env.items()}
    return variables


def apply_provider_setup(settings: Settings, setup: ProviderSetup) -> Settings:
    """Return the settings as if only this setup configured access to the provider."""
    names = PROVIDER_VARIABLES[setup.provider]
    access = apply_credential_variables(settings.access, {**dict.fromkeys(names), **setup.variables})
    return replace(settings, access=access, models=replace(settings.models, main=None))


def qualify_model_name(name: str | None, setup: ProviderSetup) -> str | None:
    """Add the provider to a model name: a bare name could resolve to another provider."""
    from shoal.models.providers import PROVIDERS

    if name is None or name.partition(":")[0] in PROVIDERS:
        return name
    return f"{setup.provider}:{name}"


async def list_self_hosted_models(settings: Settings) -> list[str]:
    """Return the models of a custom server or Ollama."""
    from shoal.app.models.model_choice import resolve_ollama_url
    from shoal.models.providers import list_ollama_models, list_openai_server_models

    if settings.access.openai_base_url:
        return await list_openai_server_models(settings.access.openai_base_url, timeout=2.0)
    return await list_ollama_models(resolve_ollama_url(settings), timeout=2.0)


def save_provider_setup(settings: Settings, setup: ProviderSetup, model: str | None) -> None:
    """Store the setup. Raises `StateFileError` or `SettingsError`."""
    store_provider_credentials(settings.home, setup.provider, setup.variables)
    # Written second: a model without a provider key would only fail.
    if model is not None:
        save_default_model(model, settings.home / "settings.json")


def remove_provider_setup(settings: Settings, choice: ProviderChoice) -> bool:
    """Remove the stored setup and a default model of that provider; return True if there was one."""
    provider = ProviderSetup(choice=choice).provider
    was_stored = provider in settings.stored
    if settings.own.model is not None and settings.own.model.partition(":")[0] == provider and was_stored:
        save_default_model(None, settings.home / "settings.json")
    store_provider_credentials(settings.home, provider, None)
    return was_stored
