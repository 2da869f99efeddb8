"""Steps of a running workflow. The result of each is journaled before the program gets it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Struct

from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.agents.agent import Agent
from shoal.app.agents.option_words import name_options_in_error
from shoal.app.agents.program_agents import ProgramAgents, QuotaGuard, SpawnOptions
from shoal.app.agents.result import build_agent_result, read_full_report
from shoal.app.model_notices import format_session_notice
from shoal.app.workflows.json_values import compute_digest, convert_json_value, to_json_value
from shoal.app.workflows.replay_gate import ReplayGate, RequestedStep
from shoal.app.workflows.step_input import StepInputWriter
from shoal.app.workflows.step_log import StepLog, StepRecord
from shoal.core.agents.subagents import AgentResult, RetainedWorktreeWork
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import (
    AgentRequestRefused,
    ShoalError,
    WorkflowChanged,
    WorkflowError,
    WorkflowStopped,
)
from shoal.core.events import (
    PREVIEW_LENGTH,
    WorkflowPhaseStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.output_type import OutputType
from shoal.core.permissions.questions import (
    Answer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
)
from shoal.core.text.text_format import to_one_line

MAX_STEPS = 100_000
"""Maximum number of steps in one workflow; a program that asks for more is in an endless loop."""
_phases: ContextVar[Mapping[str, str]] = ContextVar(
    "phase of each workflow in this task", default=MappingProxyType({})
)
_DESCRIPTION_LENGTH = 60


class ShellStepResult(Struct, frozen=True):
    """Result of a shell command."""

    exit_code: int
    """Exit status of the command."""
    text: str
    """Output and errors, shortened if they are long."""

    @property
    def ok(self) -> bool:
        """True if the exit status is 0."""
        return self.exit_code == 0


class StepRunner:
    """Runs the steps of one workflow. A step that finished before a crash returns its recorded result.

    The path of a step names its place in the program; together with its input it identifies the step.
    """

    def __init__(
        self,
        agents: ProgramAgents,
        *,
        workflow: str,
        log: StepLog,
        max_steps: int | None = None,
        max_agents: int | None = None,
    ) -> None:
        self.workflow = workflow
        self.latest_phase = ""
        self._agents = agents
        self._runtime = agents.runtime
        self._log = log
        self._gate = ReplayGate(workflow, log, self._runtime.clock, self._runtime.events.note)
        self._inputs = StepInputWriter()
        self._unrecorded: list[tuple[StepRecord, Any]] = []
        """Times and random numbers that are recorded when the recorded steps are replayed."""
        self._max_steps = MAX_STEPS if max_steps is None else max_steps
        self._phase_count = 0
        self._max_agents = max_agents
        self._agent_count = 0
        self.worktrees: list[RetainedWorktreeWork] = []
        """Work that agents left in worktrees, in the order in which the program got their answers."""
        self.started_count = 0
        self.finished_count = 0
        self.quota = QuotaGuard()
        self._errors: dict[int, WorkflowError] = {}
        """Errors that the program got from steps."""
        self._interruption = ""
        """Error of a program that blocked the event loop; empty if it did not."""
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        """Tasks that wait for a step."""

    def belongs_to(self, agents: ProgramAgents) -> bool:
        """Return True if the agents are those of the same session."""
        return self._agents is agents

    @property
    def phase(self) -> str:
        """Phase of the current task. Branches that run at the same time have independent phases."""
        return _phases.get().get(self.workflow, "")

    def start_phase(self, name: str) -> None:
        self._refuse_unusable("phase")
        self._phase_count += 1
        self._refuse_endless_loop(self._phase_count)
        if name == self.phase:
            return
        _phases.set({**_phases.get(), self.workflow: name})
        self.latest_phase = name
        events = self._runtime.events
        events.emit_event(WorkflowPhaseStarted(agent=LEAD_ID, workflow=self.workflow, phase=name))

    async def run_agent(
        self,
        path: str,
        agent: Agent[Any] | str,
        prompt: str,
        answer: OutputType[Any] | None,
        options: SpawnOptions,
    ) -> Any:
        """Return the text and the structured answer of an agent. Raises `RunFailed`."""
        given = {
            "agent": agent
            if isinstance(agent, str)
            else to_json_value(dict(agent.fields), f"Agent {agent.name}"),
            "prompt": prompt,
            "output": None if answer is None else answer.schema,
            "options": {
                name: os.fspath(value) if isinstance(value, os.PathLike) else value
                for name, value in options.items()
            },
        }

        async def run_to_end(step: StepRecord) -> Any:
            self._refuse_missing_tool("Agent", path)
            spawn_options: SpawnOptions = {"description": self._describe(prompt), **options}
            try:
                run = await self._agents.start_agent(
                    agent, prompt, answer, spawn_options, step.child, self._refuse_after_quota_error
                )
            except AgentRequestRefused as refusal:
                raise WorkflowError(str(refusal)) from refusal
            try:
                # Closed, not only ended: the work in its worktree belongs to the result.
                await run.wait_until_closed()
            except asyncio.CancelledError:
                await self._agents.supervisor.stop_run_if_running(run, format_end_reason("workflow_stopped"))
                raise
            assert run.completion is not None
            cost = self._runtime.budget.find_agent_cost(run.id)
            result = build_agent_result(run.completion, cost, answer)
            result.raise_if_failed()
            return _encode_agent_value(run.completion)

        value = await self.run_step(path, given, prompt, run_to_end, has_child=True)
        if (work := value.get("worktree")) is not None:
            self.worktrees.append(msgspec.convert(work, RetainedWorktreeWork))
        return value

    async def ask_person(self, path: str, question: str, options: Sequence[str]) -> str:
        choices = MultipleChoice(
            question=question,
            header="Workflow",
            options=tuple(ChoiceOption(label=option) for option in options),
        )

        async def ask(step: StepRecord) -> Any:
            is_unattended = not self._runtime.question_broker.can_wait_for_person
            answer = await self._runtime.question_broker.ask_person_or_deny(
                ChoiceQuestion(
                    id=f"{self.workflow}-{step.number}-{self._agents.lead.ids.new_short_id()}",
                    agent=LEAD_ID,
                    choices=(choices,),
                )
            )
            if not isinstance(answer, ChoiceAnswer):
                reason = (
                    format_session_notice("workflow_unattended")
                    if is_unattended
                    else self._explain_missing_answer(answer)
                )
                raise WorkflowError(
                    format_session_notice("workflow_unanswered", question=repr(question), reason=reason)
                )
            return answer.answers[question]

        given = {"question": question, "options": list(options)}
        return str(await self.run_step(path, given, question, ask))

    def _explain_missing_answer(self, answer: Answer) -> str:
        seconds = self._runtime.question_broker.answer_timeout
        if seconds is not None and isinstance(answer, DenyAnswer) and answer.by == "policy":
            return format_session_notice("workflow_wait_passed", seconds=f"{seconds:g}")
        return getattr(answer, "reason", "")

    async def run_command(self, path: str, command: str, timeout: float | None) -> ShellStepResult:
        async def run(step: StepRecord) -> Any:
            self._refuse_missing_tool("Bash", path)
            milliseconds = {} if timeout is None else {"timeout": int(timeout * 1000)}
            call = ToolUseBlock(
                id=f"{self.workflow}-{step.number}", name="Bash", input={"command": command, **milliseconds}
            )
            lead = self._agents.lead
            output = await run_unrecorded_tool_call(lead, call, lead.environment.session_tools["Bash"])
            exit_code = (output.data or {}).get("exit_code")
            if exit_code is None:
                raise WorkflowError(
                    format_session_notice("workflow_command", command=repr(command), text=output.text)
                )
            return {"exit_code": exit_code, "text": output.text}

        value = await self.run_step(path, {"command": command}, command, run)
        return cast(
            "ShellStepResult", convert_json_value(value, ShellStepResult, "The result of the command")
        )

    def _refuse_missing_tool(self, tool: str, path: str) -> None:
        """Raise `WorkflowError` if the lead lacks the tool that the step stands for."""
        lead = self._agents.lead
        denied, restriction = (
            self._runtime.lead.permissions.get_active_rules().deny,
            lead.state.tool_restriction,
        )
        if any(rule.pattern is None and rule.applies_to_tool(tool) for rule in denied):
            return  # a rule forbids the tool: the refusal that follows names it
        if tool not in lead.tools or (restriction is not None and tool not in restriction.tools):
            raise WorkflowError(format_session_notice("workflow_tool_missing", path=path, tool=tool))

    async def sleep(self, path: str, seconds: float) -> None:
        clock = self._runtime.clock

        async def wait_until(step: StepRecord) -> None:
            assert step.until is not None
            await clock.sleep(max(0.0, (step.until - clock.now()) / 1000))

        until = clock.now() + round(seconds * 1000)
        await self.run_step(path, {"seconds": seconds}, f"{seconds} s", wait_until, until)

    def get_time(self, path: str) -> int:
        """Return the time in milliseconds at which the workflow first reached this call."""
        self._refuse_unusable(path)
        return int(self._get_recorded_value(path, self._runtime.clock.now))

    def get_random_number(self, path: str) -> float:
        self._refuse_unusable(path)
        generator = self._agents.lead.ids.derive_generator()
        return float(self._get_recorded_value(path, generator.random.random))

    # Records

    def _refuse_unusable(self, path: str) -> None:
        """Raise `WorkflowError` after the end, in another event loop, and in a thread without one."""
        loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise WorkflowError(format_session_notice("workflow_loop", workflow=self.workflow, path=path))
        self.refuse_interrupted()
        if self._is_closed:
            raise WorkflowError(format_session_notice("workflow_over", workflow=self.workflow, path=path))

    async def run_step(
        self,
        path: str,
        given: Any,
        preview: str,
        execute: Callable[[StepRecord], Awaitable[Any]],
        until: int | None = None,
        *,
        has_child: bool = False,
    ) -> Any:
        """Return the recorded result of the step, or execute it and record its result.

        Raises `WorkflowChanged` if the program does not ask for the recorded steps.
        """
        self._gate.refuse_changed()
        self._refuse_unusable(path)
        requested = RequestedStep(path=path, preview=preview, digest=compute_digest(given), given=given)
        recorded = self._log.take(path, requested.digest)
        self._count_agent(has_child=has_child)
        if recorded is not None and recorded.is_finished:
            if recorded.error:
                raise self._keep_error(recorded.number, WorkflowError(recorded.error))
            return recorded.value
        if recorded is not None and recorded.child is not None:
            value = self._find_agent_value(recorded.child)
            if value is not None:
                self._record_result(recorded, value)
                return value
        with self._track_task(), self._name_options_in_errors():
            return await self._execute_step(requested, recorded, preview, execute, until, has_child=has_child)

    async def _execute_step(
        self,
        requested: RequestedStep,
        recorded: StepRecord | None,
        preview: str,
        execute: Callable[[StepRecord], Awaitable[Any]],
        until: int | None,
        *,
        has_child: bool,
    ) -> Any:
        path, given = requested.path, requested.given
        await self._gate.wait_for_turn(None if recorded is None else recorded.number, requested)
        if self._agents.start_refusal:
            raise WorkflowError(
                format_session_notice(
                    "start_refused", what=f"The step {path}", reason=self._agents.start_refusal
                )
            )
        if has_child:
            self._refuse_after_quota_error()
        number = self._allocate_number() if recorded is None else recorded.number
        step = StepRecord(
            number=number,
            path=path,
            digest=requested.digest,
            preview=to_one_line(preview)[:PREVIEW_LENGTH],
            child=self._agents.lead.ids.new_agent_id() if has_child else None,
            until=until if recorded is None or recorded.until is None else recorded.until,
            input=self._inputs.encode(number, given),
        )
        self._record_start(step)
        with self._gate.execute_step():
            try:
                value = await execute(step)
            except (WorkflowChanged, WorkflowStopped):
                raise
            except WorkflowError as error:
                self._record_error(step, error)
                raise
            self._record_result(step, value)
            if recorded is not None and self._log.has_failed(recorded):
                self._release_later_results(number)
        return value

    def _release_later_results(self, number: int) -> None:
        if self._log.release_results_after(number):
            self._runtime.events.note(
                f"Step {number} of the workflow {self.workflow} failed in an earlier run but succeeded "
                "this time. Stored results of later steps are reused only if the program calls the same "
                "steps again."
            )

    @contextmanager
    def _track_task(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    @contextmanager
    def _name_options_in_errors(self) -> Iterator[None]:
        """Let errors name options instead of flags if a program opened the session."""
        try:
            yield
        except ShoalError as error:
            if self._agents.names_options:
                name_options_in_error(error)
            raise

    async def close(self) -> None:
        """End the steps that still run when the program has ended, such as the rest of a failed `gather`."""
        self._is_closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def refuse_changed(self) -> None:
        """Raise `WorkflowChanged` if the program was found to differ."""
        self._gate.refuse_changed()

    def count_steps(self) -> int | None:
        """Return how many steps and phases have started; None while the program waits for a step."""
        return None if self._tasks else self._log.next_number + self._phase_count

    def refuse_later_steps(self, reason: str) -> None:
        """Let the workflow fail with this error, because its program was interrupted."""
        self._interruption = reason

    def refuse_interrupted(self) -> None:
        """Raise `WorkflowError` if the program was interrupted, even if it caught that error."""
        if self._interruption:
            raise WorkflowError(self._interruption)

    async def finish(self) -> None:
        """Check at the end of the program that it asked for all finished steps. Raises `WorkflowChanged`."""
        await self._gate.wait_for_turn(None, None)
        self._record_held_values()

    def _find_agent_value(self, child: AgentId) -> Any:
        """Return the answer of an agent that completed its work before the crash."""
        completion = self._log.completions.get(child)
        if completion is None or completion.status != "completed":
            return None
        return _encode_agent_value(completion)

    def _get_recorded_value(self, path: str, compute: Callable[[], Any]) -> Any:
        self._gate.refuse_changed()
        digest = compute_digest(None)
        step = self._log.take(path, digest)
        if step is not None and step.is_finished:
            return step.value
        value = compute()
        if step is not None:
            self._record_result(step, value)
            return value
        step = StepRecord(number=self._allocate_number(), path=path, digest=digest, preview="")
        if self._log.has_result_before(None):
            # A changed program must leave no new step in the journal, and this call cannot wait.
            self._unrecorded.append((step, value))
        else:
            self._record_value(step, value)
        return value

    def _record_held_values(self) -> None:
        """Record the times and random numbers of the replay, in order."""
        if not self._log.has_result_before(None):
            held, self._unrecorded = self._unrecorded, []
            for step, value in held:
                self._record_value(step, value)

    def _record_value(self, step: StepRecord, value: Any) -> None:
        self._record_start(step)
        self._record_result(step, value)

    def _record_start(self, step: StepRecord) -> None:
        if self._unrecorded:
            self._record_held_values()
        self.started_count += 1
        self._runtime.events.emit_event(
            WorkflowStepStarted(
                agent=LEAD_ID,
                workflow=self.workflow,
                step=step.number,
                path=step.path,
                phase=self.phase,
                digest=step.digest,
                preview=step.preview,
                child=step.child,
                until=step.until,
                input=step.input,
            )
        )

    def _record_result(self, step: StepRecord, value: Any) -> None:
        self.finished_count += 1
        self._runtime.events.emit_event(
            WorkflowStepFinished(agent=LEAD_ID, workflow=self.workflow, step=step.number, value=value)
        )

    def _record_error(self, step: StepRecord, error: WorkflowError) -> None:
        self._keep_error(step.number, error)
        self._runtime.events.emit_event(
            WorkflowStepFinished(
                agent=LEAD_ID, workflow=self.workflow, step=step.number, value=None, error=str(error)
            )
        )

    def _keep_error(self, number: int, error: WorkflowError) -> WorkflowError:
        self._errors[number] = error
        return error

    def list_raised_steps(self, error: BaseException) -> tuple[int, ...]:
        """Return the steps whose errors the program did not catch, so that this error ended it."""
        texts = [str(each) for each in _list_causes(error)]
        return tuple(
            number for number, raised in self._errors.items() if any(str(raised) in text for text in texts)
        )

    def _describe(self, prompt: str) -> str:
        text = to_one_line(prompt)
        return f"{self.phase}: {text}"[:_DESCRIPTION_LENGTH] if self.phase else text[:_DESCRIPTION_LENGTH]

    def _count_agent(self, *, has_child: bool) -> None:
        self._agent_count += has_child
        if self._max_agents is not None and self._agent_count > self._max_agents:
            raise WorkflowError(
                format_session_notice("workflow_agents", workflow=self.workflow, maximum=self._max_agents)
            )

    def _allocate_number(self) -> int:
        self._refuse_endless_loop(self._log.next_number)
        return self._log.allocate_number()

    def _refuse_endless_loop(self, count: int) -> None:
        if count > self._max_steps:
            raise WorkflowError(
                format_session_notice(
                    "workflow_steps", workflow=self.workflow, maximum=f"{self._max_steps:,}"
                )
            )

    def _refuse_after_quota_error(self) -> None:
        if self.quota.reason:
            raise WorkflowError(format_session_notice("workflow_quota", reason=self.quota.reason))


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return the error, the errors of its group, and their causes."""
    found, remaining = list[BaseException](), [error]
    while remaining:
        each = remaining.pop()
        if each in found:
            continue
        found.append(each)
        remaining += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        remaining += () if each.__cause__ is None else (each.__cause__,)
    return found


def _encode_agent_value(completion: AgentResult) -> dict[str, Any]:
    value = {"text": read_full_report(completion), "answer": completion.answer}
    # Most agents have none, and the journal has a line for each.
    return (
        value
        if completion.worktree is None
        else {**value, "worktree": msgspec.to_builtins(completion.worktree)}
    )
