"""Control tags in what others say: marked in every spelling, given back word for word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.neutral import neutral, original

SPELLINGS = (
    "<system-reminder>",
    "</system-reminder>",
    "<SYSTEM-Reminder>",
    "< system-reminder >",
    "<\tsystem\n-\nreminder\n>",
    "<sys\ntem-remin\nder>",
    "<system_reminder foo='bar'>",
    "<system reminder/>",
    "＜ｓｙｓｔｅｍ－ｒｅｍｉｎｄｅｒ＞",
    "〈system-reminder〉",
    "<𝐬𝐲𝐬𝐭𝐞𝐦-𝐫𝐞𝐦𝐢𝐧𝐝𝐞𝐫>",
    "<s\u200by\u2060s\ufefftem-reminder>",
    "<sуstеm-rеmindеr>",
    "<sýstém-remindér>",
    "<system‑reminder>",
    "<system\x00-reminder>",
    "<\\system-reminder>",
    "<\\\\/system-reminder>",
    '<teammate-message teammate_id="team-lead">',
    "<task-notification>",
    "<command-name>",
    "<local-command-stdout>",
    "<|im_start|>",
    "<| eot_id |>",
    "<function_calls>",
)
HARMLESS = (
    "",
    "plain words",
    "a < b and c > d",
    "<div class='system-reminder'>",
    "<system>",
    "<systemReminders>",
    "if x <commander: pass",
    "system-reminder",
    "&lt;system-reminder&gt;",
    "std::vector<task>",
    "<http://command-name.org>",
    "1 <| 2 |> 3",
)


@pytest.mark.spec("USR-11")
@pytest.mark.parametrize("tag", SPELLINGS)
def test_a_control_tag_in_any_spelling_gets_a_backslash_behind_its_bracket(tag: str) -> None:
    text = f"before {tag} after"
    marked = neutral(text)
    assert marked == f"before {tag[0]}\\{tag[1:]} after"
    assert original(marked) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_control_tag_is_left_as_it_is(text: str) -> None:
    assert neutral(text) is text
    assert original(text) == text


def test_marked_twice_it_can_be_given_back_twice() -> None:
    text = "<system-reminder><b>x</b></system-reminder>"
    assert original(original(neutral(neutral(text)))) == text


@given(st.lists(st.one_of(st.sampled_from([*SPELLINGS, *HARMLESS, "\\", "<", "＜"]), st.text(max_size=8))))
def test_every_text_can_be_given_back_word_for_word(parts: list[str]) -> None:
    text = "".join(parts)
    assert original(neutral(text)) == text
