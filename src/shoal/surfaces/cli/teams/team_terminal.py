"""Terminal of a team that runs in another process: its events, its questions, and messages to it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import ShoalError
from shoal.core.events import (
    AssistantReplied,
    Event,
    MemberWentIdle,
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import Question
from shoal.core.text.text_format import format_dollars, format_token_count, to_one_line
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows
from shoal.surfaces.cli.plain.input_prompt import (
    InputClosed,
    InputPrompt,
    InterruptPressed,
    LineEntered,
    LiveInputPrompt,
    PlainInputPrompt,
    PromptInput,
    PromptWoken,
)
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog
from shoal.surfaces.cli.plain.question_queue import TerminalQuestionDialogQueue
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal.screen import LiveTerminalScreen, TerminalScreen, open_terminal_screen
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    BOLD_CYAN,
    DIM,
    RED,
    YELLOW,
    apply_style,
    get_agent_style,
    truncate_text,
)

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle, TimedEvent
    from shoal.core.teams.roster import TeamRoster

REPLAYED_EVENTS = 200
"""Number of earlier events printed when you attach."""
USAGE_HINT = (
    "Your messages go to the lead; use @name for a member, @* for everybody. Ctrl-D leaves; the team "
    "continues."
)


async def run_team_terminal(team: TeamRoster, run: RunHandle) -> int:
    """Run the terminal of the team, and return the exit code."""
    screen = open_terminal_screen(sys.stdout)
    names = [f"@{member.name} " for member in team.members]
    prompt: InputPrompt
    if isinstance(screen, LiveTerminalScreen):
        prompt = LiveInputPrompt(screen, run.home / "shoal" / "history", lambda: names)
    else:
        prompt = PlainInputPrompt(screen)
    prompt.open()
    try:
        return await _TeamRunTerminal(team, run, screen, prompt).run()
    finally:
        prompt.close()


class _TeamRunTerminal:
    def __init__(self, team: TeamRoster, run: RunHandle, screen: TerminalScreen, prompt: InputPrompt) -> None:
        self._team = team
        self._run = run
        self._screen = screen
        self._prompt = prompt
        self._clock: Clock = SystemClock()
        self._statuses = RunViewAgentsState()
        self._printer = RunEventPrinter(screen, is_observer=True, statuses=self._statuses)
        self._questions = TerminalQuestionDialogQueue(prompt, self._show_question, lambda: self._replay_done)
        self._run_ended = self._has_left = False
        self._replay_done = False
        """True once earlier events are printed: from then on, questions are shown at once."""
        self._status = 0

    async def run(self) -> int:
        """Run until the user leaves or the run ends."""
        self._screen.write(f"team {self._team.name}", BOLD)
        self._screen.write(f"  session {self._run.session}\n  {USAGE_HINT}\n", DIM)
        async with asyncio.TaskGroup() as tasks:
            follow_task = tasks.create_task(self._follow_run())
            while not (self._has_left or self._run_ended):
                self._handle_input(await self._prompt.read_input(), tasks)
            follow_task.cancel()
        self._prompt.end_question()
        self._prompt.set_status_rows(None)
        self._print_farewell()
        return self._status

    async def _follow_run(self) -> None:
        from shoal.app.run_access.run_handle import load_run_view, watch_run_events

        view, offset = load_run_view(self._run)
        self._statuses = view.statuses
        self._printer = RunEventPrinter(self._screen, is_observer=True, statuses=self._statuses)
        self._prompt.set_status_rows(self._render_status_rows)
        self._print_last_events(offset)
        for row in view.list_open_questions():
            self._queue_question(row.question)
        self._finish_replay()
        async for timed_event in watch_run_events(self._run, self._clock, offset):
            self._handle_run_event(timed_event)
        self._run_ended = True
        self._prompt.wake_reader()

    def _print_last_events(self, offset: int) -> None:
        """Print the last events before the offset, which the statuses contain."""
        from shoal.app.run_access.run_handle import RECENT_SIZE
        from shoal.stores.files.sessions.file_journal import find_offset_of_last_bytes

        journal = self._run.journal_path
        start = find_offset_of_last_bytes(journal, RECENT_SIZE, offset)
        records = takewhile(lambda record: record.offset < offset, self._run.read_journal(start))
        for record in deque(records, maxlen=REPLAYED_EVENTS):
            if isinstance(record.event, Event):
                self._print_event(record.event)

    def _finish_replay(self) -> None:
        """Show the open questions; later ones are shown as they are asked."""
        self._replay_done = True
        self._questions.show_first()

    def _handle_run_event(self, timed_event: TimedEvent) -> None:
        event = timed_event.event
        if not isinstance(event, Event):
            return
        self._statuses.apply_event(event, timed_event.at / 1000)
        match event:
            case QuestionAsked(question=question):
                self._queue_question(question)
            case QuestionAnswered(question=question_id):
                self._questions.remove_question(question_id)
            case SessionEnded() | SessionStarted():
                self._questions.clear()
            case _:
                pass
        self._print_event(event)

    def _print_event(self, event: Event) -> None:
        self._printer.print_event(event)
        self._print_member_event(event)

    def _print_member_event(self, event: Event) -> None:
        """Print what an observer of a single run does not see: what members say, and when they are idle."""
        match event:
            case AssistantReplied(preview=preview) if event.agent != LEAD_ID and preview.strip():
                self._print_member_line(event, f": {to_one_line(preview)}")
            case MemberWentIdle(reason=reason):
                self._print_member_line(
                    event, " is idle" if reason == "available" else f" is idle ({reason})"
                )
            case MessageAdded(by="person", message=message) if event.agent != LEAD_ID:
                self._print_member_line(event, f" got your message: {to_one_line(message.text)}")
            case _:
                pass

    def _print_member_line(self, event: Event, text: str) -> None:
        status = self._statuses.all[event.agent]
        with self._printer.open_notice_block():
            self._screen.write(f"  {status.display_name}", get_agent_style(status.color))
            self._screen.write(
                f"{truncate_text(text, max(self._screen.columns - len(status.display_name) - 3, 20))}\n", DIM
            )

    def _render_status_rows(self, columns: int) -> list[str]:
        """Render every agent, working or not, with the totals of the team."""
        all_statuses = list(self._statuses.all.values())
        usd = sum(each.usd for each in all_statuses) if all(each.priced for each in all_statuses) else None
        tokens = sum(each.tokens for each in all_statuses)
        questions_note = f" · {len(self._questions)} waiting for you" if self._questions else ""
        head = (
            f"{self._team.name} · {format_token_count(tokens)} tokens · {format_dollars(usd)}{questions_note}"
        )
        unfinished = [each for each in self._statuses.iter_agents_in_tree_order() if each.completion is None]
        colours = self._screen.colours
        rows = format_agent_rows(unfinished, self._clock.now() / 1000, columns, colours=colours)
        return [apply_style(truncate_text(head, columns), DIM, colours=colours), *rows]

    def _handle_input(self, prompt_input: PromptInput, tasks: asyncio.TaskGroup) -> None:
        match prompt_input:
            case InputClosed(status=status):
                self._has_left, self._status = True, status
            case InterruptPressed(line=line):
                if line:
                    self._prompt.clear_input_line()
                else:
                    self._has_left = True
            case LineEntered(text=text) if text.strip():
                self._echo_input(text)
                # A message to a member is not an answer to an open question.
                if (dialog := self._questions.first) is not None and not text.startswith("@"):
                    self._answer_question(dialog, text)
                else:
                    tasks.create_task(self._send_message_to_member(text.strip()))
            case LineEntered() | PromptWoken():
                pass

    async def _send_message_to_member(self, text: str) -> None:
        import click

        from shoal.app.run_access.run_handle import send_control_command
        from shoal.surfaces.cli.teams.team_control_commands import resolve_recipients
        from shoal.wire.control_codec import SendUserTextControlCommand

        recipient, body = "team-lead", text
        if text.startswith("@"):
            recipient, _, body = text[1:].partition(" ")
        if not body.strip():
            self._printer.write_note(f"The message to {recipient} is empty.", YELLOW)
            return
        try:
            for name in resolve_recipients(await self._load_roster(), recipient):
                await send_control_command(self._run, SendUserTextControlCommand(to=name, text=body.strip()))
        except click.UsageError as error:
            self._printer.write_note(error.format_message(), YELLOW)
        except ShoalError as error:
            self._printer.write_note(f"✗ {to_one_line(str(error))}", RED)

    async def _load_roster(self) -> TeamRoster:
        """Load the current roster: members come and go."""
        from shoal.app.teams.team_store import TeamStore
        from shoal.core.ids import IdGenerator

        team_store = TeamStore(self._run.get_store(), clock=self._clock, ids=IdGenerator())
        try:
            return await team_store.rosters.read_team_roster(self._team.name) or self._team
        finally:
            await team_store.aclose()

    def _queue_question(self, question: Question) -> None:
        asker = "" if question.agent == LEAD_ID else self._statuses.describe_agent(question.agent)
        self._questions.add(TerminalQuestionDialog(question, asker))

    def _show_question(self, dialog: TerminalQuestionDialog) -> None:
        with self._printer.open_notice_block():
            dialog.show(self._screen)

    def _answer_question(self, dialog: TerminalQuestionDialog, text: str) -> None:
        answer = dialog.parse_answer_line(text)
        if answer is None:
            self._questions.show_first()
            return
        try:
            was_accepted = self._run.open_questions().answer(dialog.question.id, answer)
            if not was_accepted:
                self._printer.write_note("The question was already answered; your answer is ignored.", YELLOW)
        except ShoalError as error:
            self._printer.write_note(f"✗ {to_one_line(str(error))}", RED)
        self._questions.remove_question(dialog.question.id)

    def _echo_input(self, text: str) -> None:
        if self._prompt.echoes_input:
            return
        with self._printer.open_notice_block():
            self._screen.write("› ", BOLD_CYAN)
            self._screen.write(text.strip().replace("\n", "\n  ") + "\n")

    def _print_farewell(self) -> None:
        self._screen.end_line()
        if self._run_ended:
            self._screen.write(
                f"  The team's run has ended. Resume it: shoal team resume {self._team.name}\n"
            )
        else:
            self._screen.write(f"  The team continues. Come back: shoal team attach {self._team.name}\n", DIM)
