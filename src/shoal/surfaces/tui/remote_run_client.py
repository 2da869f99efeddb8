"""Client of a run in another process: reads its journal and socket, sends commands to its control socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from shoal.app.run_access.run_handle import RunHandle, TimedEvent, read_start_directory, watch_run_events
from shoal.app.run_view.run_view import RunView
from shoal.app.session.run_controller import RemoteRunController
from shoal.core.clock import Clock
from shoal.core.conversation.messages import Message
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.text.text_format import format_dollars, format_token_count, to_one_line
from shoal.surfaces.terminal import slash_commands
from shoal.surfaces.terminal.text_styles import DIM, RED, YELLOW
from shoal.surfaces.tui.completions import InputCompletionProposal
from shoal.surfaces.tui.local_run_client import PromptInput
from shoal.surfaces.tui.mode_cycle import PermissionModeCycle
from shoal.surfaces.tui.run_presenter import TuiRunPresenter
from shoal.wire.control_codec import (
    InterruptTurnControlCommand,
    MoveAgentsToBackgroundControlCommand,
    RunControlCommand,
    SendUserTextControlCommand,
    SetDelegateModeControlCommand,
    SetModelControlCommand,
    SetPermissionModeControlCommand,
)

_EVENTS_PER_YIELD = 500
"""Number of events processed before other tasks get to run."""
_COMMANDS = {
    "/model": "change the model: /model NAME",
    "/permissions": "change the permission mode: /permissions MODE",
    "/delegate": "restrict the lead to delegating: /delegate on|off",
    "/cost": "show the cost of the run",
    "/help": "show this list",
    "/exit": "leave; the run continues",
}


class TuiRemoteRunClient:
    def __init__(self, run: RunHandle, clock: Clock, prompt_input: PromptInput) -> None:
        self.run = run
        self.viewed: AgentId = LEAD_ID
        self.takes_images = False
        self.status = 0
        self.is_ended = False
        """True if the run has ended."""
        self._is_marked_lost = False
        cwd = read_start_directory(run)
        self.root = Path(cwd or ".")
        self.presenter = TuiRunPresenter(
            RunView(), RemoteRunController(run), clock, cwd, prompt_input.schedule_draw
        )
        self._prompt_input = prompt_input
        self._clock = clock
        self._since = clock.now()
        """Start time; earlier events are in the transcripts."""
        self._queue: deque[TimedEvent] = deque()
        self._leave_event = asyncio.Event()
        self._modes = PermissionModeCycle()
        self.is_open = False
        self.presenter.get_conversation(LEAD_ID)

    async def run_until_left(self) -> int:
        """Run until the user leaves; return the exit status."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            watch_task = tasks.create_task(self._queue_run_events())
            self.is_open = True
            self.presenter.request_draw()
            await self._leave_event.wait()
            self.is_open = False
            watch_task.cancel()
        return self.status

    async def _queue_run_events(self) -> None:
        number = 0
        async for timed_event in watch_run_events(self.run, self._clock):
            self._queue.append(timed_event)
            self.presenter.request_draw()
            number += 1
            if number % _EVENTS_PER_YIELD == 0:
                await asyncio.sleep(0)
        self.is_ended = True
        self._add_note(f"The run has ended. Resume it: shoal --resume {self.run.session}", YELLOW)

    def process_queued_events(self) -> None:
        has_past_events = False
        while self._queue:
            timed_event = self._queue.popleft()
            if isinstance(timed_event.event, Event):
                self.presenter.run_view.apply_event(timed_event.event, timed_event.at)
                if timed_event.at >= self._since:
                    self.presenter.show_event(timed_event.event)
                else:
                    has_past_events = True
        if self.is_ended and not self._is_marked_lost:
            # No agent runs any more, and nobody receives an answer.
            self._is_marked_lost = True
            self.presenter.run_view.mark_run_lost()
        row = self.presenter.run_view.find_agent_row(LEAD_ID)
        if has_past_events and row is not None and row.state in ("working", "waiting"):
            self.presenter.get_conversation(LEAD_ID).timeline.mark_calls_running()

    # Display

    @property
    def activity_text(self) -> str:
        row = self.presenter.run_view.find_agent_row(self.viewed)
        if row is None or self.is_ended or row.state not in ("working", "waiting"):
            return ""
        return f"{row.name} · {to_one_line(row.doing) or 'at work'}"

    @property
    def footer_facts(self) -> Sequence[str]:
        return ["ended" if self.is_ended else "attached"]

    def list_command_proposals(self) -> list[InputCompletionProposal]:
        return [InputCompletionProposal(name, about) for name, about in _COMMANDS.items()]

    def list_agent_proposals(self) -> list[InputCompletionProposal]:
        rows = self.presenter.run_view.iter_agent_rows()
        return [
            InputCompletionProposal(f"@{row.name}", to_one_line(row.task))
            for row in rows
            if row.id != LEAD_ID
        ]

    def list_resource_servers(self) -> tuple[str, ...]:
        return ()  # another process is connected to them

    async def load_resource_proposals(self) -> list[InputCompletionProposal]:
        return []

    # Input

    def submit_message(self, message: Message) -> None:
        text = message.text.strip()
        if slash_commands.is_slash_command(text):
            self._run_slash_command(text)
            return
        recipient, body = str(self.viewed), text
        if text.startswith("@"):
            name, _, rest = text[1:].partition(" ")
            agent_row = self.presenter.run_view.find_agent_by_name(name.removesuffix(":"))
            if agent_row is not None and rest.strip():
                recipient, body = str(agent_row), rest.strip()
        # A message to another agent appears in that agent's conversation.
        is_awaited = recipient == self.viewed
        self.presenter.get_conversation(self.viewed).timeline.add_prompt(text, is_awaited=is_awaited)
        self._send_command_in_background(SendUserTextControlCommand(to=recipient, text=body), "")
        self.presenter.request_draw()

    def _run_slash_command(self, text: str) -> None:
        command_name, _, rest = text.partition(" ")
        rest = rest.strip()
        modes = {each.lower(): each for each in get_args(PermissionMode)}
        match command_name:
            case "/exit":
                self.leave_run()
            case "/cost":
                costs = self.presenter.run_view.costs
                self._add_note(f"{format_dollars(costs.usd)} · {format_token_count(costs.tokens)} tokens")
            case "/model" if rest:
                self._send_command_in_background(SetModelControlCommand(model=rest), f"The model is {rest}.")
            case "/permissions" if rest.lower() in modes:
                mode = modes[rest.lower()]
                self._send_command_in_background(
                    SetPermissionModeControlCommand(mode=mode), f"The mode is {mode}."
                )
            case "/delegate" if rest in ("on", "off"):
                self._send_command_in_background(
                    SetDelegateModeControlCommand(on=rest == "on"), f"Delegate mode is {rest}."
                )
            case _:
                if command_name not in _COMMANDS:
                    self._add_note(
                        f"{command_name} works only in the session's own terminal. Available here:", YELLOW
                    )
                for name, description in _COMMANDS.items():
                    self._add_note(f"{name:<14} {description}")

    def view_agent(self, agent: AgentId, name: str) -> None:
        self.viewed = agent
        self.presenter.request_draw()

    def interrupt_current_work(self) -> bool:
        row = self.presenter.run_view.find_agent_row(self.viewed)
        if self.is_ended or row is None or row.state not in ("working", "waiting"):
            return False
        self._send_command_in_background(
            InterruptTurnControlCommand(task_id="" if self.viewed == LEAD_ID else self.viewed), ""
        )
        return True

    def handle_interrupt(self, line: str) -> None:
        if line:
            self._prompt_input.clear_line()
        else:
            self.leave_run()

    def move_to_background(self) -> bool:
        if not any(not each.background for each in self.presenter.run_view.statuses.list_working_agents()):
            return False
        self._send_command_in_background(MoveAgentsToBackgroundControlCommand(), "")
        return True

    def cycle_permission_mode(self) -> None:
        modes: tuple[PermissionMode, ...] = get_args(PermissionMode)
        now: PermissionMode = next(
            (mode for mode in modes if mode == self.presenter.run_view.run.mode), "default"
        )
        self._send_command_in_background(SetPermissionModeControlCommand(mode=self._modes.next_mode(now)), "")

    def leave_run(self, status: int = 0) -> None:
        self.status = status
        self._leave_event.set()

    def _send_command_in_background(self, command: RunControlCommand, success_note: str) -> None:
        self._tasks.create_task(self._send_command_and_note_result(command, success_note))

    async def _send_command_and_note_result(self, command: RunControlCommand, success_note: str) -> None:
        try:
            await self.presenter.controller.send_command(command)
        except ShoalError as error:
            self._add_note(f"✗ {to_one_line(str(error))}", RED)
        else:
            if success_note:
                self._add_note(success_note)

    def _add_note(self, text: str, style: str = DIM) -> None:
        self.presenter.get_conversation(self.viewed).timeline.add_remark(text, style)
        self.presenter.request_draw()
