"""Every door, with whatever is made at random: a value, or the error it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.wire.foreign import Invalid, Rejected

from . import inputs
from .doors import BY_NAME, DOORS, Door
from .inputs import some

SLOW = frozenset(door.name for group in ("files", "project", "shell") for door in DOORS[group])
FAST = [door for door in BY_NAME.values() if door.name not in SLOW]


@pytest.mark.parametrize("door", BY_NAME.values(), ids=BY_NAME)
def test_what_is_as_it_should_be_is_let_in(door: Door) -> None:
    for seed in door.seeds:
        assert not isinstance(door.read(seed), Invalid | Rejected)
        door.tried(seed)


@pytest.mark.parametrize("door", FAST, ids=[door.name for door in FAST])
@some(25)
@given(data=st.data())
def test_a_door_gives_a_value_or_the_error_it_names(door: Door, data: st.DataObject) -> None:
    door.tried(data.draw(inputs.for_documents(door.seeds)))


RULES = {"inbox-file": ("BOX-01",), "task-file": ("TSK-12",), "roster-file": ("HOM-06",)}
FILES = [
    pytest.param(
        door, id=door.name, marks=[pytest.mark.spec(*RULES[door.name])] if door.name in RULES else []
    )
    for door in DOORS["files"]
]


@pytest.mark.parametrize("door", FILES)
@some(15)
@given(data=st.data())
def test_a_broken_file_is_named_and_kept_and_its_neighbour_read(door: Door, data: st.DataObject) -> None:
    door.tried(data.draw(inputs.for_documents(door.seeds)))


@pytest.mark.parametrize("door", DOORS["project"], ids=[door.name for door in DOORS["project"]])
@some(10)
@given(data=st.data())
def test_a_file_of_a_project_is_taken_or_named_and_widens_nothing(door: Door, data: st.DataObject) -> None:
    door.tried(data.draw(inputs.for_documents(door.seeds)))
