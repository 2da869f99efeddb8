"""Model of a child agent: the requested one, translated to the parent's provider."""

from __future__ import annotations

from shoal.app.settings.settings import Settings
from shoal.core.agent_definitions import select_agent_model
from shoal.core.usage import ModelCard


def choose_subagent_model(
    settings: Settings, parent: ModelCard, *, call: str | None, definition: str | None
) -> str | None:
    """Return the name of the model to use; None for the parent's running model."""
    from shoal.models.catalogue import list_equivalent_model_names, qualify_model_alias

    aliases = settings.own.aliases
    names = list_equivalent_model_names(parent)
    # An alias from the user's settings takes precedence over the built-in meaning of that name.
    parent_names = {alias for alias, name in aliases.items() if name in names} | (names - aliases.keys())
    selected = select_agent_model(
        env=settings.subagent_model, call=call, definition=definition, parent=parent_names
    )
    return None if selected is None else qualify_model_alias(aliases.get(selected, selected), parent)
