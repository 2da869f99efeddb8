"""Conversation restored from transcript lines, in the form that models accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.entries import Billing, Compacted, Rewound, Said
from shoal.core.ids import EntryId
from shoal.core.messages import INTERRUPTED, ContentBlock, Message, ToolResult, ToolUse
from shoal.core.usage import Usage
from shoal.wire.transcript import Passed, Read, Title


class Prompt(Struct, frozen=True, kw_only=True):
    """Start of a turn; to undo it, continue after `parent`."""

    turn: int
    entry: EntryId
    parent: EntryId | None
    text: str


class Conversation(Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...]
    last: EntryId | None
    """Parent of the next entry."""
    interrupted: Message | None
    """Results for unanswered calls, to be appended before anything else."""
    usage: Usage
    turns: int
    """Number of all prompts, including undone ones, so that a turn number is never reused."""
    prompts: tuple[Prompt, ...]
    """Turns that are part of the current conversation."""
    model: str
    """Model of the last reply."""
    delivered: frozenset[str]
    """Ids of everything that was ever delivered."""
    answered: frozenset[str]
    """Calls that ever got a real result."""
    notes: tuple[str, ...]


def conversation(lines: Sequence[Read], agent: str = "", *, inherited: Sequence[Read] = ()) -> Conversation:
    """Restore the conversation of the lead or of a sub-agent; a fork continues after `inherited`."""
    known = [line for line in lines if line.agent == agent]
    linked = {line.entry.id: line.entry for line in (*inherited, *known) if not isinstance(line.entry, Title)}
    links = [line.entry for line in known if not isinstance(line.entry, Title) and line.entry.id is not None]
    everything = [entry for entry in links if isinstance(entry, Said)]
    last = links[-1].id if links else None
    if not links and inherited and not isinstance(inherited[-1].entry, Title):
        last = inherited[-1].entry.id
    chain, broken = _chain(linked, last)
    before = [line.entry for line in inherited if isinstance(line.entry, Said)]
    said = _with_siblings(chain, [*before, *everything])
    messages, patched = _patched(_merged(said))
    missing = _unanswered(messages)
    notes = [*_left_out(lines), *patched]
    if broken:
        notes.append("An earlier part of the conversation is missing from its file.")
    billed = _billed(everything)
    prompts = [entry for entry in everything if _is_prompt(entry)]
    inside = {entry.id for entry in said}
    return Conversation(
        messages=tuple(messages),
        last=last,
        interrupted=_interrupted(missing) if missing else None,
        usage=sum((billing.usage for billing in billed), Usage()),
        turns=len(prompts),
        prompts=tuple(
            Prompt(turn=turn, entry=entry.id, parent=entry.parent, text=entry.message.text)
            for turn, entry in enumerate(prompts, 1)
            if entry.id in inside
        ),
        model=billed[-1].model if billed else "",
        delivered=frozenset(entry.delivered for entry in everything if entry.delivered),
        answered=frozenset(
            result.tool_use_id
            for entry in everything
            for result in _results(entry.message)
            if result.content != INTERRUPTED
        ),
        notes=tuple(notes),
    )


def _chain(
    linked: dict[EntryId | None, Said | Compacted | Rewound | Passed], last: EntryId | None
) -> tuple[list[Said], bool]:
    """Return the entries from the start or latest compaction to `last`, and True if a link was missing."""
    chain: list[Said] = []
    seen: set[EntryId] = set()
    at = last
    while at is not None and at not in seen:
        seen.add(at)
        entry = linked.get(at)
        if entry is None:
            return chain[::-1], True
        if isinstance(entry, Compacted):
            break
        if isinstance(entry, Said):
            chain.append(entry)
        at = entry.parent
    return chain[::-1], False


def _with_siblings(chain: list[Said], everything: list[Said]) -> list[Said]:
    """Add the other lines of a reply: other programs split one reply and attach each result to its line."""
    inside = {entry.id for entry in chain}
    replies = {_reply(entry) for entry in chain} - {None}
    parts = {entry.id for entry in everything if _reply(entry) in replies}
    answered = {result.tool_use_id for entry in chain for result in _results(entry.message)}
    wanted = inside | parts
    for entry in everything:
        results = _results(entry.message)
        if entry.parent in parts and results and not answered.issuperset(r.tool_use_id for r in results):
            wanted.add(entry.id)
    if wanted == inside:
        return chain
    return [entry for entry in everything if entry.id in wanted]


def _reply(entry: Said) -> tuple[str, str | None] | None:
    """Return the key that lines of one reply share. Our replies are single lines with different requests."""
    if entry.billing is None or not entry.billing.message_id:
        return None
    return entry.billing.message_id, entry.billing.request


def _merged(said: Iterable[Said]) -> list[Message]:
    """Merge lines to one message per reply, and all results of its calls into the next message."""
    messages: list[Message] = []
    reply: tuple[str, str | None] | None = None
    place = -1
    for entry in said:
        message = entry.message
        if not message.content:
            continue
        if message.role == "assistant" and reply is not None and _reply(entry) == reply:
            messages[place] = _joined(messages[place], message)
        elif _only_results(message) and messages and _only_results(messages[-1]):
            messages[-1] = _joined(messages[-1], message)
        else:
            messages.append(message)
            if message.role == "assistant":
                reply, place = _reply(entry), len(messages) - 1
            elif not _only_results(message):
                reply = None
    return messages


def _joined(first: Message, second: Message) -> Message:
    return replace(first, content=first.content + second.content)


def _patched(messages: list[Message]) -> tuple[list[Message], list[str]]:
    """Return a history that all providers accept: no result without its call, no call without its result."""
    mended: list[Message] = []
    notes: Counter[str] = Counter()
    calls: tuple[ToolUse, ...] = ()
    for message in messages:
        answers = {call.id for call in calls}
        content: tuple[ContentBlock, ...] = tuple(
            block
            for block in message.content
            if not isinstance(block, ToolResult) or block.tool_use_id in answers
        )
        notes["Results without a call were left out"] += len(message.content) - len(content)
        given = {result.tool_use_id for result in _results(message)}
        open_calls = [call for call in calls if call.id not in given]
        if open_calls and not (message is messages[-1] and _only_results(message)):
            notes["Calls without a result were marked as interrupted"] += len(open_calls)
            results = _interrupted(open_calls).content
            if message.role == "user":
                content = results + content
            else:
                mended.append(Message(role="user", content=results))
        calls = message.tool_uses
        if content:
            mended.append(replace(message, content=content))
    return mended, [f"{what}: {count}." for what, count in notes.items() if count]


def _unanswered(messages: list[Message]) -> list[ToolUse]:
    """Return the calls of the newest reply that have no result yet."""
    given: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return [call for call in message.tool_uses if call.id not in given]
        if not _only_results(message):
            return []
        given |= {result.tool_use_id for result in _results(message)}
    return []


def _interrupted(calls: Iterable[ToolUse]) -> Message:
    return Message(
        role="user",
        content=tuple(ToolResult(tool_use_id=call.id, content=INTERRUPTED, is_error=True) for call in calls),
    )


def _results(message: Message) -> list[ToolResult]:
    return [block for block in message.content if isinstance(block, ToolResult)]


def _only_results(message: Message) -> bool:
    return bool(message.content) and all(isinstance(block, ToolResult) for block in message.content)


def _is_prompt(entry: Said) -> bool:
    said_later = entry.meta or entry.summary or bool(entry.delivered)
    return entry.message.role == "user" and not (said_later or _results(entry.message))


def _billed(said: Iterable[Said]) -> list[Billing]:
    """Return one billing per reply: each line of a reply repeats its usage, and the last one is complete."""
    by_reply: dict[object, Billing] = {}
    for entry in said:
        if entry.billing is not None:
            by_reply[_reply(entry) or entry.id] = entry.billing
    return list(by_reply.values())


def _left_out(lines: Iterable[Read]) -> list[str]:
    kinds: Counter[str] = Counter()
    for line in lines:
        if isinstance(line.entry, Passed):
            kinds[line.entry.kind] += 1
        kinds.update(line.left_out)
    if not kinds:
        return []
    named = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(8))
    return [f"Left out of the conversation, because Shoal does not know it: {named}."]
