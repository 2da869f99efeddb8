"""Entry points of a process that runs one member of a team, whose lead is Shoal or another program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Raw
from msgspec.structs import replace

from shoal.app.agents.agent import restore_agent
from shoal.app.agents.member_bootstrap import AgentJobBootstrap, MemberBootstrap, decode_member_bootstrap
from shoal.app.model_notices import format_session_notice
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.backends.guarded_processes import fork_guardian
from shoal.backends.heap_trim import HeapTrimmer
from shoal.backends.socket_channel import MessageChannel, SocketChannel
from shoal.core.agents.subagents import ResolvedAgentSettings, SpawnRequest
from shoal.core.clock import SystemClock
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, AgentTranscriptMissing, ShoalError, StateFileError
from shoal.core.events import AgentStarted, Event, JournaledEvent, MemberWentIdle
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.output_type import OutputType
from shoal.core.ports import WorkCheckpoints
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.runs.agent_run import AgentRun
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.channel.lead_channel import LeadChannel, LeadCommandMessage
from shoal.team.members.member_host import MemberHost, TeamMembership
from shoal.wire.journal_codec import encode_journal_line
from shoal.wire.member_channel_codec import (
    AgentItemDeliveredMessage,
    AgentItemSentMessage,
    ItemForLeadSentMessage,
    MemberEventForwardedMessage,
    MemberLeftMessage,
    MemberPingMessage,
    MemberPongMessage,
    MemberReadyMessage,
    MemberStartRefusedMessage,
    MemberStopRequestedMessage,
    SessionPermissionChangedMessage,
)


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


class MemberCheckpoints(WorkCheckpoints, Protocol):
    """Checkpoints of the files of a member on another machine."""

    async def finish(self) -> None:
        """Store the last changes, before the member leaves."""
        ...


async def run_member_session(
    channel: MessageChannel,
    bootstrap: MemberBootstrap,
    on_open: Callable[[Session], None],
    *,
    checkpoints: MemberCheckpoints | None = None,
) -> None:
    """Run the member to its end. If it cannot be started, tell the lead, which then kills this process."""
    clock = SystemClock()
    lead_channel = LeadChannel(channel, bootstrap.rules, clock)
    try:
        membership = replace(bootstrap.to_membership(lead_channel), checkpoints=checkpoints)
        async with Session(bootstrap.to_options(membership, clock)) as session:
            on_open(session)
            if bootstrap.job is not None:
                await _run_agent_for_lead(session, bootstrap, bootstrap.job, lead_channel)
            else:
                await _run_forked_member(session, bootstrap, lead_channel)
    except ShoalError as error:
        if checkpoints is not None:
            await checkpoints.finish()
        is_missing = isinstance(error, AgentTranscriptMissing)
        lead_channel.send_message(MemberStartRefusedMessage(why=str(error), is_transcript_missing=is_missing))


async def _run_forked_member(session: Session, bootstrap: MemberBootstrap, channel: LeadChannel) -> None:
    assert session.teams.member_host is not None
    _forward_events_and_answers(session, bootstrap, channel)
    trim_heap_when_member_idles(session)
    await session.teams.member_host.run_member()


def _forward_events_and_answers(session: Session, bootstrap: MemberBootstrap, channel: LeadChannel) -> None:
    answers, clock = session.runtime.lead.permissions.answers, session.agent.clock

    def forward_journaled_event(event: Event) -> None:
        if isinstance(event, JournaledEvent):
            channel.send_message(
                MemberEventForwardedMessage(line=Raw(encode_journal_line(event, clock.now())))
            )

    for update in bootstrap.answered:
        with suppress(ShoalError):
            answers.add_answer(update)
    session.subscribe(forward_journaled_event)


async def _run_agent_for_lead(
    session: Session, bootstrap: MemberBootstrap, job: AgentJobBootstrap, channel: LeadChannel
) -> None:
    """Run an agent for one job, which its lead started on this machine."""
    _forward_events_and_answers(session, bootstrap, channel)
    items = AgentItems(session, channel, job)
    # Before the agent starts: until then, the lead does not answer requests for its budget.
    channel.send_message(_build_ready_message(session, bootstrap, job.agent))
    async with asyncio.TaskGroup() as tasks:
        commands = AgentCommands(session, channel, tasks, items)
        listening = tasks.create_task(commands.listen())
        stopping = tasks.create_task(commands.end_with_session())
        forwarding = tasks.create_task(items.forward_to_lead())
        try:
            run = await _start_or_resume_agent(session, bootstrap, job)
            await run.wait_until_closed()
            end = run.completion
            assert end is not None
            left = MemberLeftMessage(status=end.status, text=end.text, detail=end.detail, answer=end.answer)
        except AgentRequestRefused as error:
            left = MemberLeftMessage(status="failed", text="", detail=str(error))
        items.send_waiting_to_lead()
        channel.send_message(left)
        for task in (listening, stopping, forwarding):
            task.cancel()


def _build_ready_message(session: Session, bootstrap: MemberBootstrap, agent: AgentId) -> MemberReadyMessage:
    assert bootstrap.order is not None
    kind, model, mode = (
        bootstrap.order.kind or "",
        session.agent.model.card.id,
        session.runtime.lead.permissions.mode,
    )
    started = AgentStarted(
        agent=agent,
        kind=kind,
        name=bootstrap.order.name or "",
        description=bootstrap.order.description,
        parent=LEAD_ID,
        call=bootstrap.call,
        depth=1,
        model=model,
        mode=mode,
        background=True,
        cwd=str(session.cwd),
        isolation="remote",
    )
    resolved = ResolvedAgentSettings(
        kind=kind, model=model, mode=mode, tools=(), cwd=str(session.cwd), source=""
    )
    return MemberReadyMessage(started=started, resolved=resolved)


async def _start_or_resume_agent(
    session: Session, bootstrap: MemberBootstrap, job: AgentJobBootstrap
) -> AgentRun:
    assert bootstrap.order is not None
    if job.definition:
        agent = restore_agent(bootstrap.order.kind or "", job.definition)
        session.runtime.config.definitions.add_program_definition(agent.parsed.definition)
    # Only the lead's program has the type; the lead checks the answer again.
    output = None if job.answer_schema is None else OutputType[Any](Any, job.answer_schema)
    supervisor = session.supervisor
    if job.is_restarted:
        with suppress(AgentRequestRefused):  # it was lost before it had a conversation
            notice = format_session_notice("remote_continue")
            return await supervisor.resume_agent_for_program(job.agent, notice, output)
    order = replace(bootstrap.order, isolation="remote", resources=None)
    return await supervisor.start_agent_for_program(order, output, job.agent, is_on_machine=True)


class AgentItems:
    """Items between the lead and its agent on this machine. The lead is told which ones the agent has."""

    def __init__(self, session: Session, channel: LeadChannel, job: AgentJobBootstrap) -> None:
        self._channel = channel
        self._queue = session.runtime.inbox.queue
        self._earlier: frozenset[str] = frozenset()
        """Items in the transcript, which an earlier process of the agent may not have confirmed."""
        if job.is_restarted:
            with suppress(StateFileError):  # the start of the agent reports it
                store = session.runtime.config.history.store
                self._earlier = store.restore_conversation(job.agent).delivered
        self._sent: set[str] = set()
        self._queue.add_delivery_listener(self._confirm_delivery)

    def put(self, item: InboxItem) -> None:
        self._sent.add(item.id)
        if item.id in self._earlier:
            self._confirm_delivery(item)
        else:
            self._queue.put(item)

    async def forward_to_lead(self) -> None:
        """Send messages to the lead, which does not run in this process, until canceled."""
        while True:
            await self._queue.wait_for_waking_item(LEAD_ID)
            self.send_waiting_to_lead()

    def send_waiting_to_lead(self) -> None:
        while (item := self._queue.take_next(LEAD_ID)) is not None:
            if item.by == "agent":
                self._channel.send_message(ItemForLeadSentMessage(item=item))

    def _confirm_delivery(self, item: InboxItem) -> None:
        if item.id in self._sent:
            self._sent.discard(item.id)
            self._channel.send_message(AgentItemDeliveredMessage(item=item.id))


class AgentCommands:
    """Handles the commands of the lead of an agent on this machine."""

    def __init__(
        self, session: Session, channel: LeadChannel, tasks: asyncio.TaskGroup, items: AgentItems
    ) -> None:
        self._session = session
        self._channel = channel
        self._tasks = tasks
        self._items = items

    async def listen(self) -> None:
        await self._channel.listen(self._handle_command)
        self._session.stop_requested.set()

    async def end_with_session(self) -> None:
        """End the agent when this process must end, so that it is started again elsewhere."""
        await self._session.stop_requested.wait()
        await self._stop(format_end_reason("terminated"))

    def _handle_command(self, message: LeadCommandMessage) -> None:
        match message:
            case MemberPingMessage(number=number):
                self._channel.send_message(MemberPongMessage(number=number, busy=True))
            case SessionPermissionChangedMessage(update=update):
                with suppress(ShoalError):
                    self._session.runtime.lead.permissions.answers.add_answer(update)
            case MemberStopRequestedMessage(why=reason):
                self._tasks.create_task(self._stop(reason))
            case AgentItemSentMessage(item=item):
                self._items.put(item)
            case _:
                return

    async def _stop(self, reason: str) -> None:
        await self._session.supervisor.stop_all_agents(reason)


def request_session_end(session: Session) -> None:
    """End the member or the agent of a session so that it can be started again elsewhere."""
    if (host := session.teams.member_host) is not None:
        host.request_member_end(format_end_reason("terminated"), resumable=True)
    else:
        session.stop_requested.set()


_HEAP_TRIMMER = HeapTrimmer()


def trim_heap_when_member_idles(session: Session, trimmer: HeapTrimmer = _HEAP_TRIMMER) -> None:
    """Trim the heap of this process from time to time. Members of one process share the trimmer."""
    clock = session.agent.clock

    def trim_heap_on_idle(event: Event) -> None:
        if isinstance(event, MemberWentIdle):
            trimmer.trim_if_due(clock.monotonic())

    session.subscribe(trim_heap_on_idle)


def end_session_on_signals(session: Session) -> None:
    """End the one member or agent of this process when the process is asked to end."""
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signal_number, request_session_end, session)


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
