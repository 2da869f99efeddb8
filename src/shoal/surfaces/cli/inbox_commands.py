"""`shoal inbox` commands: read the mail of an agent, and send mail to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option, json_option, print_json
from shoal.surfaces.cli.team_store_access import (
    PERSON,
    choose_team,
    get_person_agent_name,
    run_with_team_store,
    team_option,
)
from shoal.surfaces.terminal.text_styles import BOLD, DIM, apply_style, get_agent_style, has_colours

if TYPE_CHECKING:
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.teams.mail import MailMessage, MailPostReceipt

_NO_LIMIT = 1_000_000


@click.group("inbox")
def inbox_commands() -> None:
    """Show a team member's mail, or send mail to the member. Showing mail does not mark it as read."""


@inbox_commands.command("show")
@click.argument("agent")
@click.option("--all", "everything", is_flag=True, help="Include mail that was already read.")
@team_option
@json_option
@debug_option
def show_inbox(*, agent: str, everything: bool, team: str | None, as_json: bool) -> int:
    """Show AGENT's unread mail."""

    async def read_mail(store: TeamStore) -> tuple[MailMessage, ...]:
        from shoal.app.teams.team_lookup import resolve_inbox_owner
        from shoal.core.names import TeamName

        name = TeamName(await choose_team(store, team))
        mailboxes, owner = store.open_mailboxes(name), await resolve_inbox_owner(store, name, agent)
        if everything:
            return await mailboxes.read_history(owner)
        return await mailboxes.take_unread(owner, limit=_NO_LIMIT)

    mail = run_with_team_store(read_mail, read_only=True)
    if as_json:
        print_json([_mail_to_dict(each) for each in mail])
    elif mail:
        for message in mail:
            _print_mail(message)
    else:
        all_hint = "" if everything else " Use --all to include read mail."
        click.echo(f"{agent} has no {'mail' if everything else 'unread mail'}.{all_hint}")
    return exit_codes.OK


@inbox_commands.command("send")
@click.argument("agent")
@click.argument("text")
@click.option("--summary", metavar="TEXT", help="A short summary; default: the beginning of the text.")
@click.option(
    "--from", "sender", metavar="NAME", default=PERSON, show_default=True, help="Name of the sender."
)
@team_option
@json_option
@debug_option
def send_mail(
    *, agent: str, text: str, summary: str | None, sender: str, team: str | None, as_json: bool
) -> int:
    """Send TEXT to AGENT. Use `-` to read TEXT from standard input."""
    from shoal.surfaces.cli.headless.stdin import read_text_argument_or_stdin

    body = read_text_argument_or_stdin(text)

    async def post_mail(store: TeamStore) -> MailPostReceipt:
        from shoal.app.teams.team_lookup import resolve_inbox_owner
        from shoal.core.clock import SystemClock, format_iso_time
        from shoal.core.ids import IdGenerator
        from shoal.core.names import TeamName, parse_agent_name
        from shoal.core.teams.mail import MailMessage
        from shoal.core.teams.mail_envelopes import fit_mail_to_kind

        name = TeamName(await choose_team(store, team))
        mail = MailMessage(
            id=IdGenerator().new_uuid(),
            sender=get_person_agent_name() if sender == PERSON else parse_agent_name(sender),
            text=body,
            timestamp=format_iso_time(SystemClock().now()),
            summary=summary,
        )
        owner = await resolve_inbox_owner(store, name, agent)
        return await store.post_mail(name, owner, fit_mail_to_kind(mail, "message", from_lead=False))

    receipt = run_with_team_store(post_mail)
    if as_json:
        print_json({"id": receipt.id, "standing": receipt.standing})
    else:
        queued_note = " Other unread mail is ahead of it." if receipt.standing == "queued" else ""
        click.echo(f"Sent to {agent}.{queued_note}")
    return exit_codes.OK


def _print_mail(mail: MailMessage) -> None:
    from shoal.app.run_view.mail_text import format_mail

    colours = has_colours(sys.stdout)
    state = "" if mail.read else "  unread"
    head = apply_style(strip_terminal_codes(mail.sender), get_agent_style(mail.color), colours=colours)
    summary = (
        f"  {apply_style(strip_terminal_codes(mail.summary), BOLD, colours=colours)}" if mail.summary else ""
    )
    sent_at = apply_style(strip_terminal_codes(mail.timestamp) + state, DIM, colours=colours)
    sys.stdout.write(f"{head}  {sent_at}{summary}\n")
    for line in strip_terminal_codes(format_mail(mail)).splitlines():
        sys.stdout.write(f"    {line}\n")


def _mail_to_dict(mail: MailMessage) -> Any:
    """Return the mail in the format of its file."""
    from shoal.wire.json_codec import decode_json
    from shoal.wire.mail_codec import encode_inbox_entry

    return decode_json(encode_inbox_entry(mail))
