"""Identifiers. All of them come from the session, so that a seed makes a run repeat byte for byte."""

from __future__ import annotations

import re
import uuid
import zlib
from functools import cached_property
from random import Random
from typing import NewType

SessionId = NewType("SessionId", str)
AgentId = NewType("AgentId", str)
EntryId = NewType("EntryId", str)
RequestId = NewType("RequestId", str)

LEAD = AgentId("lead")
LEAD_KIND = "lead"
"""The lead's type, in sums by type."""


class Ids:
    """The session's source of identifiers and randomness; seeded, it repeats itself."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed

    @cached_property
    def random(self) -> Random:
        """Made when it is first used: it holds kilobytes, and agents that wait for their start have two."""
        return Random(self._seed)  # noqa: S311 - identifiers and jitter, not secrets

    def branch(self) -> Ids:
        """Another source, for work whose timing must not change what this one gives."""
        return Ids(self.random.getrandbits(64))

    def beyond(self, entry: EntryId) -> Ids:
        """Another source, for a session that went as far as this entry: what it used is not given again."""
        return Ids(self.random.getrandbits(64) ^ zlib.crc32(entry.encode()) << 64)

    def uuid(self) -> str:
        # As uuid.uuid4() does, without the cost of building a UUID object.
        bits = self.random.getrandbits(128) & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def session(self) -> SessionId:
        return SessionId(self.uuid())

    def entry(self) -> EntryId:
        return EntryId(self.uuid())

    def request(self) -> RequestId:
        return RequestId(f"req-{self.random.getrandbits(64):016x}")

    def agent(self) -> AgentId:
        return AgentId(f"a{self.random.getrandbits(64):016x}")

    def short(self) -> str:
        return f"{self.random.getrandbits(32):08x}"


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def slug(path: str) -> str:
    """A directory's name under `projects/`: every character outside [A-Za-z0-9] becomes a dash."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)
