"""`shoal ps` command: list the agents of live runs, from their journals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run
    from shoal.app.picture.standing import Standing, Standings


@click.command("ps")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="As a JSON array, one object for each agent.")
def command(*, session: str | None, as_json: bool) -> int:
    """List the agents of the live runs of this directory, or of the run SESSION (the start of its id)."""
    from shoal.app.outside.watching import standings_of
    from shoal.core.clock import SystemClock

    now = SystemClock().now() / 1000
    found = [(run, standings_of(run)) for run in _chosen(session)]
    if as_json:
        rows = [facts(run, each, now) for run, standings in found for each in standings.tree()]
        print_json(rows)
    elif found:
        for run, standings in found:
            _print(run, standings, now)
    else:
        click.echo("No run is live here.")
    return exits.OK


def _chosen(session: str | None) -> list[Run]:
    import os
    from pathlib import Path

    from shoal.app.outside.watching import find_run, live_runs
    from shoal.app.settings.settings import find_home

    cwd = Path.cwd()
    home = find_home(os.environ, cwd)
    return live_runs(home, cwd) if session is None else [find_run(home, session)]


def facts(run: Run, each: Standing, now: float) -> dict[str, Any]:
    """Return the status of one agent, for programs."""
    ended = each.completion
    return {
        "session": run.session,
        "agent": each.agent,
        "name": each.facts.name if each.facts else str(each.agent),
        "kind": each.facts.kind if each.facts else "lead",
        "parent": each.parent,
        "depth": each.depth,
        "color": each.color,
        "state": each.state,
        "background": each.background,
        "task": each.task,
        "doing": each.doing if each.live else "",
        "model": each.model,
        "tool_calls": each.tool_calls,
        "tokens": each.tokens,
        "cost_usd": round(each.usd, 6) if each.priced else None,
        "seconds": round(ended.duration_ms / 1000 if ended else now - each.since, 3),
        "last_event_seconds": round(max(now - each.heard, 0.0), 3),
        "question": each.question,
        "detail": ended.detail if ended else "",
    }


def _print(run: Run, standings: Standings, now: float) -> None:
    from shoal.core.wording import dollars, one_line, seconds
    from shoal.surfaces.terminal.paint import BOLD, DIM, cut, has_colours, painted, style_of
    from shoal.surfaces.terminal.standing_words import doing_words, numbers

    colours = has_colours(sys.stdout)
    click.echo(painted(f"session {run.session}", BOLD, colours=colours))
    for each in standings.tree():
        indent = "  " * (each.depth + 1)
        dot = painted("●", style_of(each.color), colours=colours)
        click.echo(f"{indent}{dot} {each.who}  {cut(one_line(each.task), 70)}")
        doing = f"{each.state}: {cut(one_line(doing_words(each)), 50)}" if each.live else each.state_words
        ended = each.since + each.completion.duration_ms / 1000 if each.completion else now
        told = (
            str(each.agent),
            doing,
            one_line(each.model),
            numbers(each, ended),
            dollars(each.usd if each.priced else None),
            f"heard {seconds(max(now - each.heard, 0.0))} ago",
        )
        click.echo(painted(f"{indent}  {' · '.join(fact for fact in told if fact)}", DIM, colours=colours))
