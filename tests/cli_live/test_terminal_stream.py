"""The last line of defense: characters that never reach a terminal, in text and in bytes."""

from __future__ import annotations

import io
import os
import sys

import pytest

from shoal.surfaces.terminal.terminal_stream import (
    TerminalByteStream,
    TerminalTextStream,
    guard_terminal_streams,
)

FORBIDDEN = "\x80\x9b\x9f\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2065\u2066\u2069\ufeff"
PASSES = "a\x1b[31m\n\xa0é–\u200d\u2028日"


def test_no_forbidden_character_is_written_as_text() -> None:
    raw = io.BytesIO()
    stream = TerminalTextStream(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))
    text = "".join(f"{each}{PASSES}" for each in FORBIDDEN)
    assert stream.write(text) == len(text)
    stream.writelines(["plain ", f"{FORBIDDEN}end"])
    stream.flush()
    assert raw.getvalue().decode() == PASSES * len(FORBIDDEN) + "plain end"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_no_forbidden_character_is_written_as_bytes_in_any_pieces(size: int) -> None:
    raw = io.BytesIO()
    stream = TerminalByteStream(raw)
    data = "".join(f"{each}{PASSES}" for each in FORBIDDEN).encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [stream.write(memoryview(piece)) for piece in pieces[:3]] == [len(piece) for piece in pieces[:3]]
    stream.writelines(pieces[3:])
    assert raw.getvalue().decode() == PASSES * len(FORBIDDEN)


def test_only_standard_streams_that_are_a_terminal_are_guarded_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, terminal = os.openpty()
    plain = io.TextIOWrapper(io.BytesIO())
    with os.fdopen(terminal, "w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(sys, "stderr", plain)
        guard_terminal_streams()
        guarded = sys.stdout
        assert isinstance(guarded, TerminalTextStream)
        assert sys.stderr is plain
        guard_terminal_streams()
        assert sys.stdout is guarded
        guarded.buffer.write(b"a\xc2\x9bb")
        guarded.buffer.flush()
        assert os.read(controller, 100) == b"ab"
        monkeypatch.undo()
    os.close(controller)
