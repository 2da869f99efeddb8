"""Running workflows of a session: started by a program, a person or the lead's model, and stopped by id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from shoal.app.agents.program_agents import ProgramAgents
from shoal.app.model_notices import format_session_notice
from shoal.app.workflows.json_values import to_json_value
from shoal.app.workflows.loop_watchdog import (
    BlockingProgram,
    CountedProgram,
    LoopWatchdog,
    describe_blocking_program,
)
from shoal.app.workflows.step_log import StepLog, WorkflowRecord, WorkflowRecords
from shoal.app.workflows.step_runner import StepRunner
from shoal.core.agents.identity import AgentIdentity, current_identity
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import WorkflowChanged, WorkflowError, WorkflowStopped
from shoal.core.events import WorkflowEnded, WorkflowStarted
from shoal.core.ids import LEAD_ID
from shoal.core.task_groups import exit_task_group_without_wrapping

if TYPE_CHECKING:
    from shoal.app.workflows.script_workflows import ScriptWorkflows

_DETAIL_LENGTH = 2_000
_ancestors: ContextVar[tuple[str, ...]] = ContextVar(
    "names of the workflows that started this one", default=()
)
_current_steps: ContextVar[tuple[StepRunner, AgentIdentity | None] | None] = ContextVar(
    "steps of the workflow of this task, and the agent that its program serves", default=None
)


class WorkflowSession(Protocol):
    """An open session, as far as workflows need one."""

    @property
    def workflows(self) -> WorkflowSupervisor: ...


class WorkflowLaunch(Struct, frozen=True, kw_only=True):
    """One execution of a workflow, from its first step or after a crash."""

    start: WorkflowStarted
    run: Callable[[StepRunner], Coroutine[Any, Any, Any]]
    convert_value: Callable[[Any], Any]
    """Checks the JSON value that the workflow returns. Raises `WorkflowError`."""
    log: StepLog
    max_steps: int | None = None


class RunningWorkflow(Struct, kw_only=True, eq=False):
    """A workflow of this process."""

    id: str
    name: str
    steps: StepRunner
    task: asyncio.Task[Any]
    stop_reason: str = ""
    ended: WorkflowEnded | None = None


class WorkflowSupervisor:
    """Context manager for the length of a session; leaving it stops every workflow."""

    def __init__(self, agents: ProgramAgents) -> None:
        self.agents = agents
        self._running: dict[str, RunningWorkflow] = {}
        self._latest: dict[str, RunningWorkflow] = {}
        """Latest run of each workflow of this process."""
        self._watchdog: LoopWatchdog | None = None
        """Runs while a workflow runs."""
        self._tasks = asyncio.TaskGroup()
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> WorkflowSupervisor:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all(format_end_reason("session_ended"))
        finally:
            await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    @property
    def has_background_work(self) -> bool:
        """True if a workflow in the background has not reported its end."""
        return bool(self._background)

    async def wait_until_idle(self) -> None:
        """Wait until no workflow runs in the background."""
        while self._background:
            await asyncio.wait(self._background)

    def start_in_background(self, work: Awaitable[None]) -> None:
        """Run work until it ends or the session ends."""

        async def run() -> None:
            await work

        task = self._tasks.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @cached_property
    def scripts(self) -> ScriptWorkflows:
        """Workflows that the lead's model writes."""
        from shoal.app.workflows.script_workflows import ScriptWorkflows

        return ScriptWorkflows(self)

    def find_latest(self, workflow: str) -> RunningWorkflow | None:
        """Return the workflow with this id, running or ended in this process."""
        return self._latest.get(workflow)

    def find_running(self, workflow: str) -> RunningWorkflow | None:
        """Return the running workflow with this id or name."""
        return self._running.get(workflow) or next(
            (each for each in self._running.values() if each.name == workflow), None
        )

    async def stop(self, workflow: str, why: str) -> bool:
        """Stop a running workflow; return False if none has this id or name."""
        found = self.find_running(workflow)
        if found is None:
            return False
        found.stop_reason = found.stop_reason or why
        found.task.cancel()
        await asyncio.wait([found.task])
        return True

    async def wait_for_end(self, workflow: str) -> None:
        """Wait until the workflow is not running."""
        if (found := self.find_running(workflow)) is not None:
            await asyncio.wait([found.task])

    async def stop_all(self, why: str) -> tuple[str, ...]:
        """Stop all workflows and return their ids."""
        running = tuple(self._running)
        # All at once: a program that does not end when it is canceled must not protect the others.
        async with asyncio.TaskGroup() as group:
            for workflow in running:
                group.create_task(self.stop(workflow, why))
        return running

    def read_records(self) -> WorkflowRecords:
        return self.agents.runtime.store.journal.replay(WorkflowRecords)

    def get_calling_steps(self) -> StepRunner | None:
        """Return the steps of the workflow that makes this call.

        None if another program, a person, or a tool of an agent that a step started makes it.
        """
        steps, agent = _current_steps.get() or (None, None)
        is_of_program = steps is not None and steps.belongs_to(self.agents) and agent == _find_identity()
        return steps if is_of_program else None

    def refuse_call_in_program(self, call: str, instead: str) -> None:
        """Raise `WorkflowError` if the program of a workflow makes a call that is not a step."""
        if (steps := self.get_calling_steps()) is not None:
            raise WorkflowError(
                format_session_notice("no_step", call=call, instead=instead, workflow=steps.workflow)
            )

    def create_id(self, name: str) -> str:
        return f"{name}-{self.agents.lead.ids.new_short_id()}"

    async def execute(self, launch: WorkflowLaunch) -> tuple[Any, Any]:
        """Run a workflow; return what its program returns, and that as JSON.

        Raises what the program raises, `WorkflowError`, and `WorkflowStopped`.
        """
        start, events = launch.start, self.agents.runtime.events
        if start.name in _ancestors.get():
            raise WorkflowError(
                format_session_notice("workflow_cycle", name=start.name, path=" → ".join(_ancestors.get()))
            )
        if reason := self.agents.start_refusal:
            raise WorkflowStopped(
                format_session_notice("start_refused", what=f"The workflow {start.workflow}", reason=reason),
                reason=reason,
            )
        if start.workflow in self._running:
            raise WorkflowError(format_session_notice("workflow_already_running", workflow=start.workflow))
        self.agents.make_resumable()
        events.emit_event(start)
        steps = StepRunner(
            self.agents,
            workflow=start.workflow,
            log=launch.log,
            max_steps=launch.max_steps,
            max_agents=start.max_agents,
        )
        token = _ancestors.set((*_ancestors.get(), start.name))
        steps_token = _current_steps.set((steps, _find_identity()))
        unsubscribe = events.subscribe(steps.quota.watch)
        task = asyncio.ensure_future(self._run_program(launch, steps))
        _current_steps.reset(steps_token)
        running = RunningWorkflow(id=start.workflow, name=start.name, steps=steps, task=task)
        self._add_running(running)
        try:
            returned, value = await self._wait_for_program(running)
        except asyncio.CancelledError:
            self._emit_end(running, "stopped", running.stop_reason or format_end_reason("stopped"))
            raise
        except WorkflowStopped as error:
            self._emit_end(running, "stopped", error.reason)
            raise
        except Exception as error:
            is_refused = isinstance(error, WorkflowChanged)
            detail, raised = f"{type(error).__name__}: {error}", steps.list_raised_steps(error)
            self._emit_end(running, "failed", detail, refused=is_refused, raised=raised)
            raise
        finally:
            await steps.close()
            unsubscribe()
            _ancestors.reset(token)
            self._remove_running(running)
        self._emit_end(running, "completed", value=value)
        return returned, value

    def _add_running(self, running: RunningWorkflow) -> None:
        self._running[running.id] = self._latest[running.id] = running
        if self._watchdog is None:
            self._watchdog = LoopWatchdog(self._find_workflow_of, self._fail_blocking_workflow)
            self._watchdog.start()

    def _remove_running(self, running: RunningWorkflow) -> None:
        del self._running[running.id]
        if not self._running and self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None

    async def _run_program(self, launch: WorkflowLaunch, steps: StepRunner) -> tuple[Any, Any]:
        def interrupt(suspensions: int) -> None:
            workflow, times = launch.start.workflow, f"{suspensions:,}"
            steps.refuse_later_steps(format_session_notice("workflow_spins", workflow=workflow, times=times))
            self._running[workflow].task.cancel()

        try:
            returned = await CountedProgram(launch.run(steps), steps.count_steps, interrupt)
        except SystemExit as error:
            # It would end the session without a record of the workflow's end.
            notice = format_session_notice(
                "workflow_exited", workflow=launch.start.workflow, code=repr(error.code)
            )
            raise WorkflowError(notice) from error
        except asyncio.CancelledError:
            raise
        except BaseException:
            # A task group of the program would hide these errors.
            steps.refuse_interrupted()
            steps.refuse_changed()
            raise
        steps.refuse_interrupted()
        await steps.finish()
        value = to_json_value(returned, f"The value that {launch.start.name} returns")
        # A resumed workflow returns the stored value: both must be equal.
        return launch.convert_value(value), value

    async def _wait_for_program(self, running: RunningWorkflow) -> tuple[Any, Any]:
        """Wait for the task. If somebody stopped it, the caller gets an error and is not canceled itself."""
        try:
            await asyncio.wait([running.task])
        except asyncio.CancelledError:
            running.task.cancel()
            await asyncio.wait([running.task])
            raise
        if running.task.cancelled():
            running.steps.refuse_interrupted()
            reason = running.stop_reason or format_session_notice("workflow_canceled")
            raise WorkflowStopped(
                format_session_notice("workflow_stopped", workflow=running.id, reason=reason), reason=reason
            )
        returned, value = running.task.result()
        return returned, value

    def _find_workflow_of(self, context: Context | None, task: asyncio.Task[Any] | None) -> str | None:
        """Return the workflow whose program runs in a context, or in a task if the context is unknown."""
        if context is None:
            return next((each.id for each in self._running.values() if each.task is task), None)
        # A copy, because a context can be entered only once.
        steps = context.copy().run(self.get_calling_steps)
        return None if steps is None or steps.workflow not in self._running else steps.workflow

    def _fail_blocking_workflow(self, program: BlockingProgram) -> None:
        """Let a workflow end with an error. The watchdog calls this in its thread, and then interrupts it."""
        running = self._running[program.workflow]
        running.steps.refuse_later_steps(describe_blocking_program(program))
        # The interruption may end only one of its tasks, and the program may catch it.
        running.task.get_loop().call_soon_threadsafe(running.task.cancel)

    def _emit_end(
        self,
        running: RunningWorkflow,
        status: Literal["completed", "failed", "stopped"],
        detail: str = "",
        value: Any = None,
        *,
        refused: bool = False,
        raised: tuple[int, ...] = (),
    ) -> None:
        running.ended = WorkflowEnded(
            agent=LEAD_ID,
            workflow=running.id,
            status=status,
            detail=detail[:_DETAIL_LENGTH],
            value=value,
            refused=refused,
            raised=raised,
        )
        self.agents.runtime.events.emit_event(running.ended)

    def note_changed_source(self, record: WorkflowRecord, digest: str) -> None:
        """Tell the user that the program differs from the one that ran before."""
        if record.started.digest != digest:
            self.agents.runtime.events.note(
                f"The file of the workflow {record.started.workflow} has changed since it ran. All its "
                "finished steps must still match."
            )


def _find_identity() -> AgentIdentity | None:
    """Return the agent that the running code serves; None if it serves none."""
    try:
        return current_identity()
    except LookupError:
        return None
