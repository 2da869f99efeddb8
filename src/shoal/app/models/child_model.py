"""Models of child agents: the requested one, translated to the parent's provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import select_agent_model
from shoal.core.budgets.usage import ModelCard
from shoal.core.plan_mode_model import PlanModeModel
from shoal.core.ports import Model

BACKGROUND_ALIAS = "haiku"
"""Alias of the small model that does background work."""


def format_qualified_model_name(model: Model) -> str:
    """Return the model name with its provider, which is valid whatever the defaults are later."""
    if isinstance(model, PlanModeModel):
        return model.name
    return f"{model.card.provider}:{model.card.id}"


def choose_subagent_model(
    settings: Settings, parent: ModelCard, *, call: str | None, definition: str | None
) -> str | None:
    """Return the name of the model to use; None for the parent's running model."""
    from shoal.models.catalogue import list_equivalent_model_names, qualify_model_alias

    aliases = settings.model_aliases
    names = list_equivalent_model_names(parent)
    # An alias from the user's settings takes precedence over the built-in meaning of that name.
    parent_names = {alias for alias, name in aliases.items() if name in names} | (names - aliases.keys())
    selected = select_agent_model(
        env=settings.models.subagents, call=call, definition=definition, parent=parent_names
    )
    return None if selected is None else qualify_model_alias(aliases.get(selected, selected), parent)


def choose_background_model(settings: Settings, parent: ModelCard, name: str) -> str | None:
    """Return the name of a model for small questions: the named one, or the provider's small model.

    None means the parent's running model.
    """
    from shoal.models.catalogue import qualify_model_alias

    wanted = name or BACKGROUND_ALIAS
    qualified = qualify_model_alias(settings.own.aliases.get(wanted, wanted), parent)
    # A provider without a small model answers with the model that runs.
    return None if not name and qualified == BACKGROUND_ALIAS else qualified


class SubagentModelResolver:
    """Resolves and opens the models of child agents; each model is opened once per session."""

    def __init__(
        self, settings: Settings, choose_model: Callable[[str | Model | None], Awaitable[Model]]
    ) -> None:
        self.choose_model = choose_model
        self._settings = settings
        self._models: dict[str, Model] = {}

        @lru_cache(maxsize=64)
        def choose_name(parent: ModelCard, call: str | None, definition: str | None) -> str | None:
            return choose_subagent_model(settings, parent, call=call, definition=definition)

        self._choose_name = choose_name

    async def resolve_model(self, parent: Model, *, call: str | None, definition: str | None) -> Model:
        return await self.load_model(parent, self._choose_name(parent.card, call, definition))

    async def load_model(self, parent: Model, name: str | None) -> Model:
        """Return the model with this name, or the parent's model if the name is the parent's or None."""
        if name is None or name in (parent.card.id, format_qualified_model_name(parent)):
            return parent
        if name not in self._models:
            self._models[name] = await self.choose_model(name)
        return self._models[name]

    async def load_background_model(self, parent: Model, name: str) -> Model:
        """Return a model for small questions: the named one, or the provider's small model."""
        return await self.load_model(parent, choose_background_model(self._settings, parent.card, name))
