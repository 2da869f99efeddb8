"""Controller of a session at a terminal: turns, steering, commands, interrupts. It draws nothing itself."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from shoal.app.picture.standing import Standings
from shoal.app.session.commanding import Invocation, names_command
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.ids import LEAD
from shoal.core.messages import Message, Text, user
from shoal.core.wording import one_line
from shoal.surfaces.terminal import slash
from shoal.surfaces.terminal.activity import Activity
from shoal.surfaces.terminal.feed import Feed
from shoal.surfaces.terminal.paint import RED, YELLOW, cut
from shoal.surfaces.terminal.slash_team import Addressee, addressed, mistyped

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.app.session.turn import Turn

AGAIN = 2.0
"""Seconds within which a second Ctrl-C ends the program."""
_GIST = 160

Outcome: TypeAlias = Literal["ended", "cleared", "resumed"]


class Write(Protocol):
    def __call__(self, text: str, style: str = "") -> None: ...


class Teller(Protocol):
    """Writes Shoal's own notices to the person."""

    def note(self, text: str, style: str = ...) -> None:
        """Write one line between the agent's texts."""
        ...

    def aside(self) -> AbstractContextManager[Write]:
        """Return a writer for several lines that form one block."""
        ...


class Dialogue(ABC):
    """Receives everything the person types. At most one thing runs at a time: a turn or a slow command."""

    telling: Teller
    keys: Sequence[str] = (
        "A line ending in \\ goes on. Typing while the agent works steers it.",
        "@NAME TEXT says it to a teammate; after /to NAME all you type goes there, until Esc.",
        "Ctrl-B lets agents that are waited for go on in the background; Shift-Tab is /delegate.",
        "Ctrl-C clears the line or stops the turn, twice ends it; Ctrl-D ends it too.",
    )
    """Key help lines that /help prints."""
    shows_entries = False
    """True if the screen already shows everything that enters the transcript."""

    def __init__(self, session: Session, standings: Standings | None = None) -> None:
        """`statuses` knows the agents of the session's earlier runs."""
        self.session = session
        self.standings = standings or Standings()
        self.feed = Feed(session)
        self.activity: Activity | None = None
        self.to: Addressee | None = None
        """Agent the person talks to; None for the lead."""
        self.status = 0
        self.resume = ""
        """Session to resume, if the outcome is `resumed`."""
        self.outcome: Outcome | None = None
        self._clock = session.agent.clock
        self._idle = asyncio.Event()
        """Set while nothing runs and no answer is awaited, so that a queued turn may start."""
        self._under_way: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[None]] = set()
        """Commands that run next to the current work."""
        self._waiting: list[Message] = []
        self._interrupted_at = float("-inf")
        self._stopped = self._late = False

    # Display and input: implemented by subclasses

    @abstractmethod
    async def go(self, first: str | None = None) -> Outcome:
        """Run until the person leaves."""

    @abstractmethod
    async def ask(self, label: str) -> str:
        """Return the next typed line as the answer to a question of the program."""

    @abstractmethod
    def news(self) -> None:
        """Schedule `catch_up`, now or soon, because something happened."""

    @abstractmethod
    def hear(self, event: Event) -> None: ...

    @abstractmethod
    def show_prompt(self, text: str) -> None:
        """Show the person's prompt, unless the screen shows it already."""

    @abstractmethod
    def offer(self, message: Message) -> None:
        """Put an unsent message back into the input, where the person can edit and submit it."""

    @abstractmethod
    def clear_line(self) -> None: ...

    @abstractmethod
    def wake(self) -> None:
        """Wake the code that waits for input."""

    @property
    def can_take_up(self) -> bool:
        """True if a turn may start by itself."""
        return self._under_way is None

    def look_around(self) -> None:
        if self.can_take_up:
            self._idle.set()
        else:
            self._idle.clear()

    def show_typed(self, text: str) -> None:
        self.show_prompt(text)

    # Shared by all terminals

    @property
    def now(self) -> float:
        """Unix time in seconds, the unit of the statuses."""
        return self._clock.now() / 1000

    @property
    def busy(self) -> bool:
        return self._under_way is not None

    def begin(self, tasks: asyncio.TaskGroup, first: str | None) -> list[asyncio.Task[None]]:
        """Start the background tasks and submit the first prompt. The caller cancels the returned tasks."""
        self._tasks = tasks
        self.look_around()
        if first and names_command(self.session.parts, first):
            self.show_prompt(first)
            self._command(first)
        elif first:
            self._say(user(first))
        beside = (self._until_stopped(), self._tell(), self._take_up_arrivals())
        return [tasks.create_task(each) for each in beside]

    def cancel(self) -> None:
        for aside in self._asides:
            aside.cancel()
        if self._under_way is not None:
            self._under_way.cancel()

    def end(self, outcome: Outcome = "ended") -> None:
        self.outcome = outcome
        self.wake()

    def enter(self, message: Message) -> None:
        """Handle typed input that does not answer a question."""
        text = message.text
        if not text.strip() and not message.content:
            return
        if text.strip() and slash.is_command(text):
            self.show_typed(text)
            self._command(text)
        elif (meant := addressed(self.session, text)) is not None:
            self.show_typed(text)
            self.aside(self._tell_agent(*meant))
        elif doubt := mistyped(self.session, text):
            self.show_typed(text)
            self.telling.note(doubt, YELLOW)
        elif self.to is not None:
            self.show_typed(text)
            self.aside(self._tell_agent(self.to, text))
        elif self._under_way is not None:
            self._steer(message)
        else:
            self.show_typed(text)
            self._start(self._turn(self.session.run(message)))

    def address(self, whom: Addressee | None) -> None:
        """Send what is typed to this agent from now on, or to the lead again."""
        if whom != self.to:
            self.to = whom
            self.telling.note("You talk to the lead." if whom is None else f"You talk to {whom.name}.")
            self.look_around()

    def interrupt(self, line: str) -> None:
        """Handle Ctrl-C with this text in the input line."""
        if line:
            # The line may hold input restored from a stopped turn: clearing it must not end the program.
            self.clear_line()
            return
        now = self._clock.monotonic()
        if now - self._interrupted_at <= AGAIN:
            self.end()
            return
        self._interrupted_at = now
        if not self.stop_turn():
            self.telling.note("Ctrl-C again ends Shoal.")

    def stop_turn(self) -> bool:
        """Stop the current work; return False if there is none."""
        if self._under_way is None:
            return False
        self._stopped = True
        self._tasks.create_task(self._stop(self._under_way))
        return True

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it next to the current work."""
        aside = self._tasks.create_task(self._guarded(work))
        self._asides.add(aside)
        aside.add_done_callback(self._asides.discard)

    def watch_activity(self) -> Activity:
        """Show the activity of the current work until it ends."""
        activity = self.activity = Activity(self._clock)
        self.look_around()
        return activity

    def catch_up(self) -> None:
        for event in self.feed.taken():
            if self.activity is not None:
                self.activity.hear(event)
            self.hear(event)
        self.look_around()

    async def _tell(self) -> None:
        """Schedule `catch_up` for events that arrive while nobody reads a turn."""
        while True:
            self.news()
            await self.feed.news()

    async def _take_up_arrivals(self) -> None:
        """Start a turn when something is queued and the person is not answering a question."""
        while not self._late:
            await self._idle.wait()
            await self.session.parts.queue.arrival(LEAD)
            self.look_around()
            if self._idle.is_set():
                self._start(self._woken_turn())

    async def _until_stopped(self) -> None:
        """Finish when another process stops the run through its control socket."""
        await self.session.stopping.wait()
        self.telling.note("stopped from outside", YELLOW)
        self.end()

    async def _tell_agent(self, whom: Addressee, text: str) -> None:
        try:
            reached = await self.session.send(whom.agent, text)
        except ShoalError:
            if whom == self.to:
                self.address(None)
            raise
        self.telling.note(f"↳ told {reached.name}: {_gist(text)}")

    def _say(self, message: Message) -> None:
        self.show_prompt(message.text)
        self._start(self._turn(self.session.run(message)))

    def _steer(self, message: Message) -> None:
        if self.session.busy:
            self.session.steer(message)
            words = _gist(message.text)
            self.telling.note(f"↳ told the agent, it hears it after its running calls: {words}")
        else:
            self._waiting.append(message)
            self.telling.note(f"↳ said when this is done: {_gist(message.text)}")

    def _command(self, text: str) -> None:
        command = slash.find(text, self.session)
        if isinstance(command, str):
            self.telling.note(command, RED)
        elif isinstance(command, Invocation):
            self._invoke(command)
        elif command.at_once:
            self.aside(self._walled(command.name, command.run(self, slash.argument(text))))
        elif self._under_way is not None:
            self.telling.note(f"{command.name} has to wait until the agent is done: Ctrl-C stops it.", YELLOW)
        else:
            self._start(self._walled(command.name, command.run(self, slash.argument(text))))

    def _invoke(self, command: Invocation) -> None:
        if self._under_way is not None:
            name = command.what.name
            self.telling.note(f"/{name} has to wait until the agent is done: Ctrl-C stops it.", YELLOW)
        else:
            self._start(self._turn(self.session.run(command)))

    async def _stop(self, under_way: asyncio.Task[None]) -> None:
        if not await self.session.interrupt():
            under_way.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._stopped = False
        self._under_way = self._tasks.create_task(self._guarded(work))
        self._under_way.add_done_callback(self._over)
        self.look_around()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way = self.activity = None
        self.catch_up()
        self._go_on()

    def _go_on(self) -> None:
        """Submit the input that arrived too late for the agent.

        After a stop, or if another session begins, put it back into the input line instead.
        """
        left = [*self.session.unheard(), *self._waiting]
        self._waiting = []
        if not left or self.outcome == "ended":
            return
        message = joined(left)
        if self._stopped or self.outcome is not None:
            self.offer(message)
        else:
            self._say(message)

    async def _walled(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ShoalError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one command must not end the session
            why = one_line(f"{type(error).__name__}: {error}")
            self.telling.note(f"✗ {name} failed, and everything else goes on: {why}", RED)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    async def _woken_turn(self) -> None:
        turn = await self.session.next_turn()
        if turn is not None:
            await self._turn(turn)
        elif self.session.parts.queue.size(LEAD):
            self._late = True
            self.telling.note("The deadline has passed: what agents report is not taken up any more.", YELLOW)

    async def _turn(self, turn: Turn) -> None:
        self.watch_activity()
        # Reading the turn keeps its agents from running far ahead of what is shown.
        async for _ in turn:
            self.news()
        self.news()


def joined(messages: Sequence[Message]) -> Message:
    """Merge messages into one: first all texts, then the images."""
    text = "\n".join(each.text for each in messages if each.text)
    others = (block for each in messages for block in each.content if not isinstance(block, Text))
    return Message(role="user", content=(*((Text(text=text),) if text else ()), *others))


def in_front(text: str, half_typed: str) -> str:
    """Put the text before the half-typed draft, so that neither is lost."""
    return f"{text}\n{half_typed}" if half_typed else text


def _gist(text: str) -> str:
    """Return enough of the text to recognise it. The agent receives all of it."""
    return cut(one_line(text), _GIST)
