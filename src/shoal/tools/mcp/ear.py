"""Receives messages that a server pushes through its channel, once it is known to have declared one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.wire.mcp import BadPush, read_push

if TYPE_CHECKING:
    from shoal.tools.mcp.life import ServerLife

CAPABILITY = "claude/channel"
MOST_HELD = 20
"""Messages that may arrive before the server has declared its capabilities."""


class Ear:
    """Receiver of the pushed messages of one connection."""

    def __init__(self, life: ServerLife) -> None:
        self._life = life
        self._held: list[Any] = []
        self._declared: bool | None = None

    def hear(self, params: Any) -> None:
        if self._declared is not None:
            self._pass_on(params)
        elif len(self._held) < MOST_HELD:
            self._held.append(params)
        else:
            self._life.note_once(
                f"more than {MOST_HELD} messages of its channel came too early; the rest is dropped."
            )

    def open(self, *, declared: bool) -> None:
        self._declared = declared
        held, self._held = self._held, []
        for params in held:
            self._pass_on(params)

    def _pass_on(self, params: Any) -> None:
        if not self._declared:
            self._life.note_once(
                f"it sends messages of a channel, and does not declare the capability {CAPABILITY}: "
                "they are dropped."
            )
            return
        try:
            push = read_push(params)
        except BadPush as error:
            self._life.note_once(f"a message of its channel is dropped: {error}.")
            return
        self._life.pushed(push)
