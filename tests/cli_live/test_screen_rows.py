"""Rows of the live screen: where text is wrapped, and what redrawing leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_live.screen_terminal import ShownScreen
from shoal.surfaces.terminal.screen import LiveTerminalScreen, PlainTerminalScreen, open_terminal_screen


@pytest.fixture(autouse=True)
def terminal_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def open_screen() -> Iterator[Callable[[int], ShownScreen]]:
    opened: list[ShownScreen] = []

    def open_shown(columns: int) -> ShownScreen:
        opened.append(ShownScreen(columns))
        return opened[-1]

    yield open_shown
    for shown in opened:
        shown.stream.close()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [""]),
        ("one two three", ["one two three"]),
        ("one two three four fiv", ["one two three four", "fiv"]),
        ("one two three fourte", ["one two three", "fourte"]),
        ("one two three fourt", ["one two three fourt"]),
        ("one two three fourt ", ["one two three fourt", ""]),
        ("one two three fourt x", ["one two three fourt", "x"]),
        ("  one two three four five", ["  one two three", "  four five"]),
        ("            one two three", ["            one two", "         three"]),
        ("aaaaaaaaaabbbbbbbbbbccccc", ["aaaaaaaaaabbbbbbbbbb", "ccccc"]),
        ("aaaaaaaaaabbbbbbbbbbccccc dd", ["aaaaaaaaaabbbbbbbbbb", "ccccc", "dd"]),
        ("x aaaaaaaaaabbbbbbbbbbccccc dd", ["x aaaaaaaaaabbbbbbbb", "bbccccc", "dd"]),
        ("  aaaaaaaaaabbbbbbbbbbccccc dd", ["  aaaaaaaaaabbbbbbbb", "bbccccc", "  dd"]),
        (f"{'a' * 76}", ["a" * 20] * 3 + ["a" * 16]),
        ("界界界界界 界界界界界", ["界界界界界", "界界界界界"]),
        ("one\ntwo", ["one", "two"]),
        ("one\n\ntwo\n", ["one", "", "two", ""]),
    ],
)
def test_a_line_is_wrapped_between_words(
    open_screen: Callable[[int], ShownScreen], text: str, rows: list[str]
) -> None:
    shown = open_screen(20)
    shown.screen.write(text)
    assert shown.lines == rows


def test_text_in_pieces_of_styles_is_wrapped_as_one_line(
    open_screen: Callable[[int], ShownScreen],
) -> None:
    shown = open_screen(20)
    for word, style in (("one two", "1"), (" three", ""), (" fourteen", "31"), (" five", "2")):
        shown.screen.write(word, style)
    assert shown.lines == ["one two three", "fourteen five"]
    assert "\x1b[1mone two\x1b[0m three\n\x1b[31mfourteen\x1b[0m" in shown.stream.raw


def test_a_word_without_an_end_is_written_in_rows_of_its_own(
    open_screen: Callable[[int], ShownScreen],
) -> None:
    shown = open_screen(20)
    for _ in range(30):
        shown.screen.write("abcdefgh")
    shown.screen.write("\nnext")
    assert "".join(shown.lines[:-1]) == "abcdefgh" * 30
    assert shown.lines[-1] == "next"


_WORDS = st.text(alphabet="ab 界é\n", max_size=30).filter(
    lambda text: all(len(word) < 6 for word in text.split())
)
_ROWS = st.lists(st.text(alphabet="xyz界", max_size=9), max_size=3)


@given(st.lists(st.tuples(_WORDS, _ROWS, st.integers(0, 3)), max_size=8), st.integers(20, 30))
def test_redrawn_rows_leave_nothing_and_take_nothing(
    steps: list[tuple[str, list[str], int]], columns: int
) -> None:
    """However the bottom rows change in between, the text above them is that of one write."""
    with ShownScreen(columns) as shown, ShownScreen(columns) as plain:
        rows: list[str] = []
        for text, rows, column in steps:
            shown.screen.set_bottom_rows(rows, (len(rows) - 1, column) if rows else None)
            shown.screen.write(text)
            shown.screen.redraw()
        for text, *_ in steps:
            plain.screen.write(text)
        written = plain.lines[:-1] if plain.lines[-1] == "" and rows else plain.lines
        assert shown.lines == [*written, *rows]
        if rows:
            assert shown.cursor == (len(shown.lines) - 1, steps[-1][2])
        shown.screen.close()
        plain.screen.close()
        assert shown.lines == plain.lines


@pytest.mark.parametrize(
    ("cursor", "place"),
    [((0, 0), (2, 0)), ((0, 3), (2, 3)), ((1, 0), (3, 0)), ((2, 5), (4, 5)), (None, (4, 5))],
)
@pytest.mark.parametrize("is_in_line", [False, True])
def test_the_cursor_is_put_into_the_bottom_rows(
    open_screen: Callable[[int], ShownScreen],
    cursor: tuple[int, int] | None,
    place: tuple[int, int],
    *,
    is_in_line: bool,
) -> None:
    shown = open_screen(20)
    shown.screen.write("above\nhalf" if is_in_line else "above\nwhole\n")
    shown.screen.set_bottom_rows(["first", "second", "third"], cursor)
    assert shown.cursor == place
    shown.screen.set_bottom_rows(["only"], (0, 2))
    assert shown.lines == ["above", "half" if is_in_line else "whole", "only"]
    assert shown.cursor == (2, 2)


def test_rows_that_did_not_change_are_not_written_again(
    open_screen: Callable[[int], ShownScreen],
) -> None:
    shown = open_screen(20)
    shown.screen.set_bottom_rows(["a"], (0, 1))
    written = shown.stream.raw
    shown.screen.set_bottom_rows(["a"], (0, 1))
    assert shown.stream.raw == written
    shown.screen.redraw()
    assert shown.stream.raw != written
    assert shown.lines == ["a"]


def test_the_line_that_is_being_written_can_be_erased_or_ended(
    open_screen: Callable[[int], ShownScreen],
) -> None:
    shown = open_screen(20)
    shown.screen.write("kept\nerased")
    shown.screen.erase_or_end_line()
    assert shown.lines == ["kept", ""]
    shown.screen.end_line()
    shown.screen.write("ended")
    shown.screen.end_line()
    shown.screen.end_line()
    shown.screen.write("next")
    assert shown.lines == ["kept", "ended", "next"]
    shown.screen.set_bottom_rows(["bottom"])
    shown.screen.close()
    assert shown.lines == ["kept", "ended", "next", ""]


def reflow(lines: list[str], columns: int) -> list[str]:
    """Return the rows of a terminal that became narrower: it wraps those that no longer fit."""
    return [line[start : start + columns] for line in lines for start in range(0, max(len(line), 1), columns)]


@pytest.mark.parametrize("columns", [10, 13, 20, 21, 25, 39])
@pytest.mark.parametrize("cursor_row", [None, 0, -1])
def test_rows_are_found_again_in_a_narrower_terminal(columns: int, cursor_row: int | None) -> None:
    for widths in ((5,), (30,), (5, 30), (30, 5, 30), (20, 20), (0, 21)):
        for line in ("", "half-a-line-of-text"):
            with ShownScreen(40) as shown:
                shown.screen.write(f"kept\n{line}")
                rows = [f"{number}" * width for number, width in enumerate(widths)]
                row = None if cursor_row is None else cursor_row % len(rows)
                shown.screen.set_bottom_rows(rows, None if row is None else (row, 0))
                emulated = shown.stream.emulated
                before = emulated.lines
                emulated.rows = [list(each) for each in reflow(before, columns)]
                emulated.row = len(reflow(before[: emulated.row], columns))
                if row is None:
                    emulated.row, emulated.column = len(emulated.rows) - 1, len(emulated.rows[-1])
                shown.stream.resize(columns)
                shown.screen.set_bottom_rows(["end"], (0, 0))
                kept = filter(None, reflow([line], columns))
                assert [each for each in shown.lines if each] == ["kept", *kept, "end"], (widths, line)


@pytest.mark.parametrize(("columns", "usable"), [(80, 79), (11, 10), (10, 10), (5, 10), (0, 79)])
def test_one_column_stays_free(open_screen: Callable[[int], ShownScreen], columns: int, usable: int) -> None:
    assert open_screen(columns).screen.columns == usable


def test_colours_and_movement_need_a_terminal_that_has_them(
    open_screen: Callable[[int], ShownScreen], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = open_screen(80).stream
    live = open_terminal_screen(stream)
    assert isinstance(live, LiveTerminalScreen)
    assert live.colours
    monkeypatch.setenv("NO_COLOR", "1")
    assert not open_terminal_screen(stream).colours
    for term in ("dumb", ""):
        monkeypatch.setenv("TERM", term)
        assert isinstance(open_terminal_screen(stream), PlainTerminalScreen)
    monkeypatch.delenv("TERM")
    assert isinstance(open_terminal_screen(stream), PlainTerminalScreen)


def test_a_plain_screen_writes_text_as_it_is(open_screen: Callable[[int], ShownScreen]) -> None:
    stream = open_screen(80).stream
    screen = PlainTerminalScreen(stream)
    screen.end_line()
    screen.write("")
    screen.end_line()
    screen.write("a\x1b[31mb", "31")
    screen.set_bottom_rows(["row"])
    screen.erase_or_end_line()
    screen.end_line()
    screen.write("c\n")
    screen.close()
    screen.write("d")
    screen.close()
    assert stream.raw == "ab\nc\nd\n"
