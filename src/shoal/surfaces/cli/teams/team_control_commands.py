"""`shoal team send`, `stop`, `restart` and `resume` commands: control a team, whether it runs or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option, json_option, print_json
from shoal.surfaces.cli.run_launch import RUN_FLAGS, run_session_with_flags
from shoal.surfaces.cli.team_store_access import get_person_agent_name, run_with_team_store
from shoal.surfaces.cli.teams.team_overview import (
    describe_idle_team,
    find_named_or_only_team,
    find_named_or_running_team,
    find_only_running_team,
    find_team_run,
)

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle, RunStartState
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.names import AgentName
    from shoal.core.teams.roster import TeamRoster

EVERYONE = "*"
_LEAD_NAMES = ("team-lead", "lead")
_END_TIMEOUT = 30.0
"""Timeout in seconds for a run that was told to end."""


@click.command("send", short_help="Send a message to a member, the lead or everybody.")
@click.argument("words", nargs=-1, required=True, metavar="[NAME] MEMBER TEXT")
@json_option
@debug_option
def send_to_team(*, words: tuple[str, ...], as_json: bool) -> int:
    """Send TEXT to MEMBER: a name, team-lead, or '*' for everybody.

    A working member gets it at its next step, before messages from agents. If the team is not running, the
    message waits in the mailbox until the team is resumed. Use `-` to read TEXT from standard input.
    """
    from shoal.surfaces.cli.headless.stdin import read_text_argument_or_stdin

    name, member, text = _parse_send_arguments(words)
    body = read_text_argument_or_stdin(text)

    async def send_to_members(store: TeamStore) -> tuple[TeamRoster, list[dict[str, Any]]]:
        team = await find_named_or_running_team(store, name)
        return team, [
            await deliver_user_message(store, team, to, body) for to in resolve_recipients(team, member)
        ]

    team, deliveries = run_with_team_store(send_to_members)
    if as_json:
        print_json({"team": team.name, "sent": deliveries})
        return exit_codes.OK
    for delivery in deliveries:
        click.echo(
            f"{delivery['to']} gets it at its next step."
            if delivery["live"]
            else f"Sent to {delivery['to']}."
        )
    if not all(each["live"] for each in deliveries):
        click.echo(_describe_waiting_message(team))
    return exit_codes.OK


def _describe_waiting_message(team: TeamRoster) -> str:
    from shoal.app.teams.foreign_lead import find_live_foreign_lead

    if evidence := find_live_foreign_lead(find_team_run(team).home, team):
        return f"Another program leads the team: {evidence}. That program delivers the message."
    return f"The team is not running. It gets the message after `shoal team resume {team.name}`."


def _parse_send_arguments(arguments: tuple[str, ...]) -> tuple[str | None, str, str]:
    if len(arguments) == 3:
        return arguments
    if len(arguments) == 2:
        return None, *arguments
    raise click.UsageError('Specify a member and put the text in quotes: shoal team send alice "…"')


def resolve_recipients(team: TeamRoster, member: str) -> list[AgentName]:
    from shoal.core.names import LEAD_NAME

    if member == EVERYONE:
        return [each.name for each in team.members]
    if member in _LEAD_NAMES:
        return [LEAD_NAME]
    roster_entry = team.resolve_member(member)
    if roster_entry is None:
        member_names = ", ".join(each.name for each in team.members)
        raise click.UsageError(f"The team {team.name} has no member {member!r}. Its members: {member_names}.")
    return [roster_entry.name]


async def deliver_user_message(
    store: TeamStore, team: TeamRoster, to: AgentName, text: str
) -> dict[str, Any]:
    """Send the text through the live run, if any: the run, not the text, states that a person speaks."""
    from shoal.app.run_access.run_handle import send_control_command
    from shoal.core.clock import SystemClock, format_iso_time
    from shoal.core.ids import IdGenerator
    from shoal.core.teams.mail import MailMessage
    from shoal.core.teams.mail_envelopes import fit_mail_to_kind
    from shoal.wire.control_codec import SendUserTextControlCommand

    run = find_team_run(team)
    if run.is_live:
        return {
            **await send_control_command(run, SendUserTextControlCommand(to=to, text=text)),
            "to": to,
            "live": True,
        }
    mail = MailMessage(
        id=IdGenerator().new_uuid(),
        sender=get_person_agent_name(),
        text=text,
        timestamp=format_iso_time(SystemClock().now()),
    )
    receipt = await store.post_mail(team.name, to, fit_mail_to_kind(mail, "notice", from_lead=False))
    return {"to": to, "live": False, "id": receipt.id, "standing": receipt.standing}


@click.command("stop", short_help="Stop a team, or one of its members.")
@click.argument("words", nargs=-1, metavar="[NAME] [MEMBER]")
@click.option(
    "--now",
    is_flag=True,
    help="Stop immediately, without asking the members first. They can be resumed with the team.",
)
@json_option
@debug_option
def stop_team(*, words: tuple[str, ...], now: bool, as_json: bool) -> int:
    """Stop a team, or only MEMBER.

    Shoal asks each member to finish and stops it after `shoal.shutdown_grace` seconds; a member that is shut
    down leaves the team. Without MEMBER, the lead's run ends too. With --now, a run ends immediately, and its
    members are restored when the team is resumed.
    """

    async def stop_team_or_member(store: TeamStore) -> tuple[TeamRoster, list[str]]:
        name, member = await _parse_stop_arguments(store, words)
        team = await find_named_or_running_team(store, name)
        run = find_team_run(team)
        if not run.is_live:
            advice = f"Resume it: shoal team resume {team.name}. Remove it: shoal team rm {team.name}"
            raise click.ClickException(describe_idle_team(team, advice))
        if member is None:
            return team, await _stop_whole_team(team, run, now=now)
        return team, [await _stop_member(run, resolve_recipients(team, member)[0], now=now)]

    team, stopped_names = run_with_team_store(stop_team_or_member)
    if as_json:
        print_json({"team": team.name, "stopped": stopped_names})
    elif "team-lead" in stopped_names:
        click.echo(f"The team {team.name} has ended. Resume it: shoal team resume {team.name}")
    else:
        click.echo(f"Stopped {', '.join(stopped_names)}. The lead has been notified.")
    return exit_codes.OK


async def _parse_stop_arguments(
    store: TeamStore, arguments: tuple[str, ...]
) -> tuple[str | None, str | None]:
    """Parse the arguments: one word is a team, or a member of the only existing or running team."""
    if len(arguments) > 2:
        raise click.UsageError("Specify a team and at most one of its members.")
    if len(arguments) != 1:
        return (arguments[0], arguments[1]) if arguments else (None, None)
    teams = await store.rosters.list_teams()
    if arguments[0] not in teams and (len(teams) == 1 or await find_only_running_team(store)):
        return None, arguments[0]
    return arguments[0], None


@click.command("restart", short_help="Restart the members that are down.")
@click.argument("words", nargs=-1, metavar="[NAME] [MEMBER]")
@json_option
@debug_option
def restart_members(*, words: tuple[str, ...], as_json: bool) -> int:
    """In a running team, restart MEMBER, or all members that are down.

    A member is down if it failed unexpectedly, for example because its process was killed. Shoal retries on
    its own, with increasing delays; this command starts the next attempt immediately.
    """

    async def restart_in_run(store: TeamStore) -> tuple[TeamRoster, list[str]]:
        from shoal.app.run_access.run_handle import send_control_command
        from shoal.wire.control_codec import RestartMemberControlCommand

        name, member = await _parse_stop_arguments(store, words)
        team = await find_named_or_running_team(store, name)
        run = find_team_run(team)
        if not run.is_live:
            advice = f"Resume it to restart every member: shoal team resume {team.name}"
            raise click.ClickException(describe_idle_team(team, advice))
        member_name = "" if member is None else resolve_recipients(team, member)[0]
        response = await send_control_command(run, RestartMemberControlCommand(name=member_name))
        return team, list(response["restarting"])

    team, names = run_with_team_store(restart_in_run)
    if as_json:
        print_json({"team": team.name, "restarting": names})
    elif names:
        click.echo(f"Restarting {', '.join(names)}.")
    else:
        click.echo(f"No member of the team {team.name} is down.")
    return exit_codes.OK


async def _stop_member(run: RunHandle, member: AgentName, *, now: bool) -> str:
    from shoal.app.run_access.run_handle import send_control_command
    from shoal.core.names import LEAD_NAME
    from shoal.wire.control_codec import ShutDownMemberControlCommand, StopAgentOrShellControlCommand

    if member == LEAD_NAME:
        raise click.UsageError("The lead stops only with its team. Leave out MEMBER to stop the whole team.")
    if not now:
        _print_shutdown_notice(member)
    await send_control_command(
        run,
        StopAgentOrShellControlCommand(task_id=member) if now else ShutDownMemberControlCommand(name=member),
    )
    return member


def _print_shutdown_notice(names: str) -> None:
    click.echo(
        f"Asking {names} to stop. Busy members get a grace period. Use --now to stop immediately.", err=True
    )


async def _stop_whole_team(team: TeamRoster, run: RunHandle, *, now: bool) -> list[str]:
    from shoal.app.run_access.run_handle import send_control_command
    from shoal.app.run_access.run_termination import stop_or_kill_run
    from shoal.app.run_access.stored_runs import run_with_current_copies
    from shoal.core.errors import ShoalError
    from shoal.core.names import LEAD_NAME
    from shoal.wire.control_codec import ShutDownMemberControlCommand

    members = [each.name for each in team.members if each.name != LEAD_NAME]
    if not now and members:
        _print_shutdown_notice(", ".join(members))
        requests = (send_control_command(run, ShutDownMemberControlCommand(name=name)) for name in members)
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            # A member that is already gone, alone or with its run, is the intended result.
            if isinstance(outcome, BaseException) and not isinstance(outcome, ShoalError):
                raise outcome
    try:
        await stop_or_kill_run(run)
    except ShoalError:
        if run.is_live:
            raise
    await run_with_current_copies(run.copies, _wait_until_run_ended(run))
    return [*members, LEAD_NAME]


async def _wait_until_run_ended(run: RunHandle) -> None:
    from shoal.app.run_access.run_handle import watch_run_events
    from shoal.core.clock import SystemClock
    from shoal.core.errors import StateFileError

    try:
        async with asyncio.timeout(_END_TIMEOUT):
            async for _ in watch_run_events(run, SystemClock()):
                pass
            # The last event is written a moment before the process releases the lock.
            while run.is_live:  # noqa: ASYNC110 - a released lock notifies nobody
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise StateFileError(
            f"The run {run.session} did not end within {_END_TIMEOUT:g} s. Find out why: shoal watch "
            f"{run.session}",
            path=run.directory,
        ) from error


def _resume_team(name: str | None, prompt: str | None, *, force: bool, **flag_values: Any) -> int:
    from shoal.app.teams.foreign_lead import find_live_foreign_lead

    async def load_team(store: TeamStore) -> TeamRoster:
        return await find_named_or_only_team(store, name)

    team = run_with_team_store(load_team)
    run = find_team_run(team)
    if run.is_live:
        raise click.ClickException(
            f"The team {team.name} is already running in session {run.session}. Attach to it: shoal team "
            f"attach {team.name}"
        )
    if not force and (evidence := find_live_foreign_lead(run.home, team)):
        raise click.ClickException(
            f"The team {team.name} was not resumed because another program leads it: {evidence}. Resume it "
            f"anyway: shoal team resume {team.name} --force"
        )
    _check_lead_started(team, run)
    _enter_team_directory(team)
    start = _read_start_state(team, run)
    _report_mode_not_carried_over(team, start, flag_values)
    model = flag_values["model"] or _find_requested_lead_model(team, start)
    return run_session_with_flags(
        {**flag_values, **_find_kept_budget(team, start, flag_values), "model": model},
        prompt=prompt,
        headless=prompt is not None,
        resume=run.session,
    )


def _check_lead_started(team: TeamRoster, run: RunHandle) -> None:
    """Check that the session can be resumed: a lead that died before its first message left nothing."""
    from shoal.core.errors import SessionNotFound

    try:
        run.get_store().find_session(run.session)
    except SessionNotFound as error:
        raise click.ClickException(
            f"The team {team.name} cannot be resumed: its lead died before its first message, or its "
            f"conversation is gone. Remove the team and start again: shoal team rm {team.name} --force"
        ) from error


def _enter_team_directory(team: TeamRoster) -> None:
    from shoal.surfaces.terminal.user_messages import print_user_message

    lead = team.find_member("team-lead")
    cwd = Path(lead.cwd) if lead is not None else Path.cwd()
    if cwd == Path.cwd() or not cwd.is_dir():
        return
    print_user_message(f"The team works in {cwd}.")
    os.chdir(cwd)


def _read_start_state(team: TeamRoster, run: RunHandle) -> RunStartState:
    """Return the lead's model and mode. Without a readable journal, they come from the settings."""
    from shoal.app.run_access.run_handle import RunStartState, read_start_state
    from shoal.core.errors import StateFileError
    from shoal.surfaces.terminal.user_messages import print_user_message

    try:
        return read_start_state(run)
    except StateFileError as error:
        print_user_message(
            f"{error} The lead of {team.name} continues with the model and the mode of the settings. Choose "
            "others with --model and --permission-mode."
        )
        return RunStartState()


def _find_requested_lead_model(team: TeamRoster, start: RunStartState) -> str | None:
    """Return the model that a flag named when the lead was started."""
    from shoal.surfaces.terminal.user_messages import print_user_message

    name = start.requested_model
    if name:
        print_user_message(
            f"The lead of {team.name} still uses the model {name}. Choose another with --model."
        )
    return name or None


def _find_kept_budget(
    team: TeamRoster, start: RunStartState, flag_values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the limits of the last start that neither a flag nor the settings replace."""
    from shoal.app.reports.permission_report import load_project_settings
    from shoal.surfaces.cli.teams.team_start_command import format_budget_limits
    from shoal.surfaces.terminal.user_messages import print_user_message

    own = load_project_settings(Path.cwd(), given=flag_values["settings"]).own
    kept: dict[str, Any] = {}
    if start.budget_usd and not flag_values["max_budget_usd"] and own.max_budget_usd is None:
        kept["max_budget_usd"] = start.budget_usd
    has_token_flag = flag_values["max_total_tokens"] or flag_values["task_budget"]
    if start.budget_tokens and not has_token_flag and own.max_total_tokens is None:
        kept["max_total_tokens"] = start.budget_tokens
    if kept:
        limits = format_budget_limits(kept.get("max_budget_usd"), kept.get("max_total_tokens"))
        flags = " or ".join(f"--{name.replace('_', '-')}" for name in kept)
        print_user_message(f"The team {team.name} keeps its budget of {limits}. Choose another with {flags}.")
    return kept


def _report_mode_not_carried_over(
    team: TeamRoster, start: RunStartState, flag_values: Mapping[str, Any]
) -> None:
    """Report that the mode is not carried over: the user who chose it may not be present now."""
    if flag_values["mode"] or flag_values["skip_permissions"]:
        return
    from shoal.app.reports.permission_report import build_lead_permission_report, load_project_settings
    from shoal.surfaces.terminal.user_messages import print_user_message

    cwd = Path.cwd()
    old_mode, new_mode = (
        start.permission_mode,
        build_lead_permission_report(load_project_settings(cwd, given=flag_values["settings"]), cwd).mode,
    )
    if old_mode and old_mode != new_mode:
        skipped_permissions = old_mode == "bypassPermissions"
        flag = "--dangerously-skip-permissions" if skipped_permissions else f"--permission-mode {old_mode}"
        print_user_message(
            f"The lead of {team.name} continues in {new_mode} mode. To restore the previous mode, "
            f"{old_mode}: {flag}"
        )


resume_command = click.Command(
    "resume",
    callback=_resume_team,
    short_help="Resume a team whose lead has ended or died.",
    help=(
        "Resume a team whose lead has ended or died: its session, members, mail and tasks.\n\n    In a "
        "terminal, you talk to the lead; with -p, the team runs headless. The flags of `shoal` apply here "
        "too."
    ),
    params=[
        click.Argument(["name"], required=False),
        click.Option(["-p", "--print", "prompt"], metavar="PROMPT", help="Run headless with this prompt."),
        click.Option(["--force"], is_flag=True, help="Resume it even if another program leads it."),
        *RUN_FLAGS,
    ],
)
