"""Safeguards of `guards.toml`: a test must fail without each of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct
from tests.mutation.mutants import Mutant
from tests.mutation.rooms import ROOT

GUARDS = Path(__file__).with_name("guards.toml")


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    """One safeguard: its text in a file, what replaces it, and the tests that notice."""

    name: str
    file: str
    guard: str
    tests: tuple[str, ...]
    instead: str = ""

    def to_mutant(self, root: Path = ROOT) -> Mutant:
        """Return the change that removes the safeguard. Raises `ValueError` unless its text is there once."""
        source = (root / self.file).read_bytes()
        start = source.find(self.guard.encode())
        if start < 0 or source.count(self.guard.encode()) > 1:
            raise ValueError(f"{GUARDS.name}, {self.name}: the text must be in {self.file} exactly once")
        return Mutant(
            module=self.file,
            line=source.count(b"\n", 0, start) + 1,
            column=1,
            function="",
            start=start,
            end=start + len(self.guard.encode()),
            before=self.guard,
            after=self.instead,
        )


class _GuardList(Struct, frozen=True, forbid_unknown_fields=True):
    guard: tuple[Guard, ...]


def load_guards() -> tuple[Guard, ...]:
    return msgspec.toml.decode(GUARDS.read_bytes(), type=_GuardList).guard
