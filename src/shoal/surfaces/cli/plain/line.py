"""Editor of the typed text: editing by keys, recall from history, layout in rows."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.wording import clean
from shoal.surfaces.cli.plain.keys import Key, Pasted, Press, Typed
from shoal.surfaces.terminal.paint import fitting, width


class Line:
    def __init__(self, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.at = 0
        self.history = list(history)
        self._recalled = len(self.history)
        self._draft = ""

    def press(self, press: Press) -> str | None:
        """Handle a key press; return the whole text when it is entered, else None."""
        match press:
            case Typed(text) | Pasted(text):
                self._insert(clean(text))
            case Key("newline"):
                self._insert("\n")
            case Key("enter"):
                return self._enter()
            case Key("up" | "down"):
                self._up_or_down(-1 if press.name == "up" else 1)
            case Key(name):
                self._edit(name)
        return None

    def put(self, text: str) -> None:
        self.text, self.at = text, len(text)

    def complete(self, words: Sequence[str]) -> None:
        """Complete the text if exactly one completion starts with it."""
        starting = [word for word in words if self.text and word.startswith(self.text)]
        if len(starting) == 1:
            self.put(f"{starting[0]} ")

    def remember(self, text: str) -> bool:
        """Add the text to the history; return True if it is new there."""
        new = bool(text.strip()) and self.history[-1:] != [text]
        if new:
            self.history.append(text)
        self._recalled = len(self.history)
        return new

    def rows(self, prompt: str, columns: int) -> tuple[list[str], tuple[int, int]]:
        """Lay out the text behind its prompt; return the rows and the cursor's position in them."""
        indent = " " * width(prompt)
        rows: list[str] = []
        cursor = (0, 0)
        offset = 0
        for line in self.text.split("\n"):
            start = 0
            while True:
                lead = indent if rows else prompt
                take = max(1, fitting(line[start : start + 2 * columns], columns - width(lead)))
                piece = line[start : start + take]
                if offset + start <= self.at <= offset + start + len(piece):
                    cursor = (len(rows), width(lead) + width(piece[: self.at - offset - start]))
                rows.append(lead + piece)
                start += take
                if start >= len(line):
                    break
            offset += len(line) + 1
        return rows, cursor

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def _enter(self) -> str | None:
        if self.text.endswith("\\") and self.at == len(self.text):
            self.put(self.text[:-1] + "\n")
            return None
        entered = self.text
        self.put("")
        self._recalled = len(self.history)
        return entered

    def _edit(self, name: str) -> None:
        start, end = self._line_bounds()
        before, after = max(self.at - 1, 0), min(self.at + 1, len(self.text))
        moves = {"left": before, "right": after, "home": start, "end": end}
        moves |= {"word-left": self._word_start(), "word-right": self._word_end()}
        deletes = {
            "backspace": before,
            "delete": after,
            "kill-word": self._word_start(),
            "kill-to-start": start,
            "kill-to-end": end,
        }
        if name in moves:
            self.at = moves[name]
        elif name in deletes:
            first, last = sorted((self.at, deletes[name]))
            self.text = self.text[:first] + self.text[last:]
            self.at = first

    def _line_bounds(self) -> tuple[int, int]:
        end = self.text.find("\n", self.at)
        return self.text.rfind("\n", 0, self.at) + 1, len(self.text) if end < 0 else end

    def _word_start(self) -> int:
        before = self.text[: self.at].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _word_end(self) -> int:
        at = self.at
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        while at < len(self.text) and not self.text[at].isspace():
            at += 1
        return at

    def _up_or_down(self, step: int) -> None:
        """Move within a text of several lines first, then through the history."""
        start, end = self._line_bounds()
        column = self.at - start
        if step < 0 and start > 0:
            above = self.text.rfind("\n", 0, start - 1) + 1
            self.at = min(above + column, start - 1)
        elif step > 0 and end < len(self.text):
            below_end = self.text.find("\n", end + 1)
            self.at = min(end + 1 + column, len(self.text) if below_end < 0 else below_end)
        else:
            self._recall(step)

    def _recall(self, step: int) -> None:
        wanted = self._recalled + step
        if not 0 <= wanted <= len(self.history):
            return
        if self._recalled == len(self.history):
            self._draft = self.text
        self._recalled = wanted
        self.put(self._draft if wanted == len(self.history) else self.history[wanted])
