"""Texts of the team demo: the introduction, and the summary of what is on disk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.wording import many, seconds
from shoal.surfaces.cli.demo.ending import PRICES, in_a_clone, row, spent_words, tested, tests_row
from shoal.surfaces.cli.demo.place import Where
from shoal.surfaces.terminal.paint import BOLD, BOLD_CYAN, DIM, GREEN, RED, YELLOW, style_of
from shoal.surfaces.terminal.screen import Screen

if TYPE_CHECKING:
    from shoal.app.picture.standing import Standings
    from shoal.core.events import Finished
    from shoal.core.ids import AgentId
    from shoal.core.tasks import Task
    from shoal.stores.files.ledger import Ledger
    from shoal.surfaces.cli.demo.team_files import Letter
    from shoal.surfaces.cli.demo.team_show import Revival


class Ran(Struct, frozen=True, kw_only=True):
    finished: Finished
    seconds: float
    team: str
    tasks: tuple[Task, ...]
    mail: tuple[Letter, ...]
    revival: Revival | None
    answered: int
    standings: Standings
    journal: Path
    where: Where

    @property
    def good(self) -> bool:
        done = bool(self.tasks) and all(task.status == "completed" for task in self.tasks)
        return self.finished.reason == "done" and done and self.revival is not None

    def style(self, name: str) -> str:
        found = [each for each in self.standings.children() if each.who == name]
        return style_of(found[0].color) if found else BOLD


def introduce(screen: Screen, task: str) -> None:
    screen.write("shoal demo\n", BOLD_CYAN)
    screen.write("  The models' words are scripted, and nothing leaves this machine.\n", DIM)
    screen.write("  The processes, board, mail, edits, tests and the kill are real.\n", DIM)
    screen.write("\n› ", BOLD_CYAN)
    screen.write(f"{task}\n", BOLD)


def summary(screen: Screen, ran: Ran) -> int:
    """Print the summary and return the exit code; facts come from the board, inboxes and journal on disk."""
    tests = tested(ran.where.project)
    passed = tests.passed and ran.good
    _board(screen, ran)
    _costs(screen, ran)
    screen.write("\n")
    tests_row(screen, tests, good=passed)
    _mail(screen, ran)
    _killed(screen, ran)
    _whereabouts(screen, ran)
    if not passed:
        screen.write("\nThe demo failed. To look into it, keep what it made: shoal demo --keep\n", RED)
    return 0 if passed else 1


def _board(screen: Screen, ran: Ran) -> None:
    screen.write(f"\nThe board of {ran.team}\n" if ran.team else "\nNo team was made\n", BOLD)
    for task in ran.tasks:
        mark, style = ("✓", GREEN) if task.status == "completed" else ("✗", RED)
        screen.write(f"  {mark} ", style)
        screen.write(f"#{task.id} {task.subject:<20} ")
        screen.write(task.owner or "", ran.style(task.owner or ""))
        screen.write("\n" if task.status == "completed" else f" {task.status}\n", RED)


def _costs(screen: Screen, ran: Ran) -> None:
    from shoal.core.ids import LEAD
    from shoal.stores.files.ledger import usage_of

    ledger = usage_of(ran.journal)
    screen.write("\nWhat it cost", BOLD)
    screen.write(PRICES, DIM)
    screen.write(f"  {'':8}requests   tokens     cost     time\n", DIM)
    named = [(ledger.worker(agent).name or "lead", agent, spent) for agent, spent in ledger.by_agent.items()]
    for who, agent, spent in sorted(named, key=lambda each: (each[1] != LEAD, each[0])):
        screen.write(f"  {who:8}", ran.style(who))
        screen.write(spent_words(spent, _lived(ran, agent)))
        screen.write(f"{_cut(ledger, agent)}\n", YELLOW)
    screen.write(f"  {'in all':8}{spent_words(ledger.total, ran.seconds)}\n", BOLD)


def _lived(ran: Ran, agent: AgentId) -> float | None:
    it = ran.standings.all.get(agent)
    return None if it is None or it.completion is None else it.completion.duration_ms / 1000


def _cut(ledger: Ledger, agent: AgentId) -> str:
    cut = sum(each.agent == agent for each in ledger.unsettled)
    return f"  and {many(cut, 'request')} cut off" if cut else ""


def _mail(screen: Screen, ran: Ran) -> None:
    from shoal.core.names import LEAD_NAME

    to_lead = sum(letter.to == LEAD_NAME for letter in ran.mail)
    from_lead = sum(letter.mail.sender == LEAD_NAME for letter in ran.mail)
    between = len(ran.mail) - to_lead - from_lead
    told = f"{from_lead} from the lead, {to_lead} to it, {between} between teammates"
    row(screen, "mail", f"{len(ran.mail)} messages: {told}")


def _killed(screen: Screen, ran: Ran) -> None:
    if ran.revival is None:
        row(screen, "killed", "nobody went on in another process", RED)
        return
    it = ran.revival
    went_on = f"process {it.pid} went on after {seconds(it.seconds)}"
    row(screen, "killed", f"process {it.kill.pid} of {it.kill.name}; {went_on}")


def _whereabouts(screen: Screen, ran: Ran) -> None:
    where = ran.where
    if where.keep:
        own = f"SHOAL_HOME={shlex.quote(str(where.home))} {in_a_clone(absolute=True) or 'shoal'}"
        row(screen, "project", str(where.project))
        row(screen, "next", f"{own} task ls", BOLD)
        row(screen, "", f"{own} inbox show ben --all", BOLD)
        row(screen, "", f"{own} cost {ran.journal.parent.name[:8]}", BOLD)
        return
    own = in_a_clone() or "shoal"
    if where.elsewhere:
        row(screen, "record", str(ran.journal.parent))
    else:
        row(
            screen,
            "record",
            "transcripts, journal, mail and board, now removed (--keep keeps them)",
        )
    row(screen, "next", f"{own} demo agents", BOLD, "  three agents side by side, in git worktrees")
    row(screen, "", f"{own} doctor", BOLD, "  which model can be used here, and what to type")
    if in_a_clone() is None:
        row(screen, "", 'shoal "make a team and fix the tests"', BOLD, "  in a project of yours")
    else:
        row(screen, "", "pip install .", BOLD, '  then: shoal "make a team and fix the tests"')
