"""Each safeguard of guards.toml is in the program, and can be removed."""

from __future__ import annotations

import ast

import pytest
from tests.mutation.guards import Guard, load_guards
from tests.mutation.rooms import ROOT


def test_every_guard_can_be_removed_and_its_tests_exist() -> None:
    guards = load_guards()
    assert len({guard.name for guard in guards}) == len(guards)
    for guard in guards:
        source = (ROOT / guard.file).read_bytes()
        ast.parse(guard.to_mutant().apply(source))
        for test in guard.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), test
            assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize("text", ["no such text", "import"])
def test_a_guard_that_is_not_there_exactly_once_is_an_error(text: str) -> None:
    guard = Guard("a guard", "src/shoal/core/flock_queue.py", text, ("tests",))
    with pytest.raises(ValueError, match=r"a guard: the text must be in src/shoal/core/flock_queue\.py"):
        guard.to_mutant()
