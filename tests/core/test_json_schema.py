"""A value against a schema: what fits, and what is said of what does not."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from shoal.core.json_schema import misfits

SHIP = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "masts": {"type": "integer", "minimum": 1, "maximum": 5},
        "crew": {"type": "array", "items": {"$ref": "#/$defs/sailor"}, "maxItems": 2, "uniqueItems": True},
        "flag": {"enum": ["red", None, 1]},
        "cargo": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["tons"]}]},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"sailor": {"type": "object", "properties": {"age": {"type": "number", "exclusiveMinimum": 0}}}},
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ada"},
        {"name": "Ada", "masts": 3.0, "crew": [{"age": 30}, {"age": 31.5}], "flag": None},
        {"name": "Ada", "cargo": {"tons": 3}},
        {"name": "Ada", "cargo": "rope", "flag": 1},
    ],
)
def test_what_fits_has_nothing_said_of_it(value: Any) -> None:
    assert misfits(value, SHIP) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the value: object is expected, not []"),
        ({}, "name: it is missing"),
        ({"name": "ada"}, "name: 'ada' does not match ^[A-Z]"),
        ({"name": ""}, "name: 0 characters are fewer than 1"),
        ({"name": "Ada", "masts": True}, "masts: integer is expected, not True"),
        ({"name": "Ada", "masts": 6}, "masts: 6 is more than 5"),
        ({"name": "Ada", "crew": [{"age": 0}]}, "crew[0].age: 0 is not more than 0"),
        ({"name": "Ada", "crew": [{}, {}]}, "crew: an item stands in it twice"),
        ({"name": "Ada", "flag": True}, "flag: True is none of 'red', None, 1"),
        ({"name": "Ada", "cargo": 3}, "cargo: it fits none of the 2 choices"),
        ({"name": "Ada", "keel": 1}, "keel: there is no such field"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(value: Any, said: str) -> None:
    assert said in misfits(value, SHIP)


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        (3, {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, False),
        (1, {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, True),
        ("x", {"not": {"type": "string"}}, False),
        (0.3, {"multipleOf": 0.1}, True),
        ([1, "a"], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, True),
        ([1, 2], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, False),
        ({"a1": "x"}, {"patternProperties": {"^a": {"type": "integer"}}}, False),
        ({"b": 1}, {"additionalProperties": {"type": "string"}}, False),
        (None, {"type": ["string", "null"]}, True),
        (7, {"const": 7}, True),
        ("anything", {"format": "date", "madeUp": 1}, True),
        ("x", True, True),
        ("x", False, False),
    ],
)
def test_the_words_of_the_language_mean_what_they_mean(value: Any, schema: Any, *, fits: bool) -> None:
    assert (misfits(value, schema) == []) is fits


def test_a_schema_that_leads_to_itself_comes_to_an_end() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert misfits([[], [[]]], tree) == []
    assert misfits([[3]], tree) == ["[0][0]: array is expected, not 3"]
    assert misfits(1, {"$ref": "#"})


def test_only_the_first_few_are_told() -> None:
    assert len(misfits(["x"] * 50, {"items": {"type": "integer"}})) == 10


@pytest.mark.parametrize("value", [[1, True], [0, False], [[1], [True]], [{"a": 1}, {"a": True}], [1, "1"]])
def test_items_that_only_python_takes_for_the_same_are_two(value):
    assert misfits(value, {"uniqueItems": True}) == []


@pytest.mark.parametrize("value", [[1, 1.0], [{"a": [1], "b": 2}, {"b": 2, "a": [1]}], [None, None]])
def test_items_that_json_takes_for_the_same_are_one(value):
    assert misfits(value, {"uniqueItems": True}) == ["the value: an item stands in it twice"]


def test_a_constant_is_the_same_in_all_its_parts():
    assert misfits({"on": [True]}, {"const": {"on": [True]}}) == []
    assert misfits({"on": [1]}, {"const": {"on": [True]}})
    assert misfits([1], {"enum": [[True], [2]]})


def test_a_long_list_that_fits_is_not_refused_and_takes_no_time_to_speak_of():
    value = [{"number": number} for number in range(30_000)]
    each = {"type": "object", "properties": {"number": {"type": "integer"}}}
    since = time.perf_counter()
    assert misfits(value, {"type": "array", "items": each, "uniqueItems": True}) == []
    assert time.perf_counter() - since < 5


def test_a_value_without_end_is_compared_as_far_as_it_is_looked_at():
    value: Any = 1
    for _ in range(sys.getrecursionlimit() // 2):
        value = {"a": [value]}
    assert misfits(value, {"const": value}) == []
    assert misfits([value, 1], {"uniqueItems": True}) == []
