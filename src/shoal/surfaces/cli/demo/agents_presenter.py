"""Screen output of the agents demo: the lead's text, each agent's tool calls, and the working agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
from shoal.app.session.session import Session
from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    RunFinished,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.cli.demo.demo_narrator import DemoNarrator
from shoal.surfaces.cli.headless.progress_display import LiveStatusRowsDisplay
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows
from shoal.surfaces.terminal.event_feed import EventFeed, run_prompt_to_end
from shoal.surfaces.terminal.event_text import describe_background_agent_event
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import (
    DIM,
    apply_style,
    get_agent_style,
    measure_text_width,
    truncate_text,
)
from shoal.surfaces.terminal.tool_outcomes import describe_tool_outcome
from shoal.surfaces.terminal.turn_activity import TurnActivity

_NAME_WIDTH = 6
"""Width of the longest name, so that agents' calls line up."""


class _DemoToolCallRow(Struct):
    preview: str
    outcome: str = ""
    style: str = ""


class AgentsDemoPresenter:
    """Presents what the lead and its agents do, during turns and between them."""

    def __init__(self, screen: TerminalScreen, session: Session) -> None:
        self._screen = screen
        self._session = session
        self._clock = session.clock
        self._started_at = self._clock.monotonic()
        self._feed = EventFeed(session)
        self._statuses = RunViewAgentsState()
        # The agent's own line reports its start.
        self._narrator = DemoNarrator(screen, self._statuses, silent_tools=frozenset({"Agent"}))
        self._activity = TurnActivity(self._clock)
        self._calls: dict[str, _DemoToolCallRow] = {}
        self.worktree_directories: set[Path] = set()
        """Directories that contain the agents' worktrees."""
        self.completions: list[AgentResult] = []

    @property
    def elapsed_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at

    async def run(self, task: str) -> RunFinished:
        rows = LiveStatusRowsDisplay(self._screen, self._render_status_rows)
        try:
            async with asyncio.TaskGroup() as group:
                event_task = group.create_task(self._present_events())
                finished = await run_prompt_to_end(self._session, task)
                event_task.cancel()
            self._process_events()
        finally:
            rows.close()
            self._feed.close()
        return finished

    async def _present_events(self) -> None:
        while True:
            self._process_events()
            await self._feed.wait_for_events()

    def _process_events(self) -> None:
        for event in self._feed.drain():
            status = self._statuses.apply_event(event, self._clock.monotonic())
            self._activity.apply_event(event)
            if event.agent == LEAD_ID:
                self._narrator.narrate_lead_event(event)
            else:
                self._present_agent_event(event, status)

    def _present_agent_event(self, event: Event, status: AgentStatusRecord) -> None:
        match event:
            case AgentStarted(cwd=cwd):
                self.worktree_directories.add(Path(cwd).parent)
            case AgentEnded(completion=completion):
                self.completions.append(completion)
            case ToolStarted(call=call, tool=tool, preview=preview):
                self._calls[call] = _DemoToolCallRow(f"{tool} {to_one_line(preview)}")
            case ToolOutputReturned(call=call, tool=tool, result=result, data=data) if call in self._calls:
                tool_call = self._calls[call]
                tool_call.outcome, tool_call.style = describe_tool_outcome(
                    tool, extract_tool_result_text(result), data, is_error=result.is_error
                )
            case ToolFinished(call=call) if call in self._calls:
                self._print_call(status, self._calls.pop(call))
            case _:
                pass
        if (text := describe_background_agent_event(event, status)) is not None:
            self._narrator.add_line(("● ", get_agent_style(status.color)), (text, ""))

    def _print_call(self, status: AgentStatusRecord, call: _DemoToolCallRow) -> None:
        name_part, style = f"{status.display_name:<{_NAME_WIDTH}} ", get_agent_style(status.color)
        available_width = max(
            self._screen.columns - 2 - measure_text_width(name_part) - 2 - measure_text_width(call.outcome),
            12,
        )
        preview = (truncate_text(call.preview, available_width), DIM)
        self._narrator.add_line(("● ", style), (name_part, style), preview, (f"  {call.outcome}", call.style))

    def _render_status_rows(self, columns: int) -> list[str]:
        colours = self._screen.colours
        lead = (
            [apply_style(self._activity.format_activity_line(columns), DIM, colours=colours)]
            if self._session.is_busy
            else []
        )
        agents = format_agent_rows(
            self._statuses.list_working_agents(), self._clock.monotonic(), columns, colours=colours
        )
        return ["", *lead, *agents]
