"""Mail of a run: sender, recipient, content, and when it was taken."""

from __future__ import annotations

import os

from msgspec.structs import replace

from shoal.app.run_view.bounded_table import BoundedChangeTrackingRowMap
from shoal.app.run_view.view_rows import RunViewMailRow
from shoal.core.events import MailPosted, MailTaken
from shoal.core.teams.compact_id_set import CompactIdSet
from shoal.wire.json_codec import parse_iso_timestamp

MAX_ROWS = 10_000
"""Maximum number of messages held; the mailboxes have all of them."""


def make_mail_row_key(team: str, to: str, mail: str) -> str:
    return f"{team}\n{to}\n{mail}"


class RunViewMailState(BoundedChangeTrackingRowMap[RunViewMailRow]):
    """Mail keyed by inbox: messages of other programs may have the same id in several inboxes."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        super().__init__(max_rows)
        self.unread = 0
        """Number of messages not taken yet, held or evicted."""
        self._evicted_unread = CompactIdSet(key=os.urandom(16))
        """Messages evicted before they were taken."""

    def apply_event(self, event: MailPosted | MailTaken, at: int, offset: int) -> None:
        key = make_mail_row_key(event.team, event.to, event.mail)
        existing, is_taken = self.get(key), isinstance(event, MailTaken)
        if existing is None and (self.is_evicted(key) or key in self._evicted_unread):
            if is_taken and not self.is_evicted(key):
                self.unread -= 1
                self._evicted.add_ids((key,))
            return
        previous = existing or _make_mail_row(
            event, _clamp_posted_time(event, at) if isinstance(event, MailTaken) else at
        )
        if is_taken:
            self.unread -= existing is not None and not existing.taken
            row = replace(previous, taken=at)
        else:
            self.unread += existing is None
            row = replace(previous, fyi=isinstance(event, MailPosted) and event.fyi)
        self.put_row(key, row, offset, is_settled=bool(row.taken))

    def evict_row(self, key: str) -> None:
        if self.get_row(key).taken:
            super().evict_row(key)
        else:
            self._evicted_unread.add_ids((key,))
            self.drop_row(key)

    def list_rows_changed_since(self, offset: int) -> tuple[RunViewMailRow, ...]:
        return tuple(self.get_row(key) for key in self.list_keys_changed_since(offset))


def _make_mail_row(event: MailPosted | MailTaken, at: int) -> RunViewMailRow:
    return RunViewMailRow(
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


def _clamp_posted_time(event: MailTaken, at: int) -> int:
    """Return a plausible time: a program outside this run set it, and may have sent any date."""
    try:
        return max(0, min(parse_iso_timestamp(event.posted), at))
    except ValueError:
        return at
