"""A person's place at a run: what they type goes from here, what they see comes from its stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from shoal.core.ids import AgentId
from shoal.core.messages import Message
from shoal.surfaces.tui.completing import Proposal
from shoal.surfaces.tui.stage import Stage


class Seat(Protocol):
    @property
    def stage(self) -> Stage: ...

    @property
    def open(self) -> bool:
        """Whether what is typed can be taken: not before the run is up, nor while it ends."""
        ...

    @property
    def root(self) -> Path:
        """The project: what `@` completes and pictures are looked for."""
        ...

    @property
    def viewed(self) -> AgentId:
        """Whose conversation is shown, and whom what is typed goes to."""
        ...

    @property
    def takes_images(self) -> bool: ...

    @property
    def doing(self) -> str:
        """What the run is at right now, in a line; nothing where it rests."""
        ...

    @property
    def facts(self) -> Sequence[str]:
        """What stands at the foot beside what every run has: the mode of delegating, the context used."""
        ...

    def commands(self) -> list[Proposal]: ...

    def agents(self) -> list[Proposal]:
        """Whom one can talk to."""
        ...

    def catch_up(self) -> None:
        """Let the stage hear what has happened."""
        ...

    def say(self, message: Message) -> None: ...

    def view(self, agent: AgentId, name: str) -> None: ...

    def stop_turn(self) -> bool:
        """End the turn of the one that is viewed; False where there is none."""
        ...

    def interrupt(self, line: str) -> None:
        """Ctrl-C."""
        ...

    def to_background(self) -> bool: ...

    def next_mode(self) -> None: ...

    def leave(self, status: int = 0) -> None: ...
