"""Tests read and write text as UTF-8 in every locale.

Only tests may leave the encoding out: for the program, the locale still decides, so a missing encoding in its
code makes a test fail in the C locale.
"""

from __future__ import annotations

import io
import locale
import subprocess
import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
_text_encoding = io.text_encoding
_output_encoding = subprocess._text_encoding  # type: ignore[attr-defined]


def _choose_encoding(encoding: str | None, stacklevel: int = 2) -> str:
    """Replace `io.text_encoding`, which is called with the level of the frame that left the encoding out."""
    if encoding is None and sys._getframe(stacklevel).f_code.co_filename.startswith(TESTS):
        return "utf-8"
    return _text_encoding(encoding, stacklevel + 1)


def _choose_output_encoding() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == subprocess.__file__:
        frame = frame.f_back
    is_test = frame.f_code.co_filename.startswith(TESTS)
    return "utf-8" if is_test else str(_output_encoding())


if locale.getencoding().lower() not in {"utf-8", "utf8"} and not sys.flags.utf8_mode:
    io.text_encoding = _choose_encoding  # type: ignore[assignment]
    subprocess._text_encoding = _choose_output_encoding  # type: ignore[attr-defined]
