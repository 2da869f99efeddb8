"""Controller of a session at a terminal: turns, steering, commands, interrupts. It draws nothing itself."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.session.typed_commands import SlashCommandInvocation
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.terminal import slash_commands
from shoal.surfaces.terminal.event_feed import EventFeed
from shoal.surfaces.terminal.slash_commands import SlashCommand
from shoal.surfaces.terminal.slash_team_commands import (
    AddressedAgent,
    parse_mention,
    suggest_addressee_correction,
)
from shoal.surfaces.terminal.text_styles import RED, YELLOW, truncate_text
from shoal.surfaces.terminal.turn_activity import TurnActivity

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.app.session.turn import Turn

SECOND_INTERRUPT_SECONDS = 2.0
"""Seconds within which a second Ctrl-C ends the program."""
_GIST_COLUMNS = 160

TerminalOutcome: TypeAlias = Literal["ended", "cleared", "resumed"]
# A function, not a coroutine: a task that is canceled before it starts would never await the coroutine.
_Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class StyledTextWriter(Protocol):
    def __call__(self, text: str, style: str = "") -> None: ...


class NoticeWriter(Protocol):
    """Writes Shoal's own notices to the user."""

    def write_note(self, text: str, style: str = ...) -> None:
        """Write one line between the agent's texts."""
        ...

    def open_notice_block(self) -> AbstractContextManager[StyledTextWriter]:
        """Return a writer for several lines that form one block."""
        ...


_FOREIGN_PREFIXES = {
    "!": "Shoal does not run lines that start with `!`: the agent gets the line as text.",
    "#": "Shoal does not store lines that start with `#`: the agent gets the line as text. /memory lists the "
    "instruction files.",
}


class TerminalController(ABC):
    """Receives everything the user types. At most one thing runs at a time: a turn or a slow command."""

    notices: NoticeWriter
    key_help: Sequence[str] = (
        "End a line with \\ to continue it. Text that you type while the agent works steers it.",
        "@NAME TEXT sends a message to a teammate; after /to NAME, all messages go to that member until Esc.",
        "Ctrl-B moves foreground agents to the background; Shift-Tab is /delegate.",
        "Ctrl-C clears the line or stops the turn; press it twice, or Ctrl-D, to exit.",
    )
    """Key help lines that /help prints."""
    shows_entries = False
    """True if the screen already shows everything that enters the transcript."""

    def __init__(self, session: Session, statuses: RunViewAgentsState | None = None) -> None:
        """`statuses` contains the agents of the session's earlier runs."""
        self.session = session
        self.statuses = statuses or RunViewAgentsState()
        self.feed = EventFeed(session)
        self.activity: TurnActivity | None = None
        self.addressee: AddressedAgent | None = None
        """Agent the user talks to; None for the lead."""
        self.status = 0
        self.resume_session = ""
        """Session to resume, if the outcome is `resumed`."""
        self.outcome: TerminalOutcome | None = None
        self._clock = session.clock
        self._idle = asyncio.Event()
        """Set while nothing runs and no answer is awaited, so that a queued turn may start."""
        self._current_work: asyncio.Task[None] | None = None
        self._aside_tasks: set[asyncio.Task[None]] = set()
        """Commands that run alongside the current work."""
        self._pending_messages: list[Message] = []
        self._interrupted_at = float("-inf")
        self._was_interrupted = self._is_past_deadline = False
        self._unexplained_prefixes = dict(_FOREIGN_PREFIXES)

    # Display and input: implemented by subclasses

    @abstractmethod
    async def run_until_user_leaves(self, first: str | None = None) -> TerminalOutcome:
        """Run until the user leaves."""

    @abstractmethod
    async def ask_user_for_line(self, label: str) -> str:
        """Return the next typed line as the answer to a question of the program."""

    @abstractmethod
    def schedule_event_processing(self) -> None:
        """Schedule `process_queued_events`, now or soon, because something happened."""

    @abstractmethod
    def show_event(self, event: Event) -> None: ...

    @abstractmethod
    def echo_user_prompt(self, text: str) -> None:
        """Show the user's prompt, unless the screen shows it already."""

    @abstractmethod
    def restore_unsent_message(self, message: Message) -> None:
        """Put an unsent message back into the input, where the user can edit and submit it."""

    @abstractmethod
    def clear_input_line(self) -> None: ...

    @abstractmethod
    def wake_input(self) -> None:
        """Wake the code that waits for input."""

    @property
    def can_start_turn(self) -> bool:
        """True if a turn may start automatically."""
        return self._current_work is None

    def update_idle_state(self) -> None:
        if self.can_start_turn:
            self._idle.set()
        else:
            self._idle.clear()

    def echo_typed_input(self, text: str) -> None:
        self.echo_user_prompt(text)

    # Shared by all terminals

    @property
    def now(self) -> float:
        """Unix time in seconds, the unit of the statuses."""
        return self._clock.now() / 1000

    @property
    def is_busy(self) -> bool:
        return self._current_work is not None

    def start_tasks(self, tasks: asyncio.TaskGroup, first: str | None) -> list[asyncio.Task[None]]:
        """Start the background tasks and submit the first prompt. The caller cancels the returned tasks."""
        self._tasks = tasks
        self.update_idle_state()
        if first and self.session.is_slash_command(first):
            self.echo_user_prompt(first)
            self._run_slash_command(first)
        elif first:
            self._start_prompt_turn(user_message(first))
        background = (self._finish_on_stop_request(), self._follow_events(), self._run_queued_turns())
        return [tasks.create_task(each) for each in background]

    def cancel_running_work(self) -> None:
        for aside_task in self._aside_tasks:
            aside_task.cancel()
        if self._current_work is not None:
            self._current_work.cancel()

    def finish_with_outcome(self, outcome: TerminalOutcome = "ended") -> None:
        self.outcome = outcome
        self.wake_input()

    def submit_input(self, message: Message) -> None:
        """Handle typed input that does not answer a question."""
        text = message.text
        if not text.strip() and not message.content:
            return
        self._explain_foreign_prefix(text)
        if text.strip() and slash_commands.is_slash_command(text):
            self.echo_typed_input(text)
            self._run_slash_command(text)
        elif (mention := parse_mention(self.session, text)) is not None:
            self.echo_typed_input(text)
            self.run_alongside_work(partial(self._send_to_addressee, *mention))
        elif suggestion := suggest_addressee_correction(self.session, text):
            self.echo_typed_input(text)
            self.notices.write_note(suggestion, YELLOW)
        elif self.addressee is not None:
            self.echo_typed_input(text)
            self.run_alongside_work(partial(self._send_to_addressee, self.addressee, text))
        elif self._current_work is not None:
            self._steer_or_queue_message(message)
        else:
            self.echo_typed_input(text)
            self._start_work(partial(self._run_turn, self.session.run(message)))

    def _explain_foreign_prefix(self, text: str) -> None:
        """Say once what a line with a prefix of Claude Code does here."""
        prefix = text.lstrip()[:1]
        if prefix in self._unexplained_prefixes and "\n" not in text.strip():
            self.notices.write_note(self._unexplained_prefixes.pop(prefix), YELLOW)

    def set_addressee(self, addressee: AddressedAgent | None) -> None:
        """Send what is typed to this agent from now on, or to the lead again."""
        if addressee != self.addressee:
            self.addressee = addressee
            self.notices.write_note(
                "You are talking to the lead."
                if addressee is None
                else f"You are talking to {addressee.name}."
            )
            self.update_idle_state()

    def handle_interrupt(self, line: str) -> None:
        """Handle Ctrl-C with this text in the input line."""
        if line:
            # The line may hold input restored from a stopped turn: clearing it must not end the program.
            self.clear_input_line()
            return
        now = self._clock.monotonic()
        if now - self._interrupted_at <= SECOND_INTERRUPT_SECONDS:
            self.finish_with_outcome()
            return
        self._interrupted_at = now
        if not self.interrupt_current_work():
            self.notices.write_note("Press Ctrl-C again to exit.")

    def interrupt_current_work(self) -> bool:
        """Stop the current work; return False if there is none."""
        if self._current_work is None:
            return False
        self._was_interrupted = True
        self._tasks.create_task(self._interrupt_work(self._current_work))
        return True

    def run_alongside_work(self, work: _Work) -> None:
        """Run it alongside the current work."""
        aside_task = self._tasks.create_task(self._run_reporting_shoal_errors(work))
        self._aside_tasks.add(aside_task)
        aside_task.add_done_callback(self._aside_tasks.discard)

    def start_turn_activity(self, activity: str = "starting") -> None:
        """Show the activity of the current work until it ends."""
        self.activity = TurnActivity(self._clock, activity)
        self.update_idle_state()

    def process_queued_events(self) -> None:
        for event in self.feed.drain():
            if self.activity is not None:
                self.activity.apply_event(event)
            self.show_event(event)
        self.update_idle_state()

    async def _follow_events(self) -> None:
        """Schedule `process_queued_events` for events that arrive while nobody reads a turn."""
        while True:
            self.schedule_event_processing()
            await self.feed.wait_for_events()

    async def _run_queued_turns(self) -> None:
        """Start a turn when something is queued and the user is not answering a question."""
        while not self._is_past_deadline:
            await self._idle.wait()
            await self.session.wait_for_waking_item()
            self.update_idle_state()
            if self._idle.is_set():
                self._start_work(self._run_next_turn)

    async def _finish_on_stop_request(self) -> None:
        """Finish when another process stops the run through its control socket."""
        await self.session.stop_requested.wait()
        self.notices.write_note("stopped from another process", YELLOW)
        self.finish_with_outcome()

    async def _send_to_addressee(self, addressee: AddressedAgent, text: str) -> None:
        try:
            receipt = await self.session.send(addressee.agent, text)
        except ShoalError:
            if addressee == self.addressee:
                self.set_addressee(None)
            raise
        self.notices.write_note(f"↳ sent to {receipt.name}: {_shorten_text(text)}")

    def _start_prompt_turn(self, message: Message) -> None:
        self.echo_user_prompt(message.text)
        self._start_work(partial(self._run_turn, self.session.run(message)))

    def _steer_or_queue_message(self, message: Message) -> None:
        if self.session.is_busy:
            self.session.steer(message)
            short_text = _shorten_text(message.text)
            self.notices.write_note(f"↳ sent; the agent reads it after its running calls: {short_text}")
        else:
            self._pending_messages.append(message)
            self.notices.write_note(f"↳ queued until the turn ends: {_shorten_text(message.text)}")

    def _run_slash_command(self, text: str) -> None:
        command = slash_commands.find_slash_command(text, self.session)
        if isinstance(command, str):
            self.notices.write_note(command, RED)
        elif isinstance(command, SlashCommandInvocation):
            self._run_slash_invocation(command)
        elif command.during_turn:
            self.run_alongside_work(partial(self._run_reporting_faults, command, text))
        elif self._current_work is not None:
            self.notices.write_note(
                f"{command.name} must wait until the agent is done. Ctrl-C stops the agent.", YELLOW
            )
        else:
            self._start_work(partial(self._run_reporting_faults, command, text))

    def _run_slash_invocation(self, command: SlashCommandInvocation) -> None:
        if self._current_work is not None:
            name = command.command.name
            self.notices.write_note(
                f"/{name} must wait until the agent is done. Ctrl-C stops the agent.", YELLOW
            )
        else:
            self._start_work(partial(self._run_turn, self.session.run(command)))

    async def _interrupt_work(self, current_work: asyncio.Task[None]) -> None:
        if not await self.session.interrupt():
            current_work.cancel()

    def _start_work(self, work: _Work) -> None:
        self._was_interrupted = False
        self._current_work = self._tasks.create_task(self._run_reporting_shoal_errors(work))
        self._current_work.add_done_callback(self._handle_work_done)
        self.update_idle_state()

    def _handle_work_done(self, task: asyncio.Task[None]) -> None:
        self._current_work = self.activity = None
        self.process_queued_events()
        self._submit_leftover_input()

    def _submit_leftover_input(self) -> None:
        """Submit the input that arrived too late for the agent.

        After a stop, or if another session begins, put it back into the input line instead.
        """
        leftovers = [*self.session.withdraw_queued_prompts(), *self._pending_messages]
        self._pending_messages = []
        if not leftovers or self.outcome == "ended":
            return
        message = join_messages(leftovers)
        if self._was_interrupted or self.outcome is not None:
            self.restore_unsent_message(message)
        else:
            self._start_prompt_turn(message)

    async def _run_reporting_faults(self, command: SlashCommand, text: str) -> None:
        try:
            await command.run(self, slash_commands.parse_slash_command_argument(text))
        except ShoalError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one command must not end the session
            reason = to_one_line(f"{type(error).__name__}: {error}")
            self.notices.write_note(f"✗ {command.name} failed; everything else continues: {reason}", RED)

    async def _run_reporting_shoal_errors(self, work: _Work) -> None:
        try:
            await work()
        except ShoalError as error:
            self.notices.write_note(f"✗ {to_one_line(str(error))}", RED)

    async def _run_next_turn(self) -> None:
        turn = await self.session.next_turn()
        if turn is not None:
            await self._run_turn(turn)
        elif self.session.count_waking_items():
            self._is_past_deadline = True
            self.notices.write_note(
                "The deadline has passed, so agents' reports are no longer processed.", YELLOW
            )

    async def _run_turn(self, turn: Turn) -> None:
        self.start_turn_activity()
        # Reading the turn keeps its agents from running far ahead of what is shown.
        async for _ in turn:
            self.schedule_event_processing()
        self.schedule_event_processing()


def join_messages(messages: Sequence[Message]) -> Message:
    """Merge messages into one: first all texts, then the images."""
    text = "\n".join(each.text for each in messages if each.text)
    others = (block for each in messages for block in each.content if not isinstance(block, TextBlock))
    return Message(role="user", content=(*((TextBlock(text=text),) if text else ()), *others))


def _shorten_text(text: str) -> str:
    """Return enough of the text to recognize it. The agent receives all of it."""
    return truncate_text(to_one_line(text), _GIST_COLUMNS)
