"""Entry points of a process that runs one member of a team, whose lead is Shoal or another program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Raw

from shoal.app.agents.member_bootstrap import MemberBootstrap, decode_member_bootstrap
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.backends.guarded_processes import fork_guardian
from shoal.backends.heap_trim import HeapTrimmer
from shoal.backends.socket_channel import MessageChannel, SocketChannel
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.clock import SystemClock
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ShoalError
from shoal.core.events import Event, JournaledEvent, MemberWentIdle
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.channel.lead_channel import LeadChannel
from shoal.team.members.member_host import MemberHost, TeamMembership
from shoal.wire.journal_codec import encode_journal_line
from shoal.wire.member_channel_codec import MemberEventForwardedMessage, MemberStartRefusedMessage


def main(fd: int) -> None:
    """Run a forked process; `fd` is its channel to the lead."""
    fork_guardian()
    asyncio.run(_run_member_process(fd))


async def _run_member_process(fd: int) -> None:
    channel = SocketChannel.from_descriptor(fd)
    message = await channel.receive()
    if message is None:
        return
    await run_member_session(channel, decode_member_bootstrap(message), end_session_on_signals)
    await channel.wait_until_sent()
    channel.close()


async def run_member_session(
    channel: MessageChannel, bootstrap: MemberBootstrap, on_open: Callable[[Session], None]
) -> None:
    """Run the member to its end. If it cannot be started, tell the lead."""
    clock = SystemClock()
    lead_channel = LeadChannel(channel, bootstrap.rules, clock)
    try:
        async with Session(bootstrap.to_options(bootstrap.to_membership(lead_channel), clock)) as session:
            on_open(session)
            await _run_forked_member(session, bootstrap, lead_channel)
    except ShoalError as error:
        lead_channel.send_message(MemberStartRefusedMessage(why=str(error)))


async def _run_forked_member(session: Session, bootstrap: MemberBootstrap, channel: LeadChannel) -> None:
    member_host, answers = session.teams.member_host, session.runtime.lead.permissions.answers
    assert member_host is not None

    def forward_journaled_event(event: Event) -> None:
        if isinstance(event, JournaledEvent):
            channel.send_message(
                MemberEventForwardedMessage(line=Raw(encode_journal_line(event, clock.now())))
            )

    clock = session.agent.clock
    for update in bootstrap.answered:
        with suppress(ShoalError):
            answers.add_answer(update)
    session.subscribe(forward_journaled_event)
    trim_heap_when_member_idles(session)
    await member_host.run_member()


def trim_heap_when_member_idles(session: Session) -> None:
    heap_trimmer, clock = HeapTrimmer(), session.agent.clock

    def trim_heap_on_idle(event: Event) -> None:
        if isinstance(event, MemberWentIdle):
            heap_trimmer.trim_if_due(clock.monotonic())

    session.subscribe(trim_heap_on_idle)


def end_session_on_signals(session: Session) -> None:
    """End the one member of this process when the process is asked to end."""
    assert session.teams.member_host is not None
    end_member_on_signals(session.teams.member_host, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def end_member_on_signals(host: MemberHost, *signals: signal.Signals) -> None:
    """End the member so that it can be resumed when the process receives one of the signals."""
    loop = asyncio.get_running_loop()
    for signal_number in signals:
        loop.add_signal_handler(
            signal_number, lambda: host.request_member_end(format_end_reason("terminated"), resumable=True)
        )


def build_foreign_member_options(launch_args: MemberLaunchArgs, cwd: Path | None = None) -> Options:
    """Build options from the lead's arguments and the local settings; its prompt is its first mail."""
    request = SpawnRequest(
        description=f"{launch_args.name} of the team {launch_args.team}",
        prompt="",
        kind=launch_args.kind,
        name=launch_args.name,
        model=launch_args.model,
    )
    return Options(
        cwd=cwd,
        model=launch_args.model,
        mode=launch_args.mode,
        skip_permissions=launch_args.skip_permissions,
        allowed_tools=launch_args.allowed,
        disallowed_tools=launch_args.disallowed,
        max_budget_usd=launch_args.max_budget_usd,
        settings=launch_args.settings,
        plugin_dirs=tuple(map(Path, launch_args.plugin_dirs)),
        attended=True,
        membership=TeamMembership(
            name=launch_args.name,
            team=launch_args.team,
            spawn_request=request,
            mode="plan" if launch_args.plan_mode_required else launch_args.mode,
        ),
    )


async def run_member_of_foreign_lead(session: Session) -> AgentRunOutcome:
    """Run the member until its lead shuts it down or its process is asked to end."""
    member_host = session.teams.member_host
    assert member_host is not None
    end_member_on_signals(member_host, signal.SIGTERM, signal.SIGHUP)
    trim_heap_when_member_idles(session)
    return await member_host.run_member()
