"""Front matter: what YAML says where it can, line by line where people wrote what YAML does not take."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.wire.front_matter import (
    MAX_HEADER_LENGTH,
    FrontMatterDocument,
    InvalidFrontMatterError,
    parse_front_matter,
)

KNOWN = ("name", "description", "tools", "hooks", "color")


def parse_page(header: str, body: str = "body") -> FrontMatterDocument:
    return parse_front_matter(f"---\n{header}\n---\n{body}\n", KNOWN)


def parse_values(header: str) -> dict[str, Any]:
    return {entry.key: entry.value for entry in parse_page(header).entries}


def get_error(text: str) -> InvalidFrontMatterError:
    with pytest.raises(InvalidFrontMatterError) as error:
        parse_front_matter(text, KNOWN)
    return error.value


def test_each_entry_has_its_line_and_the_body_is_the_rest():
    found = parse_page("name: a\n# remark\n\ntools:\n  - Read\nhooks: {x: [1]}", "\n one\n---\ntwo\n")
    assert [(entry.key, entry.value, entry.line) for entry in found.entries] == [
        ("name", "a", 2),
        ("tools", ["Read"], 5),
        ("hooks", {"x": [1]}, 7),
    ]
    assert (found.body, found.warnings) == ("one\n---\ntwo", ())


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("before", ["", "\ufeff", "\n \n"])
def test_byte_order_marks_and_foreign_line_ends_are_accepted(newline: str, before: str):
    found = parse_front_matter(before + newline.join(("---", "name: a", "---", "one", "two", "")), KNOWN)
    assert [(entry.key, entry.value) for entry in found.entries] == [("name", "a")]
    assert found.body == "one\ntwo"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "empty"),
        (" \n\t\n", 1, "empty"),
        ("# An agent\n", 1, "no front matter"),
        ("\nname: a\n", 2, "no front matter"),
        ("---\nname: a\n", 1, "does not end"),
        (f"---\nname: {'a' * MAX_HEADER_LENGTH}\n---\n", 1, "65,536"),
        ("---\n- a\n- b\n---\n", 2, "key: value"),
        ("---\njust text\n---\n", 2, "key: value"),
        ("---\n? [a, b]\n: c\n---\n", 2, "a key must be a string"),
    ],
)
def test_text_without_valid_front_matter_is_refused_with_its_line(text: str, line: int, what: str):
    error = get_error(text)
    assert what in error.what
    assert error.line == line


def test_a_duplicate_key_is_refused():
    for first in ("name: a", "name: [a]", "name: a: b"):
        header = f"{first}\ncolor: red\nname: b"
        error = get_error(f"---\n{header}\n---\n")
        assert (error.key, error.line) == ("name", 4)
        assert "twice, first on line 2" in error.what


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)
)


@pytest.mark.parametrize("header", [BOMB, "hooks: &a [*a]", "hooks: &a {b: *a}"])
def test_aliases_that_explode_are_refused(header: str):
    assert "too large" in get_error(f"---\n{header}\n---\n").what


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_deep_nesting_is_refused(opens: str, closes: str):
    times = 60_000 // len(opens + closes)
    error = get_error(f"---\nname: a\nhooks:\n  {opens * times}x{closes * times}\n---\n")
    assert (error.what, error.line, error.key) == ("it is nested too deeply", 4, "hooks")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [x]", "!mine x", "!!binary eA=="])
def test_a_yaml_tag_creates_no_object(tag: str):
    assert "tag" in get_error(f"---\nname: {tag}\n---\n").what


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("description: Use this when: tests fail", "Use this when: tests fail"),
        ("description: *very* good", "*very* good"),
        ("description: @someone asks", "@someone asks"),
        ("description: a\tb: c", "a\tb: c"),
        ("description: `code` first\n# a remark", "`code` first"),
        (
            "description: Use it. Examples: <example>user: 'hi' assistant: \"ho\"</example>",
            "Use it. Examples: <example>user: 'hi' assistant: \"ho\"</example>",
        ),
        (
            'description: Use it: often.\n\nExamples:\n- user: "a"\n  assistant: "b: c"',
            'Use it: often.\n\nExamples:\n- user: "a"\nassistant: "b: c"',
        ),
    ],
)
def test_text_that_is_invalid_yaml_is_read_literally_with_a_warning(written: str, read: str):
    found = parse_page(f"name: a\n{written}\ntools:\n  - Read\n  - Bash(git:*)\ncolor: red")
    assert {entry.key: entry.value for entry in found.entries} == {
        "name": "a",
        "description": read,
        "tools": ["Read", "Bash(git:*)"],
        "color": "red",
    }
    assert [(remark.key, remark.line) for remark in found.warnings] == [("description", 3)]
    assert "quotes" in found.warnings[0].text


@pytest.mark.parametrize("text", ["Use it: often", "often:", "a:\tb: c"])
def test_an_unquoted_colon_gives_a_warning(text: str):
    found = parse_page(f"name: a\ndescription: {text}")
    assert found.entries[1].value == text
    assert [remark.key for remark in found.warnings] == ["description"]


def test_a_bare_asterisk_is_read_as_an_asterisk():
    assert parse_values("name: a\ntools: *\ncolor: red") == {"name": "a", "tools": "*", "color": "red"}


def test_a_mistyped_key_does_not_become_part_of_the_text_above():
    assert parse_values("description: Use when: x\ntolls: Read")["tolls"] == "Read"


@pytest.mark.parametrize(
    ("header", "line", "key"),
    [
        ("name: a\ntools: [Read, Grep\ncolor: red", 3, "tools"),
        ('name: a\ndescription: "one" two', 3, "description"),
        ("name: a\nhooks:\n\tStop: []\ncolor: red", 4, "hooks"),
        ("name: a\nhooks:\n  Stop: [\n  x: y: z", 5, "hooks"),
    ],
)
def test_unreadable_values_are_refused_with_line_and_key(header: str, line: int, key: str):
    error = get_error(f"---\n{header}\n---\n")
    assert (error.line, error.key) == (line, key)
    assert error.what


_VALUES = st.text(st.characters(codec="utf-8"), max_size=12) | st.text(
    "ab:# '\"-*&[]{}|>%@`,~\\\t0.", max_size=8
)


@given(st.lists(st.tuples(st.sampled_from(KNOWN), _VALUES), min_size=1, max_size=3, unique_by=lambda x: x[0]))
def test_the_fast_parser_agrees_with_yaml(pairs: list[tuple[str, str]]):
    lines = [f"{key}: {value}" for key, value in pairs]
    try:
        found = parse_page("\n".join(lines))
    except InvalidFrontMatterError:
        return
    if found.warnings or any("\n" in line or "\r" in line or "---" in line for line in lines):
        return
    loaded = yaml.load("\n".join(lines), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    for entry in found.entries:
        assert entry.value == loaded[entry.key] or (
            entry.value is None and loaded[entry.key] in ("", "~", "null", "Null", "NULL")
        )
