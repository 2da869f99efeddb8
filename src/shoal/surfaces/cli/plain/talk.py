"""Plain terminal of a session: prompts, steering, questions, commands, interrupts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.app.picture.standing import Standings
from shoal.app.session.delegating import is_delegating
from shoal.core.errors import ShoalError
from shoal.core.events import Answered, AssistantSaid, Event, Finished, MessageAdded
from shoal.core.ids import LEAD, AgentId, EntryId
from shoal.core.messages import Message, user
from shoal.core.wording import clean, one_line
from shoal.stores.files.places import subagent_path, subagents_of, transcript_path
from shoal.surfaces.cli.plain.agent_rows import agent_rows
from shoal.surfaces.cli.plain.asking import Asking
from shoal.surfaces.cli.plain.prompt import (
    Entered,
    Escaped,
    HungUp,
    Input,
    Interrupted,
    Prompt,
    Toggled,
    Woken,
)
from shoal.surfaces.cli.plain.questions import QuestionLine
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.cli.plain.viewing import Words
from shoal.surfaces.terminal import slash
from shoal.surfaces.terminal.dialogue import Dialogue, Outcome
from shoal.surfaces.terminal.paint import BOLD_CYAN, DIM, RED, cut, painted
from shoal.surfaces.terminal.screen import Screen
from shoal.surfaces.terminal.slash_team import addressed, mistyped

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class Talk(Dialogue):
    """Prints events line by line above the prompt; a question takes over the prompt."""

    def __init__(
        self, session: Session, screen: Screen, prompt: Prompt, standings: Standings | None = None
    ) -> None:
        """Create the terminal; `statuses` holds the agents of the session's earlier runs."""
        super().__init__(session, standings)
        self.screen = screen
        self._story = Telling(screen, standings=self.standings)
        self.telling = self._story
        self._prompt = prompt
        self._prompt.to_background = self._move_to_background
        self._questions = QuestionLine(
            prompt, lambda asking: asking.show(screen), lambda: self._answering is None
        )
        self._answering: asyncio.Future[str] | None = None
        self._shown_last: EntryId | None = None
        """Last answer that was printed in full."""
        self._has_status = False

    async def go(self, first: str | None = None) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            running = [*self.begin(tasks, first), tasks.create_task(self._put_questions())]
            while self.outcome is None:
                self._take(await self._prompt.input())
            for task in running:
                task.cancel()
            self._prompt.asked()
            self.cancel()
        self.feed.close()
        self._prompt.status(None)
        return self.outcome

    def news(self) -> None:
        self.catch_up()

    async def _put_questions(self) -> None:
        """Queue the questions of every agent, whether the lead works or not."""
        async for question in self.session.parts.desk.incoming():
            self.catch_up()
            asker = "" if question.agent == LEAD else self.standings.described(question.agent)
            self._questions.add(Asking(question, asker))
            self.look_around()

    @property
    def can_take_up(self) -> bool:
        return super().can_take_up and not self._questions and self._answering is None

    def look_around(self) -> None:
        super().look_around()
        modes = ("delegate" if is_delegating(self.session) else "", f"to {self.to.name}" if self.to else "")
        self._prompt.label(" · ".join(filter(None, modes)))
        shown = self.activity is not None or bool(self.standings.at_work())
        if shown != self._has_status:
            self._has_status = shown
            self._prompt.status(self._rows if shown else None)

    def _rows(self, columns: int) -> list[str]:
        """Render the lead, each awaited agent, and the number of background agents."""
        colours = self.screen.colours
        at_work = self.standings.at_work()
        waited_for = [each for each in at_work if not each.background]
        rows = [] if self.activity is None else [self.activity.line(columns)]
        behind = sum(each.background for each in at_work)
        if behind:
            many = "1 agent works" if behind == 1 else f"{behind} agents work"
            rows.append(cut(f"{many} in the background · /agents shows who", columns))
        rows = [painted(row, DIM, colours=colours) for row in rows]
        return [*rows[:1], *agent_rows(waited_for, self.now, columns, colours=colours), *rows[1:]]

    def _move_to_background(self) -> bool:
        return bool(self.session.move_to_background())

    def wake(self) -> None:
        self._prompt.wake()

    def clear_line(self) -> None:
        self._prompt.clear()

    def offer(self, message: Message) -> None:
        self._prompt.offer(message.text)

    async def ask(self, label: str) -> str:
        self._answering = asyncio.get_running_loop().create_future()
        self.look_around()
        self._prompt.ask(label)
        try:
            return await self._answering
        finally:
            self._answering = None
            self._prompt.asked()
            self.look_around()
            self._questions.put()

    def _take(self, given: Input) -> None:
        match given:
            case HungUp(status=status):
                self.status = status
                self.end()
            case Interrupted(line=line):
                self.interrupt(line)
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
        elif (asking := self._questions.first) is not None and not self._is_meant_for_others(text):
            self._answer(asking, text)
        elif text.strip():
            self.enter(user(text))

    def _is_meant_for_others(self, text: str) -> bool:
        """Return True for a command or a message to a teammate, which never answers an open question."""
        if not text.strip():
            return False
        to_teammate = addressed(self.session, text) is not None or bool(mistyped(self.session, text))
        return to_teammate or slash.is_command(text)

    def hear(self, event: Event) -> None:
        self.standings.hear(event, self.now)
        self._story.hear(event)
        match event:
            case Answered(question=question):
                self._answered(question)
            case Finished(requests=0, reason="done", text=text) if text:
                # No model answered: the report of the command's agent is the answer.
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
        """Print the text of an agent other than the lead, only while the user talks to it."""
        if self.to is not None and self.to.agent == agent and text.strip():
            with self.telling.aside():
                self.screen.write(f"{self.to.name}: ", BOLD_CYAN)
                self.screen.write(text.strip().replace("\n", "\n  ") + "\n")

    def _whole(self, agent: AgentId, entry: EntryId) -> str | None:
        """Read the full text from the transcript: other processes send a preview after writing it there."""
        if self.to is None or self.to.agent != agent:
            return None
        parts = self.session.parts
        transcript = transcript_path(parts.settings.home, str(parts.workspace.root), self.session.id)
        return Words(subagent_path(subagents_of(transcript), agent)).answer(entry)

    def _answer(self, asking: Asking, text: str) -> None:
        self.show_typed(text)
        answer = asking.take(text)
        if answer is None:
            self._questions.put()
            return
        self._answered(asking.question.id)
        try:
            self.session.parts.desk.answer(asking.question.id, answer)
        except ShoalError as error:
            self.telling.note(f"✗ {one_line(str(error))}", RED)

    def _answered(self, question: str) -> None:
        self._questions.answered(question)
        self.look_around()

    def show_typed(self, text: str) -> None:
        if not self._prompt.leaves_lines:
            self.show_prompt(text)

    def show_prompt(self, text: str) -> None:
        with self.telling.aside():
            self.screen.write("› ", BOLD_CYAN)
            self.screen.write(text.strip().replace("\n", "\n  ") + "\n")
