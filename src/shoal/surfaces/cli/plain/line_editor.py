"""Editor of the typed text: editing by keys, recall from history, layout in rows."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli.plain.key_decoder import KeyPress, NamedKeyPress, PastedText, TypedText
from shoal.surfaces.terminal.text_styles import count_fitting_characters, measure_text_width


class TerminalLineEditor:
    def __init__(self, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.cursor = 0
        self.history = list(history)
        self._history_index = len(self.history)
        self._draft = ""

    def handle_key_press(self, press: KeyPress) -> str | None:
        """Handle a key press; return the whole text when it is entered, else None."""
        match press:
            case TypedText(text) | PastedText(text):
                self._insert_text(strip_terminal_codes(text))
            case NamedKeyPress("newline"):
                self._insert_text("\n")
            case NamedKeyPress("enter"):
                return self._submit_text()
            case NamedKeyPress("up" | "down"):
                self._move_vertically(-1 if press.name == "up" else 1)
            case NamedKeyPress(name):
                self._apply_editing_key(name)
        return None

    def set_text(self, text: str) -> None:
        self.text, self.cursor = text, len(text)

    def complete_text(self, completions: Sequence[str]) -> None:
        """Complete the text, or the mention at its end, if exactly one completion starts with it."""
        before, _, mention = self.text.rpartition(" ")
        typed, kept = (mention, f"{before} ") if before and mention.startswith("@") else (self.text, "")
        matches = [word for word in completions if typed and word.startswith(typed)]
        if len(matches) == 1:
            self.set_text(f"{kept}{matches[0]} ")

    def add_to_history(self, text: str) -> bool:
        """Add the text to the history; return True if it is new there."""
        new = bool(text.strip()) and self.history[-1:] != [text]
        if new:
            self.history.append(text)
        self._history_index = len(self.history)
        return new

    def lay_out_rows(self, prompt: str, columns: int) -> tuple[list[str], tuple[int, int]]:
        """Lay out the text behind its prompt; return the rows and the cursor's position in them."""
        indent = " " * measure_text_width(prompt)
        rows: list[str] = []
        cursor = (0, 0)
        offset = 0
        for line in self.text.split("\n"):
            start = 0
            while True:
                lead = indent if rows else prompt
                count = max(
                    1,
                    count_fitting_characters(
                        line[start : start + 2 * columns], columns - measure_text_width(lead)
                    ),
                )
                piece = line[start : start + count]
                if offset + start <= self.cursor <= offset + start + len(piece):
                    cursor = (
                        len(rows),
                        measure_text_width(lead) + measure_text_width(piece[: self.cursor - offset - start]),
                    )
                rows.append(lead + piece)
                start += count
                if start >= len(line):
                    break
            offset += len(line) + 1
        return rows, cursor

    def _insert_text(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _submit_text(self) -> str | None:
        if self.text.endswith("\\") and self.cursor == len(self.text):
            self.set_text(self.text[:-1] + "\n")
            return None
        submitted_text = self.text
        self.set_text("")
        self._history_index = len(self.history)
        return submitted_text

    def _apply_editing_key(self, name: str) -> None:
        start, end = self._find_line_bounds()
        before, after = max(self.cursor - 1, 0), min(self.cursor + 1, len(self.text))
        moves = {"left": before, "right": after, "home": start, "end": end}
        moves |= {"word-left": self._find_word_start(), "word-right": self._find_word_end()}
        deletes = {
            "backspace": before,
            "delete": after,
            "kill-word": self._find_word_start(),
            "kill-to-start": start,
            "kill-to-end": end,
        }
        if name in moves:
            self.cursor = moves[name]
        elif name in deletes:
            first, last = sorted((self.cursor, deletes[name]))
            self.text = self.text[:first] + self.text[last:]
            self.cursor = first

    def _find_line_bounds(self) -> tuple[int, int]:
        end = self.text.find("\n", self.cursor)
        return self.text.rfind("\n", 0, self.cursor) + 1, len(self.text) if end < 0 else end

    def _find_word_start(self) -> int:
        text_before = self.text[: self.cursor].rstrip()
        return max(text_before.rfind(" "), text_before.rfind("\n")) + 1

    def _find_word_end(self) -> int:
        position = self.cursor
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        while position < len(self.text) and not self.text[position].isspace():
            position += 1
        return position

    def _move_vertically(self, step: int) -> None:
        """Move within a text of several lines first, then through the history."""
        start, end = self._find_line_bounds()
        column = self.cursor - start
        if step < 0 and start > 0:
            above = self.text.rfind("\n", 0, start - 1) + 1
            self.cursor = min(above + column, start - 1)
        elif step > 0 and end < len(self.text):
            below_end = self.text.find("\n", end + 1)
            self.cursor = min(end + 1 + column, len(self.text) if below_end < 0 else below_end)
        else:
            self._recall_history(step)

    def _recall_history(self, step: int) -> None:
        new_index = self._history_index + step
        if not 0 <= new_index <= len(self.history):
            return
        if self._history_index == len(self.history):
            self._draft = self.text
        self._history_index = new_index
        self.set_text(self._draft if new_index == len(self.history) else self.history[new_index])
