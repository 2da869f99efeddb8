"""A clock that stands still until told, and a hand that writes conversations."""

from __future__ import annotations

import pytest

from shoal.core.clock import SystemClock
from shoal.core.entries import Billing, Said
from shoal.core.ids import Ids, RequestId, SessionId
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user
from shoal.core.usage import Usage
from shoal.stores.files.places import transcript_path
from shoal.stores.files.transcripts import FileTranscript
from shoal.wire.transcript import Lines

# So that a broken rule shows the values it met.
pytest.register_assert_rewrite("shoal.testing.contracts")

AT = 1_700_000_000_000


class StandingClock(SystemClock):
    def __init__(self) -> None:
        self.time = AT

    def now(self) -> int:
        return self.time


class Writer:
    """Appends to a transcript, each entry after the one before."""

    def __init__(self, home, cwd="/project", session="s-1", *, last=None, seed=1):
        self.home, self.cwd, self.session = home, cwd, SessionId(session)
        self.path = transcript_path(home, cwd, self.session)
        self.lines = Lines(session=self.session, cwd=cwd, version="0.1.0")
        self.transcript = FileTranscript(self.path, self.lines)
        self.ids = Ids(seed)
        self.last = last

    def add(self, entry):
        self.transcript.append(entry)
        self.last = entry.id
        return entry

    def says(self, message, *, billing=None, parent=..., **more):
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

    def prompt(self, text, **more):
        return self.says(user(text), **more)

    def reply(self, text="", *calls, tokens=1, message_id=None, request=None, **more):
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

    def results(self, *calls, **more):
        content = tuple(ToolResult(tool_use_id=call, content="ok") for call in calls)
        return self.says(Message(role="user", content=content), **more)


@pytest.fixture
def clock():
    return StandingClock()


@pytest.fixture
def writer(tmp_path):
    def make(**how):
        return Writer(tmp_path / "home", **how)

    return make


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"
