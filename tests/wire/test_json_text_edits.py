"""Changes to JSON text that keep comments and layout."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.wire.json_comments import decode_commented_json
from shoal.wire.json_text_edits import edit_json_text

BLANKS = st.sampled_from(["", " ", "\n  ", "/* { */", " // ]\n", "/* a\n b */"])
KEYS = st.sampled_from(["a", "b", "c", "//", "/*"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([1, 2.5, None, True, "x, }", "// no comment", "/* nor this */", 'a"b']),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def draw_text(data: st.DataObject, value: Any) -> str:
    """Write a value with blanks, comments and trailing commas between all its parts."""
    if not isinstance(value, (dict, list)):
        return json.dumps(value)
    parts = [
        f"{data.draw(BLANKS)}{key}{data.draw(BLANKS)}{draw_text(data, each)}{data.draw(BLANKS)}"
        for key, each in (
            ((f"{json.dumps(name)}:", inner) for name, inner in value.items())
            if isinstance(value, dict)
            else (("", inner) for inner in value)
        )
    ]
    comma = data.draw(st.sampled_from(["", ","])) if parts else ""
    opener, closer = "{}" if isinstance(value, dict) else "[]"
    return f"{opener}{','.join(parts)}{comma}{data.draw(BLANKS)}{closer}"


@given(st.data(), OBJECTS, OBJECTS)
def test_the_changed_text_has_the_new_value(data: st.DataObject, old: Any, new: Any) -> None:
    text = data.draw(BLANKS) + draw_text(data, old) + data.draw(BLANKS)
    assert decode_commented_json(edit_json_text(text, new))[0] == new


@given(OBJECTS, OBJECTS, st.sampled_from([None, 1, 4]))
def test_plain_json_stays_plain_json(old: Any, new: Any, indent: int | None) -> None:
    assert json.loads(edit_json_text(json.dumps(old, indent=indent), new)) == new


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ('{\n  "a": 1 // why\n}', {"a": 1, "b": 2}, '{\n  "a": 1, // why\n  "b": 2\n}'),
        ('{\n  "a": 1, // why\n}', {"a": 1, "b": 2}, '{\n  "a": 1, // why\n  "b": 2,\n}'),
        ('{\n  "a": 1,\n  // of b\n  "b": 2\n}', {"a": 1}, '{\n  "a": 1\n  // of b\n}'),
        ('{"a": [1, 2] /* c */}', {"a": [1, 2, 3]}, '{"a": [1, 2, 3] /* c */}'),
        ('{"a": 1}', {"a": 1, "b": {"c": (1, 2)}}, '{"a": 1, "b": {"c": [1, 2]}}'),
        ('{"a": {}}', {"a": {"b": 1}}, '{"a": {"b": 1}}'),
        ("{}", {"a": 1}, '{\n  "a": 1\n}'),
        ('{ /* none */ }', {"a": 1}, '{"a": 1 /* none */ }'),
        ('{\n\t"a": {}, // c\n}', {"a": {"b": 1}}, '{\n\t"a": {\n\t\t"b": 1\n\t}, // c\n}'),
    ],
)  # fmt: skip
def test_comments_stay_where_they_are(text: str, value: Any, expected: str) -> None:
    assert edit_json_text(text, value) == expected


def test_a_key_that_occurs_twice_has_the_new_value_twice() -> None:
    assert edit_json_text('{"a": 1, "a": 2}', {"a": 3}) == '{"a": 3, "a": 3}'


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (
            '{"a":1,"b":{"c":2}}',
            {"a": 1, "b": {"c": 2, "d": {"e": [1, 2]}}},
            '{"a":1,"b":{"c":2,"d":{"e":[1,2]}}}',
        ),
        (
            '{"a":1,\n"b":{"c":{}}}\n',
            {"a": 1, "b": {"c": {"d": {"e": 1}}}},
            '{"a":1,\n"b":{"c":{"d":{"e":1}}}}\n',
        ),
        (
            '{\n  "a": {"x": {}}\n}\n',
            {"a": {"x": {"y": {"z": 1}}}},
            '{\n  "a": {"x": {"y": {"z": 1}}}\n}\n',
        ),
        (
            '{"a":{\n        "b":1}}',
            {"a": {"b": 1, "c": {"d": 2}}},
            '{"a":{\n        "b":1,\n        "c":{\n            "d": 2\n        }}}',
        ),
        ('{\n  "a": {}\n}', {"a": {"b": {"c": 1}}}, '{\n  "a": {\n    "b": {\n      "c": 1\n    }\n  }\n}'),
    ],
)
def test_a_new_entry_has_the_layout_of_the_entries_around_it(text: str, value: Any, expected: str) -> None:
    assert edit_json_text(text, value) == expected
