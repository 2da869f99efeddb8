"""JSON schema validation and its messages."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from shoal.core.text.json_schema import find_schema_problem, find_schema_violations

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
def test_a_valid_value_has_no_violations(value: Any) -> None:
    assert find_schema_violations(value, SHIP) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the value: expected object, got []"),
        ({}, "name: it is missing"),
        ({"name": "ada"}, "name: 'ada' does not match ^[A-Z]"),
        ({"name": ""}, "name: it has 0 characters, but needs at least 1"),
        ({"name": "Ada", "masts": True}, "masts: expected integer, got True"),
        ({"name": "Ada", "masts": 6}, "masts: 6 is more than 5"),
        ({"name": "Ada", "crew": [{"age": 0}]}, "crew[0].age: 0 is not more than 0"),
        ({"name": "Ada", "crew": [{}, {}]}, "crew: an item is repeated"),
        ({"name": "Ada", "flag": True}, "flag: True is not one of 'red', None, 1"),
        ({"name": "Ada", "cargo": 3}, "cargo: it matches none of the 2 choices"),
        ({"name": "Ada", "keel": 1}, "keel: there is no such field"),
    ],
)
def test_a_violation_names_its_path(value: Any, said: str) -> None:
    assert said in find_schema_violations(value, SHIP)


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
def test_keywords_follow_the_specification(value: Any, schema: Any, *, fits: bool) -> None:
    assert (find_schema_violations(value, schema) == []) is fits


_BY_NAME = {"if": {"required": ["kind"]}, "then": {"required": ["size"]}, "else": {"maxProperties": 1}}
_ORACLE_SCHEMAS: tuple[Any, ...] = (
    _BY_NAME,
    {"contains": {"type": "integer"}},
    {"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3},
    {"contains": {"type": "integer"}, "minContains": 0, "maxContains": 1},
    {"dependentRequired": {"kind": ["size", "weight"]}},
    {"dependentSchemas": {"kind": {"properties": {"size": {"type": "integer"}}}}},
    {"propertyNames": {"maxLength": 4}},
    {"$ref": "#/allOf/0", "allOf": [{"minProperties": 1}]},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": ["object", "array"]}}},
    {"not": {"contains": {"const": 1}}},
    {"anyOf": [_BY_NAME, {"type": "array"}]},
    {"patternProperties": {"^s": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
)
_ORACLE_VALUES: tuple[Any, ...] = (
    *({}, {"kind": "a"}, {"kind": 1, "size": 2}, {"size": "x", "kind": 1, "weight": 3}, {"length": 1}),
    *([], [1], ["x"], [1, 2], [1, 2, 3, 4], [1.0, True, "x"]),
    *(None, True, 0, "text"),
)


@pytest.mark.needs("jsonschema")
@pytest.mark.parametrize("schema", _ORACLE_SCHEMAS)
def test_keywords_mean_what_they_mean_to_another_validator(schema: Any) -> None:
    from jsonschema import Draft202012Validator

    oracle = Draft202012Validator(schema)
    expected = [oracle.is_valid(value) for value in _ORACLE_VALUES]
    assert [find_schema_violations(value, schema) == [] for value in _ORACLE_VALUES] == expected
    assert len(set(expected)) == 2, "some values fit and others do not"


def test_lists_of_items_are_checked_as_in_draft_7() -> None:
    pair = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    assert find_schema_violations(["a", 1], pair) == []
    assert find_schema_violations(["a", "b"], pair) == ["[1]: expected integer, got 'b'"]
    assert find_schema_violations(["a", 1, 2], pair) == ["[2]: nothing is allowed here"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"minLength": "3"},
        {"required": "name"},
        {"properties": ["name"]},
        {"pattern": "("},
        {"patternProperties": {"(": {}}},
        {"items": 3},
        {"anyOf": []},
        {"multipleOf": 0},
        {"dependentRequired": {"a": 1}},
        {"$ref": "#/$defs/none"},
        {"$ref": "other.json"},
        {"not": {"$ref": "#/$defs/none"}},
        {"unevaluatedProperties": False},
        {"$dynamicRef": "#node"},
        {"dependencies": {"a": ["b"]}},
    ],
)
def test_a_part_that_cannot_be_enforced_refuses_values(part: Any) -> None:
    violations = [find_schema_violations(value, part) for value in ("x", 3, [1], {"a": 1})]
    assert any(violations)


def test_an_unsupported_keyword_is_named() -> None:
    assert find_schema_violations({}, {"unevaluatedProperties": False}) == [
        "the schema cannot be used: unevaluatedProperties is malformed or not supported"
    ]


def test_a_recursive_schema_terminates() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert find_schema_violations([[], [[]]], tree) == []
    assert find_schema_violations([[3]], tree) == ["[0][0]: expected array, got 3"]
    assert find_schema_violations(1, {"$ref": "#"})


def test_only_the_first_ten_violations_are_listed() -> None:
    assert len(find_schema_violations(["x"] * 50, {"items": {"type": "integer"}})) == 10


@pytest.mark.parametrize("value", [[1, True], [0, False], [[1], [True]], [{"a": 1}, {"a": True}], [1, "1"]])
def test_items_equal_only_in_python_are_distinct(value):
    assert find_schema_violations(value, {"uniqueItems": True}) == []


@pytest.mark.parametrize("value", [[1, 1.0], [{"a": [1], "b": 2}, {"b": 2, "a": [1]}], [None, None]])
def test_items_equal_in_json_are_duplicates(value):
    assert find_schema_violations(value, {"uniqueItems": True}) == ["the value: an item is repeated"]


def test_a_constant_is_compared_deeply():
    assert find_schema_violations({"on": [True]}, {"const": {"on": [True]}}) == []
    assert find_schema_violations({"on": [1]}, {"const": {"on": [True]}})
    assert find_schema_violations([1], {"enum": [[True], [2]]})


def test_a_long_valid_list_is_checked_quickly():
    value = [{"number": number} for number in range(30_000)]
    each = {"type": "object", "properties": {"number": {"type": "integer"}}}
    since = time.process_time()
    assert find_schema_violations(value, {"type": "array", "items": each, "uniqueItems": True}) == []
    assert time.process_time() - since < 5


def test_a_deeply_nested_value_is_compared():
    value: Any = 1
    for _ in range(sys.getrecursionlimit() // 2):
        value = {"a": [value]}
    assert find_schema_violations(value, {"const": value}) == []
    assert find_schema_violations([value, 1], {"uniqueItems": True}) == []


def nest(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "txt"}, "type: 'txt' is not one of object, array"),
        ({"type": {}}, "type: {} is not one of"),
        ({"properties": {"a": {"type": ["string", 5]}}}, "properties.a.type: 5 is not one of"),
        ({"properties": []}, "properties: it is malformed"),
        ({"items": {"enum": 5}}, "items.enum: it is malformed"),
        ({"anyOf": [{}, 5]}, "anyOf[1]: expected a JSON Schema, got 5"),
        ({"$ref": "#/$defs/x"}, "the schema has no #/$defs/x"),
        ({"$ref": "http://127.0.0.1/x"}, "the schema has no http://127.0.0.1/x"),
        ({"$ref": "#"}, "$ref # refers to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"items": {"pattern": "("}}, "items: missing ), unterminated subpattern"),
        ({"$dynamicRef": "#x"}, "$dynamicRef: it is malformed or not supported"),
        (nest(5_000), "it has more than 100 levels"),
        ("text", "expected a JSON Schema, got 'text'"),
    ],
)
def test_a_schema_that_cannot_be_used_is_explained(schema: Any, problem: str) -> None:
    assert problem in find_schema_problem(schema)


def test_usable_schemas_have_no_problem() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    for schema in (SHIP, tree, True, False, {}, nest(99), {"items": [{}, {}], "type": ["array", "null"]}):
        assert find_schema_problem(schema) == ""
