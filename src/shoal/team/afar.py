"""A teammate in a process of its own, as its lead has it: what its line tells, and how it is ended."""

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
"""Seconds until a process says that it is ready."""
LEAVING = 2.0
"""Seconds to end as it was told, before TERM."""
GRACE = 1.0
"""Seconds between TERM and KILL."""
_COUNTED = re.compile(rb'"type":"(tool_finished|request_settled)"')
_BEGINNING = 200
PATIENCE = 10.0
"""Seconds in which a process that lives answers."""
ASKED = 2
"""How often it is asked in that time: where the lead itself stood still, one answer may come too late."""


class Afar:
    """`withdrawn` and `agreed` are told what comes by the line; `changed` that it stands otherwise."""

    def __init__(
        self,
        on: Footing,
        entered: Entered,
        berth: Berth,
        ready: words.Ready,
        early: Sequence[words.Up] = (),
        before: Collection[str] = (),
    ) -> None:
        """`before` is the mail that the lead had of it when its process was started."""
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
        """Called at once when its line ends without a last word, before its process is cleared away."""
        self._before = before
        self.died = ""
        """How its process ended without being told to, if so."""
        self._purse = PurseWindow(on.purse, self._send)
        self._questions = QuestionWindow(on, self._send)
        self._pongs: dict[int, asyncio.Future[bool]] = {}
        self._number = 0
        self._heard = on.clock.monotonic()
        """When something last came by its line."""
        self._stuck = False
        self._left: words.Left | None = None
        self.witness = None if self._line is None else on.outfitter.witness(self.id)
        """Only counts: its process keeps the output file."""
        self._over = False
        """Its process is gone: another one of it, or its end, is still to come."""

    @classmethod
    async def arrived(cls, on: Footing, entered: Entered, order: Order | None, berth: Berth) -> Afar:
        """Once its process is ready to work. Raises `AgentRefused` where it says or shows that it cannot."""
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
        """Its place among those that may work at once, for which its process asks."""
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
        """By its own word, given after all that it said before; one that does not answer is stuck."""
        if self._line is None:
            try:
                return not await self._on.record.mailboxes(self._entered.team).take(self.name, limit=1)
            except (RecordError, StoreError):
                return True  # nobody can tell, and it is its own program that reads there
        busy = await self._asked()
        if busy is None:
            await self._end_stuck()
        return busy is False

    async def _asked(self) -> bool | None:
        """Whether it has something to do; None where it does not answer."""
        for _ in range(ASKED):
            # Its own: several may ask at once.
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
        """A process that stands still cannot notice so itself: after a silence it is asked."""
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
        # What another process of it asked before this one was there, nobody waits for. That mail was there
        # already tells so; its time does not, where somebody sets the clock.
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
            # One that TERM brought back says farewell, and is wanted all the same.
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
                    pong.set_result(True)  # it does not rest, it ends; who asked is not to be interrupted
            await self.abandon()

    async def finish(self) -> KeptWork | None:
        """Its process gave back what it had; where that was killed, the next sweep does."""
        return None if self._left is None else self._left.work

    async def abandon(self) -> None:
        """See that nothing of it is left running."""
        if self._line is not None:
            self._line.close()
        try:
            await self._berth.stop(grace=GRACE)
        except ProcessError as error:
            self._on.note(f"The process of {self.name} is left behind: {error}")

    def permit(self, update: Suggestion) -> None:
        """Let it know what a person answered for the whole session."""
        self._send(words.Permits(update=update))

    def interrupt(self) -> bool:
        """End its working period, not itself."""
        if self.state != "running" or self._line is None:
            return False
        self._send(words.Cut())
        return True

    def heard(self, *, idle: bool) -> None:
        """Of a foreign program, whose mail alone tells how it stands."""
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
        with suppress(ProcessError):  # `abandon` comes after this, and tells what is left behind
            await self._berth.stop(grace=GRACE)

    async def _end_stuck(self) -> None:
        self._stuck = True
        self._on.note(f"{self.name} has not answered for {PATIENCE:g} s: its process is ended.")
        await self._stop()

    async def _listen(self) -> None:
        """Until its end of the line is closed."""
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
        """What it used, for those who are told of it; a line begins with when, and what kind it is."""
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
    """None where its end of the line is closed. What it says before that, its accounts, goes to `early`."""
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
    """What can be said of a program that says nothing itself."""
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
    """What the lead has of it and has not read yet."""
    try:
        mails = await on.record.mailboxes(entered.team).take(LEAD_NAME)
    except (RecordError, StoreError):
        return frozenset()
    return frozenset(mail.id for mail in mails if mail.sender == entered.name)
