"""A person and a session at one terminal: prompts, steering, questions, commands, interrupts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shoal.app.commanding import Invocation, names_command
from shoal.app.delegating import is_delegating
from shoal.app.picture.standing import Standings
from shoal.core.errors import ShoalError
from shoal.core.events import Answered, AssistantSaid, Event, Finished, MessageAdded
from shoal.core.ids import LEAD, AgentId, EntryId
from shoal.stores.files.places import subagent_path
from shoal.surfaces.cli import slash
from shoal.surfaces.cli.activity import Activity
from shoal.surfaces.cli.agent_rows import agent_rows
from shoal.surfaces.cli.asking import Asking
from shoal.surfaces.cli.feed import Feed
from shoal.surfaces.cli.paint import BOLD_CYAN, DIM, RED, YELLOW, clean, cut, one_line, painted
from shoal.surfaces.cli.prompt import Entered, Escaped, HungUp, Input, Interrupted, Prompt, Toggled, Woken
from shoal.surfaces.cli.screen import Screen
from shoal.surfaces.cli.slash_team import Addressee, addressed, mistyped
from shoal.surfaces.cli.telling import Telling
from shoal.surfaces.cli.viewing import Words

if TYPE_CHECKING:
    from shoal.app.session import Session
    from shoal.app.turn import Turn

AGAIN = 2.0
"""Seconds within which a second Ctrl-C ends the program."""

Outcome: TypeAlias = Literal["ended", "cleared"]


class Talk:
    """Everything typed comes here; at most one thing is under way: a turn, or a command that takes time."""

    def __init__(
        self, session: Session, screen: Screen, prompt: Prompt, standings: Standings | None = None
    ) -> None:
        """`standings` knows the agents of the session's earlier runs."""
        self.session = session
        self.screen = screen
        self.standings = standings or Standings()
        self.telling = Telling(screen, standings=self.standings)
        self._feed = Feed(session)
        self._prompt = prompt
        self._prompt.to_background = self._move_to_background
        self._clock = session.agent.clock
        self._activity: Activity | None = None
        self._idle = asyncio.Event()
        """Nothing is under way and nobody waits for an answer: what arrives may be taken up."""
        self._questions: deque[Asking] = deque()
        self._answering: asyncio.Future[str] | None = None
        self._under_way: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[None]] = set()
        """Commands that run beside it."""
        self._waiting: list[str] = []
        self._to: Addressee | None = None
        """Whom the person talks to, where it is not the lead."""
        self._shown_last: EntryId | None = None
        """The last answer that was told whole."""
        self._interrupted_at = float("-inf")
        self._stopped = self._has_status = self._late = False
        self._outcome: Outcome | None = None
        self.status = 0

    async def go(self, first: str | None = None) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._look_around()
            if first and names_command(self.session.parts, first):
                self._show_prompt(first)
                self._command(first)
            elif first:
                self._say(first)
            beside = (self._until_stopped(), self._tell(), self._put_questions(), self._take_up_arrivals())
            running = [tasks.create_task(each) for each in beside]
            while self._outcome is None:
                self._take(await self._prompt.input())
            for task in running:
                task.cancel()
            self._prompt.asked()
            for aside in self._asides:
                aside.cancel()
            if self._under_way is not None:
                self._under_way.cancel()
        self._feed.close()
        self._prompt.status(None)
        return self._outcome

    async def _tell(self) -> None:
        """What happens while nobody reads a turn."""
        while True:
            self._catch_up()
            await self._feed.news()

    async def _put_questions(self) -> None:
        """Those of every agent, whether the lead works or not."""
        async for question in self.session.parts.desk.incoming():
            self._catch_up()
            asker = "" if question.agent == LEAD else self.standings.described(question.agent)
            self._questions.append(Asking(question, asker))
            self._look_around()
            if len(self._questions) == 1 and self._answering is None:
                self._put_question()

    async def _take_up_arrivals(self) -> None:
        """A turn starts by itself when something came and the person is not in the middle of an answer."""
        while not self._late:
            await self._idle.wait()
            await self.session.parts.queue.arrival(LEAD)
            if self._idle.is_set():
                self._start(self._woken_turn())

    def _look_around(self) -> None:
        if self._under_way is None and not self._questions and self._answering is None:
            self._idle.set()
        else:
            self._idle.clear()
        modes = ("delegate" if is_delegating(self.session) else "", f"to {self._to.name}" if self._to else "")
        self._prompt.label(" · ".join(filter(None, modes)))
        shown = self._activity is not None or bool(self.standings.at_work())
        if shown != self._has_status:
            self._has_status = shown
            self._prompt.status(self._rows if shown else None)

    def _rows(self, columns: int) -> list[str]:
        """The lead, each agent that is waited for, and how many work in the background."""
        colours, now = self.screen.colours, self._clock.monotonic()
        at_work = self.standings.at_work()
        waited_for = [each for each in at_work if not each.background]
        rows = [] if self._activity is None else [self._activity.line(columns)]
        behind = sum(each.background for each in at_work)
        if behind:
            many = "1 agent works" if behind == 1 else f"{behind} agents work"
            rows.append(cut(f"{many} in the background · /agents shows who", columns))
        rows = [painted(row, DIM, colours=colours) for row in rows]
        return [*rows[:1], *agent_rows(waited_for, now, columns, colours=colours), *rows[1:]]

    def _move_to_background(self) -> bool:
        return bool(self.session.move_to_background())

    async def _until_stopped(self) -> None:
        """By another process, through the run's control socket."""
        await self.session.stopping.wait()
        self.telling.note("stopped from outside", YELLOW)
        self.end()

    def end(self, outcome: Outcome = "ended") -> None:
        self._outcome = outcome
        self._prompt.wake()

    async def ask(self, label: str) -> str:
        """The next line typed, as an answer to the program's own question."""
        self._answering = asyncio.get_running_loop().create_future()
        self._look_around()
        self._prompt.ask(label)
        try:
            return await self._answering
        finally:
            self._answering = None
            self._prompt.asked()
            self._look_around()
            if self._questions:
                self._put_question()

    def _take(self, given: Input) -> None:
        match given:
            case HungUp(status=status):
                self.status = status
                self.end()
            case Interrupted(line=line):
                self._interrupt(line)
            case Entered(text=text):
                self._entered(text)
            case Escaped():
                self.address(None)
            case Toggled():
                self.session.delegate(on=not is_delegating(self.session))
            case Woken():
                pass

    def _entered(self, text: str) -> None:
        if self._answering is not None:
            if not self._answering.done():
                self._answering.set_result(text)
        elif self._questions and not self._is_meant_for_others(text):
            self._answer(self._questions[0], text)
        elif not text.strip():
            return
        elif slash.is_command(text):
            self._show_typed(text)
            self._command(text)
        elif (meant := addressed(self.session, text)) is not None:
            self._show_typed(text)
            self._aside(self._tell_agent(*meant))
        elif doubt := mistyped(self.session, text):
            self._show_typed(text)
            self.telling.note(doubt, YELLOW)
        elif self._to is not None:
            self._show_typed(text)
            self._aside(self._tell_agent(self._to, text))
        elif self._under_way is not None:
            self._steer(text)
        else:
            self._show_typed(text)
            self._start(self._turn(self.session.run(text)))

    def _is_meant_for_others(self, text: str) -> bool:
        """A command, or words to a teammate, are no answer to whoever asks at that moment."""
        if not text.strip():
            return False
        to_teammate = addressed(self.session, text) is not None or bool(mistyped(self.session, text))
        return to_teammate or slash.is_command(text)

    def address(self, whom: Addressee | None) -> None:
        """Let what is typed go to this agent from now on, or to the lead again."""
        if whom != self._to:
            self._to = whom
            self.telling.note("You talk to the lead." if whom is None else f"You talk to {whom.name}.")
            self._look_around()

    async def _tell_agent(self, whom: Addressee, text: str) -> None:
        try:
            reached = await self.session.send(whom.agent, text)
        except ShoalError:
            if whom == self._to:
                self.address(None)
            raise
        self.telling.note(f"↳ told {reached.name}: {one_line(text)}")

    def _say(self, text: str) -> None:
        self._show_prompt(text)
        self._start(self._turn(self.session.run(text)))

    def _steer(self, text: str) -> None:
        if self.session.busy:
            self.session.steer(text)
            self.telling.note(f"↳ told the agent, it hears it after its running calls: {one_line(text)}")
        else:
            self._waiting.append(text)
            self.telling.note(f"↳ said when this is done: {one_line(text)}")

    def _command(self, text: str) -> None:
        command = slash.find(text, self.session)
        if isinstance(command, str):
            self.telling.note(command, RED)
        elif isinstance(command, Invocation):
            self._invoke(command)
        elif command.at_once:
            self._aside(command.run(self, slash.argument(text)))
        elif self._under_way is not None:
            self.telling.note(f"{command.name} has to wait until the agent is done: Ctrl-C stops it.", YELLOW)
        else:
            self._start(command.run(self, slash.argument(text)))

    def _invoke(self, command: Invocation) -> None:
        if self._under_way is not None:
            name = command.what.name
            self.telling.note(f"/{name} has to wait until the agent is done: Ctrl-C stops it.", YELLOW)
        else:
            self._start(self._turn(self.session.run(command)))

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside what is under way."""
        aside = self._tasks.create_task(self._guarded(work))
        self._asides.add(aside)
        aside.add_done_callback(self._asides.discard)

    def _interrupt(self, line: str) -> None:
        now = self._clock.monotonic()
        if now - self._interrupted_at <= AGAIN:
            self.end()
            return
        if line and self._under_way is None:
            self._prompt.clear()
            return
        self._interrupted_at = now
        if self._under_way is not None:
            self._stopped = True
            self._tasks.create_task(self._stop(self._under_way))
        else:
            self.telling.note("Ctrl-C again ends Shoal.")

    async def _stop(self, under_way: asyncio.Task[None]) -> None:
        if not await self.session.interrupt():
            under_way.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._stopped = False
        self._under_way = self._tasks.create_task(self._guarded(work))
        self._under_way.add_done_callback(self._over)
        self._look_around()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way = self._activity = None
        self._catch_up()
        self._go_on()

    def _go_on(self) -> None:
        """Say what was typed too late for the agent to hear; after a stop the person decides about it."""
        text, self._waiting = "\n".join([*self.session.unheard(), *self._waiting]), []
        if not text or self._outcome is not None:
            return
        if self._stopped:
            self._prompt.offer(text)
        else:
            self._say(text)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    def watch_activity(self) -> Activity:
        """Show above the prompt what is being done, until it is over."""
        activity = self._activity = Activity(self._clock)
        self._look_around()
        return activity

    async def _woken_turn(self) -> None:
        turn = await self.session.next_turn()
        if turn is not None:
            await self._turn(turn)
        elif self.session.parts.queue.size(LEAD):
            self._late = True
            self.telling.note("The deadline has passed: what agents report is not taken up any more.", YELLOW)

    async def _turn(self, turn: Turn) -> None:
        self.watch_activity()
        # Reading it keeps its agents from running far ahead of what is shown.
        async for _ in turn:
            self._catch_up()
        self._catch_up()

    def _catch_up(self) -> None:
        for event in self._feed.taken():
            self.standings.hear(event, self._clock.monotonic())
            if self._activity is not None:
                self._activity.hear(event)
            self.telling.hear(event)
            self._hear(event)
        self._look_around()

    def _hear(self, event: Event) -> None:
        match event:
            case Answered(question=question):
                self._answered(question)
            case Finished(requests=0, reason="done", text=text) if text:
                # No model spoke: the report of a command's own agent is the answer.
                self.screen.write(f"{clean(text)}\n\n")
            case Finished():
                self.screen.write("\n")
            case MessageAdded(agent=agent, by="model", message=message, entry=entry):
                self._shown_last = entry
                self._show_words(agent, message.text)
            case AssistantSaid(agent=agent, entry=entry, preview=preview) if entry != self._shown_last:
                self._show_words(agent, self._whole(agent, entry) or preview)
            case _:
                pass

    def _show_words(self, agent: str, text: str) -> None:
        """Others than the lead speak here only while the person talks to them."""
        if self._to is not None and self._to.agent == agent and text.strip():
            with self.telling.aside():
                self.screen.write(f"{self._to.name}: ", BOLD_CYAN)
                self.screen.write(text.strip().replace("\n", "\n  ") + "\n")

    def _whole(self, agent: AgentId, entry: EntryId) -> str | None:
        """From another process only a preview is told; its transcript was written before."""
        if self._to is None or self._to.agent != agent:
            return None
        parts = self.session.parts
        place = subagent_path(parts.settings.home, str(parts.workspace.root), self.session.id, agent)
        return Words(place).answer(entry)

    def _put_question(self) -> None:
        asking = self._questions[0]
        asking.show(self.screen)
        self._prompt.ask(asking.label)

    def _answer(self, asking: Asking, text: str) -> None:
        self._show_typed(text)
        answer = asking.take(text)
        if answer is None:
            self._put_question()
            return
        self._answered(asking.question.id)
        try:
            self.session.parts.desk.answer(asking.question.id, answer)
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    def _answered(self, question: str) -> None:
        """Here or at another surface: the first answer stands."""
        was_first = bool(self._questions) and self._questions[0].question.id == question
        self._questions = deque(each for each in self._questions if each.question.id != question)
        if was_first and self._answering is None:
            self._prompt.asked()
            if self._questions:
                self._put_question()
        self._look_around()

    def _show_typed(self, text: str) -> None:
        if not self._prompt.leaves_lines:
            self._show_prompt(text)

    def _show_prompt(self, text: str) -> None:
        with self.telling.aside():
            self.screen.write("› ", BOLD_CYAN)
            self.screen.write(text.strip().replace("\n", "\n  ") + "\n")
