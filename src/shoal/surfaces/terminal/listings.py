"""Lines that both shell commands and slash commands print."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes, to_one_line
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, RED, YELLOW, apply_style, truncate_text

if TYPE_CHECKING:
    from shoal.app.isolation.machine_checks import DoctorDiagnostic
    from shoal.app.reports.hook_report import HookReportRow
    from shoal.app.reports.permission_report import PermissionReport, PermissionRuleReportRow
    from shoal.core.store import SessionListEntry
    from shoal.workspaces.checkpoints import FileUndoReport

BEHAVIOR_STYLES = {"allow": GREEN, "ask": YELLOW, "deny": RED}
"""Style of each permission decision."""
_STATE_STYLES = {"ok": GREEN, "none": DIM, "warn": YELLOW, "bad": RED}
_STATES = {"ok": "ok", "none": "–", "warn": "warn", "bad": "BAD"}
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_WIDEST_PROMPT = 70
_BEFORE_PROMPT = 52
"""Widths of the columns for a number, an id and an age."""
_NO_HOOKS = 'There are no hooks here. Define them in a settings file under "hooks": see docs/hooks.md.'
_WIDEST_HOOK = 100


def format_session_lines(sessions: Sequence[SessionListEntry]) -> Iterator[str]:
    """Yield one line per session: id, age, first prompt."""
    available_width = get_terminal_size((_BEFORE_PROMPT + _WIDEST_PROMPT, 24)).columns - _BEFORE_PROMPT
    prompt_width = max(20, min(available_width, _WIDEST_PROMPT))
    for session in sessions:
        prompt = truncate_text(to_one_line(session.prompt), prompt_width)
        yield f"{session.session}  {format_time_since(session.at):>6}  {prompt}"


def list_recent_sessions(*, everywhere: bool = False, limit: int = 20) -> tuple[SessionListEntry, ...]:
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home

    store = open_home_store(find_process_shoal_home(), read_only=True)
    return store.list_sessions(None if everywhere else str(Path.cwd()), limit=limit)


def format_time_since(at: int) -> str:
    """Format the age of a timestamp in milliseconds: 4 s, 3 min, 2 h, 5 d."""
    seconds = max(0, int(time.time() - at / 1000))
    size, unit = next((step for step in _STEPS if seconds >= step[0]), _STEPS[-1])
    return f"{seconds // size} {unit}"


def format_undo_lines(report: FileUndoReport, root: Path) -> Iterator[tuple[str, str]]:
    """Yield lines with their styles that describe an undo."""
    for path in report.restored:
        yield f"restored    {format_path_for_user(path, root)}", GREEN
    for path in report.removed:
        yield f"deleted     {format_path_for_user(path, root)}  (created by the agent)", GREEN
    for skipped_file in report.left_alone:
        yield f"kept        {format_path_for_user(skipped_file.path, root)}: {skipped_file.why}", YELLOW
    if not (report.restored or report.removed or report.left_alone):
        yield "There was nothing to restore.", DIM


def format_path_for_user(path: Path, root: Path) -> str:
    """Return the path as a person in `root` would type it."""
    return escape_filename(path.relative_to(root) if path.is_relative_to(root) else path)


def format_hook_lines(hooks: Iterable[HookReportRow], *, colours: bool) -> Iterator[str]:
    all_hooks = list(hooks)
    if not all_hooks:
        yield _NO_HOOKS
    for event in dict.fromkeys(hook.event for hook in all_hooks):
        yield apply_style(event, BOLD, colours=colours)
        for hook in (each for each in all_hooks if each.event == event):
            state = "" if hook.trusted else f"  {apply_style('not trusted', YELLOW, colours=colours)}"
            owner = f"  agent {strip_terminal_codes(hook.agent)}" if hook.agent else ""
            timing = "  async, rewakes" if hook.rewakes else "  async" if hook.background else ""
            action = truncate_text(to_one_line(strip_terminal_codes(hook.does)), _WIDEST_HOOK)
            origin = apply_style(strip_terminal_codes(hook.origin), DIM, colours=colours)
            yield f"  {strip_terminal_codes(hook.matcher) or '*'}  {action}{timing}{owner}{state}  {origin}"
    if any(not hook.trusted for hook in all_hooks):
        yield (
            "Hooks that are not trusted do not run. To see them, run `shoal trust --show`. To trust them, "
            "run `shoal trust`."
        )


def format_permission_report_lines(report: PermissionReport, *, colours: bool) -> Iterator[str]:
    yield f"{apply_style('mode', BOLD, colours=colours)}  {report.mode}  ({report.mode_source})"
    yield apply_style("directories", BOLD, colours=colours)
    yield from (f"  {strip_terminal_codes(directory)}" for directory in report.directories)
    yield apply_style("rules", BOLD, colours=colours)
    if not report.rules:
        yield "  none; only the mode decides. Put rules in .claude/settings.json; see `shoal config show`."
    width = max((len(row.rule) for row in report.rules), default=0)
    for row in report.rules:
        behavior = apply_style(f"{row.behavior:<5}", BEHAVIOR_STYLES[row.behavior], colours=colours)
        rule = strip_terminal_codes(row.rule)
        yield f"  {behavior}  {rule:<{min(width, 60)}}  {strip_terminal_codes(row.source)}"
    yield from format_untrusted_rule_lines(report.left_out)


def format_untrusted_rule_lines(left_out: Sequence[PermissionRuleReportRow]) -> Iterator[str]:
    if left_out:
        yield "Ignored because this project's settings are not trusted (trust them: shoal trust):"
        yield from (
            f"  {row.behavior}  {strip_terminal_codes(row.rule)}  {strip_terminal_codes(row.source)}"
            for row in left_out
        )


def format_diagnostic_lines(
    diagnostics: Sequence[DoctorDiagnostic], *, colours: bool, summary: str | None = None
) -> Iterator[str]:
    width = max((len(fact.name) for fact in diagnostics), default=0)
    for area, group in groupby(diagnostics, key=lambda fact: fact.area):
        yield apply_style(area, BOLD, colours=colours)
        for fact in group:
            state = apply_style(f"{_STATES[fact.state]:<4}", _STATE_STYLES[fact.state], colours=colours)
            yield f"  {state}  {strip_terminal_codes(fact.name):<{width}}  {strip_terminal_codes(fact.value)}"
            if fact.advice:
                yield from (
                    f"        {'':<{width}}  → {line}"
                    for line in strip_terminal_codes(fact.advice).splitlines()
                )
        yield ""
    yield _summarize_diagnostics(diagnostics) if summary is None else summary


def _summarize_diagnostics(diagnostics: Sequence[DoctorDiagnostic]) -> str:
    errors = [
        f"{fact.area}: {strip_terminal_codes(fact.name)}" for fact in diagnostics if fact.state == "bad"
    ]
    if errors:
        return f"Shoal cannot run yet because of {', '.join(errors)}. The arrows show what to do."
    warned = sum(fact.state == "warn" for fact in diagnostics)
    if warned:
        return f"Shoal can run. {format_count_with_noun(warned, 'warning')}; the arrows show what to do."
    return "No problems found."
