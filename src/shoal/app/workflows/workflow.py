"""Steps of a running workflow. Each result is journaled before the workflow gets it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Struct

from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.library.agent import Agent
from shoal.app.library.library_session import MAPPED_AGENTS, LibrarySession, SpawnOptions
from shoal.app.session.result import read_full_report
from shoal.app.workflows.json_values import compute_digest, convert_json_value, to_json_value
from shoal.app.workflows.step_log import StepLog, StepRecord
from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import RunFailed, WorkflowChanged, WorkflowError
from shoal.core.events import (
    PREVIEW_LENGTH,
    Event,
    ModelRequestFailed,
    WorkflowPhaseStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceOption, ChoiceQuestion, MultipleChoice
from shoal.core.text.text_format import to_one_line

if TYPE_CHECKING:
    from types import CodeType
    from typing import Unpack

AgentT = TypeVar("AgentT")
ItemT = TypeVar("ItemT")
DefaultT = TypeVar("DefaultT")
MAX_STEPS = 100_000
"""Steps of one workflow; a program that asks for more loops forever."""
_IDLE_ROUNDS = 5
"""Rounds of the event loop without a replayed step after which a difference is certain."""
_PACKAGE = __name__.rpartition(".")[0]


class _NoDefault:
    """Type of the marker for a missing default."""


_NO_DEFAULT = _NoDefault()


class ShellStepResult(Struct, frozen=True):
    """Result of a shell command."""

    exit_code: int
    text: str
    """Output and errors, shortened if they are long."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class Workflow:
    """A running workflow: starts agents and other steps whose results survive a crash.

    A program that continues after a crash asks for the same steps again and gets the recorded results.
    Everything that can differ between two runs must be a step: `now`, `random`, `ask`, `shell`.
    """

    def __init__(
        self,
        session: LibrarySession[Any],
        *,
        workflow: str,
        code: CodeType,
        log: StepLog,
        completions: dict[AgentId, AgentResult],
    ) -> None:
        self.id = workflow
        self._session = session
        self._code = code
        self._log = log
        self._completions = completions
        self._phase = ""
        self._quota_refusal = ""

    def watch_quota(self, event: Event) -> None:
        """Remember that the provider refused a request because the quota is used up."""
        if isinstance(event, ModelRequestFailed) and event.quota:
            self._quota_refusal = event.reason

    def phase(self, name: str) -> None:
        """Start a phase: a name for the following steps, for people."""
        self._phase = name
        self._session.emit_event(WorkflowPhaseStarted(agent=LEAD_ID, workflow=self.id, phase=name))
        self._session.note(f"Workflow {self.id}: phase {name}")

    # Agents

    @overload
    async def agent(self, agent: Agent[None] | str, prompt: str, **options: Unpack[SpawnOptions]) -> str: ...
    @overload
    async def agent(self, agent: Agent[AgentT], prompt: str, **options: Unpack[SpawnOptions]) -> AgentT: ...
    @overload
    async def agent(
        self, agent: Agent[Any] | str, prompt: str, *, output: type[AgentT], **options: Unpack[SpawnOptions]
    ) -> AgentT: ...
    async def agent(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        *,
        output: type[Any] | None = None,
        **options: Unpack[SpawnOptions],
    ) -> Any:
        """Run an agent and return its answer: a text, or the type that it was asked for.

        Raises `RunFailed` if it did not complete its work; a resumed workflow then runs it again.
        """
        return await self._run_agent(self._build_path("agent", agent), agent, prompt, output, options)

    @overload
    async def map(
        self,
        agent: Agent[None] | str,
        prompts: Iterable[str],
        *,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[str]: ...
    @overload
    async def map(
        self,
        agent: Agent[AgentT],
        prompts: Iterable[str],
        *,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[AgentT]: ...
    @overload
    async def map(
        self,
        agent: Agent[Any] | str,
        prompts: Iterable[str],
        *,
        output: type[AgentT],
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[AgentT]: ...
    @overload
    async def map(
        self,
        agent: Agent[Any] | str,
        prompts: Iterable[str],
        *,
        default: DefaultT,
        output: type[AgentT],
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[AgentT | DefaultT]: ...
    async def map(
        self,
        agent: Agent[Any] | str,
        prompts: Iterable[str],
        *,
        output: type[Any] | None = None,
        at_once: int = MAPPED_AGENTS,
        default: Any = _NO_DEFAULT,
        **options: Unpack[SpawnOptions],
    ) -> list[Any]:
        """Run an agent for each prompt, at most `at_once` at a time, and return the answers in order.

        If agents fail, the others continue. Then `map` raises the first `RunFailed`, or returns `default` in
        place of each missing answer.
        """
        if isinstance(prompts, str):
            raise TypeError("flow.map(): prompts: expected a list of strings. Write prompts=[...].")
        path = self._build_path("map", agent)

        async def run_prompt(prompt: str) -> Any:
            return await self._run_agent(path, agent, prompt, output, options)

        return await _run_for_each(prompts, run_prompt, at_once, default)

    async def pipeline(
        self, items: Iterable[ItemT], *stages: Callable[[Any], Awaitable[Any]], at_once: int = MAPPED_AGENTS
    ) -> list[Any]:
        """Pass each item through all stages, and return the last results in order.

        Items do not wait for each other between stages. A stage is an async function of one value.
        """

        async def run_stages(item: Any) -> Any:
            for stage in stages:
                item = await stage(item)
            return item

        return await _run_for_each(items, run_stages, at_once, _NO_DEFAULT)

    # Other steps

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """Ask a person, and return one of the options or their own words.

        Raises `WorkflowError` if nobody answers.
        """
        choices = MultipleChoice(
            question=question,
            header="Workflow",
            options=tuple(ChoiceOption(label=option) for option in options),
        )

        async def ask_person(step: StepRecord) -> Any:
            answer = await self._session.questions.ask_person_or_deny(
                ChoiceQuestion(
                    id=f"{self.id}-{step.number}-{self._session.agent.ids.new_short_id()}",
                    agent=LEAD_ID,
                    choices=(choices,),
                )
            )
            if not isinstance(answer, ChoiceAnswer):
                reason = getattr(answer, "reason", "")
                raise WorkflowError(f"Nobody answered the question {question!r}: {reason}")
            return answer.answers[question]

        given = {"question": question, "options": list(options)}
        return str(await self._run_step(self._build_path("ask"), given, question, ask_person))

    async def shell(self, command: str, *, timeout: float | None = None) -> ShellStepResult:
        """Run a shell command with the permissions of the lead.

        Raises `WorkflowError` if it is not permitted.
        """
        agent = self._session.agent

        async def run_command(step: StepRecord) -> Any:
            milliseconds = {} if timeout is None else {"timeout": int(timeout * 1000)}
            call = ToolUseBlock(
                id=f"{self.id}-{step.number}", name="Bash", input={"command": command, **milliseconds}
            )
            output = await run_unrecorded_tool_call(agent, call, self._session.runtime.tools["Bash"])
            exit_code = (output.data or {}).get("exit_code")
            if exit_code is None:
                raise WorkflowError(f"The command {command!r} did not run: {output.text}")
            return {"exit_code": exit_code, "text": output.text}

        value = await self._run_step(self._build_path("shell"), {"command": command}, command, run_command)
        return cast(
            "ShellStepResult", convert_json_value(value, ShellStepResult, "The result of the command")
        )

    async def sleep(self, seconds: float) -> None:
        """Wait. A workflow that continues after a crash waits for the rest only."""
        clock = self._session.runtime.clock

        async def wait_until(step: StepRecord) -> None:
            assert step.until is not None
            await clock.sleep(max(0.0, (step.until - clock.now()) / 1000))

        until = clock.now() + round(seconds * 1000)
        await self._run_step(
            self._build_path("sleep"), {"seconds": seconds}, f"{seconds} s", wait_until, until
        )

    def now(self) -> datetime:
        """Return the time at which the workflow first got here."""
        value = self._get_recorded_value("now", self._session.runtime.clock.now)
        return datetime.fromtimestamp(value / 1000, UTC)

    def random(self) -> float:
        """Return a random number between 0 and 1, the same number after a crash."""
        return float(
            self._get_recorded_value("random", self._session.agent.ids.derive_generator().random.random)
        )

    # Records

    async def _run_agent(
        self,
        path: str,
        agent: Agent[Any] | str,
        prompt: str,
        output: type[Any] | None,
        options: SpawnOptions,
    ) -> Any:
        answer = self._session.choose_output_type(agent, output)
        given = {
            "agent": agent
            if isinstance(agent, str)
            else to_json_value(dict(agent.fields), f"Agent {agent.name}"),
            "prompt": prompt,
            "output": None if answer is None else answer.schema,
            "options": dict(options),
        }

        async def run_agent(step: StepRecord) -> Any:
            assert step.child is not None
            handle = await self._session.start_agent(
                agent, prompt, answer, {"description": self._describe(prompt), **options}, step.child
            )
            try:
                result = await handle.wait()
            except asyncio.CancelledError:
                await handle.stop("the workflow was stopped")
                raise
            result.raise_if_failed()
            return {"text": result.text, "answer": result.answer}

        value = await self._run_step(path, given, prompt, run_agent, has_child=True)
        return value["text"] if answer is None else answer.convert(value["answer"])

    def _describe(self, prompt: str) -> str:
        text = to_one_line(prompt)
        return f"{self._phase}: {text}"[:60] if self._phase else text[:60]

    async def _run_step(
        self,
        path: str,
        given: Any,
        preview: str,
        execute: Callable[[StepRecord], Awaitable[Any]],
        until: int | None = None,
        *,
        has_child: bool = False,
    ) -> Any:
        """Return the recorded result of the step, or execute it and record its result."""
        digest = compute_digest(given)
        step = self._log.take(path, digest)
        if step is None:
            await self._refuse_changed_step(path, preview)
        elif step.is_finished:
            return step.value
        elif step.child is not None and (value := self._find_agent_value(step.child)) is not None:
            self._record_result(step, value)
            return value
        self._refuse_after_quota_error(has_child=has_child)
        step = StepRecord(
            number=self._allocate_number() if step is None else step.number,
            path=path,
            digest=digest,
            preview=to_one_line(preview)[:PREVIEW_LENGTH],
            child=self._session.agent.ids.new_agent_id() if has_child else None,
            until=until if step is None or step.until is None else step.until,
        )
        self._record_start(step)
        value = await execute(step)
        self._record_result(step, value)
        return value

    def _find_agent_value(self, child: AgentId) -> Any:
        """Return the answer of an agent that completed its work before the crash."""
        completion = self._completions.get(child)
        if completion is None or completion.status != "completed":
            return None
        return {"text": read_full_report(completion), "answer": completion.answer}

    def _get_recorded_value(self, kind: str, compute: Callable[[], Any]) -> Any:
        path, digest = self._build_path(kind), compute_digest(None)
        step = self._log.take(path, digest)
        if step is not None and step.is_finished:
            return step.value
        if step is None:
            step = StepRecord(number=self._allocate_number(), path=path, digest=digest, preview="")
            self._record_start(step)
        value = compute()
        self._record_result(step, value)
        return value

    def _record_start(self, step: StepRecord) -> None:
        self._session.emit_event(
            WorkflowStepStarted(
                agent=LEAD_ID,
                workflow=self.id,
                step=step.number,
                path=step.path,
                digest=step.digest,
                preview=step.preview,
                child=step.child,
                until=step.until,
            )
        )

    def _record_result(self, step: StepRecord, value: Any) -> None:
        self._session.emit_event(
            WorkflowStepFinished(agent=LEAD_ID, workflow=self.id, step=step.number, value=value)
        )

    def _allocate_number(self) -> int:
        if self._log.next_number > MAX_STEPS:
            raise WorkflowError(
                f"The workflow {self.id} asked for more than {MAX_STEPS:,} steps, so it probably loops "
                "forever. End its loop, or split the work between several workflows."
            )
        return self._log.allocate_number()

    def _refuse_after_quota_error(self, *, has_child: bool) -> None:
        if has_child and self._quota_refusal:
            raise WorkflowError(
                "No further agent is started: the provider refused a request because the quota is used up "
                f"({self._quota_refusal}). Resume the workflow when quota is available again."
            )

    async def _refuse_changed_step(self, path: str, preview: str) -> None:
        """Raise `WorkflowChanged` if the program asks for a new step instead of a recorded one."""
        taken, idle_rounds = self._log.taken, 0
        # Other branches of the program may still ask for their recorded steps.
        while self._log.find_unclaimed_result(path) is not None and idle_rounds < _IDLE_ROUNDS:
            await asyncio.sleep(0)
            idle_rounds = idle_rounds + 1 if self._log.taken == taken else 0
            taken = self._log.taken
        recorded = self._log.find_unclaimed_result(path)
        if recorded is not None:
            raise WorkflowChanged(
                f"The workflow {self.id} changed since it ran: step {recorded.number} ({path}) had the input "
                f"{recorded.preview!r}, and now it has {to_one_line(preview)[:PREVIEW_LENGTH]!r}. Undo the "
                f"change, or run that step and all later steps again: use rerun_from={recorded.number}.",
                step=recorded.number,
            )

    def _build_path(self, kind: str, agent: Agent[Any] | str | None = None) -> str:
        """Return the phase, the functions that lead to the step, and its kind."""
        name = "" if agent is None else f" {agent if isinstance(agent, str) else agent.name}"
        return "/".join(filter(None, (self._phase, *reversed(list(self._iter_callers())), f"{kind}{name}")))

    def _iter_callers(self) -> Iterator[str]:
        """Yield the names of the functions of the program, innermost first."""
        frame = sys._getframe(1)
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("asyncio."):
                return
            if frame.f_code is self._code:
                return
            if not module.startswith(_PACKAGE):
                yield frame.f_code.co_qualname.rpartition("<locals>.")[2]
            if frame.f_back is None:
                return
            frame = frame.f_back


async def _run_for_each(
    items: Iterable[Any], run: Callable[[Any], Awaitable[Any]], at_once: int, default: Any
) -> list[Any]:
    """Run a function for each item, at most `at_once` at a time; failures are raised when all have ended."""
    if at_once < 1:
        raise ValueError(f"at_once: expected an integer of at least 1, got {at_once!r}.")
    results: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    remaining = enumerate(items)

    async def run_remaining() -> None:
        for index, item in remaining:
            try:
                results[index] = await run(item)
            except (RunFailed, WorkflowError) as error:
                results[index], failures[index] = default, error
                if isinstance(error, WorkflowError):
                    return

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(run_remaining())
    # No default replaces these: the workflow itself cannot continue.
    fatal = [error for error in failures.values() if isinstance(error, WorkflowError)]
    if fatal or (failures and default is _NO_DEFAULT):
        first: Exception = fatal[0] if fatal else failures[min(failures)]
        if len(failures) > 1:
            first.add_note(f"{len(failures)} of {len(results)} items failed.")
        raise first
    return [results[index] for index in sorted(results)]
