"""The screen: text that scrolls above rows that are drawn anew, on a real pty."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_live.terminal import Terminal, environment
from shoal.core.wording import clean, count, seconds
from shoal.surfaces.terminal.paint import cut, width

SCROLLING = """
import sys
from shoal.surfaces.terminal.screen import screen_for
screen = screen_for(sys.stdout)
for number in range(30):
    screen.bottom([f"below {number}", "› typing"], (1, 8))
    for word in f"line {number} has some words that go on until the row is full and then some more".split():
        screen.write(word + " ", "2")
    screen.write("\\n")
screen.write("half a line")
screen.bottom(["the end"])
sys.stdin.readline()
screen.close()
print("closed")
"""


def drawn(program: str, tmp_path: Path, *, columns: int = 80, **env: str) -> Terminal:
    argv = [sys.executable, "-c", program]
    return Terminal(argv, cwd=tmp_path, env=environment(tmp_path, **env), columns=columns)


def test_text_scrolls_above_what_is_drawn_anew(tmp_path: Path) -> None:
    with drawn(SCROLLING, tmp_path, columns=40) as terminal:
        terminal.wait_for("the end")
        lines = terminal.screen.lines
        assert lines[0] == "line 0 has some words that go on until"
        assert lines[1] == "the row is full and then some more"
        assert lines[2] == "line 1 has some words that go on until"
        assert lines[-2:] == ["half a line", "the end"]
        assert not any("below" in line for line in lines)
        terminal.type("\n")
        assert terminal.wait_for_end() == 0
        assert terminal.screen.lines[-2:] == ["closed", ""] or terminal.screen.text.endswith("closed")
        assert "the end" not in terminal.screen.text


def test_an_indented_line_goes_on_under_where_it_began(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import screen_for
screen = screen_for(sys.stdout)
screen.write("  one two three four five six seven eight nine ten\\n  /" + "p" * 60 + " end\\n")
screen.close()
"""
    with drawn(program, tmp_path, columns=30) as terminal:
        terminal.wait_for_end()
        assert terminal.screen.lines[:2] == ["  one two three four five six", "  seven eight nine ten"]
        # A path stays one piece: what breaks it is the terminal, which knows that it is one line.
        assert "\n" + "  /" + "p" * 60 in terminal.raw.replace("\r\n", "\n")


def test_a_long_word_that_comes_in_pieces_is_there_once(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import screen_for
screen = screen_for(sys.stdout)
screen.write("before\\n")
for piece in range(12):
    screen.write(f"piece{piece:02}")
screen.close()
"""
    with drawn(program, tmp_path, columns=30) as terminal:
        terminal.wait_for_end()
        whole = "".join(f"piece{piece:02}" for piece in range(12))
        assert terminal.screen.text == "\n".join(["before", whole[:30], whole[30:60], whole[60:]])


def test_a_terminal_made_narrower_keeps_its_text(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import screen_for
screen = screen_for(sys.stdout)
screen.write("kept\\n")
screen.bottom(["x" * 60, "y" * 60], (1, 60))
sys.stdin.readline()
screen.bottom(["narrow"])
screen.write("after\\n")
"""
    with drawn(program, tmp_path) as terminal:
        terminal.wait_for("y" * 60)
        terminal.screen.rows = [list("kept"), list("x" * 40), list("x" * 20), list("y" * 40), list("y" * 20)]
        terminal.screen.row, terminal.screen.column = 3, 20
        terminal.resize(40)
        terminal.type("\n")
        terminal.wait_for_end()
        assert terminal.screen.lines[0] == "kept"
        assert "after" in terminal.screen.text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_none_are_sent(tmp_path: Path, env: dict[str, str]) -> None:
    with drawn(SCROLLING, tmp_path, **env) as terminal:
        terminal.wait_for("half a line")
        assert "m" not in terminal.screen.codes
        if env.get("TERM") == "dumb":
            assert "\x1b" not in terminal.raw


def test_what_models_and_programs_say_cannot_command_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x1b]0;title\x07c\x9bd\x07\u202e\r\n\te") == "abcd\n    e"


def test_widths_are_those_of_the_terminal() -> None:
    assert (width("abc"), width("界"), width("e\u0301")) == (3, 2, 1)
    assert cut("界界界", 5) == "界界…"
    assert cut("short", 5) == "short"


def test_numbers_are_written_for_people() -> None:
    assert [count(n) for n in (940, 12_400, 999_960, 3_140_000)] == ["940", "12.4k", "1.0M", "3.1M"]
    assert [seconds(s) for s in (0.4, 12, 75, 7_260)] == ["0.4 s", "12 s", "1 min 15 s", "2 h 01 min"]
