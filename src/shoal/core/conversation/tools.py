"""Tool port: a tool, the context of a call, and its output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import Clock
from shoal.core.conversation.messages import ImageBlock, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.extensions.hooks import NO_HOOKS, HookDispatcher
from shoal.core.ids import IdGenerator
from shoal.core.keyword_checks import CheckedStruct
from shoal.core.permissions.sandbox import Sandbox
from shoal.core.ports import ProcessLauncher, QuestionBroker, ResultStore, Workspace

ProgressCallback: TypeAlias = Callable[[str], Awaitable[None]]
"""Async function that shows the progress of a call."""


TOOL_ALIASES = {"Task": "Agent"}
"""Other names that models use for tools, mapped to the names here."""


class ToolOutput(CheckedStruct, frozen=True, kw_only=True):
    """Output of a tool: text (and images) for the model, `data` for programs."""

    content: str | tuple[TextBlock | ImageBlock, ...]
    """What the model reads: text, or blocks."""
    is_error: bool = False
    """True if the call failed."""
    data: Mapping[str, Any] | None = None
    """Result as JSON values, for programs."""

    @property
    def text(self) -> str:
        """Text without the images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def create_tool_error_output(why: str) -> ToolOutput:
    """Create an error output that the model can act on."""
    return ToolOutput(content=why, is_error=True)


def build_hide_nothing_filter(top: str) -> Callable[[str], bool]:
    return lambda _: False


class ToolContext(Struct, frozen=True, kw_only=True):
    """Everything one tool call may use."""

    call_id: str
    """Id of the call."""
    calls: tuple[ToolUseBlock, ...] = ()
    """All calls of the message that contains this one."""
    agent: AgentIdentity
    """Agent that made the call."""
    workspace: Workspace
    """Files of the agent."""
    processes: ProcessLauncher
    """Commands of the agent."""
    question_broker: QuestionBroker
    """Questions to a person."""
    results: ResultStore
    """Where long results are stored."""
    clock: Clock
    """Clock of the session."""
    ids: IdGenerator
    """Generator of ids."""
    report_progress: ProgressCallback
    """Shows progress of the call to people."""
    env: Mapping[str, str]
    """Environment variables for commands."""
    unreadable_filter: Callable[[str], Callable[[str], bool]] = build_hide_nothing_filter
    """Returns a filter for a search below a directory: True for files it may not read. All are real paths."""
    sandbox: Sandbox | None = None
    """Sandbox of this agent, instead of the session's."""
    hooks: HookDispatcher = NO_HOOKS
    """Hooks of the agent."""
    call_timeout: float | None = None
    """Seconds that the caller allows, instead of the tool's default."""


@runtime_checkable
class SelfDescribingTool(Protocol):
    """Tool that adds to the question whether a call may run."""

    def describe_call(self, arguments: Mapping[str, Any]) -> str:
        """Return the consequences of a call as part of a sentence; empty if there is nothing to add."""
        ...

    def expand_call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments together with what they stand for, so that a person sees what would run."""
        ...


class Tool(Protocol):
    """A tool that agents can call."""

    @property
    def schema(self) -> ToolSchema:
        """Name, description and arguments, as shown to models."""

    @property
    def is_read_only(self) -> bool:
        """True if a call changes nothing."""
        ...

    @property
    def is_concurrent(self) -> bool:
        """True if a call may run concurrently with others: reads, and tools that order themselves."""
        ...

    @property
    def deadline(self) -> float | None:
        """Seconds that one call may take; None if the tool has its own deadline or waits for a person."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run a call. Invalid arguments give an error output that names them, not an exception."""
        ...


class ToolRegistry(dict[str, Tool]):
    """Tools of a session by name: those it is made with, and then those of the MCP servers."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__((tool.schema.name, tool) for tool in tools)
        self._server_tools: Mapping[str, Tool] = {}

    def replace_server_tools(self, tools: Mapping[str, Tool]) -> None:
        """Offer these tools of MCP servers instead of the earlier ones, after the other tools."""
        if tools is self._server_tools:
            return
        for name in self._server_tools:
            del self[name]
        self.update(tools)
        self._server_tools = tools
