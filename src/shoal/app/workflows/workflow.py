"""The object by which a workflow in Python runs its steps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from shoal.app.agents.agent import Agent
from shoal.app.agents.argument_checks import (
    check_count,
    check_function,
    check_prompts,
    check_seconds,
    check_text,
    describe_value,
    name_function_in_errors,
)
from shoal.app.agents.program_agents import (
    MAPPED_AGENTS,
    SpawnOptions,
    check_agent,
    choose_output_type,
    run_workers,
)
from shoal.app.workflows.step_runner import ShellStepResult, StepRunner
from shoal.core.agents.subagents import RetainedWorktreeWork
from shoal.core.errors import RunFailed, WorkflowError
from shoal.core.keyword_checks import check_keywords

if TYPE_CHECKING:
    from types import CodeType
    from typing import Unpack

AgentT = TypeVar("AgentT")
ItemT = TypeVar("ItemT")
DefaultT = TypeVar("DefaultT")
FirstT = TypeVar("FirstT")
SecondT = TypeVar("SecondT")
ThirdT = TypeVar("ThirdT")
_PACKAGE = __name__.partition(".")[0] + "."


class _NoDefault:
    """Type of the marker for a missing default."""


_NO_DEFAULT = _NoDefault()


class Workflow:
    """A running workflow: starts agents and other steps whose results survive a crash.

    A program that continues after a crash asks for the same steps again and gets the recorded results.
    Everything that can differ between two runs must be a step: `now`, `random`, `ask`, `shell`.
    """

    def __init__(self, steps: StepRunner, code: CodeType) -> None:
        self._steps = steps
        self._code = code

    @property
    def id(self) -> str:
        """Id of the workflow in its session."""
        return self._steps.workflow

    @property
    def worktrees(self) -> tuple[RetainedWorktreeWork, ...]:
        """Work that agents of earlier steps left in worktrees: its path, branch, and the ref to merge."""
        return tuple(self._steps.worktrees)

    def phase(self, name: str) -> None:
        """Start a phase, which names the following steps for people."""
        check_text("flow.phase()", "name", name)
        self._steps.start_phase(name)

    # Agents

    @overload
    async def agent(self, agent: Agent[None] | str, prompt: str, **options: Unpack[SpawnOptions]) -> str: ...
    @overload
    async def agent(self, agent: Agent[AgentT], prompt: str, **options: Unpack[SpawnOptions]) -> AgentT: ...
    @overload
    async def agent(
        self, agent: Agent[Any] | str, prompt: str, *, output: type[AgentT], **options: Unpack[SpawnOptions]
    ) -> AgentT: ...
    @check_keywords("flow.agent()", SpawnOptions)
    async def agent(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        *,
        output: type[Any] | None = None,
        **options: Unpack[SpawnOptions],
    ) -> Any:
        """Run an agent and return its answer: text, or a value of the requested type.

        Raises `RunFailed` if it did not complete its work; a resumed workflow then runs it again.
        """
        check_agent("flow.agent()", agent)
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
        agent: Agent[None] | str,
        prompts: Iterable[str],
        *,
        default: DefaultT,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[str | DefaultT]: ...
    @overload
    async def map(
        self,
        agent: Agent[AgentT],
        prompts: Iterable[str],
        *,
        default: DefaultT,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[AgentT | DefaultT]: ...
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
    @check_keywords("flow.map()", SpawnOptions)
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
        check_agent("flow.map()", agent)
        remaining = check_prompts("flow.map()", prompts)
        _refuse_set("flow.map()", "prompts", prompts)
        path = self._build_path("map", agent)

        async def run_prompt(prompt: str) -> Any:
            return await self._run_agent(path, agent, prompt, output, options, "flow.map()")

        return await _run_for_each("flow.map()", remaining, run_prompt, at_once, default)

    @overload
    async def pipeline(
        self,
        items: Iterable[ItemT],
        stage: Callable[[ItemT], Awaitable[FirstT]],
        /,
        *,
        at_once: int = MAPPED_AGENTS,
    ) -> list[FirstT]: ...
    @overload
    async def pipeline(
        self,
        items: Iterable[ItemT],
        first: Callable[[ItemT], Awaitable[FirstT]],
        second: Callable[[FirstT], Awaitable[SecondT]],
        /,
        *,
        at_once: int = MAPPED_AGENTS,
    ) -> list[SecondT]: ...
    @overload
    async def pipeline(
        self,
        items: Iterable[ItemT],
        first: Callable[[ItemT], Awaitable[FirstT]],
        second: Callable[[FirstT], Awaitable[SecondT]],
        third: Callable[[SecondT], Awaitable[ThirdT]],
        /,
        *,
        at_once: int = MAPPED_AGENTS,
    ) -> list[ThirdT]: ...
    @overload
    async def pipeline(
        self, items: Iterable[Any], *stages: Callable[[Any], Awaitable[Any]], at_once: int = MAPPED_AGENTS
    ) -> list[Any]: ...
    @check_keywords("flow.pipeline()")
    async def pipeline(
        self, items: Iterable[Any], *stages: Callable[[Any], Awaitable[Any]], at_once: int = MAPPED_AGENTS
    ) -> list[Any]:
        """Pass each item through all stages, and return the last results in order.

        Items do not wait for each other between stages. A stage is an async function of one value.
        """

        function = "flow.pipeline()"
        if not stages:
            raise TypeError(f"{function}: pass at least one stage, an async function of one value.")
        for stage in stages:
            check_function(function, "stages", stage)
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise TypeError(f"{function}: items: expected a list, got {describe_value(items)}.")
        _refuse_set(function, "items", items)

        async def run_stages(item: Any) -> Any:
            for stage in stages:
                result: Any = stage(item)
                if not inspect.isawaitable(result):
                    name = getattr(stage, "__name__", repr(stage))
                    raise TypeError(
                        f"{function}: the stage {name} returned {describe_value(result)}. Write it as "
                        "`async def`."
                    )
                item = await result
            return item

        return await _run_for_each(function, items, run_stages, at_once, _NO_DEFAULT)

    # Other steps

    @check_keywords("flow.ask()")
    async def ask(self, question: str, options: Sequence[str]) -> str:
        """Ask a person, and return one of the options or their own words.

        Raises `WorkflowError` if nobody answers.
        """
        check_text("flow.ask()", "question", question)
        given: Any = options
        # A set would have another order after a resume.
        if (
            not isinstance(given, list | tuple)
            or not given
            or not all(isinstance(each, str) for each in given)
        ):
            raise TypeError(f"flow.ask(): options: expected a list of strings, got {describe_value(given)}.")
        return await self._steps.ask_person(self._build_path("ask"), question, options)

    @check_keywords("flow.shell()")
    async def shell(self, command: str, *, timeout: float | None = None) -> ShellStepResult:
        """Run a shell command with the permissions of the lead.

        Raises `WorkflowError` if it is not permitted.
        """
        check_text("flow.shell()", "command", command)
        if timeout is not None:
            check_seconds("flow.shell()", "timeout", timeout, minimum=0.001)
        return await self._steps.run_command(self._build_path("shell"), command, timeout)

    @check_keywords("flow.sleep()")
    async def sleep(self, seconds: float) -> None:
        """Wait. A workflow that continues after a crash waits only for the remaining time."""
        check_seconds("flow.sleep()", "seconds", seconds)
        await self._steps.sleep(self._build_path("sleep"), seconds)

    def now(self) -> datetime:
        """Return the time at which the workflow first reached this call."""
        return datetime.fromtimestamp(self._steps.get_time(self._build_path("now")) / 1000, UTC)

    def random(self) -> float:
        """Return a random number between 0 and 1, the same number after a crash."""
        return self._steps.get_random_number(self._build_path("random"))

    async def _run_agent(
        self,
        path: str,
        agent: Agent[Any] | str,
        prompt: str,
        output: type[Any] | None,
        options: SpawnOptions,
        function: str = "flow.agent()",
    ) -> Any:
        check_text(function, "prompt", prompt)
        answer = choose_output_type(agent, output)
        with name_function_in_errors(function):
            value = await self._steps.run_agent(path, agent, prompt, answer, options)
        return value["text"] if answer is None else answer.convert(value["answer"])

    def _build_path(self, kind: str, agent: Agent[Any] | str | None = None) -> str:
        """Return the phase, the functions that lead to the step, and its kind."""
        name = "" if agent is None else f" {agent if isinstance(agent, str) else agent.name}"
        return "/".join(
            filter(None, (self._steps.phase, *reversed(list(self._iter_callers())), f"{kind}{name}"))
        )

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
    function: str, items: Iterable[Any], run: Callable[[Any], Awaitable[Any]], at_once: int, default: Any
) -> list[Any]:
    """Run a function for each item, at most `at_once` at a time; failures are raised when all have ended."""
    check_count(function, "at_once", at_once)
    results: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    remaining = enumerate(items)

    async def run_item(numbered: tuple[int, Any]) -> bool:
        index, item = numbered
        try:
            results[index] = await run(item)
        except (RunFailed, WorkflowError) as error:
            results[index], failures[index] = default, error
            return not isinstance(error, WorkflowError)
        return True

    await run_workers(remaining, run_item, at_once)
    # No default replaces these: the workflow itself cannot continue.
    fatal = [error for error in failures.values() if isinstance(error, WorkflowError)]
    if fatal or (failures and default is _NO_DEFAULT):
        first: Exception = fatal[0] if fatal else failures[min(failures)]
        if len(failures) > 1:
            first.add_note(f"{len(failures)} of {len(results)} items failed.")
        raise first
    return [results[index] for index in sorted(results)]


def _refuse_set(function: str, name: str, values: object) -> None:
    """Raise `TypeError` for a set, whose order can differ after a crash."""
    if isinstance(values, set | frozenset):
        raise TypeError(
            f"{function}: {name}: a set has another order after a crash. Pass a list, such as sorted({name})."
        )
