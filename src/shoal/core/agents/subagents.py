"""Sub-agents: the request to start one, its result, and the operations on running ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.ids import AgentId

if TYPE_CHECKING:
    from shoal.core.conversation.tools import ToolContext

AgentEndStatus: TypeAlias = Literal["completed", "failed", "killed"]
"""How an agent ended."""
AgentRunStatus: TypeAlias = Literal["running"] | AgentEndStatus
"""Whether an agent runs, or how it ended."""
IsolationMode: TypeAlias = Literal["worktree", "remote"]


OTHER_SESSION_PREFIX = "uds:"
"""Address prefix before the id, or its beginning, of another live session of the same home."""
OTHER_MACHINE_PREFIX = "bridge:"
PROGRAM_CALL = "program"
"""Stands for the tool call if a program started the agent: its end is reported to the program alone."""


class ResourceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Share of a machine that an agent takes, and labels that the machine must have."""

    cpus: float | None = None
    """None for the number in the settings of the cluster."""
    memory: int = 0
    """Bytes."""
    gpus: float = 0.0
    labels: Mapping[str, str] = {}

    def __str__(self) -> str:
        parts = [] if self.cpus is None else [f"{self.cpus:g} cpus"]
        parts += [f"{self.memory / 2**30:.3g} GiB memory"] if self.memory else []
        parts += [f"{self.gpus:g} gpus"] if self.gpus else []
        return ", ".join([*parts, *(f"{name}={value}" for name, value in self.labels.items())])

    def find_conflicting_labels(self, required: ResourceRequest) -> list[str]:
        """Return the labels for which another value is required."""
        labels = self.labels
        return [
            label for label, value in required.labels.items() if label in labels and labels[label] != value
        ]

    def add_missing(self, required: ResourceRequest) -> ResourceRequest:
        """Return this request, and what it does not mention from the required one."""
        return ResourceRequest(
            cpus=required.cpus if self.cpus is None else self.cpus,
            memory=self.memory or required.memory,
            gpus=self.gpus or required.gpus,
            labels={**required.labels, **self.labels},
        )


class SpawnRequest(Struct, frozen=True, kw_only=True):
    """Request to start an agent, as called. Unset fields come from the definition or the parent."""

    description: str
    prompt: str
    kind: str | None = None
    model: str | None = None
    background: bool = False
    name: str | None = None
    team: str | None = None
    mode: str | None = None
    isolation: IsolationMode | None = None
    cwd: str | None = None
    effort: str | int | None = None
    lent: tuple[str, ...] = ()
    """Permission rules for calls that need no question."""
    waits_for_work: bool = False
    """True if a new teammate only reads its prompt with its first message or task: it is idle until then."""
    resources: ResourceRequest | None = None
    """What it needs from the machine that runs it, if it runs on a cluster."""


class ShellCommandResult(Struct, frozen=True, kw_only=True, gc=False):
    """Shell command and its exit code; None if it timed out."""

    command: str
    """The command."""
    exit_code: int | None
    """Exit code; None if it timed out."""


class AgentWorkEvidence(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Evidence for an agent's report, as the runtime observed it."""

    tool_calls: int = 0
    """Number of tool calls."""
    failed_calls: int = 0
    """Number of tool calls that failed."""
    files: tuple[str, ...] = ()
    """Files that it changed."""
    commits: tuple[str, ...] = ()
    """Commits that it made."""
    commands: tuple[ShellCommandResult, ...] = ()
    """The most recent commands."""
    acceptance: ShellCommandResult | None = None
    """Acceptance command that decides if the work is done, as the runtime ran it."""


class RetainedWorktreeWork(Struct, frozen=True, kw_only=True):
    """Work that an agent left in its worktree."""

    path: str
    """Directory of the worktree."""
    branch: str
    """Branch of the worktree."""
    ref: str = ""
    """Ref that holds all of it, committed or not."""
    commits: int = 0
    """Number of commits."""


class AgentResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Result of a finished agent. The full text is stored before this result is created."""

    id: str
    """Id of the result."""
    agent: AgentId
    """Id of the agent."""
    status: AgentEndStatus
    """How it ended."""
    kind: str
    """Name of its definition."""
    description: str
    """What it was started for."""
    report_to: AgentId
    """Agent that gets the report."""
    call: str
    """Tool call that started it."""
    name: str = ""
    """Name of the agent."""
    background: bool = False
    """True if it ran in the background."""
    text: str = ""
    """Report, shortened to fit a conversation."""
    detail: str = ""
    """Reason for the end, if it is not obvious."""
    size: int = 0
    """Number of characters in the full report."""
    digest: str = ""
    """SHA-256 of the full report."""
    result: str = ""
    """File with the full report, if `text` is only a part of it."""
    output: str = ""
    """Output file written while it ran."""
    usage: Usage = Usage()
    """Tokens of all requests."""
    requests: int = 0
    """Number of model requests."""
    duration_ms: int = 0
    """Time from the start to the end in milliseconds."""
    evidence: AgentWorkEvidence = AgentWorkEvidence()
    """What Shoal observed: tool calls, changed files, commits and commands."""
    one_shot: bool = False
    """True if it ends with its result: nobody continues the conversation."""
    worktree: RetainedWorktreeWork | None = None
    """Work that it left in its worktree."""
    answer: Any = None
    """Structured answer as JSON, if one was required."""


class ResolvedAgentSettings(Struct, frozen=True, kw_only=True):
    """Resolved settings of a spawned agent."""

    kind: str
    model: str
    mode: str
    tools: tuple[str, ...]
    cwd: str
    source: str
    start_tokens: int = 0
    """Estimated tokens of its first request."""
    worktree: str = ""
    hooks: tuple[str, ...] = ()
    """Hook events with hooks that apply to it, each with their origin."""
    servers: tuple[str, ...] = ()
    """MCP servers whose tools it has."""
    skills: tuple[str, ...] = ()
    """Preloaded skills."""
    notes: tuple[str, ...] = ()


class BackgroundAgentLaunchResult(Struct, frozen=True, kw_only=True):
    """Agent that runs in the background; a notification reports its end."""

    agent: AgentId
    name: str
    description: str
    prompt: str
    output: Path
    resolved: ResolvedAgentSettings
    moved: bool = False
    """True if the caller waited for it until now."""


class RemoteAgentLaunchResult(Struct, frozen=True, kw_only=True):
    """Agent that is started on a machine of the cluster; a notification reports its end."""

    agent: AgentId
    name: str
    kind: str
    description: str
    session: str
    output: Path


class AgentStatusSnapshot(Struct, frozen=True, kw_only=True):
    """Status of an agent at one moment."""

    agent: AgentId
    """Id of the agent."""
    kind: str
    """Name of its definition."""
    name: str
    """Name of the agent."""
    description: str
    """What it was started for."""
    status: AgentRunStatus
    """Whether it runs, or how it ended."""
    parent: AgentId
    """Agent that started it."""
    background: bool
    """True if its parent does not wait for it."""
    tool_calls: int
    """Number of tool calls."""
    tokens: int
    """Tokens of all requests."""
    seconds: float
    """Time since its start."""
    doing: str = ""
    """Its current tool call."""
    completion: AgentResult | None = None
    """Its result, if it has ended."""
    output: str = ""
    """Output file."""


class AgentMessageDeliveryReceipt(Struct, frozen=True, kw_only=True):
    """Delivery of a message: a running agent gets it at its next step, an ended one is resumed."""

    to: AgentId
    """Id of the agent."""
    name: str
    """Name of the agent."""
    how: Literal["queued", "resumed"]
    """`queued` for a running agent, `resumed` for one that had ended."""
    output: str = ""
    """Output file of the agent."""


class AgentOperations(Protocol):
    """Operations on a session's agents, for tools. All raise `AgentRequestRefused`."""

    async def start_agent(
        self, request: SpawnRequest, context: ToolContext
    ) -> AgentResult | BackgroundAgentLaunchResult | RemoteAgentLaunchResult: ...

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext
    ) -> tuple[AgentMessageDeliveryReceipt, ...]:
        """Send to a name, an id, or all running agents (`*`)."""
        ...

    async def poll_agent(self, agent: str, *, seconds: float, context: ToolContext) -> AgentStatusSnapshot:
        """Return its status after waiting at most `seconds` for its end.

        A caller that sees the end this way gets no notification.
        """
        ...

    async def stop_agent(self, agent: str, context: ToolContext) -> AgentStatusSnapshot: ...

    def list_agents(self) -> tuple[AgentStatusSnapshot, ...]:
        """Return all agents ever started, in order."""
        ...
