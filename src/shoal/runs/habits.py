"""How the agents of a session are run."""

from __future__ import annotations

from msgspec import Struct


class Habits(Struct, frozen=True, kw_only=True):
    """How agents are run where nothing else is said."""

    background: bool = True
    """Whether agents may run in the background at all."""
    always_background: bool = False
    forks: bool = False
    """Whether an agent that is not named is a fork of who asks for it."""
    model_by_call: bool = True
    """Whether a call may name the model of the agent it starts."""
    auto_background: float = 120.0
    """Seconds after which one that is waited for is waited for no longer; 0 is never."""
    report_tokens: int = 1_000
    preview: int | None = None
    """Agents of one message beyond which a person is asked first; None is never."""
    usual: str = "general-purpose"
    """The agent that is started where none is named."""
