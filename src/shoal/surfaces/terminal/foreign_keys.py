"""Keys of Claude Code that do nothing in Shoal's terminals, with a note for each."""

from __future__ import annotations

FOREIGN_KEYS = {
    "Ctrl-R": "Shoal does not search the history. Press Up for earlier prompts.",
    "Ctrl-G": "Shoal does not open an editor. End a line with \\ to continue it.",
    "Ctrl-S": "Shoal does not stash the input.",
    "Alt-T": "Shoal does not switch thinking on or off. Start Shoal with --effort LEVEL.",
}


class ForeignKeyNotes:
    """The notes that the user has not seen."""

    def __init__(self) -> None:
        self._unseen = dict(FOREIGN_KEYS)

    def take_note(self, key: str) -> str:
        """Return the note about a key the first time; otherwise an empty text."""
        return self._unseen.pop(key, "")
