"""The lead's side of a teammate that runs in its own process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from shoal.core.agents import KeptWork, Order, Resolved
from shoal.core.backends import Berth, Line
from shoal.core.bodies import ShutdownRequest
from shoal.core.caps import Started
from shoal.core.errors import AgentRefused, ProcessError, RecordError, ShoalError, StoreError
from shoal.core.events import AgentStarted, Journaled
from shoal.core.groups import outlive_cancel
from shoal.core.ids import LEAD, AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.permissions import Suggestion
from shoal.core.roster import Member as Entered
from shoal.core.teams import MemberState, Teammate
from shoal.runs.endings import Ending
from shoal.team.footing import Footing
from shoal.team.line_desk import QuestionWindow
from shoal.team.purse_window import PurseWindow
from shoal.wire import outpost as words
from shoal.wire.journal import read_event

STARTING = 60.0
"""Seconds a process has to report that it is ready."""
LEAVING = 2.0
"""Seconds a process has to end on request, before TERM."""
GRACE = 1.0
"""Seconds between TERM and KILL."""
_COUNTED = re.compile(rb'"type":"(tool_finished|request_settled)"')
_BEGINNING = 200
PATIENCE = 10.0
"""Seconds in which a live process answers a ping."""
ASKED = 2
"""Pings in that time: if the lead itself was suspended, one answer may arrive too late."""


class Afar:
    """A teammate behind a channel, or a foreign program without one.

    `on_request_withdrawn` and `on_shutdown_agreed` are called for messages from the channel, `on_changed` for
    a new state.
    """

    def __init__(
        self,
        on: Footing,
        entered: Entered,
        berth: Berth,
        ready: words.Ready,
        early: Sequence[words.Up] = (),
        before: Collection[str] = (),
    ) -> None:
        """`earlier_mail` are the ids of its mail that the lead had when the process was started."""
        self._on = on
        self._entered = entered
        self._berth = berth
        self._line = berth.line
        self.ready = ready
        self._early = early
        self.name: AgentName = entered.name
        self.state: MemberState = "created"
        self.claiming = False
        self.claims = True
        self.request: ShutdownRequest | None = None
        self.stopping = ""
        self.stays = False
        self.withdrawn: Callable[[str], None] = lambda _: None
        self.agreed: Callable[[str], None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        self.lost: Callable[[], Awaitable[None]] = _nothing
        """Called when the channel ends without an end message, before the process is cleaned up."""
        self._before = before
        self.died = ""
        """Cause of an unexpected end of its process, if it had one."""
        self._purse = PurseWindow(on.purse, self._send)
        self._questions = QuestionWindow(on, self._send)
        self._pongs: dict[int, asyncio.Future[bool]] = {}
        self._number = 0
        self._heard = on.clock.monotonic()
        """Time of the last message from its channel."""
        self._stuck = False
        self._left: words.Left | None = None
        self.witness = None if self._line is None else on.outfitter.witness(self.id)
        """Counts usage only: the member's process writes the output file."""
        self._over = False
        """True if its process is gone and a restart, or its end, is still pending."""

    @classmethod
    async def arrived(cls, on: Footing, entered: Entered, order: Order | None, berth: Berth) -> Afar:
        """Return the member once its process is ready. Raises `AgentRefused` if the process cannot start."""
        early: list[words.Up] = []
        try:
            before = await _unread(on, entered)
            if berth.line is None:
                return cls(on, entered, berth, _foreign(entered, order), before=before)
            async with on.clock.deadline(STARTING):
                ready = await _ready(berth.line, early)
                how = "" if ready is not None else await berth.over()
        except (TimeoutError, ValueError):
            ready, how = None, "it did not say that it is ready"
        except BaseException:
            await _give_up(berth)
            raise
        if isinstance(ready, words.Ready):
            return cls(on, entered, berth, ready, early, before)
        await _give_up(berth)
        if ready is not None:
            raise AgentRefused(ready.why)
        raise AgentRefused(f"The process of {entered.name} could not be started: {how}.")

    def counted_as(self, counted: Started) -> None:
        """Set the concurrency slot that its process asks for."""
        self._purse.place = counted

    @property
    def id(self) -> AgentId:
        return AgentId(self._entered.agent_id)

    @property
    def is_foreign(self) -> bool:
        return self._line is None

    @property
    def started(self) -> AgentStarted:
        return self.ready.started

    @property
    def pane(self) -> str:
        return self._berth.pane

    @property
    def is_busy(self) -> bool:
        at_work = self.state in ("running", "created") or self.claiming
        return at_work or self.request is not None or self._over

    @property
    def may_claim(self) -> bool:
        return self.claims and self.request is None and not self.stopping

    async def at_rest(self) -> bool:
        """Return True if its process answers a ping as idle; a process that does not answer is ended."""
        if self._line is None:
            try:
                return not await self._on.record.mailboxes(self._entered.team).take(self.name, limit=1)
            except (RecordError, StoreError):
                return True  # unknown; only the foreign program reads this inbox
        busy = await self._asked()
        if busy is None:
            await self._end_stuck()
        return busy is False

    async def _asked(self) -> bool | None:
        """Return True if the process has work, None if it does not answer."""
        for _ in range(ASKED):
            # A new number per ping: several callers may ask at once.
            number = self._number = self._number + 1
            pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._pongs[number] = pong
            self._send(words.Ping(number=number))
            try:
                async with self._on.clock.deadline(PATIENCE / ASKED):
                    return await pong
            except TimeoutError:
                continue
            finally:
                self._pongs.pop(number, None)
        return None

    async def _see_that_it_lives(self) -> None:
        """Ping the process after each silence: a suspended process cannot notice this itself."""
        clock = self._on.clock
        while True:
            await clock.sleep(max(0.0, self._heard + self._on.stall_after - clock.monotonic()))
            if clock.monotonic() - self._heard < self._on.stall_after:
                continue
            if await self._asked() is None:
                await self._end_stuck()
                return
            self._heard = clock.monotonic()

    def waits_for(self, request: str, mail: str) -> bool:
        # Nobody waits for requests of an earlier process. They are recognized by being in the inbox already;
        # timestamps would fail when the clock is changed.
        return mail not in self._before

    def teammate(self) -> Teammate:
        return Teammate(
            agent=self.id,
            name=self.name,
            kind=self.started.kind,
            state=self.state,
            color=self._entered.color,
            model=self.ready.resolved.model,
            pid=self._berth.pid,
            pane=self.pane,
        )

    async def live(self) -> Ending:
        try:
            await self._listen()
            # A stuck process that TERM revived still sends an end message, but its end is unexpected.
            unbidden = self._left is None or self._stuck
            if unbidden and not self.is_foreign:
                await self.lost()
            how = await self._berth.over()
            if self.is_foreign and self.request is not None:
                return Ending(status="completed", text="", detail="it shut down as it was asked to")
            if self._left is None or unbidden:
                self.died = f"it had not answered for {PATIENCE:g} s" if self._stuck else how
                return Ending(status="failed", text="", detail=self.died)
            return self._ending(self._left)
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            outlive_cancel()
            await self._end()
            return Ending(
                status="killed", text="" if self._left is None else self._left.text, detail=self.stopping
            )
        except Exception as error:  # noqa: BLE001 - the wall around teammates: a crash ends this one alone
            return Ending(status="failed", text="", detail=f"its line failed: {_first_of(error)}")
        finally:
            self._over = True
            self._purse.close()
            for pong in self._pongs.values():
                if not pong.done():
                    pong.set_result(True)  # it ends rather than rests; do not interrupt the waiter
            await self.abandon()

    async def finish(self) -> KeptWork | None:
        """Return the retained work. Its process released the rest; if it was killed, the next sweep does."""
        return None if self._left is None else self._left.work

    async def abandon(self) -> None:
        """Close the channel and stop the process."""
        if self._line is not None:
            self._line.close()
        try:
            await self._berth.stop(grace=GRACE)
        except ProcessError as error:
            self._on.note(f"The process of {self.name} is left behind: {error}")

    def permit(self, update: Suggestion) -> None:
        """Send a permission answer that a person gave for the whole session."""
        self._send(words.Permits(update=update))

    def interrupt(self) -> bool:
        """End its working period but not the member."""
        if self.state != "running" or self._line is None:
            return False
        self._send(words.Cut())
        return True

    def heard(self, *, idle: bool) -> None:
        """Set the state of a foreign program, which is known only from its mail."""
        self.state = "idle" if idle else "running"
        self.changed()

    async def _end(self) -> None:
        self._send(words.Leave(why=self.stopping, stays=self.stays))
        try:
            async with self._on.clock.deadline(LEAVING):
                await self._listen()
                await self._berth.over()
        except TimeoutError:
            await self._stop()

    async def _stop(self) -> None:
        with suppress(ProcessError):  # `stop_process` runs after this and reports what is left
            await self._berth.stop(grace=GRACE)

    async def _end_stuck(self) -> None:
        self._stuck = True
        self._on.note(f"{self.name} has not answered for {PATIENCE:g} s: its process is ended.")
        await self._stop()

    async def _listen(self) -> None:
        """Handle messages until the process closes its end of the channel."""
        if self._line is None:
            await self._berth.over()
            return
        async with asyncio.TaskGroup() as tasks:
            early, self._early = self._early, ()
            for said in early:
                self._hear(said, tasks)
            alive = tasks.create_task(self._see_that_it_lives())
            while (message := await self._line.receive()) is not None:
                self._heard = self._on.clock.monotonic()
                self._hear(words.up(message), tasks)
            alive.cancel()
            self._questions.close()
            self._purse.hang_up()

    def _hear(self, said: words.Up, tasks: asyncio.TaskGroup) -> None:
        match said:
            case words.Stands():
                self.state, self.claiming, self.claims = said.state, said.claiming, said.claims
                self.changed()
            case words.Told(line=line):
                self._on.hear(bytes(line))
                self._count(bytes(line))
            case words.Pong():
                self._ponged(said)
            case words.Withdrawn(request=request):
                self.withdrawn(request)
            case words.Agreed(request=request):
                self.agreed(request)
            case words.Left():
                self._left = said
            case words.Asks() | words.Unasks():
                self._questions.serve(said, tasks)
            case words.Permits(update=update):
                self._on.permit(update)
            case words.Ready() | words.Refused():
                return
            case _:
                self._purse.serve(said, tasks)

    def _count(self, line: bytes) -> None:
        """Count usage from a journal line; each line starts with its time and event type."""
        if self.witness is not None and _COUNTED.search(line, 0, _BEGINNING):
            _, event = read_event(line)
            if isinstance(event, Journaled) and event.agent == self.id:
                self.witness.count(event)

    def _ponged(self, said: words.Pong) -> None:
        pong = self._pongs.get(said.number)
        if pong is not None and not pong.done():
            pong.set_result(said.busy)

    def _ending(self, left: words.Left) -> Ending:
        return Ending(status=left.status, text=left.text, detail=left.detail)

    def _send(self, message: words.Down) -> None:
        if self._line is not None:
            self._line.send(words.word(message))


async def _ready(line: Line, early: list[words.Up]) -> words.Ready | words.Refused | None:
    """Wait for the ready message; None if the channel is closed.

    Messages that arrive before it, such as its budgets, are added to `early_messages`.
    """
    while (message := await line.receive()) is not None:
        said = words.up(message)
        if isinstance(said, (words.Ready, words.Refused)):
            return said
        early.append(said)
    return None


async def _nothing() -> None: ...


def _first_of(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"


async def _give_up(berth: Berth) -> None:
    if berth.line is not None:
        berth.line.close()
    await berth.stop(grace=GRACE)


def _foreign(entered: Entered, order: Order | None) -> words.Ready:
    """Build the ready message of a foreign program, which sends none."""
    return words.Ready(
        started=AgentStarted(
            agent=AgentId(entered.agent_id),
            kind=entered.agent_type,
            name=entered.name,
            description="" if order is None else order.description,
            parent=LEAD,
            call="",
            depth=1,
            model=entered.model,
            mode="",
            background=True,
            cwd=entered.cwd,
            color=entered.color,
            team=entered.team,
        ),
        resolved=Resolved(
            kind=entered.agent_type,
            model=entered.model,
            mode="",
            tools=(),
            cwd=entered.cwd,
            source="another program",
            start_tokens=0,
        ),
        prompt=entered.prompt or "",
    )


async def _unread(on: Footing, entered: Entered) -> frozenset[str]:
    """Return the ids of the member's mail that the lead has not read."""
    try:
        mails = await on.record.mailboxes(entered.team).take(LEAD_NAME)
    except (RecordError, StoreError):
        return frozenset()
    return frozenset(mail.id for mail in mails if mail.sender == entered.name)
