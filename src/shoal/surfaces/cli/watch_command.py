"""`shoal watch` command: follow a run from another terminal."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.run_view.run_view import describe_unknown_event
from shoal.core.budgets.usage import Usage
from shoal.core.clock import Clock, SystemClock
from shoal.core.events import (
    Event,
    MailPosted,
    ModelRequestSettled,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import format_dollars, format_token_count, to_one_line
from shoal.surfaces.cli.cli_output import print_journal_damage
from shoal.surfaces.cli.headless.progress_display import LiveStatusRowsDisplay
from shoal.surfaces.cli.plain.agent_rows import format_detailed_agent_rows
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal.event_text import mark_truncated_preview
from shoal.surfaces.terminal.screen import TerminalScreen, open_terminal_screen
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, apply_style, truncate_at_word
from shoal.surfaces.terminal.turn_activity import TurnActivity

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle, TimedEvent
    from shoal.app.run_access.stored_runs import StoredRuns
    from shoal.core.events import UnknownJournalEvent


_TASK_MARKS = {"pending": "☐", "in_progress": "◐", "completed": "☑", "deleted": "☒"}


@click.command(
    name="watch",
    help="Follow the run with this id or id prefix; default: the newest live run in this directory.",
)
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON object per line.")
@click.option(
    "--frames",
    is_flag=True,
    help=(
        "Print the live view as JSON: each line contains the changed rows for agents, tasks, mail, questions "
        "and costs."
    ),
)
@click.option(
    "--all", "show_all", is_flag=True, help="Print all events of a long run, not only the last ones."
)
def watch_command(*, session: str | None, as_json: bool, frames: bool, show_all: bool) -> int:
    from shoal.app.run_access.stored_runs import open_stored_runs, run_with_current_copies
    from shoal.app.settings.settings import find_process_shoal_home

    print_journal_damage()
    run = _find_requested_or_live_run(open_stored_runs(find_process_shoal_home(), session or ""), session)
    if run is None:
        return 1
    work = (
        print_view_deltas_as_json(run)
        if frames
        else print_run_events_as_json(run)
        if as_json
        else _print_run(run, show_all=show_all)
    )
    try:
        asyncio.run(run_with_current_copies(run.copies, work))
    except KeyboardInterrupt:
        return 130
    return 0


def _find_requested_or_live_run(stored_runs: StoredRuns, session: str | None) -> RunHandle | None:
    if session is not None:
        return stored_runs.find_run(session)
    runs = stored_runs.list_live_runs_in_directory(Path.cwd())
    if not runs:
        print(_describe_no_live_run(Path.cwd()), file=sys.stderr)
        return None
    for other in runs[1:]:
        print(f"shoal: another run is live: shoal watch {other.session}", file=sys.stderr)
    return runs[0]


def _describe_no_live_run(cwd: Path) -> str:
    from shoal.surfaces.terminal.listings import list_recent_sessions

    lines = [f"shoal: There is no live run in {cwd}."]
    sessions = list_recent_sessions(limit=5)
    if sessions:
        lines.append("You can print finished runs:")
        lines.extend(
            f"  shoal watch {each.session[:8]}  {truncate_at_word(to_one_line(each.prompt), 52)}"
            for each in sessions
        )
    return "\n".join(lines)


async def print_run_events_as_json(run: RunHandle) -> None:
    from shoal.app.run_access.run_handle import watch_run_events
    from shoal.wire.json_codec import encode_json

    async for timed_event in watch_run_events(run, SystemClock()):
        sys.stdout.buffer.write(encode_json(getattr(timed_event.event, "raw", timed_event.event)) + b"\n")
        sys.stdout.buffer.flush()


async def print_view_deltas_as_json(run: RunHandle) -> None:
    from shoal.app.run_access.run_follower import RunFollower
    from shoal.wire.json_codec import encode_json

    async with RunFollower(run, SystemClock()) as follower:
        async for delta in follower.iter_view_deltas():
            sys.stdout.buffer.write(encode_json(delta))
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()
            if follower.is_over and delta.offset == follower.view.offset:
                return


async def _print_run(run: RunHandle, *, show_all: bool) -> None:
    from shoal.app.run_access.run_handle import RECENT_SIZE, watch_run_events

    screen, clock, offset = open_terminal_screen(sys.stdout), SystemClock(), 0
    printer = _RunWatchPrinter(screen, clock, live=run.is_live, session=run.session)
    try:
        if not show_all and _get_journal_size(run) > RECENT_SIZE:
            offset = printer.print_recent_events(run)
        async for timed_event in watch_run_events(run, clock, offset):
            printer.print_event(timed_event)
    except asyncio.CancelledError:
        printer.close()
        raise
    printer.close(run_ended=True)


def _get_journal_size(run: RunHandle) -> int:
    try:
        return run.journal_path.stat().st_size
    except OSError:
        return 0


class _RunWatchPrinter:
    """Prints a run's events; while a live run is active, rows below show what each agent does."""

    def __init__(self, screen: TerminalScreen, clock: Clock, *, live: bool, session: str) -> None:
        self._screen = screen
        self._session = session
        self._clock = clock
        self._statuses = RunViewAgentsState()
        self._printer = RunEventPrinter(screen, is_observer=True, statuses=self._statuses)
        self._live = live
        self._activity = TurnActivity(clock)
        self._in_turn = False
        self._rows: LiveStatusRowsDisplay | None = None
        self._usage = Usage()
        self._usd = 0.0
        self._has_ended = False
        self._unknown: set[str] = set()

    def print_recent_events(self, run: RunHandle) -> int:
        """Print the last events of a long run, and return the offset after them."""
        from shoal.app.run_access.run_handle import TimedEvent, load_recent_events
        from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

        recent = load_recent_events(run)
        self._statuses = recent.statuses
        self._printer = RunEventPrinter(self._screen, is_observer=True, statuses=self._statuses)
        self._printer.write_note(
            f"{recent.start / 1_000_000:.1f} MB of earlier events are not shown. To see them, run "
            f"`shoal watch {self._session} --all`."
        )
        for record in recent.iter_records():
            self.print_event(TimedEvent(at=record.at, event=record.event), is_applied=True)
        spent = summarize_journal_usage(run.journal_path).total
        self._usage, self._usd = spent.usage, spent.usd
        return recent.offset

    def print_event(self, timed_event: TimedEvent, *, is_applied: bool = False) -> None:
        """Print an event; `is_applied` means that the statuses already contain it."""
        event = timed_event.event
        if not isinstance(event, Event):
            self._note_unknown(event)
            return
        if not is_applied:
            self._statuses.apply_event(event, timed_event.at / 1000)
        match event:
            case SessionStarted(session=session, model=model, cwd=cwd):
                self._screen.end_line()
                self._screen.write(f"session {session}", BOLD)
                self._screen.write(f"  {model} · {cwd}\n", DIM)
            case TurnStarted():
                self._activity, self._in_turn = TurnActivity(self._clock), True
            case TurnEnded() | SessionEnded():
                self._in_turn = False
                self._has_ended = isinstance(event, SessionEnded)
            case ModelRequestSettled(usage=usage, cost_usd=cost):
                self._usage, self._usd = self._usage + usage, self._usd + (cost or 0.0)
            case _:
                pass
        self._activity.apply_event(event)
        self._printer.print_event(event)
        self._print_team_event(event)
        self._update_live_rows(is_active=self._in_turn or bool(self._statuses.list_working_agents()))

    def _note_unknown(self, event: UnknownJournalEvent) -> None:
        if event.type not in self._unknown:
            self._unknown.add(event.type)
            self._printer.write_note(describe_unknown_event(event))

    def _print_team_event(self, event: Event) -> None:
        match event:
            case MailPosted(kind="message", sender=sender, to=recipient, preview=preview):
                mail_line = f"✉ {sender} → {recipient}: {to_one_line(mark_truncated_preview(preview))}"
                self._printer.write_note(truncate_at_word(mail_line, self._screen.columns - 3))
            case TaskChanged(task=task, subject=subject, status=status, owner=owner):
                owner_note = f" ({owner})" if owner else ""
                self._printer.write_note(
                    f"{_TASK_MARKS.get(status, '☐')} #{task} {to_one_line(subject)}{owner_note}"
                )
            case QuestionAsked(question=question):
                self._printer.write_note(f"answer it: shoal ask answer {question.id}")
            case _:
                pass

    def close(self, *, run_ended: bool = False) -> None:
        """Close the screen; `run_ended` means that no events will follow, else the user stopped watching."""
        self._update_live_rows(is_active=False)
        self._screen.end_line()
        if run_ended and not self._has_ended:
            self._screen.write("  the run ended unexpectedly: its process is gone\n", YELLOW)
            self._screen.write(f"  resume it: shoal --resume {self._session}\n", YELLOW)
        self._screen.write(
            f"\n  {format_token_count(self._usage.total_tokens)} tokens · {format_dollars(self._usd)}\n", DIM
        )
        self._screen.close()

    def _update_live_rows(self, *, is_active: bool) -> None:
        if is_active and self._live and self._rows is None:
            self._rows = LiveStatusRowsDisplay(self._screen, self._render_status_rows)
        elif not is_active and self._rows is not None:
            self._rows.close()
            self._rows = None

    def _render_status_rows(self, columns: int) -> list[str]:
        colours = self._screen.colours
        lead = (
            [apply_style(self._activity.format_activity_line(columns), DIM, colours=colours)]
            if self._in_turn
            else []
        )
        agents = [
            each
            for each in self._statuses.iter_agents_in_tree_order()
            if each.agent != LEAD_ID and each.is_live
        ]
        return [
            *lead,
            *format_detailed_agent_rows(agents, self._clock.now() / 1000, columns, colours=colours),
        ]
