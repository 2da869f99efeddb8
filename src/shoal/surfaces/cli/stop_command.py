"""`shoal stop` command: end a live run, or some of its agents, from another terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle


@click.command("stop")
@click.argument("session")
@click.argument("agent", required=False)
@click.option("--json", "as_json", is_flag=True, help="Report what was stopped as a JSON object.")
def stop_command(*, session: str, agent: str | None, as_json: bool) -> int:
    """Stop the live run SESSION (the beginning of its id), or only AGENT in it.

    AGENT is a name, an id, a background shell such as bash_1, or `all` for every agent except the lead. If
    you stop only AGENT, the run continues, and the lead is notified. A run that does not respond is
    terminated, or killed if necessary; its data is kept, and it can be resumed.
    """
    import asyncio

    from shoal.app.run_access.run_handle import load_agent_statuses
    from shoal.app.run_access.stored_runs import find_process_run

    run = find_process_run(session)
    stop_result = asyncio.run(_stop_run_or_agent(run, agent))
    if as_json:
        print_json({"session": stop_result[0], "stopped": stop_result[1]})
    elif agent is None:
        click.echo(f"Stopping session {stop_result[0]}.")
    elif stop_result[1]:
        statuses = load_agent_statuses(run)
        lines = (
            f"  {each}  {statuses.describe_agent(each)}" if each in statuses.all else f"  {each}"
            for each in stop_result[1]
        )
        click.echo("Stopped:\n" + "\n".join(lines))
    else:
        click.echo("No agent is working.")
    return exit_codes.OK


async def _stop_run_or_agent(run: RunHandle, agent: str | None) -> tuple[str, list[Any]]:
    from shoal.app.run_access.run_handle import send_control_command
    from shoal.app.run_access.run_termination import stop_or_kill_run
    from shoal.wire.control_codec import StopAgentOrShellControlCommand, StopAllAgentsControlCommand

    match agent:
        case None:
            await stop_or_kill_run(run)
            return run.session, ["lead"]
        case "all":
            return run.session, (await send_control_command(run, StopAllAgentsControlCommand()))["stopped"]
        case _:
            await send_control_command(run, StopAgentOrShellControlCommand(task_id=agent))
            return run.session, [agent]
