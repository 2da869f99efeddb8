"""Texts of the agents demo: the introduction, the merges that a user would do, and the summary."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.surfaces.cli.demo.ending import PRICES, in_a_clone, row, spent_words, tested, tests_row
from shoal.surfaces.terminal.paint import BOLD, BOLD_CYAN, DIM, GREEN, RED, YELLOW, cut, style_of
from shoal.surfaces.terminal.screen import Screen

if TYPE_CHECKING:
    from shoal.core.agents import Completion
    from shoal.core.events import Finished


class Ran(Struct, frozen=True, kw_only=True):
    finished: Finished
    completions: tuple[Completion, ...]
    seconds: float
    project: Path
    journal: Path
    transcript: Path
    kept: bool
    home: Path


def introduce(screen: Screen, task: str, unguarded: str) -> None:
    screen.write("shoal demo agents\n", BOLD_CYAN)
    screen.write("  The model's words are scripted, and nothing leaves this machine.\n", DIM)
    screen.write("  The project, the agents, their worktrees, edits and tests are real.\n", DIM)
    if unguarded:
        screen.write(
            f"  No sandbox can hold the agents in their worktrees here: {unguarded}. For this demo "
            "permission rules alone do (worktree_guard: weak).\n",
            YELLOW,
        )
    screen.write("\n› ", BOLD_CYAN)
    screen.write(f"{task}\n", BOLD)


async def merge_all(screen: Screen, project: Path, home: Path, *, pause: float) -> None:
    """Merge every worktree, as the user would: the work of agents returns only on request."""
    from shoal.app.quarters.worktrees import worktrees_of
    from shoal.core.clock import SystemClock
    from shoal.core.errors import WorktreeError

    worktrees = worktrees_of(project, home=home, environ=os.environ, clock=SystemClock())
    screen.write("\n")
    for standing in await worktrees.list():
        await asyncio.sleep(pause)
        screen.write("$ ", DIM)
        screen.write(f"shoal worktree merge {standing.name}", BOLD)
        try:
            merged = await worktrees.merge(standing.name)
        except WorktreeError as error:
            screen.write(f"\n  {error}\n", RED)
        else:
            screen.write(f"  → {merged.into}: {', '.join(merged.files)}\n", GREEN)


def summary(screen: Screen, ran: Ran) -> int:
    """Print the summary and return the exit code; facts come from disk, not from what agents reported."""
    from shoal.app.demo.harbour import changes

    tests = tested(ran.project)
    passed = tests.passed and ran.finished.reason == "done"
    differences = changes(ran.project)
    screen.write("\nWhat changed\n" if differences else "\nNothing changed\n", BOLD)
    for changed in differences:
        name = Path(changed.path).name
        for sign, lines, style in (("-", changed.removed, RED), ("+", changed.added, GREEN)):
            for line in lines:
                screen.write(f"  {name:<10}")
                screen.write(f"{sign} {line.strip()}\n", style)
                name = ""
    _costs(screen, ran)
    screen.write("\n")
    tests_row(screen, tests, good=passed)
    _whereabouts(screen, ran)
    if not passed:
        screen.write("\nThe demo failed. To look into it, keep what it made: shoal demo agents --keep\n", RED)
    return 0 if passed else 1


def _costs(screen: Screen, ran: Ran) -> None:
    from shoal.app.demo.stage import AGENTS
    from shoal.core.ids import LEAD
    from shoal.stores.files.ledger import usage_of

    ledger = usage_of(ran.journal)
    screen.write("\nWhat it cost", BOLD)
    screen.write(PRICES, DIM)
    screen.write(f"  {'':8}requests   tokens     cost     time\n", DIM)
    ended = {each.agent: each for each in ran.completions}
    named = [(ledger.worker(agent).kind, agent, spent) for agent, spent in ledger.by_agent.items()]
    for who, agent, spent in sorted(named, key=lambda row: (row[1] != LEAD, row[0])):
        screen.write(f"  {who:8}", style_of(AGENTS[who]) if who in AGENTS else "")
        if agent in ended:
            done = ended[agent]
            subject = "".join(done.evidence.commits[:1]).partition(" ")[2]
            screen.write(spent_words(spent, done.duration_ms / 1000))
            screen.write(cut(f"  {subject}", max(screen.columns - 45, 0)) + "\n", DIM)
        else:
            screen.write(f"{spent_words(spent)}\n")
    screen.write(f"  {'in all':8}{spent_words(ledger.total, ran.seconds)}\n", BOLD)


def _whereabouts(screen: Screen, ran: Ran) -> None:
    own = in_a_clone()
    if ran.kept:
        project, home = shlex.quote(str(ran.project)), shlex.quote(str(ran.home))
        row(screen, "project", str(ran.project))
        row(screen, "record", str(ran.transcript))
        row(screen, "next", f"cd {project} && git log --graph --oneline", BOLD)
        row(screen, "", f"SHOAL_HOME={home} {in_a_clone(absolute=True) or 'shoal'} cost", BOLD)
        return
    if ran.home.is_relative_to(ran.project.parent):
        row(screen, "record", "four transcripts and a journal, now removed (--keep keeps them)")
    else:
        row(screen, "record", str(ran.transcript))
    row(screen, "next", f"{own or 'shoal'} doctor", BOLD, "  which model can be used here, and what to type")
    if own is None:
        row(screen, "", 'shoal "fix the tests"', BOLD, "  the same, in a project of yours")
    else:
        row(screen, "", "pip install .", BOLD, '  then, in a project of yours: shoal "fix the tests"')
