"""Inboxes of one team on disk, for any number of processes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import NoSuchTeam
from shoal.core.ids import Ids
from shoal.core.mail import Mail, Receipt
from shoal.core.names import AgentName, TeamName, agent_name, team_name
from shoal.stores.files.handles import Directory
from shoal.stores.files.mailbox import Mailbox, MailPlaces
from shoal.stores.files.record_locks import PATIENCE
from shoal.stores.files.reporting import Report, unreported
from shoal.stores.files.watch import DirectoryWatch, FileWatch

_LOOKED_AT = 64
"""Inboxes that are checked in one poll without an event."""
_REMEMBERED = 64
"""Inboxes whose content is cached: in a large team most are idle."""


class FileMailboxes:
    """Mailboxes on files. Nothing is created before the first call; quarantined files are reported."""

    def __init__(
        self,
        home: Path,
        team: TeamName,
        *,
        clock: Clock,
        ids: Ids,
        report: Report = unreported,
        patience: float = PATIENCE,
        durable: bool = False,
    ) -> None:
        self._home = home
        self._team = team_name(team)
        self._clock = clock
        self._ids = ids
        self._report = report
        self._patience = patience
        self._durable = durable
        self._places: MailPlaces | None = None
        self._boxes: dict[str, Mailbox] = {}
        self._remembered: OrderedDict[str, Mailbox] = OrderedDict()
        """Mailboxes with cached content, the most recent at the end."""
        self._watch: DirectoryWatch | None = None
        self._waited_for: set[str] = set()

    async def open(self, owner: AgentName, *, foreign: bool = False) -> None:
        await self._box(owner).open(foreign=foreign)

    async def post(self, to: AgentName, mail: Mail) -> Receipt:
        return await self._box(to).post(mail)

    async def take(self, owner: AgentName, *, limit: int = 64) -> tuple[Mail, ...]:
        return await self._box(owner).take(limit)

    async def mark(self, owner: AgentName, ids: Collection[str]) -> None:
        await self._box(owner).mark(ids)

    async def wait(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        box = self._box(owner)
        if box.owner not in self._waited_for and self._places is not None:
            self._waited_for.add(box.owner)
            self._watch_inboxes(self._places.inboxes, box)
        await box.wait(beyond)

    def stirred(self, owners: Iterable[AgentName]) -> list[AgentName]:
        if self._watch is None or not self._watch.tell_now():
            return list(owners)
        boxes = self._boxes
        return [owner for owner in owners if (box := boxes.get(owner)) is None or not box.is_still]

    def is_foreign(self, owner: AgentName) -> bool:
        return self._box(owner).is_foreign

    async def history(self, owner: AgentName) -> tuple[Mail, ...]:
        return await self._box(owner).history()

    async def aclose(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._boxes.clear()
        self._remembered.clear()
        self._waited_for.clear()
        places, self._places = self._places, None
        if places is not None:
            places.close()

    def _watch_inboxes(self, inboxes: Directory, box: Mailbox) -> None:
        """Watch one file if only one inbox has a waiter, so that other mail wakes no member process."""
        before = self._watch
        if before is None and inboxes.status(f"{box.owner}.json") is not None:
            path = inboxes.path / f"{box.owner}.json"
            self._watch = FileWatch(path, box.wake, anyway=self._look_anyway)
        elif before is None or isinstance(before, FileWatch):
            self._watch = DirectoryWatch(inboxes.path, self._look, named=self._told, anyway=self._look_anyway)
        if before is not None and before is not self._watch:
            before.close()
            self._look()

    def _told(self, names: set[str]) -> None:
        for name in names:
            if name.endswith(".json") and (box := self._boxes.get(name.removesuffix(".json"))) is not None:
                box.wake()

    def _look(self) -> None:
        for box in self._boxes.values():
            box.wake()

    def _look_anyway(self) -> None:
        """Wake some mailboxes in turn: checking a thousand at once would block everything else."""
        for _ in range(min(_LOOKED_AT, len(self._boxes))):
            name, box = next(iter(self._boxes.items()))
            self._boxes[name] = self._boxes.pop(name)
            box.wake()

    def _box(self, owner: AgentName) -> Mailbox:
        name = agent_name(owner)
        if self._places is not None and self._places.gone:
            raise NoSuchTeam(f"The team {self._team} was deleted.")
        if self._places is None:
            with Directory.root(self._home) as root:
                self._places = MailPlaces.of(root, self._team)
        if name not in self._boxes:
            self._boxes[name] = Mailbox(
                self._places,
                name,
                clock=self._clock,
                ids=self._ids,
                report=self._report,
                patience=self._patience,
                durable=self._durable,
            )
        box = self._remembered[name] = self._boxes[name]
        box.remembers = True
        self._remembered.move_to_end(name)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)[1].forget()
        return box
