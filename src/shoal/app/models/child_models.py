"""Which model a child asks: what was wished for, in the words of its parent's provider."""

from __future__ import annotations

from shoal.app.settings.settings import Settings
from shoal.core.definitions import wished_model
from shoal.core.usage import ModelCard


def child_model(
    settings: Settings, parent: ModelCard, *, call: str | None, definition: str | None
) -> str | None:
    """The name to choose a model by; None for the parent's own running model."""
    from shoal.models.catalogue import beside, names_of

    own = settings.own.aliases
    names = names_of(parent)
    # What a person calls a model by settings of their own is what they say, whatever we would take it for.
    meant = {alias for alias, name in own.items() if name in names} | (names - own.keys())
    wish = wished_model(env=settings.subagent_model, call=call, definition=definition, parent=meant)
    return None if wish is None else beside(own.get(wish, wish), parent)
