"""A clock with a fixed time, and a writer of transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from shoal.core.clock import SystemClock
from shoal.core.entries import Billing, Compacted, Rewound, Said
from shoal.core.ids import EntryId, Ids, RequestId, SessionId
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user
from shoal.core.usage import Usage
from shoal.stores.files.places import transcript_path
from shoal.stores.files.transcripts import FileTranscript
from shoal.wire.transcript import Lines

AT = 1_700_000_000_000
AnyEntry = TypeVar("AnyEntry", Said, Compacted, Rewound)


class StandingClock(SystemClock):
    def __init__(self) -> None:
        self.time = AT

    def now(self) -> int:
        return self.time


class Writer:
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
        self.path = transcript_path(home, cwd, self.session)
        self.lines = Lines(session=self.session, cwd=cwd, version="0.1.0")
        self.transcript = FileTranscript(self.path, self.lines)
        self.ids = Ids(seed)
        self.last = last

    def add(self, entry: AnyEntry) -> AnyEntry:
        self.transcript.append(entry)
        self.last = entry.id
        return entry

    def says(
        self, message: Message, *, billing: Billing | None = None, parent: Any = ..., **more: Any
    ) -> Said:
        return self.add(
            Said(
                id=self.ids.entry(),
                parent=self.last if parent is ... else parent,
                at=AT,
                message=message,
                billing=billing,
                **more,
            )
        )

    def prompt(self, text: str, **more: Any) -> Said:
        return self.says(user(text), **more)

    def reply(
        self,
        text: str = "",
        *calls: str,
        tokens: int = 1,
        message_id: str | None = None,
        request: str | None = None,
        **more: Any,
    ) -> Said:
        content = (Text(text=text),) if text else ()
        content += tuple(ToolUse(id=call, name="Bash", input={}) for call in calls)
        billing = Billing(
            message_id=message_id or f"msg_{self.ids.short()}",
            model="m",
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(input_tokens=tokens, output_tokens=tokens),
            request=RequestId(request) if request else self.ids.request(),
        )
        return self.says(Message(role="assistant", content=content), billing=billing, **more)

    def results(self, *calls: str, **more: Any) -> Said:
        content = tuple(ToolResult(tool_use_id=call, content="ok") for call in calls)
        return self.says(Message(role="user", content=content), **more)
