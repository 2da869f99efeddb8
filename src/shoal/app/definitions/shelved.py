"""Index of named items from several sources: each name resolves to the strongest source that has it."""

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
    """Filled source by source, the strongest first. `noun` names one item, such as "agent" or "skill"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.standing: dict[str, Item | Problem] = {}
        """Item for each name; a problem if the strongest source's file is bad."""
        self.shadowed: list[tuple[Item, Item | Problem]] = []
        """Unused items, each with the item that takes precedence."""
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._usable: tuple[Item, ...] | None = None

    @property
    def usable(self) -> tuple[Item, ...]:
        """Usable items; the same object each time."""
        if self._usable is None:
            found = self.standing.values()
            self._usable = tuple(each for each in found if not isinstance(each, Problem))
        return self._usable

    def take(self, good: Iterable[tuple[Item, Sequence[str]]], bad: Iterable[Problem]) -> None:
        """Add one source: its usable items with their warnings, and its problems."""
        here: dict[str, Item] = {}
        for item, warnings in good:
            self.warnings += warnings
            first = here.setdefault(item.name, item)
            if first is not item:
                what = f"two {self._what}s are named {item.name!r}: {first.source} is used, this one is not"
                self.problems.append(Problem(what=what, name=item.name, source=item.source, field="name"))
            elif (stronger := self.standing.setdefault(item.name, item)) is not item:
                self.shadowed.append((item, stronger))
        # Bad files come after the good ones: within a source a bad file takes no name from a good one. It
        # does hide weaker sources; otherwise an agent other than the intended one would do the work.
        for problem in bad:
            self.problems.append(problem)
            self.standing.setdefault(problem.name, problem)
