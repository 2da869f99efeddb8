"""What a name leads to where several sources have something of that name: the strongest source's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from shoal.core.definitions import Problem, Source


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Source: ...


Item = TypeVar("Item", bound=_Named)


class Shelved(Generic[Item]):
    """Filled source by source, the strongest first. `what` is the word for one: an agent, a skill."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.standing: dict[str, Item | Problem] = {}
        """What each name leads to; a problem where the strongest source's file is bad."""
        self.shadowed: list[tuple[Item, Item | Problem]] = []
        """Those that are not used, and what comes before each."""
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._usable: tuple[Item, ...] | None = None

    @property
    def usable(self) -> tuple[Item, ...]:
        """The same object each time."""
        if self._usable is None:
            found = self.standing.values()
            self._usable = tuple(each for each in found if not isinstance(each, Problem))
        return self._usable

    def take(self, good: Iterable[tuple[Item, Sequence[str]]], bad: Iterable[Problem]) -> None:
        """One source: what can be used of it, each with its warnings, and what cannot."""
        here: dict[str, Item] = {}
        for item, warnings in good:
            self.warnings += warnings
            first = here.setdefault(item.name, item)
            if first is not item:
                what = f"two {self._what}s are named {item.name!r}: {first.source} is used, this one is not"
                self.problems.append(Problem(what=what, name=item.name, source=item.source, field="name"))
            elif (stronger := self.standing.setdefault(item.name, item)) is not item:
                self.shadowed.append((item, stronger))
        # After the good ones: in one place a bad file takes no name from them. From weaker places it does, or
        # another than the one that was written would do the work.
        for problem in bad:
            self.problems.append(problem)
            self.standing.setdefault(problem.name, problem)
