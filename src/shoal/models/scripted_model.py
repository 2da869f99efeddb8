"""Model with scripted replies, for the demo, tests, benchmarks and user scripts.

Its replies are a sequence, given in order, or a function of the request. `from_file` reads a script in JSON
or TOML; see `shoal.wire.model_script_codec` for the format.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.messages import (
    BaseContentBlock,
    ContentBlock,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ignore_stream_delta,
)
from shoal.core.errors import ModelError
from shoal.core.keyword_checks import check_keywords
from shoal.wire.model_script_codec import (
    ModelScriptMatchContext,
    ModelScriptStep,
    RemainingModelScriptSteps,
    read_model_script_with_options,
)

SCRIPTED_CARD = ModelCard(id="scripted", provider="scripted", price=TokenPrice(input=0.0, output=0.0))
_WORD = re.compile(r"\S+\s*|\s+")
_CLAUSE = re.compile(r"(?:\S+\s*){1,16}|\s+")
_ATTEMPT_STARTED = ModelAttemptStartedDelta()
_IMAGE_TOKENS = 1_500
_MAX_CACHED_CONVERSATIONS = 256
"""Number of conversations whose size is cached."""


class ScriptedReply(Struct, frozen=True, kw_only=True):
    """A reply with values that are usually derived: usage, stop reason, and a delay in seconds before it."""

    content: tuple[ContentBlock, ...]
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    delay: float = 0.0


ReplyLike: TypeAlias = (
    str | ContentBlock | Message | ModelReply | ScriptedReply | ModelError | Sequence[str | ContentBlock]
)
"""A scripted reply in any accepted form; a `ModelError` is raised."""
ReplySource: TypeAlias = Callable[[ModelRequest], ReplyLike] | Sequence[ReplyLike]


class ScriptedModel:
    """Gives scripted replies. With a `pace`, it waits that many seconds per word on the clock."""

    @check_keywords("shoal.ScriptedModel()")
    def __init__(
        self,
        replies: ReplySource,
        *,
        card: ModelCard = SCRIPTED_CARD,
        clock: Clock | None = None,
        pace: float = 0.0,
    ) -> None:
        if inspect.iscoroutinefunction(replies):
            raise TypeError(
                "shoal.ScriptedModel(): expected a plain function, got an async one. Write `def`, or pass a "
                "model of your own with an async generate_reply."
            )
        self._choose_reply = replies if callable(replies) else _create_ordered_reply_chooser(replies, card)
        self._card = card
        self._clock = clock or SystemClock()
        self._pace = pace
        self._reply_count = 0
        self._call_count = 0
        self._prompt_sizes = _PromptTokenEstimator()

    @classmethod
    def from_file(cls, path: Path, *, clock: Clock | None = None, pace: float | None = None) -> ScriptedModel:
        """Load a script; its own pace is the default. Raises `SettingsError` if it cannot be used."""
        script, options = read_model_script_with_options(path, ModelScriptStep)
        steps, card = RemainingModelScriptSteps(script), structs.replace(SCRIPTED_CARD, price=options.price)

        def choose_reply(request: ModelRequest) -> ReplyLike:
            step = steps.take_matching_step(build_script_match_context(request))
            if step is None:
                raise _build_no_scripted_reply_error(
                    f"No remaining step of the script {path} matches", request, card
                )
            return ScriptedReply(
                content=step.content, usage=step.usage, stop_reason=step.stop_reason, delay=step.delay
            )

        return cls(choose_reply, card=card, clock=clock, pace=options.pace if pace is None else pace)

    @property
    def card(self) -> ModelCard:
        """Name, limits and prices of the model."""
        return self._card

    async def generate_reply(
        self, request: ModelRequest, on_delta: DeltaListener = ignore_stream_delta
    ) -> ModelReply:
        chosen = self._choose_reply(request)
        await on_delta(_ATTEMPT_STARTED)
        if isinstance(chosen, ModelError):
            raise chosen
        self._reply_count += 1
        scripted = self._normalize_scripted_reply(chosen, request)
        if scripted.delay:
            await self._clock.sleep(scripted.delay)
        if on_delta is not ignore_stream_delta or self._pace:
            await self._stream_content_deltas(scripted.content, on_delta)
        usage = scripted.usage
        if usage is None:
            usage = Usage(
                input_tokens=self._prompt_sizes.estimate_tokens(request),
                output_tokens=max(1, sum(map(_measure_content_block, scripted.content)) // 4),
            )
        return ModelReply(
            message=Message(role="assistant", content=scripted.content),
            usage=usage,
            stop_reason=scripted.stop_reason or _derive_stop_reason(scripted.content),
            model=self._card.id,
            id=f"msg_{len(request.messages)}_{self._reply_count}",
        )

    async def aclose(self) -> None:
        """Do nothing: no resource is open."""

    def _normalize_scripted_reply(self, reply: ReplyLike, request: ModelRequest) -> ScriptedReply:
        match reply:
            case str():
                return ScriptedReply(content=(TextBlock(text=reply),))
            case ScriptedReply():
                scripted = reply
            case Message():
                scripted = ScriptedReply(content=reply.content)
            case ModelReply():
                scripted = ScriptedReply(
                    content=reply.message.content, usage=reply.usage, stop_reason=reply.stop_reason
                )
            case BaseContentBlock():
                scripted = ScriptedReply(content=(reply,))
            case ModelError():
                raise reply
            case _:
                _refuse_wrong_reply(reply)
                parts = (TextBlock(text=part) if isinstance(part, str) else part for part in reply)
                scripted = ScriptedReply(content=tuple(parts))
        for block in scripted.content:
            if isinstance(block, ToolUseBlock) and not block.id:
                return structs.replace(scripted, content=self._assign_call_ids(scripted.content, request))
        return scripted

    def _assign_call_ids(
        self, content: tuple[ContentBlock, ...], request: ModelRequest
    ) -> tuple[ContentBlock, ...]:
        blocks: list[ContentBlock] = []
        for block in content:
            if isinstance(block, ToolUseBlock) and not block.id:
                self._call_count += 1
                # The position in the conversation keeps ids unique when another process resumes it.
                call_id = f"toolu_{len(request.messages)}_{self._call_count}"
                blocks.append(ToolUseBlock(id=call_id, name=block.name, input=block.input))
            else:
                blocks.append(block)
        return tuple(blocks)

    async def _stream_content_deltas(
        self, content: tuple[ContentBlock, ...], on_delta: DeltaListener
    ) -> None:
        for block in content:
            match block:
                case TextBlock():
                    for chunk in self._split_text_into_deltas(block.text):
                        await self._wait_pace()
                        await on_delta(TextDelta(chunk))
                case ThinkingBlock():
                    for chunk in self._split_text_into_deltas(block.thinking):
                        await self._wait_pace()
                        await on_delta(ThinkingDelta(chunk))
                case ToolUseBlock():
                    await self._wait_pace()
                    await on_delta(ToolInputProgressDelta(block.name, len(msgspec.json.encode(block.input))))

    def _split_text_into_deltas(self, text: str) -> list[str]:
        return (_WORD if self._pace else _CLAUSE).findall(text)

    async def _wait_pace(self) -> None:
        if self._pace:
            await self._clock.sleep(self._pace)


class _PromptTokenEstimator:
    """Estimates prompt sizes. A conversation only grows, so each request measures only its new messages."""

    def __init__(self) -> None:
        # By the id() of a conversation's first message, which is kept alive so that the id stays unique.
        self._conversations: dict[int, tuple[Message, Message, int, int]] = {}
        self._tools: dict[int, tuple[object, int]] = {}

    def estimate_tokens(self, request: ModelRequest) -> int:
        size = len(request.system) + self._measure_tools(request) + self._measure_messages(request.messages)
        return max(1, size // 4)

    def _measure_messages(self, messages: Sequence[Message]) -> int:
        if not messages:
            return 0
        first, last, count, size = self._conversations.get(id(messages[0]), (messages[0], messages[0], 0, 0))
        if count > len(messages) or (count and messages[count - 1] is not last):
            count = size = 0
        for index in range(count, len(messages)):
            size += 16 + sum(map(_measure_content_block, messages[index].content))
        if len(self._conversations) >= _MAX_CACHED_CONVERSATIONS:
            self._conversations.clear()
        self._conversations[id(first)] = (first, messages[-1], len(messages), size)
        return size

    def _measure_tools(self, request: ModelRequest) -> int:
        if not request.tools:
            return 0
        cached = self._tools.get(id(request.tools))
        if cached is None or cached[0] is not request.tools:
            if len(self._tools) >= _MAX_CACHED_CONVERSATIONS:
                self._tools.clear()
            cached = (request.tools, len(msgspec.json.encode(request.tools)))
            self._tools[id(request.tools)] = cached
        return cached[1]


def _measure_content_block(block: ContentBlock) -> int:
    match block:
        case TextBlock():
            return len(block.text)
        case ToolUseBlock():
            return len(block.name) + len(msgspec.json.encode(block.input))
        case ToolResultBlock():
            content = block.content
            return len(content) if isinstance(content, str) else sum(map(_measure_content_block, content))
        case ThinkingBlock():
            return len(block.thinking)
        case ImageBlock():
            return 4 * _IMAGE_TOKENS
        case RedactedThinkingBlock():
            return len(block.data)


def _refuse_wrong_reply(reply: Any) -> None:
    """Raise `TypeError` unless the reply is a list of texts and blocks."""
    is_list = isinstance(reply, Sequence) and not isinstance(reply, bytes)
    for part in reply if is_list else (reply,):
        if not is_list or not isinstance(part, str | BaseContentBlock):
            raise TypeError(
                f"shoal.ScriptedModel(): expected a text, a block, a message, or a list of texts and blocks "
                f"as a reply, got {part!r:.80}."
            )


def _derive_stop_reason(content: tuple[ContentBlock, ...]) -> StopReason:
    for block in content:
        if isinstance(block, ToolUseBlock):
            return "tool_use"
    return "end_turn"


def _create_ordered_reply_chooser(
    replies: Sequence[ReplyLike], card: ModelCard
) -> Callable[[ModelRequest], ReplyLike]:
    given: object = replies
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            "A scripted model takes a function or a sequence of replies. Put a single reply in a list."
        )
    remaining = iter(replies)

    def choose_reply(request: ModelRequest) -> ReplyLike:
        for reply in remaining:
            return reply
        raise _build_no_scripted_reply_error(
            f"All {len(replies)} scripted replies were used; none is left for", request, card
        )

    return choose_reply


def build_script_match_context(request: ModelRequest) -> ModelScriptMatchContext:
    return ModelScriptMatchContext(
        latest_input=lambda: _collect_unanswered_text(request),
        system_prompt=lambda: request.system,
        answer_count=lambda: sum(message.role == "assistant" for message in request.messages),
    )


def _collect_unanswered_text(request: ModelRequest) -> str:
    """Return the texts and tool results that the model has not answered yet."""
    texts: list[str] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        texts.append(_extract_message_text(message))
    return "\n".join(reversed(texts))


def _extract_message_text(message: Message) -> str:
    texts = []
    for block in message.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolResultBlock):
            texts.append(extract_tool_result_text(block))
    return "\n".join(texts)


def _build_no_scripted_reply_error(problem: str, request: ModelRequest, card: ModelCard) -> ModelError:
    text = _collect_unanswered_text(request)
    excerpt = text if len(text) <= 300 else f"{text[:300]}…"
    return ModelError(
        f"{problem} the request (message {len(request.messages)}): {excerpt!r}",
        provider=card.provider,
        model=card.id,
    )
