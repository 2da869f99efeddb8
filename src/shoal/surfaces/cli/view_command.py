"""`shoal view` command: show one agent of a run and send messages to it. Panes of teammates run it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from shoal.core.errors import ShoalError
from shoal.core.events import AgentStarted, Event, SessionStarted
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import to_one_line
from shoal.stores.files.sessions.file_journal import follow_journal
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.plain.agent_view_printer import SingleAgentEventPrinter, TranscriptMessageTailReader
from shoal.surfaces.cli.plain.input_prompt import (
    InputClosed,
    InterruptPressed,
    LineEntered,
    LiveInputPrompt,
    PlainInputPrompt,
)
from shoal.surfaces.terminal.screen import LiveTerminalScreen, TerminalScreen, open_terminal_screen
from shoal.surfaces.terminal.text_styles import DIM, RED, YELLOW, apply_style, truncate_text

if TYPE_CHECKING:
    from shoal.app.run_access.event_index import RunEventIndex
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.core.events import JournalRecord

READ_DELAY = 0.05
"""Seconds between an event and its display; all viewers of a team wake for each event of each member."""


@click.command("view")
@click.argument("session")
@click.argument("agent")
@click.option("--exit", "leave", is_flag=True, help="Exit when the agent ends, without waiting for a key.")
def view_command(*, session: str, agent: str, leave: bool) -> int:
    """Show AGENT (a name or an id) in the run SESSION (the beginning of its id), and send it what you
    type."""
    from shoal.app.run_access.run_handle import load_agent_statuses
    from shoal.app.run_access.stored_runs import find_process_run, run_with_current_copies

    run = find_process_run(session)
    screen = open_terminal_screen(sys.stdout)
    is_terminal = sys.stdin.isatty()
    view = TerminalAgentViewer(run, agent, screen, exits_with_agent=leave or not is_terminal)
    # A live run may still start this agent; an ended run never will.
    if not run.is_live and not view.is_agent_in_run():
        names = ", ".join(
            dict.fromkeys(each.display_name for each in load_agent_statuses(run).iter_agents_in_tree_order())
        )
        raise click.ClickException(
            f"The run {run.session[:8]} has ended and had no agent {agent!r}. Its agents: {names}."
        )
    try:
        work = view.run_with_prompt() if is_terminal else view.follow_agent()
        return asyncio.run(run_with_current_copies(run.copies, work))
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


class TerminalAgentViewer:
    """Reads from disk, so that many viewers cost the run nothing; only typed messages reach the run."""

    def __init__(self, run: RunHandle, agent: str, screen: TerminalScreen, *, exits_with_agent: bool) -> None:
        self._run = run
        self._screen = screen
        self._exits_with_agent = exits_with_agent
        self._printer = SingleAgentEventPrinter(agent, screen)
        self._prompt: LiveInputPrompt | PlainInputPrompt | None = None
        self._cwd = ""
        self._unsent: deque[str] = deque()
        self._input_ready = asyncio.Event()
        self._is_over = False

    def is_agent_in_run(self) -> bool:
        """Return True if the run's journal mentions the agent."""
        from shoal.app.run_access.event_index import load_event_index

        index, _ = load_event_index(self._run)
        return index.has_agent(self._printer.agent) or bool(self._find_agent_starts(index))

    async def run_with_prompt(self) -> int:
        history = self._run.home / "shoal" / "history"
        screen = self._screen
        self._prompt = (
            LiveInputPrompt(screen, history)
            if isinstance(screen, LiveTerminalScreen)
            else PlainInputPrompt(screen)
        )
        self._prompt.open()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.follow_agent()),
                    group.create_task(self._send_typed_messages()),
                ]
                status = await self._read_typed_messages(self._prompt)
                for task in tasks:
                    task.cancel()
            return status
        finally:
            self._prompt.close()

    async def _read_typed_messages(self, prompt: LiveInputPrompt | PlainInputPrompt) -> int:
        while True:
            match await prompt.read_input():
                case LineEntered(text=text) if text.strip():
                    self._unsent.append(text)
                    self._input_ready.set()
                    prompt.set_status_rows(self._render_unsent_messages)
                case InputClosed(status=status) if status:
                    return status
                case InterruptPressed() | InputClosed():
                    self._print_farewell()
                    return exit_codes.OK
                case _:
                    pass
            if self._is_over:
                return exit_codes.OK

    async def follow_agent(self) -> int:
        """Follow the agent until the run ends, or until the agent ends if the view exits with it."""
        journal = self._run.journal_path
        latest_records, offset = self._read_latest_records()
        for record in latest_records:
            self._print_journal_record(record)
        if not latest_records:
            self._printer.print_note(f"{self._printer.name} has not started yet", YELLOW)
        async for record in follow_journal(
            journal, offset, is_running=lambda: self._run.is_live, delay=READ_DELAY
        ):
            if self._is_about_agent(record):
                self._print_journal_record(record)
            if self._is_over:
                break
        else:
            self._printer.print_note("The run has ended, so this view ends too.", YELLOW)
        self._close_view()
        return exit_codes.OK

    def _read_latest_records(self) -> tuple[list[JournalRecord], int]:
        """Return the agent's latest records and the offset after all records that were considered."""
        from shoal.app.run_access.event_index import LATEST_EVENTS, load_event_index, read_records_at

        index, end = load_event_index(self._run)
        if not end:
            return [], end
        for record in read_records_at(self._run, index.get_offsets((SessionStarted,))[:1]):
            self._is_about_agent(record)
        agents = {self._printer.agent}
        for started in self._find_agent_starts(index):
            self._printer.follow_agent(started.agent)
            agents.add(started.agent)
        offsets = {offset for agent in agents for offset in index.get_latest_offsets(agent)}
        return list(read_records_at(self._run, sorted(offsets)[-LATEST_EVENTS:])), end

    def _find_agent_starts(self, index: RunEventIndex) -> list[AgentStarted]:
        from shoal.app.run_access.event_index import read_records_at

        offsets = index.get_offsets((AgentStarted,))
        records = read_records_at(self._run, offsets) if offsets else ()
        return [
            record.event
            for record in records
            if isinstance(record.event, AgentStarted) and self._printer.is_about_agent(record.event)
        ]

    def _is_about_agent(self, record: JournalRecord) -> bool:
        event = record.event
        if isinstance(event, SessionStarted):
            self._cwd = self._cwd or event.cwd
        return isinstance(event, Event) and self._printer.is_about_agent(event)

    def _print_journal_record(self, record: JournalRecord) -> None:
        event, printer = record.event, self._printer
        assert isinstance(event, Event)
        if printer.transcript is None:
            from shoal.app.run_access.conversation_path import find_agent_transcript_path

            agent = LEAD_ID if printer.agent == LEAD_ID else event.agent
            printer.transcript = TranscriptMessageTailReader(
                find_agent_transcript_path(self._run, self._cwd, agent)
            )
        stage_before = printer.stage
        printer.print_event(event, record.at)
        if stage_before in (printer.stage, "awaited"):
            return
        has_ended = printer.stage == "ended"
        if has_ended and self._exits_with_agent:
            self._is_over = True
        elif isinstance(self._prompt, LiveInputPrompt):
            if has_ended:
                self._prompt.close_on_any_key("press any key to close this view")
            else:
                self._prompt.end_question()

    def _close_view(self) -> None:
        self._is_over = True
        if self._prompt is not None:
            self._prompt.wake_reader()

    def _render_unsent_messages(self, columns: int) -> list[str]:
        rows = [truncate_text(f"  sent: {to_one_line(text)}", columns) for text in self._unsent]
        return [apply_style(row, DIM, colours=self._screen.colours) for row in rows]

    async def _send_typed_messages(self) -> None:
        """Send typed messages one after the other; a slow run does not block typing."""
        while True:
            await self._input_ready.wait()
            self._input_ready.clear()
            while self._unsent:
                await self._send_message(self._unsent[0])
                self._unsent.popleft()
            if self._prompt is not None:
                self._prompt.set_status_rows(None)

    async def _send_message(self, text: str) -> None:
        from shoal.app.run_access.run_handle import send_control_command
        from shoal.surfaces.terminal.user_messages import describe_message_delivery
        from shoal.wire.control_codec import SendUserTextControlCommand

        printer = self._printer
        try:
            # No timeout: a repeated message would be delivered twice.
            delivery = await send_control_command(
                self._run, SendUserTextControlCommand(to=printer.agent, text=text), patience=None
            )
        except ShoalError as error:
            printer.print_note(f"Not sent: {to_one_line(str(error))}", RED)
            if self._prompt is not None:
                self._prompt.prepend_to_draft(text)
            return
        printer.print_note(describe_message_delivery(printer.name, delivery["how"]).removesuffix("."), DIM)

    def _print_farewell(self) -> None:
        name = self._printer.name
        if self._printer.stage == "there":
            self._printer.print_note(f"This view is closed; {name} keeps working.", YELLOW)
            self._printer.print_note(f"Open it again: shoal view {self._run.session[:8]} {name}", DIM)
