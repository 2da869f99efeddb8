"""Agent supervisor: runs all sub-agents of a session, from the request to the notification of the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import load_prompt
from shoal.agent.forks import FORK_KIND, ask_model_outside_conversation
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import (
    PROGRAM_CALL,
    AgentMessageDeliveryReceipt,
    AgentResult,
    AgentStatusSnapshot,
    BackgroundAgentLaunchResult,
    RemoteAgentLaunchResult,
    SpawnRequest,
)
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import AgentSlot, BudgetRefusal
from shoal.core.clock import Clock
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, ToolResultBlock, user_message
from shoal.core.conversation.tools import ToolContext
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import (
    AgentEnded,
    AgentMovedToBackground,
    JournaledEvent,
    NotificationDelivered,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.core.output_type import OutputType
from shoal.core.task_groups import exit_task_group_without_wrapping
from shoal.runs.agent_messenger import AgentMessenger
from shoal.runs.agent_registry import AgentRegistry
from shoal.runs.agent_result_builder import AgentResultBuilder
from shoal.runs.agent_run import AgentRun
from shoal.runs.agent_worker import AgentWorker
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import (
    AgentPreparationRequest,
    AgentPreparer,
    PreparedAgent,
    RemoteAgentJob,
    RemoteAgentLauncher,
)
from shoal.runs.run_outcome import (
    AgentRunOutcome,
    build_agent_result_notification,
    join_outcome_details,
)
from shoal.runs.run_texts import format_run_notice
from shoal.runs.running_agents import RunningAgents
from shoal.runs.spawn_approval import BulkSpawnApproval
from shoal.runs.spawn_policy import SpawnPolicy
from shoal.runs.start_hooks import add_subagent_start_hook_context

Emit: TypeAlias = Callable[[JournaledEvent], None]


class AgentSupervisor:
    """Context manager for the length of a session; leaving it stops every agent except the lead."""

    def __init__(  # noqa: PLR0913 - the services that it uses
        self,
        *,
        factory: AgentPreparer,
        queue: SharedInboxQueue,
        policy: SpawnPolicy,
        budget: Budget,
        clock: Clock,
        ids: IdGenerator,
        emit: Emit,
        running_agents: RunningAgents,
        remote_launcher: RemoteAgentLauncher | None = None,
    ) -> None:
        """Agents may be started by any of `running_agents`; the supervisor adds its own to them."""
        self._remote_launcher = remote_launcher
        self.policy = policy
        self._running_agents = running_agents
        self._factory = factory
        self._queue = queue
        self._budget = budget
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._tasks = asyncio.TaskGroup()
        self._registry = AgentRegistry()
        self._program_agents: dict[AgentId, OutputType[Any] | None] = {}
        """Agents that a program started, with the type of the answer that each must give."""
        self._result_builder = AgentResultBuilder(
            queue=queue,
            running_agents=running_agents,
            ids=ids,
            clock=clock,
            report_tokens=policy.report_tokens,
        )
        self._approval = BulkSpawnApproval(policy.approval_threshold, budget)
        self._messenger = AgentMessenger(
            registry=self._registry, queue=queue, ids=ids, emit=emit, resume=self._resume_ended_agent
        )
        self._all_idle: asyncio.Event | None = None
        running_agents.add_source(self)

    async def __aenter__(self) -> AgentSupervisor:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all_agents(format_end_reason("session_ended"))
        finally:
            await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    async def start_agent(
        self, request: SpawnRequest, context: ToolContext
    ) -> AgentResult | BackgroundAgentLaunchResult | RemoteAgentLaunchResult:
        parent = self._running_agents.require_agent(context.agent.agent)
        _refuse_nested_teammate(parent.identity, request)
        is_fork = request.kind is None and self.policy.fork_by_default
        request = replace(request, kind=FORK_KIND if is_fork else request.kind or self.policy.default_kind)
        if self._remote_launcher is not None and self._remote_launcher.is_remote(request):
            if is_fork:
                request = replace(request, kind=self.policy.default_kind)
            return await self._start_remote_agent(self._remote_launcher, request, parent, context)
        if request.resources is not None:
            raise AgentRequestRefused(format_run_notice("resources_on_this_machine"))
        await self._approval.require_approval(parent, context)
        agent = self._ids.new_agent_id()
        slot = await self._open_agent_slot(request.kind or "", parent.identity.depth + 1)
        name = self._registry.reserve_agent_name(request.name) if request.name else ""
        ignored_model = "" if self.policy.model_by_call else request.model or ""
        request = replace(request, name=name or None, model=None if ignored_model else request.model)
        new_agent = self._build_preparation_request(agent, parent, context.call_id)
        run, prepared = await self._launch_agent(request, new_agent, slot, is_fork=is_fork)
        if ignored_model:
            note = format_run_notice("model_ignored", model=ignored_model)
            prepared = _add_note_to_prepared_agent(prepared, note)
        if run.background:
            return self._build_background_launch(run, request.prompt, prepared)
        new_agent.monitor.attach_progress_callback(context.report_progress)
        return await self._wait_for_run(run, request, prepared)

    async def start_agent_for_program(
        self,
        request: SpawnRequest,
        output: OutputType[Any] | None = None,
        agent: AgentId | None = None,
        check_start: Callable[[], None] | None = None,
        *,
        is_on_machine: bool = False,
    ) -> AgentRun:
        """Start an agent that no model asked for, as a child of the lead; wait for a free slot. Only the
        program that opened the session is notified of its end. `agent` is its id, by default a new one.
        `is_on_machine` is True in the process of an agent with isolation: remote, on its machine.
        Raises `AgentRequestRefused`, and what `check_start` raises: it is called after each wait.
        """
        parent, agent = self._running_agents.lead, agent or self._ids.new_agent_id()
        request = replace(request, kind=request.kind or self.policy.default_kind)
        slot = await self._wait_for_agent_slot(request.kind or "", parent.identity.depth + 1)
        try:
            if check_start is not None:
                check_start()
            launcher = None if is_on_machine else self._remote_launcher
            if launcher is not None and launcher.is_remote(request):
                self._program_agents[agent] = output
                new_agent = self._build_preparation_request(agent, parent, PROGRAM_CALL)
                return await self._launch_remote_agent(launcher, request, new_agent, slot, check_start)
            name = self._registry.reserve_agent_name(request.name) if request.name else ""
        except BaseException:
            self._budget.close_agent_slot(slot, was_started=False)
            raise
        self._program_agents[agent] = output
        new_agent = self._build_preparation_request(agent, parent, PROGRAM_CALL)
        run, _ = await self._launch_agent(
            replace(request, name=name or None), new_agent, slot, check_start=check_start
        )
        return run

    async def _start_remote_agent(
        self, launcher: RemoteAgentLauncher, request: SpawnRequest, parent: AgentRunner, context: ToolContext
    ) -> RemoteAgentLaunchResult:
        """Start an agent on another machine; its end is only reported through the queue."""
        if not self.policy.background:
            raise AgentRequestRefused(format_run_notice("no_remote_agents"))
        await self._approval.require_approval(parent, context)
        slot = await self._open_agent_slot(request.kind or "", parent.identity.depth + 1)
        new_agent = self._build_preparation_request(self._ids.new_agent_id(), parent, context.call_id)
        run = await self._launch_remote_agent(launcher, request, new_agent, slot)
        return RemoteAgentLaunchResult(
            agent=run.id,
            name=run.facts.name,
            kind=run.facts.kind,
            description=run.facts.description,
            session=parent.identity.session,
            output=Path(self._factory.get_agent_output_path(run.id)),
        )

    async def _launch_remote_agent(
        self,
        launcher: RemoteAgentLauncher,
        request: SpawnRequest,
        new_agent: AgentPreparationRequest,
        slot: AgentSlot,
        check_start: Callable[[], None] | None = None,
    ) -> AgentRun:
        """Begin an agent, whose process is not started yet; if that fails, nothing of it is left."""
        name = ""
        try:
            name = self._registry.reserve_agent_name(request.name) if request.name else ""
            job = await launcher.prepare_job(replace(request, name=name or None), new_agent)
            if check_start is not None:
                check_start()
            for_program = new_agent.agent in self._program_agents
            started = replace(job.started, background=not for_program)
            run = AgentRun(
                started,
                new_agent.monitor,
                None,
                started_at=self._clock.monotonic(),
                for_program=for_program,
            )
            self._emit(started)
        except BaseException:
            self._registry.release_agent_name(name)
            self._budget.close_agent_slot(slot, was_started=False)
            self._program_agents.pop(new_agent.agent, None)
            raise
        self._registry.add_run(run)
        run.task = self._tasks.create_task(self._run_remote_agent(run, job, slot))
        return run

    async def _run_remote_agent(self, run: AgentRun, job: RemoteAgentJob, slot: AgentSlot) -> None:
        try:
            outcome = await job.run(run, slot)
            run.task = None
            self._budget.close_agent_slot(slot)
            run.completion = self._record_run_end(run, None, outcome, None)
            if not run.seen_by_call and not run.for_program:
                self._queue.put(build_agent_result_notification(run.completion))
            run.notify_waiters()
        finally:
            self._budget.close_agent_slot(slot)
            self._close_run(run)

    async def resume_agent_for_program(
        self, agent: AgentId, text: str, output: OutputType[Any] | None = None
    ) -> AgentRun:
        """Continue an agent whose process died, with a text. Raises `AgentRequestRefused`."""
        self._program_agents[agent] = output
        new_agent = self._build_preparation_request(agent, self._running_agents.lead, PROGRAM_CALL)
        prepared = await self._factory.prepare_resumed_agent(new_agent)
        started = replace(prepared.started, background=False)
        prepared = replace(prepared, prompt=user_message(text), started=started)
        try:
            slot = await self._wait_for_agent_slot(started.kind, started.depth)
            return self._begin_run(prepared, new_agent, slot)
        except BaseException:
            await prepared.clean_up()
            raise

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext
    ) -> tuple[AgentMessageDeliveryReceipt, ...]:
        sender = self._running_agents.require_agent(context.agent.agent)
        return await self._messenger.send_message(
            to, text, summary=summary, sender=sender, call=context.call_id
        )

    async def poll_agent(self, agent: str, *, seconds: float, context: ToolContext) -> AgentStatusSnapshot:
        run, caller = self._registry.find_run(agent), context.agent.agent
        if seconds > 0 and run.completion is None:
            if run.id == caller:
                raise AgentRequestRefused(format_run_notice("wait_for_self"))
            if run.id in self._registry.list_ancestors(caller):
                raise AgentRequestRefused(format_run_notice("wait_cycle", agent=agent))
        if seconds > 0:
            with suppress(TimeoutError):
                async with self._clock.deadline(seconds):
                    await run.wait_until_ended()
        if run.completion is not None and seconds > 0 and run.report_to == caller:
            self._withdraw_end_notification(run, run.completion, context)
        return run.take_snapshot(self._clock.monotonic())

    async def stop_agent(self, agent: str, context: ToolContext) -> AgentStatusSnapshot:
        if self._registry.find_run(agent).id == context.agent.agent:
            raise AgentRequestRefused(format_run_notice("stop_self"))
        return await self.stop_running_agent(agent, format_end_reason("stopped_by", name=context.agent.name))

    async def stop_running_agent(self, agent: str, why: str) -> AgentStatusSnapshot:
        """Stop an agent. Raises `AgentRequestRefused` if it does not exist or is not running."""
        run = self._registry.find_run(agent)
        if run.completion is not None:
            raise AgentRequestRefused(
                format_run_notice("not_running", agent=agent, end=_describe_run_end(run))
            )
        await self._stop_run(run, why)
        return run.take_snapshot(self._clock.monotonic())

    async def stop_run_if_running(self, run: AgentRun, why: str) -> None:
        """Stop a run; return at once if it has ended."""
        if run.completion is None:
            await self._stop_run(run, why)

    def find_latest_run(self, run: AgentRun) -> AgentRun:
        """Return the latest run of the same agent: a resumed agent has another one."""
        return self._registry.get_run(run.id) or run

    async def send_user_message(self, to: str, text: str) -> AgentMessageDeliveryReceipt:
        """Send a person's message; an ended agent is resumed with it and reports to the lead."""
        return await self._messenger.send_user_message(to, text, self._running_agents.lead)

    async def stop_child_agents(self, parent: AgentId, why: str) -> None:
        for run in self._registry.list_running_children(parent):
            await self._stop_run(run, why)

    async def stop_all_agents(self, why: str) -> tuple[AgentStatusSnapshot, ...]:
        """Stop all running agents and return them."""
        running = self._registry.list_running_agents()
        async with asyncio.TaskGroup() as task_group:
            for run in running:
                task_group.create_task(self._stop_run(run, why))
        return tuple(run.take_snapshot(self._clock.monotonic()) for run in running)

    def list_agents(self) -> tuple[AgentStatusSnapshot, ...]:
        return self._registry.take_agent_snapshots(self._clock.monotonic())

    async def ask_agent_for_progress(self, agent: str) -> str:
        """Ask a running agent for its progress; the question does not enter its conversation."""
        run = self._registry.find_run(agent)
        if run.agent is None:
            raise AgentRequestRefused(
                format_run_notice("not_running", agent=agent, end=_describe_run_end(run))
            )
        if not run.agent.conversation.messages:
            return run.facts.description
        return await ask_model_outside_conversation(run.agent, load_prompt("progress"))

    def list_running_agents(self) -> tuple[AgentRun, ...]:
        return self._registry.list_running_agents()

    @property
    def has_running_agents(self) -> bool:
        """True if any agent is running or its end is not reported yet."""
        return self._registry.has_running_agents

    async def wait_until_idle(self) -> None:
        """Wait until no agent is running."""
        while self.has_running_agents:
            self._all_idle = self._all_idle or asyncio.Event()
            await self._all_idle.wait()

    def move_to_background(self, agent: AgentId | None = None) -> tuple[AgentId, ...]:
        """Stop waiting for an agent (or for all); the run continues. Return those that moved."""
        if not self.policy.background:
            return ()
        foreground_runs = [
            run
            for run in self._registry.list_running_agents()
            if not run.background and not run.for_program and agent in (None, run.id)
        ]
        for run in foreground_runs:
            self._move_run_to_background(run)
        return tuple(run.id for run in foreground_runs)

    def restore_earlier_agents(
        self, pending: dict[AgentId, list[InboxItem]], ended: tuple[AgentResult, ...]
    ) -> None:
        """Restore the state of an earlier process of this session: pending items and ended agents."""
        self._messenger.restore_pending_inbox_items(pending)
        self._registry.restore_ended_agents(ended)

    async def _decide_background(
        self, prepared: PreparedAgent, request: SpawnRequest, parent: AgentIdentity
    ) -> PreparedAgent:
        """Decide if the agent runs in the background or in the foreground."""
        background = self._runs_in_background(request, prepared, parent)
        if background and parent.is_in_process:
            await prepared.clean_up()
            raise AgentRequestRefused(format_run_notice("no_background_agents"))
        return replace(prepared, started=replace(prepared.started, background=background))

    def _runs_in_background(
        self, request: SpawnRequest, prepared: PreparedAgent, parent: AgentIdentity
    ) -> bool:
        """Return True if it runs in the background; agents of an in-process teammate do not by default."""
        always = self.policy.always_background and not parent.is_in_process
        return (request.background or prepared.started.background or always) and self.policy.background

    async def _open_agent_slot(self, kind: str, depth: int, *, is_resumed: bool = False) -> AgentSlot:
        return _require_agent_slot(await self._budget.request_agent_slot(kind, depth, is_resumed=is_resumed))

    async def _wait_for_agent_slot(self, kind: str, depth: int) -> AgentSlot:
        """Open a slot and wait until an agent may run in it. Raises `AgentRequestRefused`."""
        slot = _require_agent_slot(self._budget.open_agent_slot(kind, depth, idle=True))
        try:
            await self._budget.activate_agent_slot(slot)
            # Agents that ran meanwhile may have spent the rest.
            return _require_agent_slot(self._budget.find_spent_limit(kind) or slot)
        except BaseException:
            self._budget.close_agent_slot(slot, was_started=False)
            raise

    async def _launch_agent(
        self,
        request: SpawnRequest,
        new_agent: AgentPreparationRequest,
        slot: AgentSlot,
        *,
        is_fork: bool = False,
        check_start: Callable[[], None] | None = None,
    ) -> tuple[AgentRun, PreparedAgent]:
        """Prepare and begin an agent; if that fails, nothing of it is left."""
        try:
            prepared = await (self._factory.prepare_fork if is_fork else self._factory.prepare_new_agent)(
                request, new_agent
            )
            if new_agent.agent not in self._program_agents:
                prepared = await self._decide_background(prepared, request, new_agent.parent.identity)
            else:
                prepared = replace(prepared, started=replace(prepared.started, background=False))
            try:
                prepared = await add_subagent_start_hook_context(prepared)
                if check_start is not None:
                    check_start()
                return self._begin_run(prepared, new_agent, slot), prepared
            except BaseException:
                await prepared.clean_up()
                raise
        except BaseException:
            self._registry.release_agent_name(request.name or "")
            self._budget.close_agent_slot(slot, was_started=False)
            self._program_agents.pop(new_agent.agent, None)
            raise

    def _build_preparation_request(
        self, agent: AgentId, parent: AgentRunner, call: str
    ) -> AgentPreparationRequest:
        return AgentPreparationRequest(
            agent=agent,
            parent=parent,
            call=call,
            monitor=self._factory.create_progress_monitor(agent),
            output=self._program_agents.get(agent),
        )

    def _begin_run(
        self, prepared: PreparedAgent, new_agent: AgentPreparationRequest, slot: AgentSlot
    ) -> AgentRun:
        run = AgentRun(
            prepared.started,
            new_agent.monitor,
            prepared.agent,
            started_at=self._clock.monotonic(),
            for_program=new_agent.agent in self._program_agents,
        )
        self._emit(prepared.started)
        self._registry.add_run(run)
        run.task = self._tasks.create_task(self._run_agent(run, prepared, slot))
        return run

    async def _run_agent(self, run: AgentRun, prepared: PreparedAgent, slot: AgentSlot) -> None:
        worker = AgentWorker(self._queue, lambda: self._has_pending_children(run.id))
        monitor = run.monitor
        assert monitor is not None
        try:
            outcome = await worker.run_job(run, prepared)
            # It can no longer be stopped from here on: it has ended and only has to report.
            run.task = None
            self._budget.close_agent_slot(slot)
            monitor.activity = ""
            if outcome.status != "completed" and monitor.used_shell:
                monitor.set_commits(await prepared.list_commits())
            self.announce_missed_results(run.id, worker.interrupted_results)
            run.completion = self._record_run_end(run, prepared, outcome, worker)
            run.notify_waiters()
            await self._release_run_resources(run, prepared, run.completion)
        finally:
            self._budget.close_agent_slot(slot)
            self._close_run(run)

    def _has_pending_children(self, agent: AgentId) -> bool:
        """Return True if it still waits for the end of a child that it has not seen itself."""
        return any(not run.seen_by_call for run in self._registry.list_running_children(agent))

    def _record_run_end(
        self,
        run: AgentRun,
        prepared: PreparedAgent | None,
        outcome: AgentRunOutcome,
        worker: AgentWorker | None,
    ) -> AgentResult:
        """Build and journal the result; an end that cannot be stored is still reported to the waiters."""
        try:
            completion = self._result_builder.build_result(run, prepared, outcome, worker)
        except Exception as error:  # noqa: BLE001 - boundary around ends: a failure must not affect other agents
            failed_outcome = AgentRunOutcome(
                status="failed", text="", detail=join_outcome_details(outcome.detail, str(error))
            )
            completion = self._result_builder.build_result(run, prepared, failed_outcome, worker)
        try:
            self._emit(AgentEnded(agent=run.id, completion=completion))
        except Exception as error:  # noqa: BLE001 - as above
            return replace(completion, detail=join_outcome_details(completion.detail, str(error)))
        return completion

    async def _release_run_resources(
        self, run: AgentRun, prepared: PreparedAgent, completion: AgentResult
    ) -> None:
        """Run the slow cleanup after the end is known; send the notification last."""
        for child in self._registry.list_running_children(run.id):
            await self._stop_run(child, format_end_reason("starter_ended"))
        try:
            work = await prepared.clean_up()
            if work is not None:
                completion = replace(completion, worktree=work)
                self._emit(WorktreeWorkRetained(agent=run.id, work=work))
        except Exception as error:  # noqa: BLE001 - boundary around cleanup: a failure must not affect other agents
            cleanup_error = format_end_reason("resources_kept", error=error)
            completion = replace(completion, detail=join_outcome_details(completion.detail, cleanup_error))
        run.completion = completion
        if run.background and not run.seen_by_call and not run.for_program:
            self._queue.put(build_agent_result_notification(completion))

    def _close_run(self, run: AgentRun) -> None:
        if run.monitor is not None:
            run.monitor.flush_output()
        run.agent = run.monitor = run.task = None
        run.is_live = False
        self._registry.remove_running_agent(run)
        run.notify_waiters()
        if self._all_idle is not None:
            self._all_idle.set()
            self._all_idle = None

    async def _wait_for_run(
        self, run: AgentRun, request: SpawnRequest, prepared: PreparedAgent
    ) -> AgentResult | BackgroundAgentLaunchResult:
        try:
            await self._wait_or_move_to_background(run)
        except asyncio.CancelledError:
            await self._stop_run(run, format_end_reason("waiting_turn_interrupted"))
            raise
        if run.background:
            return replace(self._build_background_launch(run, request.prompt, prepared), moved=True)
        assert run.completion is not None
        return run.completion

    async def _wait_or_move_to_background(self, run: AgentRun) -> None:
        timeout = self.policy.auto_background if self.policy.background else 0
        if timeout:
            try:
                async with self._clock.deadline(timeout):
                    await run.wait_until_detached()
            except TimeoutError:
                self._move_run_to_background(run)
        # A run that ended just now is not moved: its retained work belongs to its result.
        await run.wait_until_detached()

    def _move_run_to_background(self, run: AgentRun) -> None:
        if run.background or run.completion is not None:
            return
        run.background = True
        if run.monitor is not None:
            run.monitor.detach_progress_callback()
        self._emit(AgentMovedToBackground(agent=run.id))
        run.notify_waiters()

    def _build_background_launch(
        self, run: AgentRun, prompt: str, prepared: PreparedAgent
    ) -> BackgroundAgentLaunchResult:
        return BackgroundAgentLaunchResult(
            agent=run.id,
            name=run.facts.name,
            description=run.facts.description,
            prompt=prompt,
            output=Path(self._factory.get_agent_output_path(run.id)),
            resolved=prepared.resolved,
        )

    async def _stop_run(self, run: AgentRun, why: str) -> None:
        """Stop a run; all its resources are released when this returns."""
        # A task that is canceled before its first step never runs, and so would never report its end.
        await asyncio.sleep(0)
        if run.task is not None and not run.stop_reason:
            # Only once: a second cancellation would interrupt the cleanup of the first.
            run.stop_reason = why
            run.task.cancel()
        await run.wait_until_closed()

    async def _resume_ended_agent(
        self, agent: AgentId, parent: AgentRunner, call: str, on_ready: Callable[[PreparedAgent], None]
    ) -> AgentRun:
        if not self.policy.background:
            raise AgentRequestRefused(format_run_notice("no_background_resume", agent=agent))
        new_agent = self._build_preparation_request(
            agent, parent, PROGRAM_CALL if agent in self._program_agents else call
        )
        prepared = await self._factory.prepare_resumed_agent(new_agent)
        prepared = replace(prepared, started=replace(prepared.started, background=True))
        slot = None
        try:
            slot = await self._open_agent_slot(prepared.started.kind, prepared.started.depth, is_resumed=True)
            on_ready(prepared)
            return self._begin_run(prepared, new_agent, slot)
        except BaseException:
            if slot is not None:
                self._budget.close_agent_slot(slot, was_started=False)
            await prepared.clean_up()
            raise

    def _withdraw_end_notification(
        self, run: AgentRun, completion: AgentResult, context: ToolContext
    ) -> None:
        """Withdraw or skip the notification, because a blocking poll saw the end.

        An agent with a worktree is still announced until it is closed: only then its retained work is known.
        """
        was_queued = self._queue.withdraw_item(run.report_to, completion.id)
        if run.background and (
            was_queued or (run.is_live and not run.seen_by_call and run.facts.isolation is None)
        ):
            run.seen_by_call = context.call_id
            self._emit(
                NotificationDelivered(
                    agent=context.agent.agent, completion=completion.id, call=context.call_id
                )
            )

    def announce_missed_results(self, agent: AgentId, interrupted_results: Message | None) -> None:
        """Announce the ends that its calls would have reported; the argument holds their results."""
        call_ids = (
            set()
            if interrupted_results is None
            else {b.tool_use_id for b in interrupted_results.content if isinstance(b, ToolResultBlock)}
        )
        for run in self._registry.list_ended_children(agent) if call_ids else ():
            completion = run.completion
            was_awaited = not run.background and run.facts.call in call_ids
            if completion is not None and (
                run.seen_by_call in call_ids or (was_awaited and completion.status != "killed")
            ):
                run.background, run.seen_by_call = True, ""
                self._queue.put(build_agent_result_notification(completion))

    def has_agent_started(self, agent: AgentId) -> bool:
        return self._registry.get_run(agent) is not None

    def find_inbox_item_recipient(self, agent: AgentId) -> AgentId:
        """Return who receives items for this agent: itself, or the nearest ancestor that has not ended."""
        while (run := self._registry.get_run(agent)) is not None:
            if run.task is not None and not run.stop_reason:
                return agent
            agent = run.report_to
        return agent if self._running_agents.find_agent(agent) is not None else LEAD_ID

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        run = self._registry.get_run(agent)
        return None if run is None else run.agent


def _require_agent_slot(slot: AgentSlot | BudgetRefusal) -> AgentSlot:
    if isinstance(slot, BudgetRefusal):
        raise AgentRequestRefused(format_run_notice("no_slot", reason=slot.sentence))
    return slot


def _add_note_to_prepared_agent(prepared: PreparedAgent, note: str) -> PreparedAgent:
    return replace(prepared, resolved=replace(prepared.resolved, notes=(*prepared.resolved.notes, note)))


def _refuse_nested_teammate(teammate: AgentIdentity, request: SpawnRequest) -> None:
    if teammate.is_teammate and request.name and (request.team or teammate.team):
        raise AgentRequestRefused(format_run_notice("teammate_cannot_spawn"))


def _describe_run_end(run: AgentRun) -> str:
    return "was stopped" if run.status == "killed" else run.status
