"""Index of named items from several sources: each name resolves to the one with the highest precedence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from shoal.core.agents.agent_definitions import DefinitionProblem, DefinitionSource


class _NamedDefinition(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def source(self) -> DefinitionSource: ...


Item = TypeVar("Item", bound=_NamedDefinition)


class DefinitionPrecedenceIndex(Generic[Item]):
    """Filled source by source, highest precedence first. `noun` names one item, such as "agent"."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.by_name: dict[str, Item | DefinitionProblem] = {}
        """Item for each name; a problem if the file of the source with the highest precedence is bad."""
        self.shadowed: list[tuple[Item, Item | DefinitionProblem]] = []
        """Unused items, each with the item that takes precedence."""
        self.problems: list[DefinitionProblem] = []
        self.warnings: list[str] = []
        self._usable: tuple[Item, ...] | None = None

    @property
    def usable(self) -> tuple[Item, ...]:
        """Usable items; the same object each time."""
        if self._usable is None:
            found = self.by_name.values()
            self._usable = tuple(each for each in found if not isinstance(each, DefinitionProblem))
        return self._usable

    def add_source(
        self, good: Iterable[tuple[Item, Sequence[str]]], bad: Iterable[DefinitionProblem]
    ) -> None:
        """Add one source: its usable items with their warnings, and its problems."""
        in_source: dict[str, Item] = {}
        for item, warnings in good:
            self.warnings += warnings
            first = in_source.setdefault(item.name, item)
            if first is not item:
                what = (
                    f"two {self._noun}s have the name {item.name!r}: {first.source} is used instead of "
                    "this one"
                )
                self.problems.append(
                    DefinitionProblem(what=what, name=item.name, source=item.source, field="name")
                )
            elif (stronger := self.by_name.setdefault(item.name, item)) is not item:
                self.shadowed.append((item, stronger))
        # Bad files come after the good ones: within a source a bad file takes no name from a good one. It
        # does hide weaker sources; otherwise an agent other than the intended one would do the work.
        for problem in bad:
            self.problems.append(problem)
            self.by_name.setdefault(problem.name, problem)
