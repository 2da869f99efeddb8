"""Conversation restored from transcript lines, in the form that models accept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.inbox_items import split_item_ids
from shoal.core.conversation.left_out_images import count_images, leave_out_images
from shoal.core.conversation.messages import (
    INTERRUPTED_RESULT,
    MISSING_HISTORY,
    ContentBlock,
    Message,
    ToolResultBlock,
    ToolUseBlock,
    user_message,
)
from shoal.core.conversation.restored_conversation import RestoredConversation, RestoredPrompt
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptImageMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, SessionId
from shoal.core.teams.compact_id_set import CompactIdSet
from shoal.wire.json_codec import decode_json, encode_json, is_complete_json_line
from shoal.wire.transcript_codec import (
    UNTYPED,
    ParsedTranscriptLine,
    TranscriptTitleEntry,
    UnknownTranscriptEntry,
    parse_transcript_line,
)


class EarlierConversation:
    """Facts about the lines before a compaction, which a restored conversation needs in addition to the other
    lines."""

    snapshot_modules: ClassVar[tuple[str, ...]] = (
        __name__,
        "shoal.core.budgets.usage",
        "shoal.core.conversation.messages",
        "shoal.core.conversation.transcript_entries",
        "shoal.core.teams.compact_id_set",
        "shoal.wire.transcript_codec",
    )

    def __init__(self) -> None:
        self.turns = 0
        self.usage = Usage()
        self.model = self.cwd = ""
        self.delivered: set[str] = set()
        self.answered = CompactIdSet(key=os.urandom(16))
        self.skipped: Counter[str] = Counter()
        self.unreadable = 0
        self.damaged = DamagedLines()

    def add_lines(self, lines: Sequence[ParsedTranscriptLine], agent: str, unreadable: int) -> None:
        self.unreadable += unreadable
        messages = [
            line.entry
            for line in lines
            if line.agent == agent and isinstance(line.entry, TranscriptMessageEntry)
        ]
        billings = _collect_reply_billing(messages)
        self.turns += sum(map(_is_user_prompt_entry, messages))
        self.usage = sum((billing.usage for billing in billings), self.usage)
        self.model = billings[-1].model if billings else self.model
        self.cwd = next((line.cwd for line in reversed(lines) if line.cwd), self.cwd)
        self.delivered.update(_list_delivered_ids(messages))
        self.answered.add_ids(_list_answered_calls(messages))
        self.skipped.update(_count_skipped_transcript_parts(lines))
        self.damaged += DamagedLines.find(lines, agent)


class DamagedLines(Struct, frozen=True):
    """Lines that are JSON, but not as Shoal wrote them."""

    own: int = 0
    untyped: int = 0
    """Lines without a type. Others may write them next to their own: they are damage if Shoal wrote the other
    lines, or if there are no others."""
    has_own_lines: bool = False
    has_typed_lines: bool = False

    @classmethod
    def find(cls, lines: Iterable[ParsedTranscriptLine], agent: str) -> DamagedLines:
        own = untyped = 0
        has_own_lines = has_typed_lines = False
        for line in lines:
            has_own_lines = has_own_lines or line.is_own
            if line.is_own:
                own += line.is_damaged or line.agent != agent
            elif isinstance(line.entry, UnknownTranscriptEntry) and line.entry.kind == UNTYPED:
                untyped += 1
            else:
                has_typed_lines = True
        return cls(own, untyped, has_own_lines, has_typed_lines)

    def __add__(self, other: DamagedLines) -> DamagedLines:
        return DamagedLines(
            self.own + other.own,
            self.untyped + other.untyped,
            self.has_own_lines or other.has_own_lines,
            self.has_typed_lines or other.has_typed_lines,
        )

    @property
    def count(self) -> int:
        is_foreign = self.has_typed_lines and not self.has_own_lines
        return self.own + (0 if is_foreign else self.untyped)


def restore_transcript(
    content: bytes, agent: str = "", *, inherited: Sequence[ParsedTranscriptLine] = ()
) -> RestoredConversation:
    """Restore the conversation of the lead or of a sub-agent from the lines of its transcript."""
    lines, notes, unreadable = parse_transcript_lines(content)
    conversation = restore_conversation(lines, agent, inherited=inherited)
    cwd = next((line.cwd for line in reversed(lines) if line.cwd), "")
    unreadable += DamagedLines.find(lines, agent).count
    if unreadable:
        notes.append(format_unreadable_lines_note(unreadable))
    return replace(conversation, cwd=cwd, notes=(*notes, *conversation.notes), unreadable=unreadable)


def restore_agent_transcript(content: bytes, agent: AgentId) -> RestoredConversation:
    """Restore the conversation of an agent; the lines of the lead name no agent."""
    return restore_transcript(content, "" if agent == LEAD_ID else agent)


def parse_lines_up_to_entry(
    content: bytes, entry: EntryId, agent: str = ""
) -> tuple[ParsedTranscriptLine, ...]:
    """Return the lines up to an entry, for a fork that starts after it; empty if the entry is missing."""
    lines, _, _ = parse_transcript_lines(content)
    agent_lines = [line for line in lines if line.agent == agent]
    for index, line in enumerate(agent_lines):
        if not isinstance(line.entry, TranscriptTitleEntry) and line.entry.id == entry:
            return tuple(agent_lines[: index + 1])
    return ()


def rewrite_transcript_session(content: bytes, session: SessionId) -> bytes:
    """Return the lines of a transcript for another session id, without torn ones."""
    return b"".join(_rewrite_session_id(session, line) for line in content.split(b"\n"))


def _rewrite_session_id(session: SessionId, line: bytes) -> bytes:
    """Return the line with another session id and the rest unchanged; empty for a torn line."""
    try:
        raw = decode_json(line)
    except ValueError:
        return b""
    if isinstance(raw, dict) and "sessionId" in raw:
        return encode_json(raw | {"sessionId": session}) + b"\n"
    return line + b"\n"


def parse_transcript_lines(content: bytes) -> tuple[list[ParsedTranscriptLine], list[str], int]:
    """Return the lines of a transcript that are JSON, notes about its end, and the number of the others."""
    lines: list[ParsedTranscriptLine] = []
    notes: list[str] = []
    *complete_lines, last_line = content.split(b"\n")
    if last_line and is_complete_json_line(last_line):
        complete_lines.append(last_line)
    elif last_line:
        notes.append(format_incomplete_line_note(len(last_line)))
    unreadable = 0
    for line in complete_lines:
        if not line.strip():
            continue
        try:
            lines.append(parse_transcript_line(line))
        except ValueError:
            unreadable += 1
    return lines, notes, unreadable


def format_unreadable_lines_note(count: int) -> str:
    return f"Skipped invalid lines: {count}."


def format_incomplete_line_note(size: int) -> str:
    return f"The last line was incomplete ({size} bytes), so it was dropped."


def restore_conversation(
    lines: Sequence[ParsedTranscriptLine],
    agent: str = "",
    *,
    inherited: Sequence[ParsedTranscriptLine] = (),
    earlier: EarlierConversation | None = None,
) -> RestoredConversation:
    """Restore the conversation of the lead or of a sub-agent; a fork continues after `inherited`.

    `earlier` has the facts about the lines before the first one. The result takes them over.
    """
    earlier = EarlierConversation() if earlier is None else earlier
    agent_lines = [line for line in lines if line.agent == agent]
    entries_by_id = {
        line.entry.id: line.entry
        for line in (*inherited, *agent_lines)
        if not isinstance(line.entry, TranscriptTitleEntry)
    }
    links = [
        line.entry
        for line in agent_lines
        if not isinstance(line.entry, TranscriptTitleEntry) and line.entry.id is not None
    ]
    all_messages = [entry for entry in links if isinstance(entry, TranscriptMessageEntry)]
    last = links[-1].id if links else None
    if not links and inherited and not isinstance(inherited[-1].entry, TranscriptTitleEntry):
        last = inherited[-1].entry.id
    chain, is_broken = _build_entry_chain(entries_by_id, last, agent_lines)
    inherited_messages = [line.entry for line in inherited if isinstance(line.entry, TranscriptMessageEntry)]
    message_entries = _add_split_reply_lines(chain, [*inherited_messages, *all_messages])
    messages, patched = _repair_tool_result_pairing(_merge_split_replies(message_entries))
    missing = _find_unanswered_tool_calls(messages)
    notes = [
        *_describe_skipped_transcript_parts(earlier.skipped + _count_skipped_transcript_parts(lines)),
        *patched,
    ]
    if is_broken:
        notes.append("An earlier part of the conversation is missing from its file.")
    if messages and messages[0].role == "assistant":
        # Providers refuse a conversation that begins with a reply.
        messages.insert(0, user_message(MISSING_HISTORY))
    billings = _collect_reply_billing(all_messages)
    prompts = [entry for entry in all_messages if _is_user_prompt_entry(entry)]
    restored_ids = {entry.id for entry in message_entries}
    return RestoredConversation(
        messages=tuple(messages),
        last=last,
        interrupted=_build_interrupted_tool_results(missing) if missing else None,
        usage=sum((billing.usage for billing in billings), earlier.usage),
        turns=earlier.turns + len(prompts),
        prompts=tuple(
            RestoredPrompt(turn=turn, entry=entry.id, parent=entry.parent, text=entry.message.text)
            for turn, entry in enumerate(prompts, earlier.turns + 1)
            if entry.id in restored_ids
        ),
        model=billings[-1].model if billings else earlier.model,
        delivered=frozenset(_list_delivered_ids(all_messages)) | earlier.delivered,
        answered=_join_answered_calls(earlier, all_messages),
        notes=tuple(notes),
        is_broken=is_broken,
    )


def _build_entry_chain(
    entries_by_id: dict[
        EntryId | None,
        TranscriptMessageEntry
        | TranscriptCompactionMarker
        | TranscriptRewindMarker
        | TranscriptImageMarker
        | UnknownTranscriptEntry,
    ],
    last: EntryId | None,
    lines: Sequence[ParsedTranscriptLine],
) -> tuple[list[TranscriptMessageEntry], bool]:
    """Return the entries from the start or latest compaction to `last`, and True if a link was missing.

    Where a link of Shoal leads nowhere, the chain continues with the line of Shoal before it.
    """
    chain: list[TranscriptMessageEntry] = []
    seen_ids: set[EntryId] = set()
    left_out, notice = 0, ""
    is_broken = False
    lines_before: dict[EntryId, EntryId | None] = {}
    entry_id, linked_from = last, EntryId("")
    while entry_id is not None and entry_id not in seen_ids:
        entry = entries_by_id.get(entry_id)
        if entry is None:
            is_broken = True
            lines_before = lines_before or _map_to_lines_before(lines)
            entry_id = lines_before.get(linked_from)
            continue
        seen_ids.add(entry_id)
        linked_from = entry_id
        if isinstance(entry, TranscriptImageMarker):
            left_out, notice = left_out + max(entry.count, 0), entry.notice
        if isinstance(entry, TranscriptCompactionMarker):
            break
        if isinstance(entry, TranscriptMessageEntry):
            if left_out > 0 and (count := count_images(entry.message)):
                left_out -= count
                entry = replace(entry, message=leave_out_images(entry.message, notice))
            chain.append(entry)
        entry_id = entry.parent
    return chain[::-1], is_broken


def _map_to_lines_before(lines: Sequence[ParsedTranscriptLine]) -> dict[EntryId, EntryId | None]:
    """Return the entry in the line before each entry of Shoal; None if Shoal did not write that line."""
    found: dict[EntryId, EntryId | None] = {}
    before: EntryId | None = None
    for line in lines:
        if isinstance(line.entry, TranscriptTitleEntry) or line.entry.id is None:
            continue
        if line.is_own:
            found.setdefault(line.entry.id, before)
        before = line.entry.id if line.is_own else None
    return found


def _add_split_reply_lines(
    chain: list[TranscriptMessageEntry], all_messages: list[TranscriptMessageEntry]
) -> list[TranscriptMessageEntry]:
    """Add the other lines of a reply: other programs split one reply and attach each result to its line."""
    chain_ids = {entry.id for entry in chain}
    replies = {_get_model_reply_key(entry) for entry in chain} - {None}
    parts = {entry.id for entry in all_messages if _get_model_reply_key(entry) in replies}
    answered_calls = {result.tool_use_id for entry in chain for result in _get_tool_results(entry.message)}
    included_ids = chain_ids | parts
    for entry in all_messages:
        results = _get_tool_results(entry.message)
        if (
            entry.parent in parts
            and results
            and not answered_calls.issuperset(r.tool_use_id for r in results)
        ):
            included_ids.add(entry.id)
    if included_ids == chain_ids:
        return chain
    chain_entries = {entry.id: entry for entry in chain}
    return [chain_entries.get(entry.id, entry) for entry in all_messages if entry.id in included_ids]


def _get_model_reply_key(entry: TranscriptMessageEntry) -> tuple[str, str | None] | None:
    """Return the key that lines of one reply share. Our replies are single lines with different requests."""
    if entry.billing is None or not entry.billing.message_id:
        return None
    return entry.billing.message_id, entry.billing.request


def _merge_split_replies(entries: Iterable[TranscriptMessageEntry]) -> list[Message]:
    """Merge lines to one message per reply, and all results of its calls into the next message."""
    messages: list[Message] = []
    reply: tuple[str, str | None] | None = None
    index = -1
    for entry in entries:
        message = entry.message
        if not message.content:
            continue
        if message.role == "assistant" and reply is not None and _get_model_reply_key(entry) == reply:
            messages[index] = _join_messages(messages[index], message)
        elif _has_only_tool_results(message) and messages and _has_only_tool_results(messages[-1]):
            messages[-1] = _join_messages(messages[-1], message)
        else:
            messages.append(message)
            if message.role == "assistant":
                reply, index = _get_model_reply_key(entry), len(messages) - 1
            elif not _has_only_tool_results(message):
                reply = None
    return messages


def _join_messages(first: Message, second: Message) -> Message:
    return replace(first, content=first.content + second.content)


def _repair_tool_result_pairing(messages: list[Message]) -> tuple[list[Message], list[str]]:
    """Return a history that all providers accept: no result without its call, no call without its result."""
    repaired: list[Message] = []
    notes: Counter[str] = Counter()
    calls: tuple[ToolUseBlock, ...] = ()
    for message in messages:
        answers = {call.id for call in calls}
        content: tuple[ContentBlock, ...] = tuple(
            block
            for block in message.content
            if not isinstance(block, ToolResultBlock) or block.tool_use_id in answers
        )
        notes["Results without a call were left out"] += len(message.content) - len(content)
        result_ids = {result.tool_use_id for result in _get_tool_results(message)}
        open_calls = [call for call in calls if call.id not in result_ids]
        if open_calls and not (message is messages[-1] and _has_only_tool_results(message)):
            notes["Calls without a result were marked as interrupted"] += len(open_calls)
            results = _build_interrupted_tool_results(open_calls).content
            if message.role == "user":
                content = results + content
            else:
                repaired.append(Message(role="user", content=results))
        calls = message.tool_uses
        if content:
            repaired.append(replace(message, content=content))
    return repaired, [f"{what}: {count}." for what, count in notes.items() if count]


def _find_unanswered_tool_calls(messages: list[Message]) -> list[ToolUseBlock]:
    """Return the calls of the newest reply that have no result yet."""
    result_ids: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return [call for call in message.tool_uses if call.id not in result_ids]
        if not _has_only_tool_results(message):
            return []
        result_ids |= {result.tool_use_id for result in _get_tool_results(message)}
    return []


def _build_interrupted_tool_results(calls: Iterable[ToolUseBlock]) -> Message:
    return Message(
        role="user",
        content=tuple(
            ToolResultBlock(tool_use_id=call.id, content=INTERRUPTED_RESULT, is_error=True) for call in calls
        ),
    )


def _get_tool_results(message: Message) -> list[ToolResultBlock]:
    return [block for block in message.content if isinstance(block, ToolResultBlock)]


def _has_only_tool_results(message: Message) -> bool:
    return bool(message.content) and all(isinstance(block, ToolResultBlock) for block in message.content)


def _is_user_prompt_entry(entry: TranscriptMessageEntry) -> bool:
    is_added_later = entry.meta or entry.summary or bool(entry.delivered)
    return entry.message.role == "user" and not (is_added_later or _get_tool_results(entry.message))


def _collect_reply_billing(entries: Iterable[TranscriptMessageEntry]) -> list[ModelReplyMetadata]:
    """Return one billing per reply: each line of a reply repeats its usage, and the last one is complete."""
    by_reply: dict[object, ModelReplyMetadata] = {}
    for entry in entries:
        if entry.billing is not None:
            by_reply[_get_model_reply_key(entry) or entry.id] = entry.billing
    return list(by_reply.values())


def _list_answered_calls(messages: Iterable[TranscriptMessageEntry]) -> list[str]:
    return [
        result.tool_use_id
        for entry in messages
        for result in _get_tool_results(entry.message)
        if result.content != INTERRUPTED_RESULT
    ]


def _join_answered_calls(
    earlier: EarlierConversation, messages: Iterable[TranscriptMessageEntry]
) -> Container[str]:
    if not earlier.answered:
        return frozenset(_list_answered_calls(messages))
    earlier.answered.add_ids(_list_answered_calls(messages))
    return earlier.answered


_LABEL_KINDS = frozenset({"tag"})
"""Entries that other programs add to find a session; they are no part of the conversation."""


def _count_skipped_transcript_parts(lines: Iterable[ParsedTranscriptLine]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for line in lines:
        match line.entry:
            case UnknownTranscriptEntry(kind=kind) if not line.is_damaged and kind not in _LABEL_KINDS:
                kinds[kind] += 1
            case _:
                pass
        kinds.update(line.left_out)
    return kinds


def _describe_skipped_transcript_parts(kinds: Counter[str]) -> list[str]:
    if not kinds:
        return []
    kind_list = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(8))
    return [f"Ignored conversation entries of unknown types:  {kind_list}."]


def _list_delivered_ids(messages: Iterable[TranscriptMessageEntry]) -> Iterator[str]:
    return (each for entry in messages if entry.delivered for each in split_item_ids(entry.delivered))
