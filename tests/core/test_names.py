"""Names that become paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.errors import BadName
from shoal.core.names import agent_name, free_name, name_from, task_id, team_name

PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@pytest.mark.parametrize("name", ["a", "team-lead", "A_1", "x" * 64, "c93b690c-0000-4000-8000-d9451b749ac2"])
def test_plain_names_are_taken_as_they_are(name):
    assert team_name(name) == agent_name(name) == name


def test_compatibility_forms_are_folded():
    assert name_from("ｒｏｏｆ") == "roof"
    assert name_from("①") == "1"
    assert name_from(" roof\n") == "roof"


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", ".", "..", "../x", "a/b", "a\\b", "-a", "_a", "a b", "a.json", "a\0", "a\nb", "ä"),
        *("x" * 65, "․․", "／etc", "a\u202e", "\ud83d", "~", "con:", "a%2f"),
    ],
)
def test_what_cannot_be_a_name_is_refused_with_a_sentence(name):
    with pytest.raises(BadName, match="letters, digits"):
        name_from(name)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_becomes_a_path_that_leads_anywhere(text):
    try:
        name = name_from(text)
    except BadName:
        return
    assert set(name) <= set(PLAIN)
    assert 1 <= len(name) <= 64
    assert name_from(name) == name


@pytest.mark.parametrize("text", ["1", "10", "999999999999999999"])
def test_a_task_id_is_a_whole_number(text):
    assert task_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "0", "01", "-1", "+1", "1.0", "1e3", "٣", "１", "1\n", " 1", "../1", "1" * 19]
)
def test_other_numbers_and_texts_are_no_ids(text):
    with pytest.raises(BadName, match="task id"):
        task_id(text)


@settings(deadline=None)
@given(st.text(PLAIN, min_size=1, max_size=64).filter(lambda name: name[0].isalnum()), st.integers(0, 12))
def test_a_free_name_is_new_a_name_and_like_the_one_wanted(wanted, already):
    taken: set[str] = set()
    for _ in range(already):
        taken.add(free_name(wanted, taken))
    name = free_name(wanted, taken)
    assert len(taken) == already
    assert name not in taken
    assert name_from(name) == name
    assert name == wanted or name.startswith(wanted[:55])
