"""`shoal stop` command: end a live run, or some of its agents, from another terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run


@click.command("stop")
@click.argument("session")
@click.argument("agent", required=False)
@click.option("--json", "as_json", is_flag=True, help="What was stopped, as a JSON object.")
def command(*, session: str, agent: str | None, as_json: bool) -> int:
    """End the live run SESSION (the start of its id), or only AGENT in it.

    AGENT is a name, an id, a background shell such as bash_1, or `all` for every agent but the lead. The run
    goes on without it, and its lead is told. A run that does not answer is terminated, and killed where that
    does not help; what it had written is kept, and it can be resumed.
    """
    import asyncio

    from shoal.app.outside.watching import find_run, standings_of
    from shoal.app.settings.settings import home_directory

    run = find_run(home_directory(), session)
    stopped = asyncio.run(_stopped(run, agent))
    if as_json:
        print_json({"session": stopped[0], "stopped": stopped[1]})
    elif agent is None:
        click.echo(f"Session {stopped[0]} ends.")
    elif stopped[1]:
        standings = standings_of(run)
        lines = (
            f"  {each}  {standings.described(each)}" if each in standings.all else f"  {each}"
            for each in stopped[1]
        )
        click.echo("Stopped:\n" + "\n".join(lines))
    else:
        click.echo("No agent is at work.")
    return exits.OK


async def _stopped(run: Run, agent: str | None) -> tuple[str, list[Any]]:
    from shoal.app.outside.ending import end_run
    from shoal.app.outside.watching import demand
    from shoal.wire.control import StopAgents, StopTask

    match agent:
        case None:
            await end_run(run)
            return run.session, ["lead"]
        case "all":
            return run.session, (await demand(run, StopAgents()))["stopped"]
        case _:
            await demand(run, StopTask(task_id=agent))
            return run.session, [agent]
