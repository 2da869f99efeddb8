"""`shoal send` command: send a message to an agent of a live run, from another terminal."""

from __future__ import annotations

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json


@click.command("send")
@click.argument("session")
@click.argument("agent")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Report the delivery as a JSON object.")
def send_command(*, session: str, agent: str, text: str, as_json: bool) -> int:
    """Send TEXT to AGENT (a name, an id, or lead) in the live run SESSION (the beginning of its id).

    A working agent gets it at its next step; a finished agent resumes in the background. Use `-` to read TEXT
    from standard input.
    """
    import asyncio

    from shoal.app.run_access.run_handle import send_control_command
    from shoal.app.run_access.stored_runs import find_process_run
    from shoal.surfaces.cli.headless.stdin import read_text_argument_or_stdin
    from shoal.surfaces.terminal.user_messages import describe_message_delivery
    from shoal.wire.control_codec import SendUserTextControlCommand

    body = read_text_argument_or_stdin(text)
    delivery = asyncio.run(
        send_control_command(find_process_run(session), SendUserTextControlCommand(to=agent, text=body))
    )
    if as_json:
        print_json(delivery)
    else:
        click.echo(describe_message_delivery(delivery["name"], delivery["how"]))
    return exit_codes.OK
