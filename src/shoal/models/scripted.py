"""Model with scripted replies, for the demo, tests, benchmarks and user scripts.

Its replies are a sequence, given in order, or a function of the request. `from_file` reads a script in JSON
or TOML; see `shoal.wire.model_script_codec` for the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import ModelError
from shoal.core.messages import (
    Block,
    ContentBlock,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    result_text,
)
from shoal.core.requests import (
    Hear,
    Reply,
    Request,
    Sent,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    unheard,
)
from shoal.core.usage import ModelCard, Price, Usage
from shoal.wire.script import Asked, Step, Steps, read_spoken

CARD = ModelCard(id="scripted", provider="scripted", price=Price(input=0.0, output=0.0))
_WORD = re.compile(r"\S+\s*|\s+")
_CLAUSE = re.compile(r"(?:\S+\s*){1,16}|\s+")
_SENT = Sent()
_IMAGE_TOKENS = 1_500
_KNOWN = 256
"""Number of conversations whose size is cached."""


class Line(Struct, frozen=True, kw_only=True):
    """A reply with values that are usually derived: usage, stop reason, and a delay in seconds before it."""

    content: tuple[ContentBlock, ...]
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    delay: float = 0.0


Sayable: TypeAlias = str | ContentBlock | Message | Reply | Line | ModelError | Sequence[str | ContentBlock]
"""A scripted reply in any accepted form; a `ModelError` is raised."""
Mind: TypeAlias = Callable[[Request], Sayable] | Sequence[Sayable]


class ScriptedModel:
    """Gives scripted replies. With a `pace`, it waits that many seconds per word on the clock."""

    def __init__(
        self,
        mind: Mind,
        *,
        card: ModelCard = CARD,
        clock: Clock | None = None,
        pace: float = 0.0,
    ) -> None:
        self._think = mind if callable(mind) else _in_order(mind, card)
        self._card = card
        self._clock = clock or SystemClock()
        self._pace = pace
        self._replies = 0
        self._calls = 0
        self._counted = _Counted()

    @classmethod
    def from_file(cls, path: Path, *, clock: Clock | None = None, pace: float | None = None) -> ScriptedModel:
        """Load a script; its own pace is the default. Raises `SettingsError` if it cannot be used."""
        script, voice = read_spoken(path, Step)
        steps, card = Steps(script), structs.replace(CARD, price=voice.price)

        def think(request: Request) -> Sayable:
            step = steps.take(asked(request))
            if step is None:
                raise _unscripted(f"No step of the script {path} is left that fits", request, card)
            return Line(
                content=step.content, usage=step.usage, stop_reason=step.stop_reason, delay=step.delay
            )

        return cls(think, card=card, clock=clock, pace=voice.pace if pace is None else pace)

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear = unheard) -> Reply:
        said = self._think(request)
        await hear(_SENT)
        if isinstance(said, ModelError):
            raise said
        self._replies += 1
        line = self._line(said, request)
        if line.delay:
            await self._clock.sleep(line.delay)
        if hear is not unheard or self._pace:
            await self._speak(line.content, hear)
        usage = line.usage
        if usage is None:
            usage = Usage(
                input_tokens=self._counted.prompt(request),
                output_tokens=max(1, sum(map(_size, line.content)) // 4),
            )
        return Reply(
            message=Message(role="assistant", content=line.content),
            usage=usage,
            stop_reason=line.stop_reason or _stop_reason(line.content),
            model=self._card.id,
            id=f"msg_{len(request.messages)}_{self._replies}",
        )

    async def aclose(self) -> None:
        """Do nothing: no resource is open."""

    def _line(self, said: Sayable, request: Request) -> Line:
        match said:
            case str():
                return Line(content=(Text(text=said),))
            case Line():
                line = said
            case Message():
                line = Line(content=said.content)
            case Reply():
                line = Line(content=said.message.content, usage=said.usage, stop_reason=said.stop_reason)
            case Block():
                line = Line(content=(said,))
            case ModelError():
                raise said
            case _:
                parts = (Text(text=part) if isinstance(part, str) else part for part in said)
                line = Line(content=tuple(parts))
        for block in line.content:
            if isinstance(block, ToolUse) and not block.id:
                return structs.replace(line, content=self._with_ids(line.content, request))
        return line

    def _with_ids(self, content: tuple[ContentBlock, ...], request: Request) -> tuple[ContentBlock, ...]:
        named: list[ContentBlock] = []
        for block in content:
            if isinstance(block, ToolUse) and not block.id:
                self._calls += 1
                # The position in the conversation keeps ids unique when another process resumes it.
                call_id = f"toolu_{len(request.messages)}_{self._calls}"
                named.append(ToolUse(id=call_id, name=block.name, input=block.input))
            else:
                named.append(block)
        return tuple(named)

    async def _speak(self, content: tuple[ContentBlock, ...], hear: Hear) -> None:
        for block in content:
            match block:
                case Text():
                    for words in self._phrases(block.text):
                        await self._pause()
                        await hear(TextDelta(words))
                case Thinking():
                    for words in self._phrases(block.thinking):
                        await self._pause()
                        await hear(ThinkingDelta(words))
                case ToolUse():
                    await self._pause()
                    await hear(ToolInputDelta(block.name, len(msgspec.json.encode(block.input))))

    def _phrases(self, text: str) -> list[str]:
        return (_WORD if self._pace else _CLAUSE).findall(text)

    async def _pause(self) -> None:
        if self._pace:
            await self._clock.sleep(self._pace)


class _Counted:
    """Estimates prompt sizes. A conversation only grows, so each request measures only its new messages."""

    def __init__(self) -> None:
        # By the id() of a conversation's first message, which is kept alive so that the id stays unique.
        self._known: dict[int, tuple[Message, Message, int, int]] = {}
        self._tools: dict[int, tuple[object, int]] = {}

    def prompt(self, request: Request) -> int:
        size = len(request.system) + self._tools_size(request) + self._messages_size(request.messages)
        return max(1, size // 4)

    def _messages_size(self, messages: Sequence[Message]) -> int:
        if not messages:
            return 0
        first, last, count, size = self._known.get(id(messages[0]), (messages[0], messages[0], 0, 0))
        if count > len(messages) or (count and messages[count - 1] is not last):
            count = size = 0
        for index in range(count, len(messages)):
            size += 16 + sum(map(_size, messages[index].content))
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[id(first)] = (first, messages[-1], len(messages), size)
        return size

    def _tools_size(self, request: Request) -> int:
        if not request.tools:
            return 0
        known = self._tools.get(id(request.tools))
        if known is None or known[0] is not request.tools:
            if len(self._tools) >= _KNOWN:
                self._tools.clear()
            known = (request.tools, len(msgspec.json.encode(request.tools)))
            self._tools[id(request.tools)] = known
        return known[1]


def _size(block: ContentBlock) -> int:
    match block:
        case Text():
            return len(block.text)
        case ToolUse():
            return len(block.name) + len(msgspec.json.encode(block.input))
        case ToolResult():
            content = block.content
            return len(content) if isinstance(content, str) else sum(map(_size, content))
        case Thinking():
            return len(block.thinking)
        case Image():
            return 4 * _IMAGE_TOKENS
        case RedactedThinking():
            return len(block.data)


def _stop_reason(content: tuple[ContentBlock, ...]) -> StopReason:
    for block in content:
        if isinstance(block, ToolUse):
            return "tool_use"
    return "end_turn"


def _in_order(said: Sequence[Sayable], card: ModelCard) -> Callable[[Request], Sayable]:
    if isinstance(said, str):
        raise TypeError("A mind is a function or a sequence of replies; a single reply is a list of one.")
    remaining = iter(said)

    def think(request: Request) -> Sayable:
        for reply in remaining:
            return reply
        raise _unscripted(f"All {len(said)} replies of the script were said, none is left for", request, card)

    return think


def asked(request: Request) -> Asked:
    return Asked(
        last=lambda: _since_last_answer(request),
        system=lambda: request.system,
        answers=lambda: sum(message.role == "assistant" for message in request.messages),
    )


def _since_last_answer(request: Request) -> str:
    """Return the texts and tool results that the model has not answered yet."""
    texts: list[str] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        texts.append(_heard(message))
    return "\n".join(reversed(texts))


def _heard(message: Message) -> str:
    texts = []
    for block in message.content:
        if isinstance(block, Text):
            texts.append(block.text)
        elif isinstance(block, ToolResult):
            texts.append(result_text(block))
    return "\n".join(texts)


def _unscripted(why: str, request: Request, card: ModelCard) -> ModelError:
    asked = _since_last_answer(request)
    excerpt = asked if len(asked) <= 300 else f"{asked[:300]}…"
    return ModelError(
        f"{why} what was asked (message {len(request.messages)}): {excerpt!r}",
        provider=card.provider,
        model=card.id,
    )
