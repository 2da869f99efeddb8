"""Client of a session in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shoal.app.picture.picture import Picture, drawn
from shoal.app.session.delegating import is_delegating
from shoal.app.session.helm import OwnHelm
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import Message
from shoal.core.wording import one_line
from shoal.stores.files.journal import FileJournal, read_journal
from shoal.stores.memory import MemoryJournal
from shoal.surfaces.terminal.dialogue import Dialogue, Outcome, Write
from shoal.surfaces.terminal.paint import DIM, RED
from shoal.surfaces.terminal.slash import described
from shoal.surfaces.terminal.slash_team import Addressee, addressees
from shoal.surfaces.tui.completing import Proposal
from shoal.surfaces.tui.modes import ModeRound
from shoal.surfaces.tui.script import Script
from shoal.surfaces.tui.stage import Stage
from shoal.wire.control import Interrupt

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class Line(Protocol):
    """Input line of the terminal."""

    @property
    def is_asking(self) -> bool:
        """True if the person is answering a question."""
        ...

    async def ask(self, label: str) -> str: ...

    def offer(self, text: str) -> None: ...

    def clear_line(self) -> None: ...


class Remarks:
    """Writes notices into the conversation that is shown."""

    def __init__(self, seat: OwnSeat) -> None:
        self._seat = seat

    def note(self, text: str, style: str = DIM) -> None:
        self._script.remark(text, style)
        self._seat.stage.stir()

    @contextmanager
    def aside(self) -> Iterator[Write]:
        pieces: list[tuple[str, str]] = []

        def write(text: str, style: str = "") -> None:
            pieces.append((text, style))

        yield write
        self._script.remarks(pieces)
        self._seat.stage.stir()

    @property
    def _script(self) -> Script:
        return self._seat.stage.conversation(self._seat.viewed).script


class OwnSeat(Dialogue):
    shows_entries = True
    keys = (
        "F2 agents · Ctrl-T tasks · F3 mail · F4 questions · F5 back to the lead · F6 to the conversation",
        "Alt-Enter, Ctrl-J or \\ and Enter: a new line. Typing while the agent works steers it.",
        "@NAME TEXT says it to a teammate; after /to NAME all you type goes there, until F5.",
        "Esc ends the turn; Shift-Tab is the next permission mode; Ctrl-O unfolds all calls.",
        "Ctrl-B lets agents that are waited for go on in the background.",
        "Ctrl-C clears the line or stops the turn, twice ends it; Ctrl-D ends it too.",
    )

    def __init__(self, session: Session, line: Line) -> None:
        picture = picture_of(session)
        super().__init__(session, picture.standings)
        self._line = line
        self._left = asyncio.Event()
        self._modes = ModeRound()
        self.open = False
        clock, cwd = session.agent.clock, str(session.parts.workspace.root)
        self.stage = Stage(picture, OwnHelm(session), clock, cwd)
        self.stage.conversation(LEAD)
        self.telling = Remarks(self)

    # Implementation of the controller's abstract methods

    async def go(self, first: str | None = None) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            running = self.begin(tasks, first)
            self.open = True
            self.stage.stir()
            await self._left.wait()
            self.open = False
            for task in running:
                task.cancel()
            self.cancel()
        self.feed.close()
        assert self.outcome is not None
        return self.outcome

    @property
    def can_take_up(self) -> bool:
        return super().can_take_up and not self._line.is_asking

    async def ask(self, label: str) -> str:
        return await self._line.ask(label)

    def news(self) -> None:
        self.stage.stir()

    def hear(self, event: Event) -> None:
        self.stage.hear(event, self._clock.now())

    def show_prompt(self, text: str) -> None:
        from shoal.surfaces.terminal.slash import is_command

        awaited = not is_command(text) if text.strip() else False
        self.stage.conversation(self.viewed).script.typed(text, awaited=awaited)
        self.stage.stir()

    def offer(self, message: Message) -> None:
        self._line.offer(message.text)

    def clear_line(self) -> None:
        self._line.clear_line()

    def wake(self) -> None:
        self._left.set()

    # Input and display

    @property
    def root(self) -> Path:
        return self.session.parts.workspace.root

    @property
    def viewed(self) -> AgentId:
        return LEAD if self.to is None else AgentId(self.to.agent)

    @property
    def takes_images(self) -> bool:
        return self.session.agent.model.card.images

    @property
    def doing(self) -> str:
        return "" if self.activity is None else self.activity.line(1_000)

    @property
    def facts(self) -> Sequence[str]:
        agent = self.session.agent
        window = agent.model.card.window
        used = f"{100 * agent.context_tokens // window}% context" if window and agent.context_tokens else ""
        return [*(["delegate"] if is_delegating(self.session) else ()), *([used] if used else ())]

    def commands(self) -> list[Proposal]:
        return [Proposal(name, about) for name, about in described(self.session)]

    def agents(self) -> list[Proposal]:
        return [Proposal(f"@{each.name}", "agent") for each in addressees(self.session)]

    def say(self, message: Message) -> None:
        self.enter(message)

    def view(self, agent: AgentId, name: str) -> None:
        """Show the agent's conversation and send input to it."""
        self.to = None if agent == LEAD else Addressee(agent, name)
        self.stage.stir()

    def stop_turn(self) -> bool:
        if self.viewed == LEAD:
            return super().stop_turn()
        row = self.stage.picture.agent(self.viewed)
        if row is None or row.state not in ("working", "waiting"):
            return False
        self.aside(self._interrupt_agent(self.viewed))
        return True

    async def _interrupt_agent(self, agent: AgentId) -> None:
        answer = await self.stage.helm.demand(Interrupt(task_id=agent))
        if isinstance(answer, dict) and not answer.get("interrupted"):
            self.telling.note("It is in no turn: there is nothing to interrupt.")

    def to_background(self) -> bool:
        return bool(self.session.move_to_background())

    def next_mode(self) -> None:
        permissions = self.session.parts.permissions
        try:
            self.session.set_mode(self._modes.after(permissions.mode, may_skip=permissions.may_skip))
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    def leave(self, status: int = 0) -> None:
        self.status = status
        self.end()


def picture_of(session: Session) -> Picture:
    """Return the current view of the run; nothing may be awaited before events are applied to it."""
    journal = session.parts.journal
    if isinstance(journal, FileJournal):
        return drawn(read_journal(journal.path))
    picture = Picture()
    if isinstance(journal, MemoryJournal):
        for event in journal.events:
            picture.hear(event, session.agent.clock.now())
    return picture
