"""Agents that a program or a workflow starts, without a model's decision."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from shoal.app.agents.agent import Agent
from shoal.app.agents.agent_checks import (
    refuse_unknown_agent_names,
    refuse_unknown_agent_types,
    refuse_unknown_names_in_option,
    refuse_unknown_skills,
)
from shoal.app.agents.argument_checks import check_text
from shoal.app.model_notices import format_session_notice
from shoal.core.agents.subagents import IsolationMode, SpawnRequest
from shoal.core.conversation.messages import user_message
from shoal.core.errors import AgentRequestRefused, AgentUnusable, InvalidAgentDefinition, UnknownAgentType
from shoal.core.events import Event, ModelRequestFailed
from shoal.core.ids import AgentId
from shoal.core.output_type import OutputType
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.text.text_format import to_one_line

if TYPE_CHECKING:
    from shoal.agent.agent_runner import AgentRunner
    from shoal.app.runtime.runtime import Runtime
    from shoal.runs.agent_run import AgentRun
    from shoal.runs.agent_supervisor import AgentSupervisor

MAPPED_AGENTS = 20
"""Default number of agents of one `map` that run at once."""
_DESCRIPTION_LENGTH = 60


class SpawnOptions(TypedDict, total=False):
    """Options for one started agent; they override those of its definition."""

    name: str
    """Name for messages; an agent without a name is reached by its id."""
    description: str
    """Short description for people; by default, the beginning of the prompt."""
    model: str
    """Name or alias of the model."""
    isolation: Literal["worktree", "remote"]
    """`worktree` gives the agent a separate git worktree; `remote` runs it on another machine of a
    cluster."""
    cwd: str | PathLike[str]
    """Directory in which it works."""


class QuotaGuard:
    """Refuses to start agents after the provider refused a request because the quota is exhausted."""

    def __init__(self) -> None:
        self.reason = ""
        """What the provider said; empty if it refused nothing."""

    def watch(self, event: Event) -> None:
        if isinstance(event, ModelRequestFailed) and event.quota:
            self.reason = event.reason

    def refuse_start(self) -> None:
        """Raise `AgentRequestRefused` after a refusal."""
        if self.reason:
            raise AgentRequestRefused(format_session_notice("quota_exhausted", reason=self.reason))


class ProgramAgents:
    """Starts agents of a session for a program, and keeps the definitions that it passed.

    `given` are agents whose definitions the session already has; with `names_options`, errors name options of
    the program instead of flags.
    """

    def __init__(
        self,
        runtime: Runtime,
        supervisor: AgentSupervisor,
        given: Sequence[Agent[Any]],
        *,
        names_options: bool,
    ) -> None:
        self.runtime = runtime
        self.supervisor = supervisor
        self.names_options = names_options
        self._definitions = {agent.name: agent for agent in given}
        self.start_refusal = ""
        """Reason why nothing more is started; empty if there is none."""

    @property
    def lead(self) -> AgentRunner:
        return self.runtime.agents.running.lead

    def refuse_unknown_names(self) -> None:
        """Raise `SettingsError` if a definition of the program names something that does not exist."""
        if self.names_options:
            refuse_unknown_skills(self.runtime)
            refuse_unknown_agent_types(self.runtime)
        if self.names_options and not self._definitions:
            refuse_unknown_names_in_option(self.runtime.options.agents, self.runtime)
        for agent in self._definitions.values():
            refuse_unknown_agent_names(agent, self.runtime)

    async def start_agent(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        answer: OutputType[Any] | None,
        options: SpawnOptions,
        agent_id: AgentId | None = None,
        check_start: Callable[[], None] | None = None,
    ) -> AgentRun:
        """Start an agent, with this id if one is given; wait for a free slot.

        Raises `AgentRequestRefused`, and what `check_start` raises: it is called before and after each wait.
        """
        _check_prompt(prompt)
        _check_spawn_options(options)
        self.refuse_start()
        if check_start is not None:
            check_start()
        kind = self._register_agent(agent)
        self.make_resumable()
        request = SpawnRequest(
            kind=kind,
            prompt=prompt,
            description=options.get("description") or to_one_line(prompt)[:_DESCRIPTION_LENGTH],
            name=options.get("name"),
            model=options.get("model"),
            isolation=options.get("isolation"),
            cwd=None if (cwd := options.get("cwd")) is None else str(cwd),
        )

        def check_again() -> None:
            self.refuse_start()
            if check_start is not None:
                check_start()

        return await self.supervisor.start_agent_for_program(request, answer, agent_id, check_again)

    def refuse_unknown_agent(self, function: str, agent: Agent[Any] | str) -> None:
        """Raise unless the argument is an agent, or the name of one that exists."""
        check_agent(function, agent)
        if isinstance(agent, str):
            try:
                self.runtime.config.definitions.find(agent)
            except (UnknownAgentType, InvalidAgentDefinition) as error:
                raise AgentUnusable(str(error)) from error

    def stop_starting(self, reason: str) -> None:
        """Start nothing more, for this reason."""
        self.start_refusal = reason

    def refuse_start(self, what: str = "The agent") -> None:
        """Raise `AgentRequestRefused` if nothing more is started."""
        if self.start_refusal:
            raise AgentRequestRefused(
                format_session_notice("start_refused", what=what, reason=self.start_refusal)
            )

    def make_resumable(self) -> None:
        """Start the lead's transcript: agents of a session without one could not be found again."""
        conversation = self.lead.conversation
        if conversation.last_entry is None:
            conversation.add_message(user_message(format_session_notice("program_session")), meta=True)

    def _register_agent(self, agent: Agent[Any] | str) -> str:
        """Make an agent known to the session, and return its name."""
        check_agent("session.spawn()", agent)
        if isinstance(agent, str):
            return agent
        known = self._definitions.get(agent.name)
        if known is None:
            refuse_unknown_agent_names(agent, self.runtime)
            self._definitions[agent.name] = agent
            self.runtime.config.definitions.add_program_definition(agent.parsed.definition)
            self.runtime.agents.extras[agent.name] = agent.extras
        elif known is not agent:
            if not _has_same_definition(known, agent):
                raise ValueError(
                    f"session.spawn(): the session already has another agent named {agent.name!r}. Rename "
                    "one of them."
                )
            # A file that is loaded again brings new functions.
            self.runtime.agents.extras[agent.name] = agent.extras
        return agent.name


def check_agent(function: str, agent: Any) -> None:
    """Raise `TypeError` or `ValueError` unless the argument is an agent or a name."""
    if not isinstance(agent, Agent | str):
        raise TypeError(f"{function}: agent: expected an Agent or a name, got {agent!r:.80}.")
    if isinstance(agent, str):
        check_text(function, "agent", agent)


def choose_output_type(agent: Agent[Any] | str, output: type[Any] | None) -> OutputType[Any] | None:
    """Return the type of the answer: `output` if it is given, else that of the agent's definition."""
    if output is not None:
        return OutputType(output)
    return agent.output if isinstance(agent, Agent) else None


def _has_same_definition(first: Agent[Any], second: Agent[Any]) -> bool:
    def describe(agent: Agent[Any]) -> object:
        output = agent.output
        return (
            agent.fields,
            None if output is None else output.schema,
            [tool.schema for tool in agent.extras.tools],
        )

    return describe(first) == describe(second)


def _check_spawn_options(options: SpawnOptions) -> None:
    for name, value in options.items():
        expected = (str, PathLike) if name == "cwd" else (str,)
        if value is not None and (not isinstance(value, expected) or not str(value).strip()):
            raise TypeError(f"session.spawn(): {name}: expected a non-empty string, got {value!r:.80}.")
        if value is not None and (problem := find_encoding_problem(str(value))):
            raise ValueError(f"session.spawn(): {name} {problem}")
    isolation: object = options.get("isolation")
    if isolation not in (None, *get_args(IsolationMode)):
        raise ValueError(
            f"session.spawn(): isolation: unknown value {isolation!r}. Use 'worktree' or 'remote', or leave "
            "it out."
        )


def _check_prompt(prompt: Any) -> None:
    if not isinstance(prompt, str):
        raise TypeError(f"session.spawn(): prompt: expected a string, got {prompt!r}.")
    if not prompt.strip():
        raise ValueError("session.spawn(): the prompt is empty. Tell the agent what to do.")
    if problem := find_encoding_problem(prompt):
        raise ValueError(f"session.spawn(): the prompt {problem}")


async def run_workers(
    items: Iterator[Any], run: Callable[[Any], Coroutine[Any, Any, bool]], at_once: int
) -> None:
    """Run a function for each item, at most `at_once` at a time, in as many tasks as there are items.

    A task whose function returns False takes no other item. Raises the first exception of a function.
    """
    count = 1
    caller = contextvars.copy_context()  # a phase that one item starts is not that of the others

    async def work() -> None:
        nonlocal count
        for item in items:
            if count < at_once:
                count += 1
                workers.create_task(work())
            if not await workers.create_task(run(item), context=caller.copy()):
                return

    try:
        async with asyncio.TaskGroup() as workers:
            workers.create_task(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
