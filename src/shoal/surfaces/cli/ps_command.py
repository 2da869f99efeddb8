"""`shoal ps` command: list the agents of live runs, from their journals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_journal_damage, print_json

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState


@click.command("ps")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per agent.")
def ps_command(*, session: str | None, as_json: bool) -> int:
    """List the agents in this directory's live runs, or in the run SESSION (the beginning of its id)."""
    from shoal.app.run_access.run_handle import load_agent_statuses
    from shoal.app.run_access.stored_runs import open_stored_runs
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.clock import SystemClock

    print_journal_damage()
    now = SystemClock().now() / 1000
    stored_runs = open_stored_runs(find_process_shoal_home(), session or "")
    runs = (
        stored_runs.list_live_runs_in_directory(Path.cwd())
        if session is None
        else [stored_runs.find_run(session)]
    )
    statuses_by_run = [(run, load_agent_statuses(run)) for run in runs]
    if as_json:
        rows = [
            agent_status_to_dict(run, each, now)
            for run, statuses in statuses_by_run
            for each in statuses.iter_agents_in_tree_order()
        ]
        print_json(rows)
    elif statuses_by_run:
        for run, statuses in statuses_by_run:
            _print_run_agents(run, statuses, now)
    else:
        click.echo("There is no live run here.")
    return exit_codes.OK


def agent_status_to_dict(run: RunHandle, status: AgentStatusRecord, now: float) -> dict[str, Any]:
    """Return the status of one agent, for programs."""
    completion = status.completion
    return {
        "session": run.session,
        "agent": status.agent,
        "name": status.start_event.name if status.start_event else str(status.agent),
        "kind": status.start_event.kind if status.start_event else "lead",
        "parent": status.parent,
        "depth": status.depth,
        "color": status.color,
        "state": status.state,
        "background": status.background,
        "task": status.task,
        "doing": status.activity if status.is_live else "",
        "model": status.model,
        "tool_calls": status.tool_calls,
        "tokens": status.tokens,
        "cost_usd": round(status.usd, 6) if status.priced else None,
        "seconds": round(completion.duration_ms / 1000 if completion else now - status.since, 3),
        "last_event_seconds": round(max(now - status.last_event_at, 0.0), 3),
        "question": status.question,
        "detail": completion.detail if completion else "",
    }


def _print_run_agents(run: RunHandle, statuses: RunViewAgentsState, now: float) -> None:
    from shoal.core.text.text_format import format_dollars, format_duration, to_one_line
    from shoal.surfaces.terminal.status_text import describe_agent_activity, format_agent_usage
    from shoal.surfaces.terminal.text_styles import (
        BOLD,
        DIM,
        apply_style,
        get_agent_style,
        has_colours,
        truncate_text,
    )

    colours = has_colours(sys.stdout)
    click.echo(apply_style(f"session {run.session}", BOLD, colours=colours))
    for status in statuses.iter_agents_in_tree_order():
        indent = "  " * (status.depth + 1)
        dot = apply_style("●", get_agent_style(status.color), colours=colours)
        click.echo(f"{indent}{dot} {status.display_name}  {truncate_text(to_one_line(status.task), 70)}")
        activity = (
            f"{status.state}: {truncate_text(to_one_line(describe_agent_activity(status)), 50)}"
            if status.is_live
            else status.state_label
        )
        ended_at = status.since + status.completion.duration_ms / 1000 if status.completion else now
        cells = (
            str(status.agent),
            activity,
            to_one_line(status.model),
            format_agent_usage(status, ended_at),
            format_dollars(status.usd if status.priced else None),
            f"last event {format_duration(max(now - status.last_event_at, 0.0))} ago",
        )
        click.echo(
            apply_style(f"{indent}  {' · '.join(fact for fact in cells if fact)}", DIM, colours=colours)
        )
