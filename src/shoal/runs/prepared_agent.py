"""Prepared agents, and the port that prepares them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.identity import TeammateForm
from shoal.core.agents.subagents import (
    ResolvedAgentSettings,
    RetainedWorktreeWork,
    ShellCommandResult,
    SpawnRequest,
)
from shoal.core.budgets.limits import AgentSlot
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.output_type import OutputType
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.ports import QuestionBroker
from shoal.runs.agent_run import AgentRun
from shoal.runs.progress_monitor import EmitEvent, ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.tools.structured_output_tool import StructuredOutputTool

AcceptanceCheck: TypeAlias = Callable[[], Awaitable[tuple[ShellCommandResult, str]]]


async def _return_no_retained_work() -> RetainedWorktreeWork | None:
    return None


async def _return_no_commits() -> tuple[str, ...]:
    return ()


class PreparedAgent(Struct, frozen=True, kw_only=True):
    agent: AgentRunner
    started: AgentStarted
    resolved: ResolvedAgentSettings
    prompt: Message | None
    """Its first prompt; None if that waits in its queue."""
    delivered: frozenset[str] = frozenset()
    """Ids of the items that its transcript already contains."""
    answered: Container[str] = frozenset()
    """Ids of the calls that have results in its transcript."""
    one_shot: bool = False
    monitor: ProgressMonitor | None = None
    """Monitor of a teammate."""
    acceptance_check: AcceptanceCheck | None = None
    """Runs the acceptance command; returns its result and the end of its output."""
    output_tool: StructuredOutputTool | None = None
    """Receives its structured answer, if one is required."""
    list_commits: Callable[[], Awaitable[tuple[str, ...]]] = _return_no_commits
    clean_up: Callable[[], Awaitable[RetainedWorktreeWork | None]] = _return_no_retained_work
    """Releases its resources; returns the work it leaves in a worktree, if any."""

    def has_received_item(self, item: InboxItem) -> bool:
        """Return True if the item is already in the agent's transcript."""
        return item.id in self.delivered or item.instead_of in self.answered


class TeammateMembership(Struct, frozen=True, kw_only=True):
    """Team membership of an agent that will be a teammate."""

    team: str
    name: str
    color: str | None
    mode: PermissionMode | None
    """Requested mode; never more permissive than the lead's."""
    section: str
    """Section of its system prompt about the team."""
    question_broker: QuestionBroker
    """Forwards its questions to the lead."""
    build_briefing: Callable[[], Awaitable[str]] | None = None
    """Builds the summary of the team for a conversation that lost it."""
    can_lead: bool = False
    """True if it may lead another team."""
    form: TeammateForm = "in-process"


class AgentPreparationRequest(Struct, frozen=True, kw_only=True):
    """Agent to prepare, with its parent and its monitor."""

    agent: AgentId
    parent: AgentRunner
    call: str
    monitor: ProgressMonitor
    emit: EmitEvent | None = None
    """Gets its events in place of the monitor, and passes them on to it."""
    assignment: TeammateMembership | None = None
    """Assignment of a teammate; None for an agent for one job."""
    output: OutputType[Any] | None = None
    """Type of the answer that is required; None for that of its definition, if it has one."""


class AgentPreparer(Protocol):
    """Prepares agents. On `AgentRequestRefused`, which names what is unavailable, nothing is left behind."""

    def create_progress_monitor(self, agent: AgentId) -> ProgressMonitor: ...

    async def prepare_new_agent(
        self, request: SpawnRequest, new_agent: AgentPreparationRequest
    ) -> PreparedAgent: ...

    async def prepare_fork(self, request: SpawnRequest, new_agent: AgentPreparationRequest) -> PreparedAgent:
        """Prepare a copy of the parent that continues from the requesting reply with all the parent has."""
        ...

    async def prepare_resumed_agent(self, new_agent: AgentPreparationRequest) -> PreparedAgent:
        """Prepare an ended agent from its transcript, also after its process died."""
        ...

    def get_agent_output_path(self, agent: AgentId) -> str: ...


class RemoteAgentJob(Protocol):
    """Agent that can be started on another machine."""

    @property
    def started(self) -> AgentStarted: ...

    async def run(self, run: AgentRun, slot: AgentSlot) -> AgentRunOutcome:
        """Run it to its end; if it is canceled because of the run's `stop_reason`, stop it first."""
        ...


class RemoteAgentLauncher(Protocol):
    """Runs agents on machines of a cluster. Raises `AgentRequestRefused`."""

    def is_remote(self, request: SpawnRequest) -> bool:
        """Return True if the call or the definition asks for another machine."""
        ...

    async def prepare_job(self, request: SpawnRequest, new_agent: AgentPreparationRequest) -> RemoteAgentJob:
        """Check the request and the cluster; nothing is started yet."""
        ...
