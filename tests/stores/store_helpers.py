"""A fixed clock, a transcript writer, new members, and a limit on the size of files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import EntryId, IdGenerator, RequestId, SessionId
from shoal.core.teams.roster import NewMember
from shoal.stores.files.home.home_paths import get_transcript_path
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.wire.transcript_codec import TranscriptEncoder

NOW = 1_700_000_000_000
AnyEntry = TypeVar("AnyEntry", TranscriptMessageEntry, TranscriptCompactionMarker, TranscriptRewindMarker)


def make_member(name: str = "alice", **options: Any) -> NewMember:
    return NewMember(
        **{"agent_type": "general", "model": "m", "cwd": "/w", "prompt": "Do it.", **options}, name=name
    )


@contextmanager
def limit_file_size(size: int = 0) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as on a full disk. Python ignores SIGXFSZ by itself."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class FixedClock(SystemClock):
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> int:
        return self.time


class TranscriptWriter:
    """Appends to a transcript, each entry after the one before."""

    def __init__(
        self,
        home: Path,
        cwd: str = "/project",
        session: str = "s-1",
        *,
        last: EntryId | None = None,
        seed: int = 1,
    ) -> None:
        self.home, self.cwd, self.session = home, cwd, SessionId(session)
        self.path = get_transcript_path(home, cwd, self.session)
        self.lines = TranscriptEncoder(session=self.session, cwd=cwd, version="0.1.0")
        self.transcript = FileTranscript(self.path, self.lines)
        self.ids = IdGenerator(seed)
        self.last = last

    def append_entry(self, entry: AnyEntry) -> AnyEntry:
        self.transcript.append(entry)
        self.last = entry.id
        return entry

    def append_message(
        self, message: Message, *, billing: ModelReplyMetadata | None = None, parent: Any = ..., **more: Any
    ) -> TranscriptMessageEntry:
        return self.append_entry(
            TranscriptMessageEntry(
                id=self.ids.new_entry_id(),
                parent=self.last if parent is ... else parent,
                at=NOW,
                message=message,
                billing=billing,
                **more,
            )
        )

    def append_prompt(self, text: str, **more: Any) -> TranscriptMessageEntry:
        return self.append_message(user_message(text), **more)

    def append_reply(
        self,
        text: str = "",
        *calls: str,
        tokens: int = 1,
        message_id: str | None = None,
        request: str | None = None,
        **more: Any,
    ) -> TranscriptMessageEntry:
        content = (TextBlock(text=text),) if text else ()
        content += tuple(ToolUseBlock(id=call, name="Bash", input={}) for call in calls)
        billing = ModelReplyMetadata(
            message_id=message_id or f"msg_{self.ids.new_short_id()}",
            model="m",
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(input_tokens=tokens, output_tokens=tokens),
            request=RequestId(request) if request else self.ids.new_request_id(),
        )
        return self.append_message(Message(role="assistant", content=content), billing=billing, **more)

    def append_results(self, *calls: str, **more: Any) -> TranscriptMessageEntry:
        content = tuple(ToolResultBlock(tool_use_id=call, content="ok") for call in calls)
        return self.append_message(Message(role="user", content=content), **more)
