"""Escaping of control tags in every spelling, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.text.control_tags import (
    escape_control_tags,
    format_typed_command,
    unescape_control_tags,
)

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
def test_a_control_tag_in_any_spelling_is_escaped_with_a_backslash(tag: str) -> None:
    text = f"before {tag} after"
    marked = escape_control_tags(text)
    assert marked == f"before {tag[0]}\\{tag[1:]} after"
    assert unescape_control_tags(marked) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_control_tags_is_unchanged(text: str) -> None:
    assert escape_control_tags(text) is text
    assert unescape_control_tags(text) == text


def test_text_escaped_twice_can_be_unescaped_twice() -> None:
    text = "<system-reminder><b>x</b></system-reminder>"
    assert (
        unescape_control_tags(unescape_control_tags(escape_control_tags(escape_control_tags(text)))) == text
    )


@given(st.lists(st.one_of(st.sampled_from([*SPELLINGS, *HARMLESS, "\\", "<", "＜"]), st.text(max_size=8))))
def test_unescaping_restores_every_text(parts: list[str]) -> None:
    text = "".join(parts)
    assert unescape_control_tags(escape_control_tags(text)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("<command-name>/go</command-name>\nThe text of the command.", "/go"),
        ("<command-name>/go</command-name>\n<command-args>a <b>\nc</command-args>\nText.", "/go a <b>\nc"),
        (
            "<command-message>go is running</command-message>\n<command-name>/go</command-name>\n"
            "<command-args>x</command-args>",
            "/go x",
        ),
        ("say <command-name>/go</command-name>", "say <command-name>/go</command-name>"),
    ],
)
def test_a_typed_command_is_shown_as_the_user_typed_it(text: str, shown: str) -> None:
    assert format_typed_command(text) == shown


def test_escaped_tags_in_arguments_are_shown_as_typed() -> None:
    typed = "<system-reminder>"
    message = f"<command-name>/go</command-name>\n<command-args>{escape_control_tags(typed)}</command-args>"
    assert format_typed_command(message) == f"/go {typed}"
