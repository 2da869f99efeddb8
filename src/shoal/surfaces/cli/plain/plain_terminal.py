"""Plain terminal of a session: prompts, steering, questions, commands, interrupts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.session.delegate_mode import is_in_delegate_mode
from shoal.core.conversation.messages import Message, user_message
from shoal.core.errors import ShoalError
from shoal.core.events import AssistantReplied, Event, MessageAdded, QuestionAnswered, RunFinished
from shoal.core.ids import LEAD_ID, AgentId, EntryId
from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.stores.files.home.home_paths import (
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    get_transcript_path,
)
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows
from shoal.surfaces.cli.plain.agent_view_printer import TranscriptMessageTailReader
from shoal.surfaces.cli.plain.input_prompt import (
    EscapePressed,
    ForeignKeyPressed,
    InputClosed,
    InputPrompt,
    InterruptPressed,
    LineEntered,
    PromptInput,
    PromptWoken,
    ShiftTabPressed,
)
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog
from shoal.surfaces.cli.plain.question_queue import TerminalQuestionDialogQueue
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal import slash_commands
from shoal.surfaces.terminal.foreign_keys import ForeignKeyNotes
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.slash_team_commands import parse_mention, suggest_addressee_correction
from shoal.surfaces.terminal.terminal_controller import TerminalController, TerminalOutcome
from shoal.surfaces.terminal.text_styles import BOLD_CYAN, DIM, RED, YELLOW, apply_style, truncate_text

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class PlainTerminalController(TerminalController):
    """Prints events line by line above the prompt; a question takes over the prompt."""

    def __init__(
        self,
        session: Session,
        screen: TerminalScreen,
        prompt: InputPrompt,
        statuses: RunViewAgentsState | None = None,
    ) -> None:
        """Create the terminal; `statuses` holds the agents of the session's earlier runs."""
        super().__init__(session, statuses)
        self.screen = screen
        self._printer = RunEventPrinter(screen, statuses=self.statuses)
        self.notices = self._printer
        self._prompt = prompt
        self._questions = TerminalQuestionDialogQueue(
            prompt, lambda asking: asking.show(screen), lambda: self._pending_answer is None
        )
        self._pending_answer: asyncio.Future[str] | None = None
        self._last_shown_entry: EntryId | None = None
        """Last answer that was printed in full."""
        self._has_status = False
        self._foreign_key_notes = ForeignKeyNotes()

    async def run_until_user_leaves(self, first: str | None = None) -> TerminalOutcome:
        async with asyncio.TaskGroup() as tasks:
            background_tasks = [*self.start_tasks(tasks, first), tasks.create_task(self._queue_questions())]
            while self.outcome is None:
                self._handle_input(await self._prompt.read_input())
            for task in background_tasks:
                task.cancel()
            self._prompt.end_question()
            self.cancel_running_work()
        self.feed.close()
        self._prompt.set_status_rows(None)
        return self.outcome

    def schedule_event_processing(self) -> None:
        self.process_queued_events()

    async def _queue_questions(self) -> None:
        """Queue the questions of every agent, whether the lead works or not."""
        async for question in self.session.questions.watch_questions():
            self.process_queued_events()
            asker = "" if question.agent == LEAD_ID else self.statuses.describe_agent(question.agent)
            self._questions.add(TerminalQuestionDialog(question, asker))
            self.update_idle_state()

    @property
    def can_start_turn(self) -> bool:
        return super().can_start_turn and not self._questions and self._pending_answer is None

    def update_idle_state(self) -> None:
        super().update_idle_state()
        modes = (
            "delegate" if is_in_delegate_mode(self.session) else "",
            f"to {self.addressee.name}" if self.addressee else "",
        )
        self._prompt.set_prompt_label(" · ".join(filter(None, modes)))
        is_shown = self.activity is not None or bool(self.statuses.list_working_agents())
        if is_shown != self._has_status:
            self._has_status = is_shown
            self._prompt.set_status_rows(self._render_status_rows if is_shown else None)

    def _render_status_rows(self, columns: int) -> list[str]:
        """Render the lead, each awaited agent, and the number of background agents."""
        colours = self.screen.colours
        working = self.statuses.list_working_agents()
        foreground = [each for each in working if not each.background]
        rows = [] if self.activity is None else [self.activity.format_activity_line(columns)]
        background_count = sum(each.background for each in working)
        if background_count:
            background_text = "1 agent" if background_count == 1 else f"{background_count} agents"
            rows.append(
                truncate_text(f"{background_text} working in the background · /agents lists them", columns)
            )
        rows = [apply_style(row, DIM, colours=colours) for row in rows]
        return [*rows[:1], *format_agent_rows(foreground, self.now, columns, colours=colours), *rows[1:]]

    def wake_input(self) -> None:
        self._prompt.wake_reader()

    def clear_input_line(self) -> None:
        self._prompt.clear_input_line()

    def restore_unsent_message(self, message: Message) -> None:
        self._prompt.prepend_to_draft(message.text)

    async def ask_user_for_line(self, label: str) -> str:
        self._pending_answer = asyncio.get_running_loop().create_future()
        self.update_idle_state()
        self._prompt.begin_question(label)
        try:
            return await self._pending_answer
        finally:
            self._pending_answer = None
            self._prompt.end_question()
            self.update_idle_state()
            self._questions.show_first()

    def _handle_input(self, prompt_input: PromptInput) -> None:
        match prompt_input:
            case InputClosed(status=status):
                self.status = status
                self.finish_with_outcome()
            case InterruptPressed(line=line):
                self.handle_interrupt(line)
            case LineEntered(text=text):
                self._handle_entered_line(text)
            case EscapePressed():
                self.set_addressee(None)
            case ShiftTabPressed():
                self.session.set_delegate_mode(enabled=not is_in_delegate_mode(self.session))
            case ForeignKeyPressed(key=key):
                if note := self._foreign_key_notes.take_note(key):
                    self.notices.write_note(note, YELLOW)
            case PromptWoken():
                pass

    def _handle_entered_line(self, text: str) -> None:
        if self._pending_answer is not None:
            if not self._pending_answer.done():
                self._pending_answer.set_result(text)
        elif (dialog := self._questions.first) is not None and not self._is_command_or_teammate_message(text):
            self._answer_question(dialog, text)
        elif text.strip():
            self.submit_input(user_message(text))

    def _is_command_or_teammate_message(self, text: str) -> bool:
        """Return True for a command or a message to a teammate, which never answers an open question."""
        if not text.strip():
            return False
        is_for_teammate = parse_mention(self.session, text) is not None or bool(
            suggest_addressee_correction(self.session, text)
        )
        return is_for_teammate or slash_commands.is_slash_command(text)

    def show_event(self, event: Event) -> None:
        self.statuses.apply_event(event, self.now)
        self._printer.print_event(event)
        match event:
            case QuestionAnswered(question=question):
                self._remove_question(question)
            case RunFinished(requests=0, reason="done", text=text) if text:
                # No model answered: the report of the command's agent is the answer.
                self.screen.write(f"{strip_terminal_codes(text)}\n\n")
            case RunFinished():
                self.screen.write("\n")
            case MessageAdded(agent=agent, by="model", message=message, entry=entry):
                self._last_shown_entry = entry
                self._print_agent_text(agent, message.text)
            case AssistantReplied(agent=agent, entry=entry, preview=preview) if (
                entry != self._last_shown_entry
            ):
                self._print_agent_text(agent, self._read_full_reply_text(agent, entry) or preview)
            case _:
                pass

    def _print_agent_text(self, agent: str, text: str) -> None:
        """Print the text of an agent other than the lead, only while the user talks to it."""
        if self.addressee is not None and self.addressee.agent == agent and text.strip():
            with self.notices.open_notice_block():
                self.screen.write(f"{self.addressee.name}: ", BOLD_CYAN)
                self.screen.write(text.strip().replace("\n", "\n  ") + "\n")

    def _read_full_reply_text(self, agent: AgentId, entry: EntryId) -> str | None:
        """Read the full text from the transcript: other processes send a preview after writing it there."""
        if self.addressee is None or self.addressee.agent != agent:
            return None
        session = self.session
        transcript = get_transcript_path(session.settings.home, str(session.cwd), session.id)
        return TranscriptMessageTailReader(
            get_subagent_transcript_path(get_subagent_transcripts_directory(transcript), agent)
        ).take_answer(entry)

    def _answer_question(self, dialog: TerminalQuestionDialog, text: str) -> None:
        self.echo_typed_input(text)
        answer = dialog.parse_answer_line(text)
        if answer is None:
            self._questions.show_first()
            return
        self._remove_question(dialog.question.id)
        try:
            self.session.questions.submit_answer(dialog.question.id, answer)
        except ShoalError as error:
            self.notices.write_note(f"✗ {to_one_line(str(error))}", RED)

    def _remove_question(self, question: str) -> None:
        self._questions.remove_question(question)
        self.update_idle_state()

    def echo_typed_input(self, text: str) -> None:
        if not self._prompt.echoes_input:
            self.echo_user_prompt(text)

    def echo_user_prompt(self, text: str) -> None:
        with self.notices.open_notice_block():
            self.screen.write("› ", BOLD_CYAN)
            self.screen.write(text.strip().replace("\n", "\n  ") + "\n")
