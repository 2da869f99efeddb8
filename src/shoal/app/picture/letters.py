"""Mail of a run: sender, recipient, content, and when it was taken."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.picture.bounded import Bounded
from shoal.app.picture.rows import LetterRow
from shoal.core.events import MailPosted, MailTaken
from shoal.core.seen import Seen
from shoal.wire.content import milliseconds

MOST = 10_000
"""Maximum number of messages held; the mailboxes have all of them."""


def letter_key(team: str, to: str, mail: str) -> str:
    return f"{team}\n{to}\n{mail}"


class Letters(Bounded[LetterRow]):
    """Mail keyed by inbox: messages of other programs may have the same id in several inboxes."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__(most)
        self.unread = 0
        """Number of messages not taken yet, held or evicted."""
        self._gone_unread = Seen()
        """Messages evicted before they were taken."""

    def hear(self, event: MailPosted | MailTaken, at: int, offset: int) -> None:
        key = letter_key(event.team, event.to, event.mail)
        known, is_taken = self.get(key), isinstance(event, MailTaken)
        if known is None and (self.was_let_go(key) or key in self._gone_unread):
            if is_taken and not self.was_let_go(key):
                self.unread -= 1
                self._gone.update((key,))
            return
        before = known or _row(event, _posted(event, at) if isinstance(event, MailTaken) else at)
        if is_taken:
            self.unread -= known is not None and not known.taken
            row = replace(before, taken=at)
        else:
            self.unread += known is None
            row = replace(before, fyi=isinstance(event, MailPosted) and event.fyi)
        self.keep(key, row, offset, settled=bool(row.taken))

    def let_go(self, key: str) -> None:
        if self.row(key).taken:
            super().let_go(key)
        else:
            self._gone_unread.update((key,))
            self.drop(key)

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
    """Return a plausible time: a program outside this run set it, and may have sent any date."""
    try:
        return max(0, min(milliseconds(event.posted), at))
    except ValueError:
        return at
