"""Every door, with whatever is made at random: a value, or the error it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.wire.foreign_json import InvalidFileContent, RejectedFileEntry

from . import fuzz_inputs
from .fuzz_inputs import limit_examples
from .fuzz_targets import TARGETS, TARGETS_BY_NAME, FuzzTarget

SLOW = frozenset(door.name for group in ("files", "project", "shell") for door in TARGETS[group])
FAST = [door for door in TARGETS_BY_NAME.values() if door.name not in SLOW]


@pytest.mark.parametrize("door", TARGETS_BY_NAME.values(), ids=TARGETS_BY_NAME)
def test_valid_input_is_accepted(door: FuzzTarget) -> None:
    for seed in door.seeds:
        assert not isinstance(door.read_input(seed), InvalidFileContent | RejectedFileEntry)
        door.try_input(seed)


@pytest.mark.parametrize("door", FAST, ids=[door.name for door in FAST])
@limit_examples(25)
@given(data=st.data())
def test_a_target_returns_a_value_or_raises_its_declared_error(door: FuzzTarget, data: st.DataObject) -> None:
    door.try_input(data.draw(fuzz_inputs.inputs_for_documents(door.seeds)))


RULES = {"inbox-file": ("BOX-01",), "task-file": ("TSK-12",), "roster-file": ("HOM-06",)}
FILES = [
    pytest.param(
        door, id=door.name, marks=[pytest.mark.spec(*RULES[door.name])] if door.name in RULES else []
    )
    for door in TARGETS["files"]
]


@pytest.mark.parametrize("door", FILES)
@limit_examples(15)
@given(data=st.data())
def test_a_broken_file_is_named_and_kept_and_its_neighbour_is_read(
    door: FuzzTarget, data: st.DataObject
) -> None:
    door.try_input(data.draw(fuzz_inputs.inputs_for_documents(door.seeds)))


@pytest.mark.parametrize("door", TARGETS["project"], ids=[door.name for door in TARGETS["project"]])
@limit_examples(10)
@given(data=st.data())
def test_a_project_file_is_accepted_or_named_and_widens_no_permission(
    door: FuzzTarget, data: st.DataObject
) -> None:
    door.try_input(data.draw(fuzz_inputs.inputs_for_documents(door.seeds)))
