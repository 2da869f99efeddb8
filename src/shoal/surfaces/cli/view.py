"""`shoal view` command: show one agent of a run and send messages to it. Panes of teammates run it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from shoal.core.errors import ShoalError
from shoal.core.events import AgentStarted, Event, SessionStarted
from shoal.core.ids import LEAD
from shoal.core.wording import one_line
from shoal.stores.files.journal import follow_journal, read_journal
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.plain.prompt import Entered, HungUp, Interrupted, LivePrompt, PlainPrompt
from shoal.surfaces.cli.plain.viewing import Viewing, Words
from shoal.surfaces.terminal.paint import DIM, RED, YELLOW, cut, painted
from shoal.surfaces.terminal.screen import LiveScreen, Screen, screen_for

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run
    from shoal.wire.journal import Recorded

EARLIER = 200
"""Number of earlier events of an agent that are printed at the start."""


@click.command("view")
@click.argument("session")
@click.argument("agent")
@click.option("--exit", "leave", is_flag=True, help="End with the agent, without waiting for a key.")
def command(*, session: str, agent: str, leave: bool) -> int:
    """Show AGENT (a name, or an id) of the run SESSION (the start of its id); what is typed is said to it."""
    from shoal.app.outside.watching import find_run, standings_of
    from shoal.app.settings.settings import home_directory

    run = find_run(home_directory(), session)
    screen = screen_for(sys.stdout)
    typed = sys.stdin.isatty()
    view = View(run, agent, screen, leave=leave or not typed)
    # A live run may still start this agent; an ended run never will.
    if not run.is_live and not view.was_there():
        names = ", ".join(dict.fromkeys(each.who for each in standings_of(run).tree()))
        raise click.ClickException(
            f"The run {run.session[:8]} has ended, and had no agent {agent!r}. It had: {names}."
        )
    try:
        return asyncio.run(view.with_prompt() if typed else view.follow())
    except KeyboardInterrupt:
        return exits.INTERRUPTED


class View:
    """Reads from disk, so that many viewers cost the run nothing; only typed messages reach the run."""

    def __init__(self, run: Run, agent: str, screen: Screen, *, leave: bool) -> None:
        self._run = run
        self._screen = screen
        self._leave = leave
        self._viewing = Viewing(agent, screen)
        self._prompt: LivePrompt | PlainPrompt | None = None
        self._cwd = ""
        self._unsent: deque[str] = deque()
        self._typed = asyncio.Event()
        self._over = False

    def was_there(self) -> bool:
        """Return True if the run's journal mentions the agent."""
        return any(map(self._is_ours, read_journal(self._run.journal)))

    async def with_prompt(self) -> int:
        history = self._run.home / "shoal" / "history"
        screen = self._screen
        self._prompt = LivePrompt(screen, history) if isinstance(screen, LiveScreen) else PlainPrompt(screen)
        self._prompt.open()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.follow()), group.create_task(self._send())]
                status = await self._listen(self._prompt)
                for task in tasks:
                    task.cancel()
            return status
        finally:
            self._prompt.close()

    async def _listen(self, prompt: LivePrompt | PlainPrompt) -> int:
        while True:
            match await prompt.input():
                case Entered(text=text) if text.strip():
                    self._unsent.append(text)
                    self._typed.set()
                    prompt.status(self._waiting)
                case HungUp(status=status) if status:
                    return status
                case Interrupted() | HungUp():
                    self._say_good_bye()
                    return exits.OK
                case _:
                    pass
            if self._over:
                return exits.OK

    async def follow(self) -> int:
        """Follow the agent until the run ends, or until the agent ends if the view exits with it."""
        journal, offset = self._run.journal, 0
        told: deque[Recorded] = deque(maxlen=EARLIER)
        for recorded in read_journal(journal):
            offset = recorded.next
            if self._is_ours(recorded):
                told.append(recorded)
                if isinstance(recorded.event, AgentStarted):
                    self._viewing.agent = recorded.event.agent
        for recorded in told:
            self._hear(recorded)
        if not told:
            self._viewing.note(f"{self._viewing.name} has not started yet", YELLOW)
        async for recorded in follow_journal(journal, offset, alive=lambda: self._run.is_live):
            if self._is_ours(recorded):
                self._hear(recorded)
            if self._over:
                break
        else:
            self._viewing.note("The run has ended, and this view with it.", YELLOW)
        self._end()
        return exits.OK

    def _is_ours(self, recorded: Recorded) -> bool:
        event = recorded.event
        if isinstance(event, SessionStarted):
            self._cwd = self._cwd or event.cwd
        return isinstance(event, Event) and self._viewing.concerns(event)

    def _hear(self, recorded: Recorded) -> None:
        event, viewing = recorded.event, self._viewing
        assert isinstance(event, Event)
        if viewing.words is None:
            from shoal.app.outside.conversations import conversation_path

            agent = LEAD if viewing.agent == LEAD else event.agent
            viewing.words = Words(conversation_path(self._run, self._cwd, agent))
        before = viewing.stage
        viewing.hear(event, recorded.at)
        if before in (viewing.stage, "awaited"):
            return
        ended = viewing.stage == "ended"
        if ended and self._leave:
            self._over = True
        elif isinstance(self._prompt, LivePrompt):
            self._prompt.any_key_ends = ended
            if ended:
                self._prompt.ask("any key closes this view")
            else:
                self._prompt.asked()

    def _end(self) -> None:
        self._over = True
        if self._prompt is not None:
            self._prompt.wake()

    def _waiting(self, columns: int) -> list[str]:
        rows = [cut(f"  on its way: {one_line(text)}", columns) for text in self._unsent]
        return [painted(row, DIM, colours=self._screen.colours) for row in rows]

    async def _send(self) -> None:
        """Send typed messages one after the other; a slow run does not block typing."""
        while True:
            await self._typed.wait()
            self._typed.clear()
            while self._unsent:
                await self._send_one(self._unsent[0])
                self._unsent.popleft()
            if self._prompt is not None:
                self._prompt.status(None)

    async def _send_one(self, text: str) -> None:
        from shoal.app.outside.watching import demand
        from shoal.surfaces.terminal.sentences import reached
        from shoal.wire.control import Send

        viewing = self._viewing
        try:
            # No timeout: a repeated message would be delivered twice.
            told = await demand(self._run, Send(to=viewing.agent, text=text), patience=None)
        except ShoalError as error:
            viewing.note(f"It was not said: {one_line(str(error))}", RED)
            if self._prompt is not None:
                self._prompt.offer(text)
            return
        viewing.note(reached(viewing.name, told["how"]).removesuffix("."), DIM)

    def _say_good_bye(self) -> None:
        name = self._viewing.name
        if self._viewing.stage == "there":
            self._viewing.note(f"This view is closed; {name} works on.", YELLOW)
            self._viewing.note(f"See it again with: shoal view {self._run.session[:8]} {name}", DIM)
