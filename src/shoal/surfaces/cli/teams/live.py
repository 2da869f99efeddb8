"""`shoal team send`, `stop` and `resume` commands: control a team, whether it runs or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import debug_option, json_option, print_json
from shoal.surfaces.cli.record import person, with_record
from shoal.surfaces.cli.run_flags import RUN_FLAGS, run_with
from shoal.surfaces.cli.teams.view import only_running, run_of, team_named, team_running

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.names import AgentName
    from shoal.core.roster import Team

EVERYBODY = "*"
_LEAD_WORDS = ("team-lead", "lead")
_GONE_WITHIN = 30.0
"""Timeout in seconds for a run that was told to end."""


@click.command("send", short_help="Say something to a member, the lead or everybody.")
@click.argument("words", nargs=-1, required=True, metavar="[NAME] MEMBER TEXT")
@json_option
@debug_option
def send(*, words: tuple[str, ...], as_json: bool) -> int:
    """Say TEXT to MEMBER, as yourself: a name, team-lead, or '*' for everybody.

    Who is at work hears it at the next step, before anything that agents said. Where the team does not run,
    it waits in the inbox and is heard when the team is resumed. With `-` as TEXT it is read from standard
    input.
    """
    from shoal.surfaces.cli.headless.stdin import text_to_send

    name, member, text = _three(words)
    said = text_to_send(text)

    async def work(record: AgentsRecord) -> tuple[Team, list[dict[str, Any]]]:
        team = await team_running(record, name)
        return team, [await say(record, team, to, said) for to in members_meant(team, member)]

    team, reached = with_record(work)
    if as_json:
        print_json({"team": team.name, "sent": reached})
        return exits.OK
    for each in reached:
        click.echo(f"{each['to']} hears it at its next step." if each["live"] else f"Sent to {each['to']}.")
    if not all(each["live"] for each in reached):
        click.echo(f"The team does not run: it is heard after `shoal team resume {team.name}`.")
    return exits.OK


def _three(words: tuple[str, ...]) -> tuple[str | None, str, str]:
    if len(words) == 3:
        return words
    if len(words) == 2:
        return None, *words
    raise click.UsageError('Give a member and a text, and put the text in quotes: shoal team send alice "…"')


def members_meant(team: Team, member: str) -> list[AgentName]:
    from shoal.core.names import LEAD_NAME

    if member == EVERYBODY:
        return [each.name for each in team.members]
    if member in _LEAD_WORDS:
        return [LEAD_NAME]
    found = team.member(member.removesuffix(f"@{team.name}"))
    if found is None:
        known = ", ".join(each.name for each in team.members)
        raise click.UsageError(f"Nobody in the team {team.name} is called {member!r}. There are: {known}.")
    return [found.name]


async def say(record: AgentsRecord, team: Team, to: AgentName, text: str) -> dict[str, Any]:
    """Send the text through the live run, if any: the run, not the text, states that a person speaks."""
    from shoal.app.outside.watching import demand
    from shoal.core.clock import SystemClock, iso
    from shoal.core.envelopes import enveloped
    from shoal.core.ids import Ids
    from shoal.core.mail import Mail
    from shoal.wire.control import Send

    run = run_of(team)
    if run.is_live:
        return {**await demand(run, Send(to=to, text=text)), "to": to, "live": True}
    mail = Mail(id=Ids().uuid(), sender=person(), text=text, timestamp=iso(SystemClock().now()))
    receipt = await record.post(team.name, to, enveloped(mail, "notice", from_lead=False))
    return {"to": to, "live": False, "id": receipt.id, "standing": receipt.standing}


@click.command("stop", short_help="End a team, or one member of it.")
@click.argument("words", nargs=-1, metavar="[NAME] [MEMBER]")
@click.option("--now", is_flag=True, help="Do not ask: end at once. Members can be resumed with the team.")
@json_option
@debug_option
def stop(*, words: tuple[str, ...], now: bool, as_json: bool) -> int:
    """End a team, or one MEMBER of it.

    Each member is asked to finish, and ended after `shoal.shutdown_grace` seconds whatever it answers; who is
    shut down so leaves the team. With no MEMBER the lead's run ends then too. With --now a run ends at once,
    and its members are as they were when the team is resumed.
    """

    async def work(record: AgentsRecord) -> tuple[Team, list[str]]:
        name, member = await _which(record, words)
        team = await team_running(record, name)
        run = run_of(team)
        if not run.is_live:
            raise click.ClickException(
                f"The team {team.name} does not run. Go on with it: shoal team resume {team.name}. "
                f"Remove it: shoal team rm {team.name}"
            )
        if member is None:
            return team, await _stop_all(team, run, now=now)
        return team, [await _stop_one(run, members_meant(team, member)[0], now=now)]

    team, stopped = with_record(work)
    if as_json:
        print_json({"team": team.name, "stopped": stopped})
    elif "team-lead" in stopped:
        click.echo(f"The team {team.name} has ended. Go on with it: shoal team resume {team.name}")
    else:
        click.echo(f"{', '.join(stopped)} has ended, and the lead is told.")
    return exits.OK


async def _which(record: AgentsRecord, words: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Parse the arguments: one word is a team, or a member of the only existing or running team."""
    if len(words) > 2:
        raise click.UsageError("Give a team and at most one of its members.")
    if len(words) != 1:
        return (words[0], words[1]) if words else (None, None)
    teams = await record.rosters.list()
    if words[0] not in teams and (len(teams) == 1 or await only_running(record)):
        return None, words[0]
    return words[0], None


async def _stop_one(run: Run, member: AgentName, *, now: bool) -> str:
    from shoal.app.outside.watching import demand
    from shoal.core.names import LEAD_NAME
    from shoal.wire.control import ShutDown, StopTask

    if member == LEAD_NAME:
        raise click.UsageError("The lead ends with its team: leave MEMBER out to end them all.")
    if not now:
        _say_that_it_takes_time(member)
    await demand(run, StopTask(task_id=member) if now else ShutDown(name=member))
    return member


def _say_that_it_takes_time(whom: str) -> None:
    click.echo(f"Asking {whom} to end; who is busy has a grace. At once: --now.", err=True)


async def _stop_all(team: Team, run: Run, *, now: bool) -> list[str]:
    from shoal.app.outside.ending import end_run
    from shoal.app.outside.watching import demand
    from shoal.core.errors import ShoalError
    from shoal.core.names import LEAD_NAME
    from shoal.wire.control import ShutDown

    members = [each.name for each in team.members if each.name != LEAD_NAME]
    if not now and members:
        _say_that_it_takes_time(", ".join(members))
        asked = (demand(run, ShutDown(name=name)) for name in members)
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            # A member that is already gone, alone or with its run, is the intended result.
            if isinstance(outcome, BaseException) and not isinstance(outcome, ShoalError):
                raise outcome
    try:
        await end_run(run)
    except ShoalError:
        if run.is_live:
            raise
    await _until_gone(run)
    return [*members, LEAD_NAME]


async def _until_gone(run: Run) -> None:
    from shoal.app.outside.watching import watch
    from shoal.core.clock import SystemClock
    from shoal.core.errors import StoreError

    try:
        async with asyncio.timeout(_GONE_WITHIN):
            async for _ in watch(run, SystemClock()):
                pass
            # The last event is written a moment before the process releases the lock.
            while run.is_live:  # noqa: ASYNC110 - a released lock notifies nobody
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise StoreError(
            f"The run {run.session} was told to end and has not ended within {_GONE_WITHIN:g} s. "
            f"See what holds it: shoal watch {run.session}",
            path=run.directory,
        ) from error


def _resume(name: str | None, prompt: str | None, **given: Any) -> int:
    async def work(record: AgentsRecord) -> Team:
        return await team_named(record, name)

    team = with_record(work)
    run = run_of(team)
    if run.is_live:
        raise click.ClickException(
            f"The team {team.name} runs already, in session {run.session}. "
            f"Be there: shoal team attach {team.name}"
        )
    _check_that_it_began(team, run)
    _go_where_it_worked(team)
    _say_mode(team, run, given)
    asked = given["model"] or _model_of(team, run)
    return run_with({**given, "model": asked}, prompt=prompt, headless=prompt is not None, resume=run.session)


def _check_that_it_began(team: Team, run: Run) -> None:
    """Check that the session can be resumed: a lead that died before its first message left nothing."""
    from shoal.core.errors import NoSuchSession
    from shoal.stores.files.sessions import find_session

    try:
        find_session(run.home, run.session)
    except NoSuchSession as error:
        raise click.ClickException(
            f"The lead of {team.name} died before it said a word, or its conversation is gone: there is "
            f"nothing to go on from. Remove the team and start again: shoal team rm {team.name} --force"
        ) from error


def _go_where_it_worked(team: Team) -> None:
    from shoal.surfaces.terminal.sentences import say as tell

    lead = team.member("team-lead")
    cwd = Path(lead.cwd) if lead is not None else Path.cwd()
    if cwd == Path.cwd() or not cwd.is_dir():
        return
    tell(f"The team works in {cwd}.")
    os.chdir(cwd)


def _model_of(team: Team, run: Run) -> str | None:
    """Return the model that a flag named when the lead was started."""
    from shoal.app.outside.watching import model_named
    from shoal.surfaces.terminal.sentences import say as tell

    name = model_named(run)
    if name:
        tell(f"The lead of {team.name} asks {name}, as when it was started; --model names another.")
    return name or None


def _say_mode(team: Team, run: Run, given: Mapping[str, Any]) -> None:
    """Report that the mode is not carried over: the person who chose it may not be present now."""
    if given["mode"] or given["skip_permissions"]:
        return
    from shoal.app.outside.watching import last_mode
    from shoal.app.views.permissions import load, view
    from shoal.surfaces.terminal.sentences import say as tell

    here = Path.cwd()
    before, now = last_mode(run), view(load(here, given=given["settings"]), here).mode
    if before and before != now:
        skips = before == "bypassPermissions"
        flag = "--dangerously-skip-permissions" if skips else f"--permission-mode {before}"
        tell(f"The lead of {team.name} goes on in the mode {now}. It had {before}; again: {flag}")


resume = click.Command(
    "resume",
    callback=_resume,
    short_help="Go on with a team whose lead has ended or died.",
    help="""Go on with a team whose lead has ended or died: its session, members, mail and tasks.

    At a terminal you talk to the lead; with -p it runs headless. The flags of a run hold here too.""",
    params=[
        click.Argument(["name"], required=False),
        click.Option(["-p", "--print", "prompt"], metavar="PROMPT", help="Headless, with this prompt."),
        *RUN_FLAGS,
    ],
)
