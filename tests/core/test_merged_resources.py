"""Resources of a machine that an agent's call and its definition ask for."""

from __future__ import annotations

import pytest

from shoal.core.agents.subagents import ResourceRequest

GIB = 2**30


@pytest.mark.parametrize(
    ("requested", "required", "merged"),
    [
        ({}, {}, {}),
        ({}, {"cpus": 2, "memory": GIB, "gpus": 1, "labels": {"n": "1"}}, None),
        ({"cpus": 2, "memory": GIB, "gpus": 1, "labels": {"n": "1"}}, {}, None),
        # The call wins, and may ask for less.
        ({"cpus": 0.5}, {"cpus": 2}, {"cpus": 0.5}),
        ({"cpus": 0}, {"cpus": 2}, {"cpus": 0}),
        ({"memory": 1}, {"memory": GIB, "gpus": 2}, {"memory": 1, "gpus": 2}),
        ({"gpus": 0.5}, {"gpus": 2, "memory": 3}, {"gpus": 0.5, "memory": 3}),
        ({"labels": {"a": "1"}}, {"labels": {"b": "2"}}, {"labels": {"a": "1", "b": "2"}}),
    ],
)
def test_a_call_gets_what_it_asks_for_and_the_rest_of_its_definition(
    requested: dict, required: dict, merged: dict | None
) -> None:
    expected = (requested or required) if merged is None else merged
    call, definition = ResourceRequest(**requested), ResourceRequest(**required)
    assert call.add_missing(definition) == ResourceRequest(**expected)
    assert call.find_conflicting_labels(definition) == []


def test_labels_with_another_value_are_in_conflict() -> None:
    call = ResourceRequest(labels={"a": "1", "b": "2", "c": "3"})
    assert call.find_conflicting_labels(ResourceRequest(labels={"a": "1", "b": "x", "c": "", "d": "4"})) == [
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ResourceRequest(), ""),
        (ResourceRequest(cpus=0), "0 cpus"),
        (
            ResourceRequest(cpus=0.5, memory=3 * GIB, gpus=1, labels={"n": "1", "m": "2"}),
            "0.5 cpus, 3 GiB memory, 1 gpus, n=1, m=2",
        ),
    ],
)
def test_resources_are_described_in_one_line(request_: ResourceRequest, text: str) -> None:
    assert str(request_) == text
