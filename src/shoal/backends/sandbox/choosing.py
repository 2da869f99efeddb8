"""Selection of the sandbox for the commands of a session: the first that works here, or none and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from msgspec import Struct

from shoal.backends.sandbox.bubblewrap import Bubblewrap
from shoal.backends.sandbox.kind import Kind
from shoal.backends.sandbox.landlock import Landlock
from shoal.backends.sandbox.seatbelt import Seatbelt
from shoal.core.errors import ProcessError
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

WAY_OUT = (
    "Or run without it, if you accept that commands can then do all that you can: "
    '{"shoal": {"sandbox": {"enabled": false}}} in your settings.json.'
)


class Wish(Struct, frozen=True, kw_only=True):
    """Sandbox settings of the user."""

    enabled: bool = True
    insists: bool = False
    """Refuse a command that cannot be confined as requested, instead of running it without a sandbox."""
    auto_allow: bool = False


class Found(Struct, frozen=True, kw_only=True):
    """Driver that works here, and the problems of better ones."""

    kind: Kind | None
    troubles: tuple[str, ...] = ()


class ChosenSandbox:
    """`get_policy` is called for each command: directories are granted while a session runs."""

    def __init__(
        self,
        wish: Wish,
        *,
        confines: Callable[[], Confines],
        kinds: Sequence[Kind],
        note: Callable[[str], None],
    ) -> None:
        self._wish = wish
        self._confines = confines
        self._kinds = kinds
        self._note = note
        self._found: Found | None = None
        self._holds: tuple[Kind | None] | None = None
        self._said: set[str] = set()

    @property
    def holds(self) -> bool:
        return self._holding() is not None

    @property
    def trouble(self) -> str:
        """Reason why commands are not confined; empty if they are."""
        return self._judged()[2]

    @property
    def vouches(self) -> bool:
        if not self._wish.auto_allow:
            return False
        kind = self._holding()
        # Through a reachable socket a command could get its own questions answered.
        return kind is not None and kind.closes_doors

    @property
    def ends_all(self) -> bool:
        kind = self._holding()
        return kind is not None and kind.ends_all

    async def ready(self) -> None:
        if self._wish.enabled and self._found is None:
            import asyncio

            await asyncio.to_thread(self._find)

    def wrap(self, launch: Launch) -> Launch:
        if not self._wish.enabled:
            return launch
        kind, confines, why = self._judged()
        if kind is not None:
            found = self._find()
            if kind.limits and found.troubles:
                self._say(f"Commands are confined by {kind.name}, for {found.troubles[0]}. {kind.limits}")
            return kind.wrap(launch, confines)
        if self._wish.insists:
            raise ProcessError(f"The settings ask for a sandbox that cannot hold here: {why}. {WAY_OUT}")
        self._say(f"Commands run without a sandbox: {why}.")
        return launch

    def _holding(self) -> Kind | None:
        """Return the driver; cached, because it is needed for every call."""
        if self._holds is None:
            self._holds = (self._judged()[0],)
        return self._holds[0]

    def _judged(self) -> tuple[Kind | None, Confines, str]:
        """Return the driver and the policy for a command, or None and the reason."""
        if not self._wish.enabled:
            return None, Confines(writable=()), "the settings turn it off"
        found, confines = self._find(), self._confines()
        if found.kind is None:
            return None, confines, "; ".join(found.troubles) or "there is none for this system"
        lack = found.kind.lack(confines)
        if lack is not None:
            return None, confines, "; ".join((lack, *found.troubles))
        return found.kind, confines, ""

    def _find(self) -> Found:
        if self._found is None:
            self._found = found_among(self._kinds)
        return self._found

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._note(text)


def kinds_here(path: str) -> tuple[Kind, ...]:
    """Return the drivers of this system, best first. `path` is where programs are looked up."""
    return {"linux": (Bubblewrap(path), Landlock()), "darwin": (Seatbelt(),)}.get(sys.platform, ())


def found_among(kinds: Sequence[Kind]) -> Found:
    troubles: list[str] = []
    for kind in kinds:
        trouble = kind.trouble()
        if trouble is None:
            return Found(kind=kind, troubles=tuple(troubles))
        troubles.append(trouble)
    return Found(kind=None, troubles=tuple(troubles))
