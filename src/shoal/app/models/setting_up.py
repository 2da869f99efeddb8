"""Provider setup: what the user enters is first tried and then stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.keeping import keep_model
from shoal.app.settings.settings import PROVIDER_VARIABLES, Settings, with_variables
from shoal.core.errors import SettingsError
from shoal.stores.files.credentials import store_credentials

Choice: TypeAlias = Literal["anthropic", "openai", "openrouter", "ollama", "server"]
USUAL_MODELS: Mapping[Choice, str] = {"anthropic": "sonnet", "openai": "sonnet", "openrouter": "sonnet"}
_KEYS: Mapping[Choice, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "server": "OPENAI_API_KEY",
}
_ADDRESSES: Mapping[Choice, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "server": "OPENAI_BASE_URL",
    "ollama": "OLLAMA_HOST",
}


class Wish(Struct, frozen=True, kw_only=True):
    """Provider settings entered by the user; `server` is a custom server with an OpenAI-compatible API."""

    choice: Choice
    key: str = ""
    base_url: str = ""

    def __repr__(self) -> str:
        return f"Wish({self.choice})"

    @property
    def provider(self) -> str:
        return "openai" if self.choice == "server" else self.choice

    @property
    def variables(self) -> dict[str, str]:
        """Variables to store. Raises `SettingsError` if a value is missing or invalid."""
        key, address = self.key.strip(), self.base_url.strip()
        if any(character.isspace() or not character.isprintable() for character in key):
            raise SettingsError("A key is one line without blanks. What was given holds more than that.")
        if address and "://" not in address and self.choice != "ollama":
            raise SettingsError(f"{address!r} is no address: it begins with http:// or https://.")
        if self.choice == "server" and not address:
            raise SettingsError("A server of your own needs its address: --base-url http://HOST:PORT/v1")
        if self.choice in ("anthropic", "openai", "openrouter") and not key and not address:
            raise SettingsError(
                f"There is no key for {self.choice}. Paste it where it is asked for, or pipe it in: … | "
                f"shoal setup --provider {self.choice} --key-stdin"
            )
        if address and self.choice not in _ADDRESSES:
            raise SettingsError(f"{self.choice} has one address only: leave --base-url out.")
        found = {_KEYS[self.choice]: key} if key and self.choice in _KEYS else {}
        return found | ({_ADDRESSES[self.choice]: address} if address else {})


def overriding(settings: Settings, provider: str) -> tuple[str, ...]:
    """Return the variables set elsewhere, which override what is stored for the provider."""
    elsewhere = [name for name in PROVIDER_VARIABLES[provider] if _is_given(settings, name)]
    return tuple(elsewhere)


def _is_given(settings: Settings, variable: str) -> bool:
    given = {**_persons_env(settings), **settings.environ}
    return bool(given.get(variable))


def _persons_env(settings: Settings) -> dict[str, str]:
    found: dict[str, str] = {}
    for document in reversed(settings.documents):
        env = document.raw.get("env")
        if document.is_persons and isinstance(env, dict):
            found |= {str(name): str(value) for name, value in env.items()}
    return found


def as_wished(settings: Settings, wish: Wish) -> Settings:
    """Return the settings as if only this setup said how to reach the provider."""
    names = PROVIDER_VARIABLES[wish.provider]
    reached = with_variables(settings.access, {**dict.fromkeys(names), **wish.variables})
    return replace(settings, access=reached, model=None)


def whole_name(name: str | None, wish: Wish) -> str | None:
    """Add the provider to a model name: a bare name could resolve to another provider."""
    from shoal.models.providers import PROVIDERS

    if name is None or name.partition(":")[0] in PROVIDERS:
        return name
    return f"{wish.provider}:{name}"


async def offered(settings: Settings) -> list[str]:
    """Return the models of a custom server or of Ollama."""
    from shoal.app.models.choosing import ollama_url
    from shoal.models.providers import find_ollama, find_served

    if settings.access.openai_base_url:
        return await find_served(settings.access.openai_base_url, within=2.0)
    return await find_ollama(ollama_url(settings), within=2.0)


def keep(settings: Settings, wish: Wish, model: str | None) -> None:
    """Store the setup. Raises `StoreError` or `SettingsError`."""
    store_credentials(settings.home, wish.provider, wish.variables)
    # Written second: a model without a provider key would only fail.
    if model is not None:
        keep_model(model, settings.home / "settings.json")


def forget(settings: Settings, choice: Choice) -> bool:
    """Remove the stored setup and a default model of that provider; return True if there was one."""
    provider = Wish(choice=choice).provider
    was_stored = provider in settings.stored
    if settings.own.model is not None and settings.own.model.partition(":")[0] == provider and was_stored:
        keep_model(None, settings.home / "settings.json")
    store_credentials(settings.home, provider, None)
    return was_stored
