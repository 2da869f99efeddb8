"""The permission mode that an approved plan leads back to."""

from __future__ import annotations

from shoal.core.permissions import Mode


class WorkedIn:
    """The mode in which the agent last worked: one that a person only passes through on the way to another,
    as a key that goes round the modes does, lets nothing happen."""

    def __init__(self) -> None:
        self._mode: Mode | None = None
        self._replies = -1

    def before_plan(self, now: Mode, replies: int) -> Mode | None:
        """`replies` is how many the model has given; None where nothing is known but the plan mode."""
        if replies != self._replies:
            self._replies = replies
            self._mode = self._mode if now == "plan" else now
        # Who left it has not said that it is wanted again.
        return "default" if self._mode == "bypassPermissions" != now else self._mode
