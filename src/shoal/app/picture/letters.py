"""The mail of a run: who wrote what to whom, and when it was taken."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.picture.rows import LetterRow
from shoal.app.picture.table import Table
from shoal.core.events import MailPosted, MailTaken
from shoal.wire.content import milliseconds


class Letters(Table[str, LetterRow]):
    def hear(self, event: MailPosted | MailTaken, at: int, offset: int) -> None:
        known = self.get(event.mail)
        if isinstance(event, MailTaken):
            row = replace(known or _row(event, _posted(event, at)), taken=at)
        else:
            row = _row(event, at) if known is None else replace(known, fyi=event.fyi)
        self.put(event.mail, row, offset)

    def rows_since(self, offset: int) -> tuple[LetterRow, ...]:
        return tuple(self.row(key) for key in self.since(offset))


def _row(event: MailPosted | MailTaken, at: int) -> LetterRow:
    return LetterRow(
        id=event.mail,
        team=event.team,
        sender=event.sender,
        to=event.to,
        kind=event.kind,
        text=event.preview,
        summary=event.summary,
        fyi=isinstance(event, MailPosted) and event.fyi,
        posted=at,
    )


def _posted(event: MailTaken, at: int) -> int:
    """A program that is not of this run posted it, and said when: perhaps in the year 1."""
    try:
        return max(0, min(milliseconds(event.posted), at))
    except ValueError:
        return at
