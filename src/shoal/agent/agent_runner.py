"""Agent runner: the identity, dependencies and state of one running agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from shoal.agent.conversation import Conversation
from shoal.agent.repetition_guard import RepetitionGuard
from shoal.core.agents.agent_definitions import name_effort_level
from shoal.core.agents.identity import AgentIdentity
from shoal.core.budgets.agent_budgets import AgentBudget
from shoal.core.clock import Clock
from shoal.core.conversation.messages import (
    ContentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest, ToolSchema
from shoal.core.conversation.tools import Tool
from shoal.core.conversation.transcript_entries import ModelReplyMetadata
from shoal.core.events import Event, MessageAdded, MessageAuthor
from shoal.core.extensions.hooks import NO_HOOKS, HookDispatcher
from shoal.core.extensions.instruction_files import PathInstructions, ServerInstructions
from shoal.core.ids import IdGenerator
from shoal.core.permissions.sandbox import Sandbox
from shoal.core.plan_mode_model import PlanModeModel
from shoal.core.ports import (
    AgentInbox,
    Journal,
    Model,
    PermissionPolicy,
    ProcessLauncher,
    QuestionBroker,
    ResultStore,
    WorkCheckpoints,
    Workspace,
)

EmitEvent: TypeAlias = Callable[[Event], Awaitable[None]]

BYTES_PER_TOKEN = 4
ESTIMATE_MARGIN_TOKENS = 1_024
"""Safety margin in tokens, because messages since the provider's last count are estimated."""
MIN_ANSWER_TOKENS = 1_024
IMAGE_TOKENS = 1_500


class AgentEnvironment(Struct, frozen=True, kw_only=True):
    """Services of the agent and its tools, the same for all its calls."""

    workspace: Workspace
    processes: ProcessLauncher
    question_broker: QuestionBroker
    results: ResultStore
    env: Mapping[str, str]
    clock: Clock
    ids: IdGenerator
    emit: EmitEvent
    session_tools: Mapping[str, Tool]
    """Tools of the session, from which agents get their own."""
    sandbox: Sandbox | None = None
    """Sandbox of this agent alone, as in a worktree; None is that of the session."""
    journal: Journal | None = None
    """Journal of the run, in which changes by other agents are found."""
    checkpoints: WorkCheckpoints | None = None
    """Checkpoints of the agent's files, if its machine may be lost without its lead."""


class LoopLimits(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    result_limit: int = 100_000
    """Maximum characters of one tool result in the conversation; the rest is read by reference."""
    compact_at: float = 0.85
    """Fraction of the model's window at which the conversation is compacted."""
    max_tokens: int | None = None
    thinking_tokens: int = 0
    adaptive_thinking: bool = False
    """True if a model that decides itself how much to think may do so without thinking tokens."""
    has_fixed_thinking: bool = False
    """True if the effort of an agent or a skill does not change the thinking tokens."""
    auto_compact: bool = True
    """False if the conversation is compacted only when someone asks for it."""
    bash_result_limit: int | None = None
    """Maximum characters of a shell command's output, if it differs."""
    mcp_result_limit: int | None = None
    """Maximum characters of a result of an MCP tool, if it differs."""
    max_repeated_calls: int | None = None
    """Number of times in a row that a call may have the same result before the agent counts as looping."""
    max_unproductive_messages: int | None = None
    """Number of messages to one agent, with no change to a task or file, before the sender counts as
    looping."""

    def get_result_limit(self, tool: str) -> int:
        limit = self.bash_result_limit if tool == "Bash" else None
        if tool.startswith("mcp__"):
            limit = self.mcp_result_limit
        return limit or self.result_limit


class TemporaryToolRestriction(Struct, frozen=True, kw_only=True):
    """Temporary restriction to some tools, while the model still sees all of them."""

    tools: frozenset[str]
    refusal_reason: str
    """Refusal text for each call of another tool."""
    reminder: str
    """Reminder added after the calls of each message."""


class AgentLoopState(Struct, kw_only=True):
    halt_reason: str = ""
    """Reason why a hook, a person or the runtime stops it; empty if none does."""
    has_unstored_files: bool = False
    """True if the turn ended although files on another machine could not be stored."""
    context_tokens: int = 0
    """Number of tokens in the next request: the provider's last count plus an estimate of later messages."""
    api_seconds: float = 0.0
    reply_count: int = 0
    """Number of replies from the model."""
    tool_restriction: TemporaryToolRestriction | None = None
    turn_thinking_tokens: int | None = None
    """Thinking tokens until the turn ends, in place of the agent's, if it thinks at all."""
    has_noted_missing_usage: bool = False
    is_told_to_plan: bool = False
    """True if the conversation says that it is in plan mode."""
    repetition: RepetitionGuard = field(default_factory=RepetitionGuard)


class SentToolSchemas(Struct, frozen=True, kw_only=True):
    """Schemas of an agent's tools that are sent with each request."""

    sent: tuple[ToolSchema, ...] = ()
    deferred: frozenset[str] = frozenset()
    """Tools whose schemas are sent only once they are loaded."""
    loaded: frozenset[str] = frozenset()
    requested: tuple[ToolSchema, ...] = ()
    """Schemas in the last request. Their tools stay in this order, because a prompt cache depends on it."""


class AgentContextSources(Struct, kw_only=True):
    """Sources of text that is added to an agent's conversation next to its messages."""

    build_briefing: Callable[[], Awaitable[str]] | None = None
    """Builds the text that is repeated after each compaction; empty if there is nothing to repeat."""
    path_instructions: PathInstructions | None = None
    """Instructions about files that it uses; None if it gets no instructions."""
    server_instructions: ServerInstructions | None = None
    """Instructions of MCP servers; None if it can have none."""
    save_memory: Callable[[AgentRunner, list[Message]], Awaitable[str]] | None = None
    """Saves memories before a compaction; returns the text to add to the summary."""
    read_mentions: Callable[[AgentRunner, Message], Awaitable[Message | None]] | None = None
    """Reads what a person's message mentions; None if there is nothing to add."""
    explain_missing_tool: Callable[[AgentRunner, str], str] | None = None
    """Explains why a tool that the agent called is not available yet; empty if there is no such tool."""


class AgentRunner(Struct, kw_only=True):
    identity: AgentIdentity
    model: Model
    system: str
    tools: Mapping[str, Tool]
    conversation: Conversation
    environment: AgentEnvironment
    permissions: PermissionPolicy
    budget: AgentBudget
    inbox: AgentInbox
    limits: LoopLimits
    hooks: HookDispatcher = NO_HOOKS
    schemas: SentToolSchemas = SentToolSchemas()
    state: AgentLoopState = field(default_factory=AgentLoopState)
    context: AgentContextSources = field(default_factory=AgentContextSources)

    @property
    def effort_level(self) -> str:
        """Level of its effort; it is `high` if nobody set one, whether the model thinks or not."""
        tokens = self.state.turn_thinking_tokens or self.limits.thinking_tokens
        return name_effort_level(tokens) if tokens else "high"

    @property
    def clock(self) -> Clock:
        return self.environment.clock

    @property
    def ids(self) -> IdGenerator:
        return self.environment.ids

    @property
    def current_model(self) -> Model:
        """Model for the next request, which may depend on the permission mode."""
        model = self.model
        return model.select_model(self.permissions.mode) if isinstance(model, PlanModeModel) else model

    def __post_init__(self) -> None:
        self._select_sent_schemas(self.schemas.deferred, self.schemas.loaded)
        self.reestimate_context_tokens()

    def set_model(self, model: Model) -> None:
        """Use another model from the next request on."""
        self.model = model

    def set_thinking_tokens(self, tokens: int | None) -> None:
        """Set the thinking budget from the next request on; None leaves it to models that can decide."""
        self.limits = replace(self.limits, thinking_tokens=tokens or 0, adaptive_thinking=tokens is None)

    def set_tools(self, tools: Mapping[str, Tool], deferred: frozenset[str] = frozenset()) -> None:
        """Replace the tools from the next request on; running calls keep theirs.

        The schemas of `deferred` tools are not sent, except for those that were loaded.
        """
        self._replace_tools(tools, deferred, self.schemas.loaded)

    def load_deferred_tools(self, names: Iterable[str]) -> None:
        """Send the schemas of these tools from the next request on."""
        self._replace_tools(self.tools, self.schemas.deferred, self.schemas.loaded | frozenset(names))

    def copy_tools(self, parent: AgentRunner) -> None:
        """Take the tools of another agent, and send the same schemas in the same order."""
        self.schemas = replace(self.schemas, requested=parent.schemas.requested)
        self._replace_tools(parent.tools, parent.schemas.deferred, parent.schemas.loaded)

    def _replace_tools(
        self, tools: Mapping[str, Tool], deferred: frozenset[str], loaded: frozenset[str]
    ) -> None:
        old_size = _measure_tool_schemas(self.schemas.sent)
        self.tools = tools
        self._select_sent_schemas(deferred, loaded)
        self.state.context_tokens += (_measure_tool_schemas(self.schemas.sent) - old_size) // BYTES_PER_TOKEN

    def _select_sent_schemas(self, deferred: frozenset[str], loaded: frozenset[str]) -> None:
        requested = self.schemas.requested
        if not deferred and not requested:
            self.schemas = SentToolSchemas(
                sent=tuple([tool.schema for tool in self.tools.values()]), loaded=loaded
            )
            return
        kept = {schema.name: None for schema in requested if schema.name in self.tools}
        hidden = (deferred - loaded).difference(kept)
        added = [name for name in self.tools if name not in hidden and name not in kept]
        # Loaded tools come last, so that the schemas before them stay the same.
        added.sort(key=lambda name: name in loaded)
        sent = tuple(self.tools[name].schema for name in (*kept, *added))
        self.schemas = SentToolSchemas(sent=sent, deferred=deferred, loaded=loaded, requested=requested)

    def reestimate_context_tokens(self) -> None:
        """Estimate the tokens again after the conversation was replaced."""
        blocks = (block for message in self.conversation.messages for block in message.content)
        prefix_size = _measure_tool_schemas(self.schemas.sent) + len(self.system)
        self.state.context_tokens = prefix_size // BYTES_PER_TOKEN + sum(map(estimate_block_tokens, blocks))

    def build_model_request(self, messages: list[Message] | None = None) -> ModelRequest:
        if self.schemas.requested is not self.schemas.sent:
            self.schemas = replace(self.schemas, requested=self.schemas.sent)
        return ModelRequest(
            system=self.system,
            messages=self.conversation.messages if messages is None else messages,
            tools=self.schemas.sent,
            max_tokens=self._compute_max_reply_tokens(),
            thinking_tokens=self._get_thinking_tokens(),
            adaptive_thinking=self.limits.adaptive_thinking,
            adaptive_tokens=self.state.turn_thinking_tokens or 0,
        )

    def _get_thinking_tokens(self) -> int:
        """Return the thinking tokens of the turn: a turn that began without thinking cannot start it."""
        own, turn = self.limits.thinking_tokens, self.state.turn_thinking_tokens
        return own if turn is None or not own else turn

    def _compute_max_reply_tokens(self) -> int | None:
        """Return a lower limit if the history leaves less room: some providers reject what cannot fit."""
        card = self.current_model.card
        wanted_tokens = self.limits.max_tokens or card.max_output
        tokens_left = card.window - self.state.context_tokens - ESTIMATE_MARGIN_TOKENS
        return self.limits.max_tokens if wanted_tokens <= tokens_left else max(MIN_ANSWER_TOKENS, tokens_left)

    async def receive_message(self, message: Message, *, by: MessageAuthor, delivered: str = "") -> None:
        """Add an incoming message. Only a person's message is a prompt; others are marked as meta."""
        entry = self.conversation.add_message(message, meta=by == "runtime", delivered=delivered)
        self.state.context_tokens += sum(map(estimate_block_tokens, message.content))
        await self.environment.emit(
            MessageAdded(agent=self.identity.agent, entry=entry, message=message, by=by)
        )

    async def add_message(
        self, message: Message, *, billing: ModelReplyMetadata | None = None, meta: bool = False
    ) -> None:
        if billing is None:
            entry = self.conversation.add_message(message, meta=meta)
            self.state.context_tokens += sum(map(estimate_block_tokens, message.content))
            await self.environment.emit(
                MessageAdded(
                    agent=self.identity.agent,
                    entry=entry,
                    message=message,
                    by=_infer_message_author(message, meta=meta),
                )
            )
        else:
            entry = self.conversation.add_message(message, billing=billing, meta=meta)
            if billing.usage.is_count_of_reply:
                self.state.context_tokens = billing.usage.total_tokens
            else:
                self.state.context_tokens += sum(map(estimate_block_tokens, message.content))
            await self.environment.emit(
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


def _infer_message_author(message: Message, *, meta: bool) -> MessageAuthor:
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            return "tool"
    return "runtime" if meta else "person"


_schema_lengths: dict[tuple[int, ...], tuple[tuple[ToolSchema, ...], int]] = {}
_MAX_CACHED_LENGTHS = 64


def _measure_tool_schemas(schemas: tuple[ToolSchema, ...]) -> int:
    """Return the characters of all schemas, cached: the agents of a session share the same tools."""
    key = tuple(map(id, schemas))
    cached = _schema_lengths.get(key)
    if cached is not None:
        return cached[1]
    if len(_schema_lengths) >= _MAX_CACHED_LENGTHS:
        _schema_lengths.clear()
    length = sum(len(each.name) + len(each.description) + len(str(each.input_schema)) for each in schemas)
    # The cache holds the schemas, so that no other object can reuse their ids.
    _schema_lengths[key] = (schemas, length)
    return length


def estimate_block_tokens(block: ContentBlock) -> int:
    """Estimate the tokens of a block."""
    match block:
        case ToolResultBlock():
            return len(extract_tool_result_text(block)) // BYTES_PER_TOKEN
        case TextBlock():
            return len(block.text) // BYTES_PER_TOKEN
        case ToolUseBlock():
            return len(str(block.input)) // BYTES_PER_TOKEN
        case ThinkingBlock():
            return len(block.thinking) // BYTES_PER_TOKEN
        case ImageBlock():
            return IMAGE_TOKENS
        case _:
            return 0
