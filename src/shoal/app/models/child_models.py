"""Model of a child agent: the requested one, translated to the parent's provider."""

from __future__ import annotations

from shoal.app.settings.settings import Settings
from shoal.core.definitions import wished_model
from shoal.core.usage import ModelCard


def child_model(
    settings: Settings, parent: ModelCard, *, call: str | None, definition: str | None
) -> str | None:
    """Return the name of the model to use; None for the parent's running model."""
    from shoal.models.catalogue import beside, names_of

    own = settings.own.aliases
    names = names_of(parent)
    # An alias from the user's settings takes precedence over the built-in meaning of that name.
    meant = {alias for alias, name in own.items() if name in names} | (names - own.keys())
    wish = wished_model(env=settings.subagent_model, call=call, definition=definition, parent=meant)
    return None if wish is None else beside(own.get(wish, wish), parent)
