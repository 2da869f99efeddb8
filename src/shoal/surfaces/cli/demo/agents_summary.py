"""Texts of the agents demo: the introduction, the merges that a user would do, and the summary."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.surfaces.cli.demo.summary_rows import (
    PRICES,
    find_shoal_command_in_clone,
    format_usage_columns,
    print_demo_summary_row,
    print_test_result_row,
    run_project_tests,
)
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    BOLD_CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    get_agent_style,
    truncate_text,
)

if TYPE_CHECKING:
    from shoal.core.agents.subagents import AgentResult
    from shoal.core.events import RunFinished


class AgentsDemoResult(Struct, frozen=True, kw_only=True):
    finished: RunFinished
    completions: tuple[AgentResult, ...]
    seconds: float
    project: Path
    journal: Path
    transcript: Path
    kept: bool
    home: Path


def print_agents_introduction(screen: TerminalScreen, task: str, unguarded: str) -> None:
    screen.write("shoal demo agents\n", BOLD_CYAN)
    screen.write("  The model's replies are scripted, and nothing leaves this machine.\n", DIM)
    screen.write("  The project, the agents, their worktrees, edits and tests are real.\n", DIM)
    if unguarded:
        screen.write(
            f"  No sandbox can confine the agents to their worktrees here: {unguarded}. This demo relies "
            "on permission rules only (worktree_guard: weak).\n",
            YELLOW,
        )
    screen.write("\n› ", BOLD_CYAN)
    screen.write(f"{task}\n", BOLD)


async def merge_demo_worktrees(screen: TerminalScreen, project: Path, home: Path, *, pause: float) -> None:
    """Merge every worktree, as the user would: the work of agents returns only on request."""
    from shoal.app.isolation.repository_worktrees import open_worktrees
    from shoal.core.clock import SystemClock
    from shoal.core.errors import WorktreeError

    worktrees = open_worktrees(project, home=home, environ=os.environ, clock=SystemClock())
    screen.write("\n")
    for status in await worktrees.list_worktrees():
        await asyncio.sleep(pause)
        screen.write("$ ", DIM)
        screen.write(f"shoal worktree merge {status.name}", BOLD)
        try:
            merge_result = await worktrees.merge_worktree(status.name)
        except WorktreeError as error:
            screen.write(f"\n  {error}\n", RED)
        else:
            screen.write(f"  → {merge_result.into}: {', '.join(merge_result.files)}\n", GREEN)


def print_agents_summary(screen: TerminalScreen, result: AgentsDemoResult) -> int:
    """Print the summary and return the exit code; facts come from disk, not from what agents reported."""
    from shoal.app.demo.demo_project import find_demo_project_changes

    tests = run_project_tests(result.project)
    passed = tests.passed and result.finished.reason == "done"
    differences = find_demo_project_changes(result.project)
    screen.write("\nWhat changed\n" if differences else "\nNothing changed\n", BOLD)
    for changed_file in differences:
        name = Path(changed_file.path).name
        for sign, lines, style in (("-", changed_file.removed, RED), ("+", changed_file.added, GREEN)):
            for line in lines:
                screen.write(f"  {name:<10}")
                screen.write(f"{sign} {line.strip()}\n", style)
                name = ""
    _print_costs(screen, result)
    screen.write("\n")
    print_test_result_row(screen, tests, good=passed)
    _print_next_steps(screen, result)
    if not passed:
        screen.write("\nThe demo failed. Run it again and keep its files: shoal demo agents --keep\n", RED)
    return 0 if passed else 1


def _print_costs(screen: TerminalScreen, result: AgentsDemoResult) -> None:
    from shoal.app.demo.demo_session import AGENTS
    from shoal.core.ids import LEAD_ID
    from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

    ledger = summarize_journal_usage(result.journal)
    screen.write("\nWhat it cost", BOLD)
    screen.write(PRICES, DIM)
    screen.write(f"  {'':8}requests   tokens     cost     time\n", DIM)
    completions = {each.agent: each for each in result.completions}
    cost_rows = [(ledger.get_agent(agent).kind, agent, spent) for agent, spent in ledger.by_agent.items()]
    for name, agent, totals in sorted(cost_rows, key=lambda row: (row[1] != LEAD_ID, row[0])):
        screen.write(f"  {name:8}", get_agent_style(AGENTS[name]) if name in AGENTS else "")
        if agent in completions:
            completion = completions[agent]
            subject = "".join(completion.evidence.commits[:1]).partition(" ")[2]
            screen.write(format_usage_columns(totals, completion.duration_ms / 1000))
            screen.write(truncate_text(f"  {subject}", max(screen.columns - 45, 0)) + "\n", DIM)
        else:
            screen.write(f"{format_usage_columns(totals)}\n")
    screen.write(f"  {'total':8}{format_usage_columns(ledger.total, result.seconds)}\n", BOLD)


def _print_next_steps(screen: TerminalScreen, result: AgentsDemoResult) -> None:
    clone_command = find_shoal_command_in_clone()
    if result.kept:
        project, home = shlex.quote(str(result.project)), shlex.quote(str(result.home))
        print_demo_summary_row(screen, "project", str(result.project))
        print_demo_summary_row(screen, "record", str(result.transcript))
        print_demo_summary_row(screen, "next", f"cd {project} && git log --graph --oneline", BOLD)
        print_demo_summary_row(
            screen,
            "",
            f"SHOAL_HOME={home} {find_shoal_command_in_clone(absolute=True) or 'shoal'} cost",
            BOLD,
        )
        return
    if result.home.is_relative_to(result.project.parent):
        print_demo_summary_row(
            screen, "record", "four transcripts and a journal, now removed (keep them with --keep)"
        )
    else:
        print_demo_summary_row(screen, "record", str(result.transcript))
    print_demo_summary_row(
        screen,
        "next",
        f"{clone_command or 'shoal'} doctor",
        BOLD,
        "  shows which models you can use, and what to type",
    )
    if clone_command is None:
        print_demo_summary_row(screen, "", 'shoal "fix the tests"', BOLD, "  in your own project")
    else:
        print_demo_summary_row(
            screen, "", "pip install .", BOLD, '  then, in your own project: shoal "fix the tests"'
        )
