"""Terminal of a team that runs in another process: its events, its questions, and messages to it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from shoal.app.picture.standing import Standings
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import ShoalError
from shoal.core.events import (
    Answered,
    Asked,
    AssistantSaid,
    Event,
    MemberRested,
    MessageAdded,
    SessionEnded,
    SessionStarted,
)
from shoal.core.ids import LEAD
from shoal.core.questions import Question
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.cli.plain.agent_rows import agent_rows
from shoal.surfaces.cli.plain.asking import Asking
from shoal.surfaces.cli.plain.prompt import (
    Entered,
    HungUp,
    Input,
    Interrupted,
    LivePrompt,
    PlainPrompt,
    Prompt,
    Woken,
)
from shoal.surfaces.cli.plain.questions import QuestionLine
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.terminal.paint import BOLD, BOLD_CYAN, DIM, RED, YELLOW, cut, painted, style_of
from shoal.surfaces.terminal.screen import LiveScreen, Screen, screen_for

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run, Sighting
    from shoal.core.roster import Team

RECALLED = 200
"""Number of earlier events that are printed on attaching."""
HOW = "What you type goes to the lead; @name to a member, @* to everybody. Ctrl-D leaves, the team goes on."


async def attached(team: Team, run: Run) -> int:
    """Run the terminal of the team, and return the exit code."""
    screen = screen_for(sys.stdout)
    names = [f"@{member.name} " for member in team.members]
    prompt: Prompt
    if isinstance(screen, LiveScreen):
        prompt = LivePrompt(screen, run.home / "shoal" / "history", lambda: names)
    else:
        prompt = PlainPrompt(screen)
    prompt.open()
    try:
        return await _Attached(team, run, screen, prompt).stay()
    finally:
        prompt.close()


class _Attached:
    def __init__(self, team: Team, run: Run, screen: Screen, prompt: Prompt) -> None:
        self._team = team
        self._run = run
        self._screen = screen
        self._prompt = prompt
        self._clock: Clock = SystemClock()
        self._standings = Standings()
        self._telling = Telling(screen, onlooker=True, standings=self._standings)
        self._questions = QuestionLine(prompt, self._show_question, lambda: self._present)
        self._over = self._left = False
        self._present = False
        """True once earlier events are printed: from then on, questions are shown at once."""
        self._status = 0

    async def stay(self) -> int:
        """Run until the user leaves or the run ends."""
        self._screen.write(f"team {self._team.name}", BOLD)
        self._screen.write(f"  session {self._run.session}\n  {HOW}\n", DIM)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow())
            while not (self._left or self._over):
                self._take(await self._prompt.input(), tasks)
            following.cancel()
        self._prompt.asked()
        self._prompt.status(None)
        self._say_farewell()
        return self._status

    async def _follow(self) -> None:
        from shoal.app.outside.watching import watch
        from shoal.stores.files.journal import read_journal

        self._prompt.status(self._rows)
        before = sum(1 for _ in read_journal(self._run.journal))
        number = 0
        if not before:
            self._arrive()
        async for seen in watch(self._run, self._clock):
            number += 1
            self._hear(seen, told=number > before - RECALLED)
            if number == before:
                self._arrive()
        self._over = True
        self._prompt.wake()

    def _arrive(self) -> None:
        """Show the open questions; later ones are shown as they are asked."""
        self._present = True
        self._questions.put()

    def _hear(self, seen: Sighting, *, told: bool) -> None:
        event = seen.event
        if not isinstance(event, Event):
            return
        self._standings.hear(event, seen.at / 1000)
        match event:
            case Asked(question=question):
                self._ask(question)
            case Answered(question=question_id):
                self._questions.answered(question_id)
            case SessionEnded() | SessionStarted():
                self._questions.clear()
            case _:
                pass
        if told:
            self._telling.hear(event)
            self._tell(event)

    def _tell(self, event: Event) -> None:
        """Print what an observer of a single run does not see: what members say, and when they are idle."""
        match event:
            case AssistantSaid(preview=preview) if event.agent != LEAD and preview.strip():
                self._tell_of(event, f": {one_line(preview)}")
            case MemberRested(reason=reason):
                self._tell_of(event, " is idle" if reason == "available" else f" is idle ({reason})")
            case MessageAdded(by="person", message=message) if event.agent != LEAD:
                self._tell_of(event, f" heard you: {one_line(message.text)}")
            case _:
                pass

    def _tell_of(self, event: Event, words: str) -> None:
        it = self._standings.all[event.agent]
        with self._telling.aside():
            self._screen.write(f"  {it.who}", style_of(it.color))
            self._screen.write(f"{cut(words, max(self._screen.columns - len(it.who) - 3, 20))}\n", DIM)

    def _rows(self, columns: int) -> list[str]:
        """Render every agent, working or not, with the totals of the team."""
        every = list(self._standings.all.values())
        usd = sum(each.usd for each in every) if all(each.priced for each in every) else None
        tokens = sum(each.tokens for each in every)
        asks = f" · {len(self._questions)} waiting for you" if self._questions else ""
        head = f"{self._team.name} · {count(tokens)} tokens · {dollars(usd)}{asks}"
        here = [each for each in self._standings.tree() if each.completion is None]
        colours = self._screen.colours
        rows = agent_rows(here, self._clock.now() / 1000, columns, colours=colours)
        return [painted(cut(head, columns), DIM, colours=colours), *rows]

    def _take(self, given: Input, tasks: asyncio.TaskGroup) -> None:
        match given:
            case HungUp(status=status):
                self._left, self._status = True, status
            case Interrupted(line=line):
                if line:
                    self._prompt.clear()
                else:
                    self._left = True
            case Entered(text=text) if text.strip():
                self._show_typed(text)
                # A message to a member is not an answer to an open question.
                if (asking := self._questions.first) is not None and not text.startswith("@"):
                    self._answer(asking, text)
                else:
                    tasks.create_task(self._say(text.strip()))
            case Entered() | Woken():
                pass

    async def _say(self, text: str) -> None:
        import click

        from shoal.app.outside.watching import demand
        from shoal.surfaces.cli.teams.live import members_meant
        from shoal.wire.control import Send

        to, words = "team-lead", text
        if text.startswith("@"):
            to, _, words = text[1:].partition(" ")
        if not words.strip():
            self._telling.note(f"There is nothing to say to {to}.", YELLOW)
            return
        try:
            for name in members_meant(await self._roster(), to):
                await demand(self._run, Send(to=name, text=words.strip()))
        except click.UsageError as error:
            self._telling.note(error.format_message(), YELLOW)
        except ShoalError as error:
            self._telling.note(f"✗ {one_line(str(error))}", RED)

    async def _roster(self) -> Team:
        """Load the current roster: members come and go."""
        from shoal.app.teams.record import AgentsRecord
        from shoal.core.ids import Ids

        record = AgentsRecord(self._run.home, clock=self._clock, ids=Ids())
        try:
            return await record.rosters.read(self._team.name) or self._team
        finally:
            await record.aclose()

    def _ask(self, question: Question) -> None:
        asker = "" if question.agent == LEAD else self._standings.described(question.agent)
        self._questions.add(Asking(question, asker))

    def _show_question(self, asking: Asking) -> None:
        with self._telling.aside():
            asking.show(self._screen)

    def _answer(self, asking: Asking, text: str) -> None:
        from shoal.stores.files.questions import Questions

        answer = asking.take(text)
        if answer is None:
            self._questions.put()
            return
        try:
            stands = Questions(self._run.directory / "questions").answer(asking.question.id, answer)
            if not stands:
                self._telling.note("Somebody answered first; this answer is dropped.", YELLOW)
        except ShoalError as error:
            self._telling.note(f"✗ {one_line(str(error))}", RED)
        self._questions.answered(asking.question.id)

    def _show_typed(self, text: str) -> None:
        if self._prompt.leaves_lines:
            return
        with self._telling.aside():
            self._screen.write("› ", BOLD_CYAN)
            self._screen.write(text.strip().replace("\n", "\n  ") + "\n")

    def _say_farewell(self) -> None:
        self._screen.fresh_line()
        if self._over:
            self._screen.write(
                f"  The team's run has ended. Go on with it: shoal team resume {self._team.name}\n"
            )
        else:
            self._screen.write(f"  The team goes on. Come back: shoal team attach {self._team.name}\n", DIM)
