"""Filter that removes terminal control codes from everything drawn, whichever widget forgot to."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from shoal.core.text_format import strip_control_characters


class ControlCharacterLineFilter(LineFilter):
    """Textual passes escape codes through. Only zero-width characters are replaced, so that no line moves."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(strip_control_characters(text), style, control) for text, style, control in segments]
