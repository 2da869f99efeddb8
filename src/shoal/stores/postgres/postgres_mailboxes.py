"""Mailboxes of one team in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from shoal.core.compact_event import CompactEvent
from shoal.core.errors import InboxNotFound
from shoal.core.names import LEAD_NAME, AgentName, TeamName, parse_agent_name, parse_team_name
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_text import to_database_text
from shoal.stores.postgres.database_worker import DatabaseWorker, build_channel
from shoal.stores.postgres.grouped_calls import GroupedCalls
from shoal.stores.postgres.postgres_hints import HintSubscription
from shoal.stores.postgres.shared_parts import SharedPart
from shoal.stores.store_texts import format_store_notice
from shoal.wire.foreign_json import RejectedFileEntry
from shoal.wire.mail_codec import encode_inbox_entry, parse_inbox_entry

# The fence and the mail are one statement, so that a post costs one round trip.
_POST = """
    WITH fence AS (SELECT 1 FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE),
    incoming AS (SELECT * FROM unnest($3::text[], $4::text[], $5::bytea[]) WITH ORDINALITY
                 AS mail (owner, id, document, position)),
    found AS (SELECT owner FROM shoal.inboxes WHERE team = $2 AND owner = ANY($3::text[])),
    stored AS (INSERT INTO shoal.mail (team, owner, id, document)
               SELECT $2, owner, id, document FROM fence, incoming JOIN found USING (owner) ORDER BY position
               ON CONFLICT (team, owner, id) DO NOTHING)
    SELECT (SELECT count(*) FROM fence) AS fences, ARRAY(SELECT owner FROM found) AS owners
"""
# A message that is posted alone takes two thirds of the time of the other statement. No row means that the
# message is stored already, or that the other statement tells the reason.
_POST_ONE = """
    WITH fence AS (SELECT 1 FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE)
    INSERT INTO shoal.mail (team, owner, id, document)
    SELECT $2, $3, $4, $5 FROM fence WHERE EXISTS (SELECT FROM shoal.inboxes WHERE team = $2 AND owner = $3)
    ON CONFLICT (team, owner, id) DO NOTHING RETURNING true
"""
_SNAPSHOT = (
    "pg_snapshot_xmin(pg_current_snapshot())::text AS oldest, "
    "pg_snapshot_xmax(pg_current_snapshot())::text AS next"
)
_MARK_READ = """
    WITH fence AS (SELECT 1 FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE),
    marked AS (UPDATE shoal.mail SET is_read = true FROM fence
               WHERE team = $2 AND owner = $3 AND id = ANY($4::text[]) AND NOT is_read)
    SELECT count(*) FROM fence
"""


class _NewMail(NamedTuple):
    owner: AgentName
    id: str
    document: bytes


class _UnreadCursor:
    """Place in an inbox up to which its reader has all unread mail.

    Mail gets its number before it is committed, so mail with a lower number may appear later. A number is
    passed once every transaction that ran when it was read has ended.
    """

    def __init__(self, beyond: Container[str]) -> None:
        self.beyond = beyond
        self.start = 0
        """All unread mail up to this number is in `beyond`."""
        self.overlap = 0
        """Number of rows in `beyond` that are read again."""
        self._places: list[tuple[int, int]] = []
        """Numbers up to which the reader had all visible mail, and the first transaction after each."""

    def advance(self, rows: Sequence[Any]) -> None:
        """Move on after rows that were read from the start, in order."""
        if not rows:
            self.overlap = 0
            return
        known = list(takewhile(lambda row: row["id"] in self.beyond, rows))
        if known:
            end, oldest = known[-1]["number"], int(rows[0]["oldest"])
            while self._places and self._places[0][1] <= oldest:
                self.start = max(self.start, min(end, self._places.pop(0)[0]))
            if not self._places or self._places[-1][0] < end:
                self._places.append((end, int(rows[0]["next"])))
        self.overlap = sum(row["number"] > self.start for row in known)


class TeamMail:
    """Shared state of the mailboxes of one team in an event loop: mail that is being posted, and waiters.

    A process may have thousands of members. Their mail is posted together, and a hint costs nothing for those
    that it does not concern.
    """

    def __init__(self, client: DatabaseClient, team: TeamName) -> None:
        self._client = client
        self._team = team
        self._channel = build_channel("mail", team)
        self.posts: GroupedCalls[_NewMail, bool] = GroupedCalls(self._post_together)
        """Each returns False if there is no inbox."""
        self.unread_checks: GroupedCalls[Sequence[AgentName], set[str]] = GroupedCalls(
            self._find_unread_together
        )
        """Each returns those of the owners that have unread mail."""
        self._subscription: HintSubscription | None = None
        self._subscribing = asyncio.Lock()
        self.waiters: dict[AgentName, set[CompactEvent]] = {}
        self.has_lead_inbox = False

    def note_lead_inbox(self, *, exists: bool) -> None:
        self.has_lead_inbox = exists

    async def _post_together(self, worker: DatabaseWorker, mails: list[_NewMail]) -> list[bool]:
        async def store_mail(raw: Any) -> Any:
            if len(mails) == 1 and await raw.fetchval(_POST_ONE, worker.epoch, self._team, *mails[0]):
                return 1, [mails[0].owner]
            return await raw.fetchrow(
                _POST,
                worker.epoch,
                self._team,
                [mail.owner for mail in mails],
                [mail.id for mail in mails],
                [mail.document for mail in mails],
            )

        fences, owners = await worker.execute(store_mail)
        if not fences:
            raise worker.lose_lease()
        existing = set(owners)
        for owner in existing:
            worker.notify(self._channel, owner)
        return [mail.owner in existing for mail in mails]

    async def subscribe(self) -> None:
        async with self._subscribing:
            if self._subscription is None:
                subscription = HintSubscription(self._client, self._channel, self._wake_waiters)
                await subscription.start()
                self._subscription = subscription

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _wake_waiters(self, owner: str | None) -> None:
        if owner is not None:
            self._wake_owners([owner])
        elif self.waiters:
            loop, owners = asyncio.get_running_loop(), list(self.waiters)

            async def find_and_wake(worker: DatabaseWorker) -> None:
                found = await self.unread_checks.call(worker, owners)
                with suppress(RuntimeError):  # the event loop was closed
                    loop.call_soon_threadsafe(self._wake_owners, found)

            self._client.send(lambda worker: worker.start_task(find_and_wake(worker)))

    def _wake_owners(self, owners: Iterable[str]) -> None:
        for owner in owners:
            for changed in self.waiters.get(AgentName(owner), ()):
                changed.set()

    async def _find_unread_together(
        self, worker: DatabaseWorker, requests: list[Sequence[AgentName]]
    ) -> list[set[str]]:
        async def find_unread(raw: Any) -> set[str]:
            rows = await raw.fetch(
                "SELECT owner FROM unnest($2::text[]) AS names (owner) "
                "WHERE EXISTS (SELECT FROM shoal.mail WHERE team = $1 "
                "AND mail.owner = names.owner AND NOT is_read)",
                self._team,
                list({owner for owners in requests for owner in owners}),
            )
            return {row[0] for row in rows}

        unread = await worker.execute(find_unread)
        return [unread.intersection(owners) for owners in requests]


class PostgresMailboxes:
    def __init__(self, client: DatabaseClient, team: TeamName) -> None:
        self._client = client
        self._team = parse_team_name(team)
        self._shared_mail: SharedPart[TeamMail] | None = None
        self._cursors: dict[AgentName, _UnreadCursor] = {}

    async def open_inbox(self, owner: AgentName, *, foreign: bool = False) -> None:
        name = parse_agent_name(owner)
        if name == LEAD_NAME and not foreign and self._team_mail.has_lead_inbox:
            return

        async def create_inbox(raw: Any) -> None:
            await raw.execute(
                "INSERT INTO shoal.inboxes VALUES ($1, $2, $3) "
                "ON CONFLICT (team, owner) DO UPDATE SET is_foreign = excluded.is_foreign",
                self._team,
                name,
                foreign,
            )

        await self._client.call(lambda worker: worker.transact(create_inbox))
        if name == LEAD_NAME:
            self._team_mail.note_lead_inbox(exists=not foreign)

    async def post(self, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        owner = parse_agent_name(to)
        document, team_mail = encode_inbox_entry(replace(mail, read=False)), self._team_mail
        new_mail = _NewMail(owner, to_database_text(mail.id), document)
        if owner == LEAD_NAME and not team_mail.has_lead_inbox:
            await self._create_lead_inbox()
        is_stored = await self._client.call(lambda worker: team_mail.posts.call(worker, new_mail))
        if not is_stored and owner == LEAD_NAME:
            # The team was deleted and created again.
            await self._create_lead_inbox()
            is_stored = await self._client.call(lambda worker: team_mail.posts.call(worker, new_mail))
        if not is_stored:
            raise await self._build_inbox_not_found(owner)
        return MailPostReceipt(id=mail.id, standing="delivered")

    async def _create_lead_inbox(self) -> None:
        async def create_inbox(raw: Any) -> None:
            await raw.execute(
                "INSERT INTO shoal.inboxes VALUES ($1, $2, false) ON CONFLICT DO NOTHING",
                self._team,
                LEAD_NAME,
            )

        await self._client.call(lambda worker: worker.transact(create_inbox))
        self._team_mail.note_lead_inbox(exists=True)

    async def take_unread(
        self, owner: AgentName, *, limit: int = 64, beyond: Container[str] = ()
    ) -> tuple[MailMessage, ...]:
        name = parse_agent_name(owner)
        rows = await self._read_unread(name, limit, beyond, columns="document, is_read, id")
        if not rows:
            await self._require_inbox(name)
        return _parse_mail_rows(row[:3] for row in rows)

    async def _read_unread(
        self, owner: AgentName, limit: int, beyond: Container[str], *, columns: str = "id"
    ) -> list[Any]:
        """Return rows of unread mail that is not in `beyond`, without reading all of `beyond` again."""
        cursor = self._cursors.get(owner)
        if cursor is None or cursor.beyond is not beyond:
            cursor = _UnreadCursor(beyond)
            if beyond != ():
                self._cursors[owner] = cursor
        while True:
            count = limit + cursor.overlap
            rows = await self._read_mail(
                owner,
                "AND NOT is_read AND number > $3 ORDER BY number LIMIT $4",
                cursor.start,
                count,
                columns=f"{columns}, number, {_SNAPSHOT}",
            )
            cursor.advance(rows)
            found = [row for row in rows if row["id"] not in beyond]
            if found or len(rows) < count:
                return found[:limit]

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        name, texts = parse_agent_name(owner), [to_database_text(each) for each in ids]

        async def mark(worker: DatabaseWorker) -> None:
            async def execute(raw: Any) -> int:
                count: int = await raw.fetchval(_MARK_READ, worker.epoch, self._team, name, texts)
                return count

            if not await worker.execute(execute):
                raise worker.lose_lease()

        if texts:
            await self._client.call(mark)

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        name = parse_agent_name(owner)
        await self._require_inbox(name)
        team_mail = self._team_mail
        await team_mail.subscribe()
        changed = CompactEvent()
        waiters = team_mail.waiters.setdefault(name, set())
        waiters.add(changed)
        try:
            while True:
                changed.clear()
                if await self._read_unread(name, 1, beyond):
                    return
                await changed.wait()
        finally:
            waiters.discard(changed)
            if not waiters and team_mail.waiters.get(name) is waiters:
                del team_mail.waiters[name]

    def find_changed_inboxes(self, owners: Iterable[AgentName]) -> list[AgentName]:
        names = list(owners)
        if not names:
            return []

        team_mail = self._team_mail
        unread = self._client.run(lambda worker: team_mail.unread_checks.call(worker, names))
        return [name for name in names if name in unread or name not in team_mail.waiters]

    def is_foreign_inbox(self, owner: AgentName) -> bool:
        name = parse_agent_name(owner)

        async def read_flag(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    "SELECT is_foreign FROM shoal.inboxes WHERE team = $1 AND owner = $2", self._team, name
                )
            )

        return self._client.run(lambda worker: worker.execute(read_flag))

    async def read_history(self, owner: AgentName) -> tuple[MailMessage, ...]:
        name = parse_agent_name(owner)
        rows = await self._read_mail(name, "ORDER BY number")
        if not rows:
            await self._require_inbox(name)
        return _parse_mail_rows(rows)

    async def aclose(self) -> None:
        shared_mail, self._shared_mail = self._shared_mail, None
        if shared_mail is not None:
            shared_mail.release()

    @property
    def _team_mail(self) -> TeamMail:
        if self._shared_mail is None:
            self._shared_mail = self._client.shared_parts.acquire(
                ("mail", self._team), lambda: TeamMail(self._client, self._team)
            )
        return self._shared_mail.part

    async def _read_mail(
        self, owner: AgentName, condition: str, *arguments: object, columns: str = "document, is_read, id"
    ) -> list[Any]:
        query = f"SELECT {columns} FROM shoal.mail WHERE team = $1 AND owner = $2 {condition}"

        async def fetch(raw: Any) -> list[Any]:
            return list(await raw.fetch(query, self._team, owner, *arguments))

        return await self._client.call(lambda worker: worker.execute(fetch))

    async def _require_inbox(self, owner: AgentName) -> None:
        if owner == LEAD_NAME:
            return

        async def find_inbox(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    "SELECT true FROM shoal.inboxes WHERE team = $1 AND owner = $2", self._team, owner
                )
            )

        if not await self._client.call(lambda worker: worker.execute(find_inbox)):
            raise await self._build_inbox_not_found(owner)

    async def _build_inbox_not_found(self, owner: AgentName) -> InboxNotFound:
        async def list_owners(raw: Any) -> list[str]:
            rows = await raw.fetch(
                "SELECT owner FROM shoal.inboxes WHERE team = $1 ORDER BY owner", self._team
            )
            return [row[0] for row in rows]

        owners = await self._client.call(lambda worker: worker.execute(list_owners))
        return InboxNotFound(
            format_store_notice("unknown_inbox", owner=repr(owner), owners=", ".join(owners) or "nobody")
        )


def _parse_mail_rows(rows: Iterable[Any]) -> tuple[MailMessage, ...]:
    mails: list[MailMessage] = []
    for document, is_read, mail_id in rows:
        entry = parse_inbox_entry(bytes(document))
        assert not isinstance(entry, RejectedFileEntry), "only valid mail is stored"
        # An imported entry of another program may have no id of its own; then the row has one.
        is_own_id = to_database_text(entry.mail.id) == mail_id
        mails.append(replace(entry.mail, id=entry.mail.id if is_own_id else mail_id, read=is_read))
    return tuple(mails)
