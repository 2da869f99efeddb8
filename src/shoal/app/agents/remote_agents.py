"""Agents for one job on machines of a cluster: the calls of the lead with `isolation: remote`.

The agent's process has the same channel to its lead as a teammate's: budget, questions, events and stop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.agents.agent_extras import get_program_extras
from shoal.app.agents.remote_agent_inbox import RemoteAgentInbox
from shoal.app.agents.spawn_requests import require_agent_start_allowed
from shoal.app.model_notices import format_session_notice
from shoal.core.agents.subagents import ResourceRequest, SpawnRequest
from shoal.core.budgets.limits import AgentSlot
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import (
    AgentRequestRefused,
    AgentUnusable,
    InvalidAgentDefinition,
    UnknownAgentType,
    WorktreeError,
)
from shoal.core.events import AgentStarted, JournaledEvent
from shoal.core.ids import LEAD_ID
from shoal.core.output_type import OutputType
from shoal.core.task_groups import uncancel_current_task
from shoal.core.teams.member_backends import MemberProcess
from shoal.runs.agent_run import AgentRun
from shoal.runs.prepared_agent import AgentPreparationRequest
from shoal.runs.run_outcome import AgentRunOutcome, join_outcome_details
from shoal.team.channel.member_channel_server import MemberChannelServer, MemberStatusMessage
from shoal.team.members.remote_member import KILL_GRACE, LEAVE_TIMEOUT, START_TIMEOUT
from shoal.wire.journal_codec import parse_journal_line
from shoal.wire.member_channel_codec import (
    AgentItemDeliveredMessage,
    ItemForLeadSentMessage,
    MemberEventForwardedMessage,
    MemberLeftMessage,
    MemberReadyMessage,
    MemberStopRequestedMessage,
    SessionPermissionChangedMessage,
)

if TYPE_CHECKING:
    from shoal.app.agents.backend_launcher import BackendMemberLauncher
    from shoal.app.runtime.runtime import Runtime


class RemoteAgents:
    """Starts agents on other machines. Nothing is started here instead if that is impossible."""

    def __init__(self, runtime: Runtime, launcher: BackendMemberLauncher) -> None:
        self._runtime = runtime
        self._launcher = launcher

    def is_remote(self, request: SpawnRequest) -> bool:
        if request.isolation is not None:
            return request.isolation == "remote"
        # The start of the agent reports a definition that is missing or cannot be used.
        definition = self._runtime.config.definitions.find_usable(request.kind or "")
        return definition is not None and definition.run.isolation == "remote"

    async def prepare_job(self, request: SpawnRequest, new_agent: AgentPreparationRequest) -> RemoteAgentRun:
        if new_agent.parent.identity.agent != LEAD_ID or self._runtime.options.membership is not None:
            # Its process would get the permissions of the lead, which may be wider.
            raise AgentRequestRefused(format_session_notice("remote_caller"))
        if request.cwd is not None:
            raise AgentUnusable(format_session_notice("cwd_with_isolation"))
        try:
            definition = self._runtime.config.definitions.find(request.kind or "")
        except (UnknownAgentType, InvalidAgentDefinition) as error:
            raise AgentUnusable(str(error)) from error
        require_agent_start_allowed(new_agent.parent, definition.name)
        resources = await self._launcher.check_remote_agent(request)
        parent = new_agent.parent
        started = AgentStarted(
            agent=new_agent.agent,
            kind=definition.name,
            name=request.name or "",
            description=request.description,
            parent=parent.identity.agent,
            call=new_agent.call,
            depth=parent.identity.depth + 1,
            model=request.model or definition.model or parent.model.card.id,
            mode="",
            background=True,
            cwd="",
            color=definition.color,
            isolation="remote",
        )
        extras = get_program_extras(self._runtime, definition)
        return RemoteAgentRun(
            self._runtime,
            self._launcher,
            _RemoteAgentOrder(
                request=request,
                resources=resources,
                started=started,
                definition=dict(extras.fields),
                output=new_agent.output or extras.output,
            ),
        )


class _RemoteAgentOrder(Struct, frozen=True, kw_only=True):
    request: SpawnRequest
    resources: ResourceRequest
    started: AgentStarted
    definition: dict[str, Any]
    """Fields of its definition, if a program made it."""
    output: OutputType[Any] | None
    """Type of the answer that a program requires."""


class RemoteAgentRun:
    """One agent, which is started again on another machine if its machine is lost."""

    def __init__(self, runtime: Runtime, launcher: BackendMemberLauncher, order: _RemoteAgentOrder) -> None:
        self._runtime = runtime
        self._launcher = launcher
        self._order = order
        self.started = order.started
        self._inbox = RemoteAgentInbox(runtime.inbox.queue, order.started.agent)
        self._end_message: MemberLeftMessage | None = None

    async def run(self, run: AgentRun, slot: AgentSlot) -> AgentRunOutcome:
        losses = 0
        try:
            while (outcome := await self._run_in_process(run, slot, is_restarted=losses > 0)) is None:
                losses += 1
                if losses > self._runtime.settings.own.teammate_restarts:
                    detail = format_end_reason("machine_lost", times=losses)
                    outcome = AgentRunOutcome(status="failed", text="", detail=detail)
                    break
        except asyncio.CancelledError:
            if not run.stop_reason:
                raise
            uncancel_current_task()
            text = "" if self._end_message is None else self._end_message.text
            outcome = AgentRunOutcome(status="killed", text=text, detail=run.stop_reason)
        finally:
            self._inbox.put_back_unconfirmed()
        return await self._name_stored_work(outcome)

    async def _run_in_process(
        self, run: AgentRun, slot: AgentSlot, *, is_restarted: bool
    ) -> AgentRunOutcome | None:
        """Run one process to its end; return None if it was lost."""
        from shoal.app.agents.member_bootstrap import AgentJobBootstrap

        order = self._order
        job = AgentJobBootstrap(
            agent=order.started.agent,
            is_restarted=is_restarted,
            definition=order.definition,
            answer_schema=None if order.output is None else order.output.schema,
        )
        try:
            process = await self._launcher.launch_agent(job, order.request, order.resources)
        except AgentRequestRefused as error:
            return AgentRunOutcome(status="failed", text="", detail=str(error))
        assert process.channel is not None
        channel = MemberChannelServer(
            process.channel,
            budget=self._runtime.budget,
            slot=slot,
            ask_person=self._runtime.question_broker.ask_person_or_deny,
            wait_for_store=self._runtime.team_store.wait_until_available,
            clock=self._runtime.clock,
        )
        try:
            return await self._serve_process(run, process, channel)
        except asyncio.CancelledError:
            await self._stop_in_order(run, process, channel)
            raise
        finally:
            channel.release_gone_process()
            channel.close()
            await process.stop(grace=KILL_GRACE)

    async def _serve_process(
        self, run: AgentRun, process: MemberProcess, channel: MemberChannelServer
    ) -> AgentRunOutcome | None:
        try:
            async with self._runtime.clock.deadline(START_TIMEOUT):
                ready = await channel.wait_until_ready()
        except (TimeoutError, ValueError):
            return AgentRunOutcome(status="failed", text="", detail=format_end_reason("not_ready"))
        if ready is not None and not isinstance(ready, MemberReadyMessage):
            return AgentRunOutcome(status="failed", text="", detail=ready.why)

        async def end_stuck_process() -> None:
            await process.stop(grace=KILL_GRACE)

        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._inbox.send_items(channel))
            await channel.serve(
                partial(self._handle_message, run),
                max_silence=self._runtime.settings.own.stall_after,
                on_unresponsive=end_stuck_process,
            )
            sending.cancel()
        reason = await process.wait_until_exit()
        end, self._end_message = self._end_message, None
        if end is None or end.detail == format_end_reason("terminated"):
            name = self.started.name or self.started.agent
            self._runtime.events.note(f"The process of {name} was lost: {reason}. It is started again.")
            return None
        return self._check_answer(
            AgentRunOutcome(
                status=end.status, text=end.text, detail=end.detail, is_passing=end.passing, answer=end.answer
            )
        )

    def _check_answer(self, outcome: AgentRunOutcome) -> AgentRunOutcome:
        """Fail an agent whose answer fits the schema, but not the type, which only the program has."""
        output = self._order.output
        if output is None or outcome.status != "completed":
            return outcome
        try:
            output.convert(outcome.answer)
        except ValueError as error:
            detail = format_session_notice("remote_answer_invalid", error=error)
            return replace(outcome, status="failed", detail=detail)
        return outcome

    async def _stop_in_order(
        self, run: AgentRun, process: MemberProcess, channel: MemberChannelServer
    ) -> None:
        """Ask the agent to end; its last work is stored before its process exits."""
        channel.send_message(MemberStopRequestedMessage(why=run.stop_reason, stays=False))

        async def end_stuck_process() -> None:
            await process.stop(grace=KILL_GRACE)

        try:
            async with self._runtime.clock.deadline(LEAVE_TIMEOUT):
                await channel.serve(
                    partial(self._handle_message, run), max_silence=60, on_unresponsive=end_stuck_process
                )
                await process.wait_until_exit()
        except TimeoutError:
            return

    def _handle_message(self, run: AgentRun, message: MemberStatusMessage) -> None:
        match message:
            case MemberEventForwardedMessage(line=line):
                self._runtime.events.publish_remote_journal_line(bytes(line))
                _, event = parse_journal_line(bytes(line))
                if run.monitor is not None and isinstance(event, JournaledEvent) and event.agent == run.id:
                    run.monitor.count_remote_event(event)
            case SessionPermissionChangedMessage(update=update):
                self._runtime.lead.permissions.answers.add_answer(update)
            case MemberLeftMessage():
                self._end_message = message
            case AgentItemDeliveredMessage(item=item):
                self._inbox.confirm_delivery(item)
            case ItemForLeadSentMessage(item=sent):
                self._runtime.inbox.queue.put(sent)
            case _:
                return

    async def _name_stored_work(self, outcome: AgentRunOutcome) -> AgentRunOutcome:
        try:
            ref = await self._launcher.find_stored_work(self.started.agent)
        except WorktreeError:
            return outcome
        if not ref:
            return outcome
        detail = join_outcome_details(outcome.detail, format_end_reason("work_stored", ref=ref))
        return replace(outcome, detail=detail)
