"""A person and a session at one terminal: prompts, steering, questions, commands, interrupts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shoal.core.errors import ShoalError
from shoal.core.events import Answered, Asked, Event, Finished
from shoal.surfaces.cli import slash
from shoal.surfaces.cli.activity import Activity
from shoal.surfaces.cli.asking import Asking
from shoal.surfaces.cli.paint import BOLD_CYAN, RED, YELLOW, one_line
from shoal.surfaces.cli.prompt import Entered, HungUp, Input, Interrupted, Prompt, Woken
from shoal.surfaces.cli.screen import Screen
from shoal.surfaces.cli.telling import Telling

if TYPE_CHECKING:
    from shoal.app.session import Session

AGAIN = 2.0
"""Seconds within which a second Ctrl-C ends the program."""

Outcome: TypeAlias = Literal["ended", "cleared"]


class Talk:
    """Everything typed comes here; at most one thing is under way: a turn, or a command that takes time."""

    def __init__(self, session: Session, screen: Screen, prompt: Prompt) -> None:
        self.session = session
        self.screen = screen
        self.telling = Telling(screen)
        self._prompt = prompt
        self._clock = session.agent.clock
        self._questions: deque[Asking] = deque()
        self._answering: asyncio.Future[str] | None = None
        self._under_way: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[None]] = set()
        """Commands that run beside it."""
        self._waiting: list[str] = []
        self._interrupted_at = float("-inf")
        self._stopped = False
        self._outcome: Outcome | None = None
        self.status = 0

    async def go(self, first: str | None = None) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if first:
                self._show_prompt(first)
                self._start(self._turn(first))
            stopping = tasks.create_task(self._until_stopped())
            while self._outcome is None:
                self._take(await self._prompt.input())
            stopping.cancel()
            self._prompt.asked()
            for task in (self._under_way, *self._asides):
                if task is not None:
                    task.cancel()
        return self._outcome

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
        self._prompt.ask(label)
        try:
            return await self._answering
        finally:
            self._answering = None
            self._prompt.asked()

    def _take(self, given: Input) -> None:
        match given:
            case HungUp(status=status):
                self.status = status
                self.end()
            case Interrupted(line=line):
                self._interrupt(line)
            case Entered(text=text):
                self._entered(text)
            case Woken():
                pass

    def _entered(self, text: str) -> None:
        if self._questions:
            self._answer(self._questions[0], text)
        elif self._answering is not None:
            if not self._answering.done():
                self._answering.set_result(text)
        elif not text.strip():
            return
        elif slash.is_command(text):
            self._show_typed(text)
            self._command(text)
        elif self._under_way is not None:
            self._steer(text)
        else:
            self._show_typed(text)
            self._start(self._turn(text))

    def _steer(self, text: str) -> None:
        if self.session.busy:
            self.session.steer(text)
            self.telling.note(f"↳ told the agent, it hears it after its running calls: {one_line(text)}")
        else:
            self._waiting.append(text)
            self.telling.note(f"↳ said when this is done: {one_line(text)}")

    def _command(self, text: str) -> None:
        command = slash.find(text)
        if isinstance(command, str):
            self.telling.note(command, RED)
        elif command.at_once:
            aside = self._tasks.create_task(self._guarded(command.run(self, slash.argument(text))))
            self._asides.add(aside)
            aside.add_done_callback(self._asides.discard)
        elif self._under_way is not None:
            self.telling.note(f"{command.name} has to wait until the agent is done: Ctrl-C stops it.", YELLOW)
        else:
            self._start(command.run(self, slash.argument(text)))

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

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        self._questions.clear()
        self._prompt.asked()
        self._prompt.status(None)
        self._go_on()

    def _go_on(self) -> None:
        """Say what was typed too late for the agent to hear; after a stop the person decides about it."""
        text, self._waiting = "\n".join([*self.session.unheard(), *self._waiting]), []
        if not text or self._outcome is not None:
            return
        if self._stopped:
            self._prompt.offer(text)
        else:
            self._show_prompt(text)
            self._start(self._turn(text))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    def watch_activity(self) -> Activity:
        """Show above the prompt what is being done, until it is over."""
        activity = Activity(self._clock)
        self._prompt.status(activity.line)
        return activity

    async def _turn(self, text: str) -> None:
        activity = self.watch_activity()
        async for event in self.session.run(text):
            activity.hear(event)
            self.telling.hear(event)
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case Asked(question=question):
                self._questions.append(Asking(question))
                if len(self._questions) == 1:
                    self._put_question()
            case Answered(question=question):
                self._answered(question)
            case Finished():
                self.screen.write("\n")
            case _:
                pass

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
        if was_first:
            self._prompt.asked()
            if self._questions:
                self._put_question()

    def _show_typed(self, text: str) -> None:
        if not self._prompt.leaves_lines:
            self._show_prompt(text)

    def _show_prompt(self, text: str) -> None:
        with self.telling.aside():
            self.screen.write("› ", BOLD_CYAN)
            self.screen.write(text.strip().replace("\n", "\n  ") + "\n")
