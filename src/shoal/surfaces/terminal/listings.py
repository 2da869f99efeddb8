"""Lines that both shell commands and slash commands print."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from shoal.core.filenames import shown
from shoal.core.wording import clean, one_line
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED, YELLOW, cut, painted

if TYPE_CHECKING:
    from shoal.app.quarters.machine import Fact
    from shoal.app.views.hooks import HookShown
    from shoal.app.views.permissions import RuleShown, View
    from shoal.stores.files.sessions import Glance
    from shoal.workspaces.checkpoints import UndoReport

BEHAVIORS = {"allow": GREEN, "ask": YELLOW, "deny": RED}
"""Style of each permission decision."""
_STATE_STYLES = {"ok": GREEN, "none": DIM, "warn": YELLOW, "bad": RED}
_STATES = {"ok": "ok", "none": "–", "warn": "warn", "bad": "BAD"}
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_WIDEST_PROMPT = 70
_BEFORE_PROMPT = 52
"""Columns for a number, an id and an age."""
_NO_HOOKS = 'There are no hooks here. They stand in settings files under "hooks": see docs/hooks.md.'
_WIDEST_HOOK = 100


def session_lines(sessions: Sequence[Glance]) -> Iterator[str]:
    """Yield one line per session: id, age, first prompt."""
    room = get_terminal_size((_BEFORE_PROMPT + _WIDEST_PROMPT, 24)).columns - _BEFORE_PROMPT
    widest = max(20, min(room, _WIDEST_PROMPT))
    for session in sessions:
        yield f"{session.session}  {age(session.at):>6}  {cut(one_line(session.prompt), widest)}"


def recent_sessions(*, everywhere: bool = False, limit: int = 20) -> tuple[Glance, ...]:
    from shoal.app.settings.settings import home_directory
    from shoal.stores.files.sessions import list_sessions

    return list_sessions(home_directory(), None if everywhere else str(Path.cwd()), limit=limit)


def age(at: int) -> str:
    """Format the age of a timestamp in milliseconds: 4 s, 3 min, 2 h, 5 d."""
    seconds = max(0, int(time.time() - at / 1000))
    size, unit = next((step for step in _STEPS if seconds >= step[0]), _STEPS[-1])
    return f"{seconds // size} {unit}"


def undone_lines(report: UndoReport, root: Path) -> Iterator[tuple[str, str]]:
    """Yield lines with their styles that describe an undo."""
    for path in report.restored:
        yield f"restored    {near(path, root)}", GREEN
    for path in report.removed:
        yield f"deleted     {near(path, root)}  (the agent had made it)", GREEN
    for left in report.left_alone:
        yield f"left alone  {near(left.path, root)}: {left.why}", YELLOW
    if not (report.restored or report.removed or report.left_alone):
        yield "No file had to be changed.", DIM


def near(path: Path, root: Path) -> str:
    """Return the path as a person in `root` would type it."""
    return shown(path.relative_to(root) if path.is_relative_to(root) else path)


def hook_lines(hooks: Iterable[HookShown], *, colours: bool) -> Iterator[str]:
    every = list(hooks)
    if not every:
        yield _NO_HOOKS
    for event in dict.fromkeys(hook.event for hook in every):
        yield painted(event, BOLD, colours=colours)
        for hook in (each for each in every if each.event == event):
            state = "" if hook.trusted else f"  {painted('not trusted', YELLOW, colours=colours)}"
            whose = f"  agent {clean(hook.agent)}" if hook.agent else ""
            alone = "  async, rewakes" if hook.rewakes else "  async" if hook.background else ""
            does = cut(one_line(clean(hook.does)), _WIDEST_HOOK)
            origin = painted(clean(hook.origin), DIM, colours=colours)
            yield f"  {clean(hook.matcher) or '*'}  {does}{alone}{whose}{state}  {origin}"
    if any(not hook.trusted for hook in every):
        yield "What is not trusted is not run. See it with `shoal trust --show`, trust it with `shoal trust`."


def rule_lines(seen: View, *, colours: bool) -> Iterator[str]:
    yield f"{painted('mode', BOLD, colours=colours)}  {seen.mode}  ({seen.mode_source})"
    yield painted("directories", BOLD, colours=colours)
    yield from (f"  {clean(directory)}" for directory in seen.directories)
    yield painted("rules", BOLD, colours=colours)
    if not seen.rules:
        yield "  none; the mode decides alone. Rules go into .claude/settings.json: see `shoal config show`."
    width = max((len(row.rule) for row in seen.rules), default=0)
    for row in seen.rules:
        behavior = painted(f"{row.behavior:<5}", BEHAVIORS[row.behavior], colours=colours)
        yield f"  {behavior}  {clean(row.rule):<{min(width, 60)}}  {clean(row.source)}"
    yield from left_out_lines(seen.left_out)


def left_out_lines(left_out: Sequence[RuleShown]) -> Iterator[str]:
    if left_out:
        yield "Not counted, since nobody trusted this project's own settings (`shoal trust`):"
        yield from (f"  {row.behavior}  {clean(row.rule)}  {clean(row.source)}" for row in left_out)


def fact_lines(facts: Sequence[Fact], *, colours: bool, summary: str | None = None) -> Iterator[str]:
    width = max((len(fact.name) for fact in facts), default=0)
    for area, group in groupby(facts, key=lambda fact: fact.area):
        yield painted(area, BOLD, colours=colours)
        for fact in group:
            state = painted(f"{_STATES[fact.state]:<4}", _STATE_STYLES[fact.state], colours=colours)
            yield f"  {state}  {clean(fact.name):<{width}}  {clean(fact.value)}"
            if fact.advice:
                yield from (f"        {'':<{width}}  → {line}" for line in clean(fact.advice).splitlines())
        yield ""
    yield _summary(facts) if summary is None else summary


def _summary(facts: Sequence[Fact]) -> str:
    bad = [f"{fact.area}: {clean(fact.name)}" for fact in facts if fact.state == "bad"]
    if bad:
        return f"Shoal cannot run yet because of {', '.join(bad)}. The arrows say what to do."
    warned = sum(fact.state == "warn" for fact in facts)
    if warned:
        return (
            f"Shoal can run. {warned} thing{'s' if warned > 1 else ''} could be better; the arrows say how."
        )
    return "Everything is there."
