"""Each mutant is one valid change of a module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.mutation.mutants import MutantFinder, draw_mutants, find_callees
from tests.mutation.rooms import ROOMS, ROOT, Room

NESTED = """
class Guard:
    def check(self):
        def decide():
            return 1
        return decide

    class Inner:
        def decide(self):
            return 3
"""
SOURCE = """
def decide(age, names):
    "Text with 1 == 1 is not changed."
    if age >= 18 and not names:
        raise ValueError(f"{age + 1}")
    names.append(age)
    return age + 1
"""


def test_every_kind_of_change_is_found_once() -> None:
    found = MutantFinder(Path("decide.py"), SOURCE.encode()).find()
    assert [(mutant.line, mutant.before, mutant.after) for mutant in found] == [
        (4, "age >= 18 and not names", "False"),
        (4, "age >= 18 and not names", "True"),
        (4, "age >= 18 and not names", "(age >= 18 or not names)"),
        (4, "age >= 18", "(age > 18)"),
        (4, "18", "19"),
        (4, "not names", "(names)"),
        (5, 'raise ValueError(f"{age + 1}")', "pass"),
        (6, "names.append(age)", "pass"),
        (7, "age + 1", "None"),
        (7, "age + 1", "(age - 1)"),
        (7, "1", "2"),
    ]


def test_a_mutant_has_the_name_that_calls_of_its_function_are_recorded_with() -> None:
    """Calls are recorded with the qualified name of the code that is entered."""
    found = MutantFinder(Path("nested.py"), NESTED.encode()).find()
    assert {mutant.before: mutant.function for mutant in found} == {
        "1": "Guard.check.<locals>.decide",
        "decide": "Guard.check",
        "3": "Guard.Inner.decide",
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_mutants_of_every_room_can_be_compiled(room: Room) -> None:
    mutants = draw_mutants(ROOT, room.list_modules(), 20, seed=3)
    assert len(mutants) == 20
    for mutant in mutants:
        source = (ROOT / mutant.module).read_bytes()
        changed = mutant.apply(source)
        assert changed != source
        ast.parse(changed)


def test_the_callees_of_the_function_around_a_line_are_found() -> None:
    source = b"class A:\n    def a(self):\n        self.b(c(1))\n\n    def d(self):\n        e()\n"
    assert find_callees(source, 3) == {"b", "c"}
    assert find_callees(source, 6) == {"e"}
    assert find_callees(source, 1) == set()
