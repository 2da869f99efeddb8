"""Names that become paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.errors import InvalidName
from shoal.core.names import (
    find_free_name,
    parse_agent_name,
    parse_safe_name,
    parse_task_id,
    parse_team_name,
    parse_teammate_name,
)

PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@pytest.mark.parametrize("name", ["a", "team-lead", "A_1", "x" * 64, "c93b690c-0000-4000-8000-d9451b749ac2"])
def test_plain_names_are_accepted_unchanged(name):
    assert parse_team_name(name) == parse_agent_name(name) == name


def test_compatibility_characters_are_normalized():
    assert parse_safe_name("ｒｏｏｆ") == "roof"
    assert parse_safe_name("①") == "1"
    assert parse_safe_name(" roof\n") == "roof"


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", ".", "..", "../x", "a/b", "a\\b", "-a", "_a", "a b", "a.json", "a\0", "a\nb", "ä"),
        *("x" * 65, "․․", "／etc", "a\u202e", "\ud83d", "~", "con:", "a%2f"),
    ],
)
def test_an_invalid_name_is_refused_with_an_explanation(name):
    with pytest.raises(InvalidName, match="letters, digits"):
        parse_safe_name(name)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_is_parsed_to_an_unsafe_path(text):
    try:
        name = parse_safe_name(text)
    except InvalidName:
        return
    assert set(name) <= set(PLAIN)
    assert 1 <= len(name) <= 64
    assert parse_safe_name(name) == name


@pytest.mark.parametrize("text", ["1", "10", "999999999999999999"])
def test_a_task_id_is_a_whole_number(text):
    assert parse_task_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "0", "01", "-1", "+1", "1.0", "1e3", "٣", "１", "1\n", " 1", "../1", "1" * 19]
)
def test_other_numbers_and_texts_are_not_task_ids(text):
    with pytest.raises(InvalidName, match="task id"):
        parse_task_id(text)


@settings(deadline=None)
@given(st.text(PLAIN, min_size=1, max_size=64).filter(lambda name: name[0].isalnum()), st.integers(0, 12))
def test_a_free_name_is_unused_valid_and_similar_to_the_requested_one(wanted, already):
    taken: set[str] = set()
    for _ in range(already):
        taken.add(find_free_name(wanted, taken))
    name = find_free_name(wanted, taken)
    assert len(taken) == already
    assert name not in taken
    assert parse_safe_name(name) == name
    assert name == wanted or name.startswith(wanted[:55])


@pytest.mark.parametrize("text", ["Team-Lead", "TEAM-LEAD", "ｔeam-lead"])
def test_a_name_that_looks_like_a_taken_one_gets_a_number(text):
    name = find_free_name(parse_agent_name(text), {"team-lead"})
    assert name == f"{parse_agent_name(text)}-2"


@pytest.mark.parametrize("text", ["team-lead", "user", "task-list", "system", "ｕser", "Bash", "TaskList"])
def test_a_teammate_cannot_be_named_like_the_runtime_or_a_tool(text):
    with pytest.raises(InvalidName, match="Choose another name"):
        parse_teammate_name(text)
