"""Agent runner: the identity, dependencies and state of one running agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from shoal.agent.conversation import Conversation
from shoal.core.accounts import Account
from shoal.core.clock import Clock
from shoal.core.entries import Billing
from shoal.core.events import Event, MessageAdded, Speaker
from shoal.core.hooks import NO_HOOKS, Hooks
from shoal.core.identity import Identity
from shoal.core.ids import Ids
from shoal.core.messages import (
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    result_text,
)
from shoal.core.ports import Desk, Inlet, Model, Permissions, Processes, Results, Workspace
from shoal.core.requests import Request, ToolSchema
from shoal.core.sandbox import Sandbox
from shoal.core.tools import Tool

Tell: TypeAlias = Callable[[Event], Awaitable[None]]

BYTES_PER_TOKEN = 4
ROOM_FOR_ERROR = 1_024
"""Safety margin in tokens, because messages since the provider's last count are estimated."""
LEAST_ANSWER = 1_024
IMAGE_TOKENS = 1_500


class Surroundings(Struct, frozen=True, kw_only=True):
    """Environment of the agent's tools, the same for all its calls."""

    workspace: Workspace
    processes: Processes
    desk: Desk
    results: Results
    env: Mapping[str, str]
    sandbox: Sandbox | None = None
    """Sandbox of this agent alone, as in a worktree; None is that of the session."""


class Bounds(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    result_limit: int = 100_000
    """Maximum characters of one tool result in the conversation; the rest is read by reference."""
    compact_at: float = 0.85
    """Fraction of the model's window at which the conversation is compacted."""
    max_tokens: int | None = None
    thinking_tokens: int = 0


class Held(Struct, frozen=True, kw_only=True):
    """Temporary restriction to some tools, while the model still sees all of them."""

    tools: frozenset[str]
    why: str
    """Text of the refusal of each call of another tool."""
    reminder: str
    """Reminder added after the calls of each message."""


class Agent(Struct, kw_only=True):
    identity: Identity
    model: Model
    system: str
    tools: Mapping[str, Tool]
    conversation: Conversation
    surroundings: Surroundings
    permissions: Permissions
    purse: Account
    inlet: Inlet
    tell: Tell
    clock: Clock
    ids: Ids
    bounds: Bounds
    hooks: Hooks = NO_HOOKS
    halted: str = ""
    """Reason why a hook or a person stops it; empty if none does."""
    schemas: tuple[ToolSchema, ...] = ()
    context_tokens: int = 0
    """Tokens of the next request: the provider's last count plus an estimate of later messages."""
    api_seconds: float = 0.0
    replies: int = 0
    """Number of replies of the model."""
    held: Held | None = None
    briefing: Callable[[], Awaitable[str]] | None = None
    """Builds the text that is repeated after each compaction, whatever the summary leaves out."""
    remember: Callable[[Agent, list[Message]], Awaitable[str]] | None = None
    """Saves memories before a compaction; returns the text to add to the summary."""

    def __post_init__(self) -> None:
        self.schemas = tuple([tool.schema for tool in self.tools.values()])
        self.recount()

    def give(self, tools: Mapping[str, Tool]) -> None:
        """Replace the tools from the next request on; running calls keep theirs."""
        before = _length(self.schemas)
        self.tools = tools
        self.schemas = tuple(tool.schema for tool in tools.values())
        self.context_tokens += (_length(self.schemas) - before) // BYTES_PER_TOKEN

    def recount(self) -> None:
        """Estimate the tokens again after the conversation was replaced."""
        said = (block for message in self.conversation.messages for block in message.content)
        shown = _length(self.schemas) + len(self.system)
        self.context_tokens = shown // BYTES_PER_TOKEN + sum(map(weight, said))

    def request(self, messages: list[Message] | None = None) -> Request:
        return Request(
            system=self.system,
            messages=self.conversation.messages if messages is None else messages,
            tools=self.schemas,
            max_tokens=self._answer_limit(),
            thinking_tokens=self.bounds.thinking_tokens,
        )

    def _answer_limit(self) -> int | None:
        """Return a lower limit if the history leaves less room: some providers reject what cannot fit."""
        usual = self.bounds.max_tokens or self.model.card.max_output
        left = self.model.card.window - self.context_tokens - ROOM_FOR_ERROR
        return self.bounds.max_tokens if usual <= left else max(LEAST_ANSWER, left)

    async def hear(self, message: Message, *, by: Speaker, delivered: str = "") -> None:
        """Add an incoming message. Only a person's message is a prompt; others are marked as meta."""
        entry = self.conversation.add(message, meta=by == "runtime", delivered=delivered)
        self.context_tokens += sum(map(weight, message.content))
        await self.tell(MessageAdded(agent=self.identity.agent, entry=entry, message=message, by=by))

    async def add(self, message: Message, *, billing: Billing | None = None, meta: bool = False) -> None:
        if billing is None:
            entry = self.conversation.add(message, meta=meta)
            self.context_tokens += sum(map(weight, message.content))
            await self.tell(
                MessageAdded(
                    agent=self.identity.agent, entry=entry, message=message, by=_speaker(message, meta=meta)
                )
            )
        else:
            entry = self.conversation.add(message, billing=billing, meta=meta)
            self.context_tokens = billing.usage.total_tokens
            await self.tell(
                MessageAdded(
                    agent=self.identity.agent,
                    entry=entry,
                    message=message,
                    by="model",
                    model=billing.model,
                    message_id=billing.message_id,
                    usage=billing.usage,
                    stop_reason=billing.stop_reason,
                )
            )


def _speaker(message: Message, *, meta: bool) -> Speaker:
    if any(isinstance(block, ToolResult) for block in message.content):
        return "tool"
    return "runtime" if meta else "person"


_lengths: dict[tuple[int, ...], tuple[tuple[ToolSchema, ...], int]] = {}
_KNOWN = 64


def _length(schemas: tuple[ToolSchema, ...]) -> int:
    """Return the characters of all schemas, cached: the agents of a session share the same tools."""
    key = tuple(map(id, schemas))
    known = _lengths.get(key)
    if known is not None:
        return known[1]
    if len(_lengths) >= _KNOWN:
        _lengths.clear()
    length = sum(len(each.name) + len(each.description) + len(str(each.input_schema)) for each in schemas)
    # The cache holds the schemas, so that no other object can reuse their ids.
    _lengths[key] = (schemas, length)
    return length


def weight(block: ContentBlock) -> int:
    """Estimate the tokens of a block."""
    match block:
        case Text():
            return len(block.text) // BYTES_PER_TOKEN
        case ToolResult():
            return len(result_text(block)) // BYTES_PER_TOKEN
        case ToolUse():
            return len(str(block.input)) // BYTES_PER_TOKEN
        case Thinking():
            return len(block.thinking) // BYTES_PER_TOKEN
        case Image():
            return IMAGE_TOKENS
        case _:
            return 0
