"""The live screen: text that scrolls above redrawn rows, on a real pty."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_live.pty_terminal import PtyTerminal, build_environment
from shoal.core.text.text_format import format_duration, format_token_count, strip_terminal_codes
from shoal.surfaces.terminal.text_styles import measure_text_width, truncate_text

SCROLLING = """
import sys
from shoal.surfaces.terminal.screen import open_terminal_screen
screen = open_terminal_screen(sys.stdout)
for number in range(30):
    screen.set_bottom_rows([f"below {number}", "› typing"], (1, 8))
    for word in f"line {number} has some words that go on until the row is full and then some more".split():
        screen.write(word + " ", "2")
    screen.write("\\n")
screen.write("half a line")
screen.set_bottom_rows(["the end"])
sys.stdin.readline()
screen.close()
print("closed")
"""


def start_program(program: str, tmp_path: Path, *, columns: int = 80, **env: str) -> PtyTerminal:
    argv = [sys.executable, "-c", program]
    return PtyTerminal(argv, cwd=tmp_path, env=build_environment(tmp_path, **env), columns=columns)


def test_text_scrolls_above_the_redrawn_rows(tmp_path: Path) -> None:
    with start_program(SCROLLING, tmp_path, columns=40) as terminal:
        terminal.wait_for("the end")
        lines = terminal.screen.lines
        assert lines[0] == "line 0 has some words that go on until"
        assert lines[1] == "the row is full and then some more"
        assert lines[2] == "line 1 has some words that go on until"
        assert lines[-2:] == ["half a line", "the end"]
        assert not any("below" in line for line in lines)
        terminal.type_text("\n")
        assert terminal.wait_for_end() == 0
        assert terminal.screen.lines[-2:] == ["closed", ""] or terminal.screen.text.endswith("closed")
        assert "the end" not in terminal.screen.text


def test_a_wrapped_line_keeps_its_indentation(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import open_terminal_screen
screen = open_terminal_screen(sys.stdout)
screen.write("  one two three four five six seven eight nine ten\\n  /" + "p" * 60 + " end\\n")
screen.close()
"""
    with start_program(program, tmp_path, columns=30) as terminal:
        terminal.wait_for_end()
        assert terminal.screen.lines[:2] == ["  one two three four five six", "  seven eight nine ten"]
        # The program does not break a path: the terminal wraps it, so it can be copied as one line.
        assert "\n" + "  /" + "p" * 60 in terminal.raw.replace("\r\n", "\n")


def test_a_long_word_written_in_pieces_is_shown_once(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import open_terminal_screen
screen = open_terminal_screen(sys.stdout)
screen.write("before\\n")
for piece in range(12):
    screen.write(f"piece{piece:02}")
screen.close()
"""
    with start_program(program, tmp_path, columns=30) as terminal:
        terminal.wait_for_end()
        whole = "".join(f"piece{piece:02}" for piece in range(12))
        assert terminal.screen.text == "\n".join(["before", whole[:30], whole[30:60], whole[60:]])


def test_a_terminal_made_narrower_keeps_its_text(tmp_path: Path) -> None:
    program = """
import sys
from shoal.surfaces.terminal.screen import open_terminal_screen
screen = open_terminal_screen(sys.stdout)
screen.write("kept\\n")
screen.set_bottom_rows(["x" * 60, "y" * 60], (1, 60))
sys.stdin.readline()
screen.set_bottom_rows(["narrow"])
screen.write("after\\n")
"""
    with start_program(program, tmp_path) as terminal:
        terminal.wait_for("y" * 60)
        terminal.screen.rows = [list("kept"), list("x" * 40), list("x" * 20), list("y" * 40), list("y" * 20)]
        terminal.screen.row, terminal.screen.column = 3, 20
        terminal.resize_screen(40)
        terminal.type_text("\n")
        terminal.wait_for_end()
        assert terminal.screen.lines[0] == "kept"
        assert "after" in terminal.screen.text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_codes_are_sent_without_colours(tmp_path: Path, env: dict[str, str]) -> None:
    with start_program(SCROLLING, tmp_path, **env) as terminal:
        terminal.wait_for("half a line")
        assert "m" not in terminal.screen.codes
        if env.get("TERM") == "dumb":
            assert "\x1b" not in terminal.raw


def test_terminal_codes_are_stripped_from_text() -> None:
    assert strip_terminal_codes("a\x1b[2Jb\x1b]0;title\x07c\x9bd\x07\u202e\r\n\te") == "abcd\n    e"


def test_widths_count_terminal_cells() -> None:
    assert (measure_text_width("abc"), measure_text_width("界"), measure_text_width("e\u0301")) == (3, 2, 1)
    assert truncate_text("界界界", 5) == "界界…"
    assert truncate_text("short", 5) == "short"


def test_numbers_and_durations_are_human_readable() -> None:
    assert [format_token_count(n) for n in (940, 12_400, 999_960, 3_140_000)] == [
        "940",
        "12.4k",
        "1.0M",
        "3.1M",
    ]
    assert [format_duration(s) for s in (0.4, 12, 75, 7_260)] == ["0.4 s", "12 s", "1 min 15 s", "2 h 01 min"]
