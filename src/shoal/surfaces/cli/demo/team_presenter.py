"""Screen output of the team demo, built from the run's events, its board and its inboxes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import TypeAlias

from msgspec import Struct

from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
from shoal.app.session.session import Session
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    NoteAdded,
    RunFinished,
    ToolFinished,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.teams.mail_bodies import (
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
)
from shoal.core.teams.tasks import Task
from shoal.core.text.text_format import format_dollars, format_duration, to_one_line
from shoal.surfaces.cli.demo.demo_actors import (
    AutoApprovingDemoUser,
    DemoMemberKiller,
    DemoMemberKillRecord,
    DemoMemberKillTarget,
    find_member_pid,
)
from shoal.surfaces.cli.demo.demo_narrator import DemoNarrator
from shoal.surfaces.cli.demo.team_files import DemoDeliveredMail, DemoTaskTransition, DemoTeamFilesReader
from shoal.surfaces.cli.demo.team_rows import (
    DemoMemberRow,
    describe_member_state,
    format_demo_member_rows,
    format_task_board_line,
)
from shoal.surfaces.cli.headless.progress_display import LiveStatusRowsDisplay
from shoal.surfaces.terminal.event_feed import EventFeed, run_prompt_to_end
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    BOLD_RED,
    DIM,
    GREEN,
    RED,
    YELLOW,
    get_agent_style,
    measure_text_width,
    truncate_text,
)

_SILENT_TOOLS = frozenset({"Agent", "TeamCreate", "TaskCreate", "TaskUpdate", "TaskList", "SendMessage"})
_SHOWN_TOOLS = frozenset({"Edit", "Write", "Bash"})
"""Member tools whose calls get a line; other calls appear only in the member's row while they run."""
_NAME_WIDTH = 4
"""Width of the longest name."""
_INDENT = 4
_DEATH_NOTE = re.compile(r"The process of (\S+) died \((.*)\)")
StyledLine: TypeAlias = tuple[tuple[str, str], ...]


def format_mail_line(message: DemoDeliveredMail, style: Callable[[str], str]) -> StyledLine | None:
    """Return None for mail that is shown elsewhere: first prompts, idle notices and agreed shutdowns."""
    body = _format_mail_body(message)
    if body is None:
        return None
    sender, to = (LEAD_ID if each == LEAD_NAME else each for each in (message.mail.sender, message.to))
    return (("✉ ", BOLD), (sender, style(sender)), (" → ", DIM), (to, style(to)), ("  ", ""), body)


def _format_mail_body(message: DemoDeliveredMail) -> tuple[str, str] | None:
    match message.body:
        case None:
            # Among plain texts only first prompts have no summary.
            return None if message.mail.summary is None else (to_one_line(message.mail.text), "")
        case PlanApprovalRequestMail() | PermissionRequestMail():
            return _format_request_mail(message.body), YELLOW
        case PlanApprovalResponseMail(approved=approved, feedback=rejection):
            return ("your plan is approved", GREEN) if approved else (f"change your plan: {rejection}", RED)
        case PermissionResponseMail(subtype=subtype, error=rejection):
            return ("yes, it may run", GREEN) if subtype == "success" else (f"no: {rejection}", RED)
        case ShutdownRequestMail(reason=reason):
            return f"please shut down: {to_one_line(reason)}", ""
        case ShutdownRejectedMail(reason=reason):
            return f"not yet: {to_one_line(reason)}", YELLOW
        case _:
            return None


def _format_request_mail(body: PlanApprovalRequestMail | PermissionRequestMail) -> str:
    if isinstance(body, PlanApprovalRequestMail):
        return f"my plan: {to_one_line(body.plan_content)}"
    return f"may {body.tool_name} run?"


class DemoMemberRestartRecord(Struct, frozen=True, kw_only=True):
    """Killed process, and the process that replaced it."""

    kill: DemoMemberKillRecord
    pid: int
    seconds: float


class TeamDemoPresenter:
    def __init__(
        self,
        screen: TerminalScreen,
        session: Session,
        home: Path,
        target: DemoMemberKillTarget,
        *,
        pause: float,
    ) -> None:
        self._screen = screen
        self._session = session
        self._clock = session.clock
        self._started_at = self._clock.monotonic()
        self._feed = EventFeed(session)
        self.statuses = RunViewAgentsState()
        self._narrator = DemoNarrator(screen, self.statuses, silent_tools=_SILENT_TOOLS)
        self._calls: dict[tuple[str, str], str] = {}
        self._demo_user = AutoApprovingDemoUser(screen, session, self._narrator, pause=3 * pause)
        self._killer = DemoMemberKiller(session, target, pause=9 * pause)
        self._kill: DemoMemberKillRecord | None = None
        self._kept_tasks: list[str] = []
        """Tasks that the killed member held."""
        self._is_board_shown = False
        self.files = DemoTeamFilesReader(home, self._clock)
        self.restart: DemoMemberRestartRecord | None = None

    @property
    def elapsed_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at

    @property
    def answered_count(self) -> int:
        """Number of questions answered for the user."""
        return self._demo_user.answered_count

    async def run(self, task: str) -> RunFinished:
        rows = LiveStatusRowsDisplay(self._screen, self._render_status_rows)
        try:
            async with asyncio.TaskGroup() as group:
                coroutines = [
                    self._present_events(),
                    self._demo_user.approve_all_questions(),
                    self._kill_member_and_announce(),
                ]
                others = [group.create_task(act) for act in coroutines]
                finished = await run_prompt_to_end(self._session, task)
                for other in others:
                    other.cancel()
            await self._process_events()
        finally:
            rows.close()
            self._feed.close()
        return finished

    async def _kill_member_and_announce(self) -> None:
        kill = self._kill = await self._killer.kill_target_once_working()
        if kill is not None:
            # Read now: the new process may have completed its task when the restart is printed.
            self._kept_tasks = [
                f"#{task.id}" for task in self.files.read_tasks() if self._is_task_held_by(task, kill.name)
            ]
            announcement = f"The demo kills the process of {kill.name} while it is working."
            self._narrator.request_blank_line()
            self._narrator.add_line(
                ("✗ ", BOLD_RED), (f"kill -9 {kill.pid}", BOLD_RED), (f"   {announcement}", RED)
            )

    async def _present_events(self) -> None:
        while True:
            await self._process_events()
            await self._feed.wait_for_events()

    async def _process_events(self) -> None:
        # Mail is posted before the call that posts it ends; a task is completed after the last call for it.
        for delivered_mail in await self.files.read_new_mail():
            if (parts := format_mail_line(delivered_mail, self._find_member_style)) is not None:
                self._add_wrapped_line(parts)
        for event in self._feed.drain():
            status = self.statuses.apply_event(event, self._clock.monotonic())
            if event.agent == LEAD_ID:
                await self._present_lead_event(event)
            else:
                self._present_member_event(event, status)
        for transition in self.files.read_task_transitions():
            self._print_task_transition(transition)

    async def _present_lead_event(self, event: Event) -> None:
        death_match = _DEATH_NOTE.match(event.text) if isinstance(event, NoteAdded) else None
        if death_match is not None and self._kill is not None and death_match[1] == self._kill.name:
            self._print_restart(self._kill, death_match[2])
            return
        self._narrator.narrate_lead_event(event)
        match event:
            case ToolFinished(tool="TeamCreate"):
                self.files.follow_team(self._session.led_team_name)
            case ToolStarted(tool="Agent") if not self._is_board_shown:
                self._is_board_shown = True
                self.files.read_task_transitions()
                self._print_board()
            case _:
                pass

    def _print_board(self) -> None:
        for number, task in enumerate(self.files.tasks):
            head = f"  {'' if number else f'the board of {self.files.team}':<22}"
            subject = f"#{task.id} {task.subject}"
            if task.blocked_by:
                blockers_note = f"after {', '.join(task.blocked_by)}"
                self._narrator.add_line((head, DIM), (f"{subject:<25}", ""), (blockers_note, DIM))
            else:
                self._narrator.add_line((head, DIM), (subject, ""))

    def _present_member_event(self, event: Event, status: AgentStatusRecord) -> None:
        match event:
            case AgentStarted() if status.display_name not in self.files.names:
                self.files.names.append(AgentName(status.display_name))
                plan_note = ", and plans first" if event.mode == "plan" else ""
                self._add_member_line(
                    status,
                    (
                        f"joins in process {find_member_pid(self._session, status.display_name)}{plan_note}",
                        "",
                    ),
                )
            case AgentEnded(completion=done) if done.status == "completed":
                self._add_member_line(status, ("has shut down", ""))
            case AgentEnded(completion=done):
                self._add_member_line(status, (f"ended: {to_one_line(done.detail)}", RED))
            case ToolStarted(call=call, tool=tool, preview=preview) if tool in _SHOWN_TOOLS:
                self._calls[status.display_name, call] = f"{tool} {to_one_line(preview)}"
            case ToolFinished(call=call) if (status.display_name, call) in self._calls:
                outcome, style = _format_tool_outcome(event)
                available_width = max(
                    self._screen.columns - 2 - _NAME_WIDTH - 4 - measure_text_width(outcome), 12
                )
                preview = truncate_text(self._calls.pop((status.display_name, call)), available_width)
                self._add_member_line(status, (preview, DIM), (f"  {outcome}", style))
            case _:
                pass

    def _print_restart(self, kill: DemoMemberKillRecord, restart_mode: str) -> None:
        """Print the restart once the lead has noticed the death and a new process exists."""
        pid, status = find_member_pid(self._session, kill.name), self._find_member_status(kill.name)
        if status is None or pid is None or pid == kill.pid:
            return
        seconds = self._clock.monotonic() - kill.at
        self.restart = DemoMemberRestartRecord(kill=kill, pid=pid, seconds=seconds)
        self._add_member_line(status, (f"died: {restart_mode}", RED))
        kept_state = " and ".join(("its history", *self._kept_tasks))
        self._add_member_line(
            status, (f"continues in process {pid} after {format_duration(seconds)}, with {kept_state}", BOLD)
        )

    def _print_task_transition(self, transition: DemoTaskTransition) -> None:
        task, status = transition.task, self._find_member_status(transition.task.owner or "")
        task_title = f"#{task.id} {task.subject}"
        if status is None:
            return
        if transition.how == "taken":
            self._add_member_line(status, ("takes ", ""), (task_title, BOLD))
        else:
            self._add_member_line(status, ("✓ ", GREEN), (task_title, ""), (" is done", GREEN))

    def _add_member_line(self, status: AgentStatusRecord, *parts: tuple[str, str]) -> None:
        style = get_agent_style(status.color)
        self._narrator.add_line(("● ", style), (f"{status.display_name:<{_NAME_WIDTH}}  ", style), *parts)

    def _add_wrapped_line(self, parts: StyledLine) -> None:
        """Add a line whose last part, if it is too long, continues on the next lines."""
        *head, (text, style) = parts
        available_width = self._screen.columns - sum(measure_text_width(part) for part, _ in head)
        if not self._screen.live or measure_text_width(text) <= available_width:
            self._narrator.add_line(*parts)
            return
        first, *rest = wrap(text, max(available_width, 20))
        self._narrator.add_line(*head, (first, style))
        for line in wrap(" ".join(rest), max(self._screen.columns - _INDENT, 20)):
            self._narrator.add_line((" " * _INDENT, ""), (line, style))

    def _find_member_status(self, name: str) -> AgentStatusRecord | None:
        return next(
            (each for each in self.statuses.iter_agents_except_lead() if each.display_name == name), None
        )

    def _find_member_style(self, name: str) -> str:
        status = self._find_member_status(name)
        return BOLD if status is None else get_agent_style(status.color)

    def _is_task_held_by(self, task: Task, name: str) -> bool:
        return task.owner == name and task.status == "in_progress"

    def _render_status_rows(self, columns: int) -> list[str]:
        colours, rows = self._screen.colours, list[DemoMemberRow]()
        for status in sorted(
            self.statuses.all.values(), key=lambda each: (each.agent != LEAD_ID, each.display_name)
        ):
            held_tasks = [
                task for task in self.files.tasks if self._is_task_held_by(task, status.display_name)
            ]
            is_dead = (
                self._kill is not None and self._kill.name == status.display_name and self.restart is None
            )
            state, style = describe_member_state(status, dead=is_dead, has_task=bool(held_tasks))
            task = ", ".join(f"#{task.id} {task.subject}" for task in held_tasks)
            rows.append(DemoMemberRow(status=status, state=state, style=style, task=task))
        usd = sum(it.usd for it in self.statuses.all.values())
        totals = f"{format_dollars(usd)} · {self.elapsed_seconds:.0f} s"
        board_line = format_task_board_line(
            self.files.team or "no team yet", self.files.tasks, totals, columns, colours=colours
        )
        return ["", board_line, *format_demo_member_rows(rows, columns, colours=colours)]


def _format_tool_outcome(event: ToolFinished) -> tuple[str, str]:
    """Summarize the result of a member's call; the lead gets only the beginning of its output."""
    if event.is_error:
        return "✗ fails", RED
    last = to_one_line(event.preview.strip().rsplit("\n", 1)[-1])
    return (f"→ {last}", GREEN) if event.tool == "Bash" else ("changed", GREEN)
