"""`shoal send` command: send a message to an agent of a live run, from another terminal."""

from __future__ import annotations

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json


@click.command("send")
@click.argument("session")
@click.argument("agent")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="What became of it, as a JSON object.")
def command(*, session: str, agent: str, text: str, as_json: bool) -> int:
    """Say TEXT to AGENT (a name, an id, or lead) of the live run SESSION (the start of its id).

    One at work hears it at its next step; one that has ended goes on with it in the background. With `-` as
    TEXT it is read from standard input.
    """
    import asyncio

    from shoal.app.outside.watching import demand, find_run
    from shoal.app.settings.settings import home_directory
    from shoal.surfaces.cli.headless.stdin import text_to_send
    from shoal.surfaces.terminal.sentences import reached
    from shoal.wire.control import Send

    said = text_to_send(text)
    told = asyncio.run(demand(find_run(home_directory(), session), Send(to=agent, text=said)))
    if as_json:
        print_json(told)
    else:
        click.echo(reached(told["name"], told["how"]))
    return exits.OK
