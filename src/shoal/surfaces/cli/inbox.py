"""`shoal inbox` commands: read the mail of an agent, and send mail to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import debug_option, json_option, print_json
from shoal.surfaces.cli.record import PERSON, chosen_team, person, team_option, with_record
from shoal.surfaces.terminal.paint import BOLD, DIM, has_colours, painted, style_of

if TYPE_CHECKING:
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.mail import Mail, Receipt

_EVERYTHING = 1_000_000


@click.group("inbox")
def command() -> None:
    """Show the mail of a team's member, and send some. Looking does not mark anything as read."""


@command.command("show")
@click.argument("agent")
@click.option("--all", "everything", is_flag=True, help="What was read, too: everything ever delivered.")
@team_option
@json_option
@debug_option
def show(*, agent: str, everything: bool, team: str | None, as_json: bool) -> int:
    """Show the mail that AGENT has not read yet."""

    async def work(record: AgentsRecord) -> tuple[Mail, ...]:
        from shoal.core.names import agent_name

        mailboxes = record.mailboxes(await chosen_team(record, team))
        owner = agent_name(agent)
        if everything:
            return await mailboxes.history(owner)
        return await mailboxes.take(owner, limit=_EVERYTHING)

    mail = with_record(work)
    if as_json:
        print_json([_data(each) for each in mail])
    elif mail:
        for each in mail:
            _print(each)
    else:
        more = "" if everything else " With --all also what was read is shown."
        click.echo(f"{agent} has no {'mail' if everything else 'unread mail'}.{more}")
    return exits.OK


@command.command("send")
@click.argument("agent")
@click.argument("text")
@click.option("--summary", metavar="TEXT", help="A few words about it; else its beginning.")
@click.option("--from", "sender", metavar="NAME", default=PERSON, show_default=True, help="Who says it.")
@team_option
@json_option
@debug_option
def send(*, agent: str, text: str, summary: str | None, sender: str, team: str | None, as_json: bool) -> int:
    """Send TEXT to AGENT. With `-` as TEXT it is read from standard input."""
    from shoal.surfaces.cli.headless.stdin import text_to_send

    said = text_to_send(text)

    async def work(record: AgentsRecord) -> Receipt:
        from shoal.core.clock import SystemClock, iso
        from shoal.core.envelopes import enveloped
        from shoal.core.ids import Ids
        from shoal.core.mail import Mail
        from shoal.core.names import agent_name, team_name

        name = team_name(await chosen_team(record, team))
        mail = Mail(
            id=Ids().uuid(),
            sender=person() if sender == PERSON else agent_name(sender),
            text=said,
            timestamp=iso(SystemClock().now()),
            summary=summary,
        )
        return await record.post(name, agent_name(agent), enveloped(mail, "message", from_lead=False))

    receipt = with_record(work)
    if as_json:
        print_json({"id": receipt.id, "standing": receipt.standing})
    else:
        behind = " It waits behind mail that is not read yet." if receipt.standing == "queued" else ""
        click.echo(f"Sent to {agent}.{behind}")
    return exits.OK


def _print(mail: Mail) -> None:
    colours = has_colours(sys.stdout)
    state = "" if mail.read else "  unread"
    head = painted(clean(mail.sender), style_of(mail.color), colours=colours)
    summary = f"  {painted(clean(mail.summary), BOLD, colours=colours)}" if mail.summary else ""
    sys.stdout.write(f"{head}  {painted(clean(mail.timestamp) + state, DIM, colours=colours)}{summary}\n")
    for line in clean(mail.text).splitlines():
        sys.stdout.write(f"    {line}\n")


def _data(mail: Mail) -> Any:
    """Return the mail in the format of its file."""
    from shoal.wire.content import load
    from shoal.wire.mail import entry_bytes

    return load(entry_bytes(mail))
