"""Fields that remove terminal codes from pasted text, which a person cannot see and would pass on."""

from __future__ import annotations

from textual import events
from textual.widgets import Input, TextArea

from shoal.core.text.text_format import strip_terminal_codes


def clean_pasted_text(text: str) -> str:
    return strip_terminal_codes(text.replace("\r\n", "\n").replace("\r", "\n"))


class CleanInput(Input):
    """Line whose pasted text is clean."""

    def _on_paste(self, event: events.Paste) -> None:
        # Textual calls the handler of the base class next, which inserts the text.
        event.text = clean_pasted_text(event.text)


class CleanTextArea(TextArea):
    """Text area whose pasted text is clean."""

    async def _on_paste(self, event: events.Paste) -> None:
        event.text = clean_pasted_text(event.text)
