"""Texts of the team demo: the introduction, and the summary of what is on disk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.text.text_format import format_count_with_noun, format_duration
from shoal.surfaces.cli.demo.demo_workspace import DemoWorkspace
from shoal.surfaces.cli.demo.summary_rows import (
    PRICES,
    find_shoal_command_in_clone,
    format_usage_columns,
    print_demo_summary_row,
    print_test_result_row,
    run_project_tests,
)
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD, BOLD_CYAN, DIM, GREEN, RED, YELLOW, get_agent_style

if TYPE_CHECKING:
    from shoal.app.run_view.agent_status import RunViewAgentsState
    from shoal.core.events import RunFinished
    from shoal.core.ids import AgentId
    from shoal.core.teams.tasks import Task
    from shoal.stores.files.sessions.usage_summary import RunUsageSummary
    from shoal.surfaces.cli.demo.team_files import DemoDeliveredMail
    from shoal.surfaces.cli.demo.team_presenter import DemoMemberRestartRecord


class TeamDemoResult(Struct, frozen=True, kw_only=True):
    finished: RunFinished
    seconds: float
    team: str
    tasks: tuple[Task, ...]
    mail: tuple[DemoDeliveredMail, ...]
    restart: DemoMemberRestartRecord | None
    answered_count: int
    statuses: RunViewAgentsState
    journal: Path
    workspace: DemoWorkspace

    @property
    def has_succeeded(self) -> bool:
        is_board_done = bool(self.tasks) and all(task.status == "completed" for task in self.tasks)
        return self.finished.reason == "done" and is_board_done and self.restart is not None

    def find_member_style(self, name: str) -> str:
        statuses = [each for each in self.statuses.iter_agents_except_lead() if each.display_name == name]
        return get_agent_style(statuses[0].color) if statuses else BOLD


def print_team_introduction(screen: TerminalScreen, task: str) -> None:
    screen.write("shoal demo\n", BOLD_CYAN)
    screen.write("  The models' replies are scripted, and nothing leaves this machine.\n", DIM)
    screen.write("  The processes, board, mail, edits, tests and kill signal are real.\n", DIM)
    screen.write("\n› ", BOLD_CYAN)
    screen.write(f"{task}\n", BOLD)


def print_team_summary(screen: TerminalScreen, result: TeamDemoResult) -> int:
    """Print the summary and return the exit code; facts come from the board, inboxes and journal on disk."""
    tests = run_project_tests(result.workspace.project)
    passed = tests.passed and result.has_succeeded
    _print_task_board(screen, result)
    _print_costs(screen, result)
    screen.write("\n")
    print_test_result_row(screen, tests, good=passed)
    _print_mail_counts(screen, result)
    _print_process_kill(screen, result)
    _print_next_steps(screen, result)
    if not passed:
        screen.write("\nThe demo failed. Run it again and keep its files: shoal demo --keep\n", RED)
    return 0 if passed else 1


def _print_task_board(screen: TerminalScreen, result: TeamDemoResult) -> None:
    screen.write(f"\nThe board of {result.team}\n" if result.team else "\nNo team was created\n", BOLD)
    for task in result.tasks:
        mark, style = ("✓", GREEN) if task.status == "completed" else ("✗", RED)
        screen.write(f"  {mark} ", style)
        screen.write(f"#{task.id} {task.subject:<20} ")
        screen.write(task.owner or "", result.find_member_style(task.owner or ""))
        screen.write("\n" if task.status == "completed" else f" {task.status}\n", RED)


def _print_costs(screen: TerminalScreen, result: TeamDemoResult) -> None:
    from shoal.core.ids import LEAD_ID
    from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

    ledger = summarize_journal_usage(result.journal)
    screen.write("\nWhat it cost", BOLD)
    screen.write(PRICES, DIM)
    screen.write(f"  {'':8}requests   tokens     cost     time\n", DIM)
    cost_rows = [
        (ledger.get_agent(agent).name or "lead", agent, spent) for agent, spent in ledger.by_agent.items()
    ]
    for name, agent, totals in sorted(cost_rows, key=lambda each: (each[1] != LEAD_ID, each[0])):
        screen.write(f"  {name:8}", result.find_member_style(name))
        screen.write(format_usage_columns(totals, _compute_agent_lifetime(result, agent)))
        screen.write(f"{_format_cut_off_request_count(ledger, agent)}\n", YELLOW)
    screen.write(f"  {'total':8}{format_usage_columns(ledger.total, result.seconds)}\n", BOLD)


def _compute_agent_lifetime(result: TeamDemoResult, agent: AgentId) -> float | None:
    status = result.statuses.all.get(agent)
    return None if status is None or status.completion is None else status.completion.duration_ms / 1000


def _format_cut_off_request_count(ledger: RunUsageSummary, agent: AgentId) -> str:
    cut_requests = sum(each.agent == agent for each in ledger.unsettled)
    return f"  and {format_count_with_noun(cut_requests, 'request')} cut off" if cut_requests else ""


def _print_mail_counts(screen: TerminalScreen, result: TeamDemoResult) -> None:
    from shoal.core.names import LEAD_NAME

    to_lead = sum(message.to == LEAD_NAME for message in result.mail)
    from_lead = sum(message.mail.sender == LEAD_NAME for message in result.mail)
    between = len(result.mail) - to_lead - from_lead
    counts = f"{from_lead} from the lead, {to_lead} to it, {between} between teammates"
    print_demo_summary_row(screen, "mail", f"{len(result.mail)} messages: {counts}")


def _print_process_kill(screen: TerminalScreen, result: TeamDemoResult) -> None:
    if result.restart is None:
        print_demo_summary_row(screen, "killed", "no other process took over", RED)
        return
    restart = result.restart
    restart_note = f"process {restart.pid} took over after {format_duration(restart.seconds)}"
    print_demo_summary_row(
        screen, "killed", f"process {restart.kill.pid} of {restart.kill.name}; {restart_note}"
    )


def _print_next_steps(screen: TerminalScreen, result: TeamDemoResult) -> None:
    workspace = result.workspace
    if workspace.keep:
        shoal = find_shoal_command_in_clone(absolute=True) or "shoal"
        command = f"SHOAL_HOME={shlex.quote(str(workspace.home))} {shoal}"
        print_demo_summary_row(screen, "project", str(workspace.project))
        print_demo_summary_row(screen, "next", f"{command} task ls", BOLD)
        print_demo_summary_row(screen, "", f"{command} inbox show ben --all", BOLD)
        print_demo_summary_row(screen, "", f"{command} cost {result.journal.parent.name[:8]}", BOLD)
        return
    command = find_shoal_command_in_clone() or "shoal"
    if workspace.uses_given_home:
        print_demo_summary_row(screen, "record", str(result.journal.parent))
    else:
        print_demo_summary_row(
            screen,
            "record",
            "transcripts, journal, mail and board, now removed (keep them with --keep)",
        )
    print_demo_summary_row(
        screen, "next", f"{command} demo agents", BOLD, "  three agents work in parallel git worktrees"
    )
    print_demo_summary_row(
        screen, "", f"{command} doctor", BOLD, "  shows which models you can use, and what to type"
    )
    if find_shoal_command_in_clone() is None:
        print_demo_summary_row(
            screen, "", 'shoal "make a team and fix the tests"', BOLD, "  in your own project"
        )
    else:
        print_demo_summary_row(
            screen, "", "pip install .", BOLD, '  then: shoal "make a team and fix the tests"'
        )
