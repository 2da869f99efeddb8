"""Identifiers. All of them come from the session, so that a seed makes a run repeat byte for byte."""

from __future__ import annotations

import os
import re
import uuid
import zlib
from hashlib import blake2b
from random import Random
from typing import NewType

SessionId = NewType("SessionId", str)
AgentId = NewType("AgentId", str)
EntryId = NewType("EntryId", str)
RequestId = NewType("RequestId", str)

_CIRCLE = (1 << 128) - 1
_STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""The golden ratio of it, odd: places that follow each other are far apart, and none comes twice."""

LEAD = AgentId("lead")
LEAD_KIND = "lead"
"""The lead's type, in sums by type."""


class Ids:
    """The session's source of identifiers and randomness; seeded, it repeats itself.

    Identifiers are steps around a circle of 128 bits, from a place of its own: none comes twice, and there is
    next to nothing to hold. Every agent has two sources.
    """

    __slots__ = ("_at", "_random", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        self._seed = int.from_bytes(os.urandom(16)) if seed is None else seed
        self._at = -1
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """For what needs more than an identifier; it holds kilobytes, so it is made when it is first used."""
        if self._random is None:
            self._random = Random(self._seed)  # noqa: S311 - jitter and names, not secrets
        return self._random

    def branch(self) -> Ids:
        """Another source, for work whose timing must not change what this one gives."""
        return Ids(self._bits())

    def beyond(self, entry: EntryId) -> Ids:
        """Another source, for a session that went as far as this entry: what it used is not given again."""
        return Ids(self._bits() ^ zlib.crc32(entry.encode()) << 128)

    def _bits(self) -> int:
        if self._at < 0:
            # Scattered, so that no source begins where another one passes.
            self._at = int.from_bytes(blake2b(b"%d" % self._seed, digest_size=16).digest())
        self._at = (self._at + _STEP) & _CIRCLE
        return self._at

    def uuid(self) -> str:
        # As uuid.uuid4() does, without the cost of building a UUID object.
        bits = self._bits() & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def session(self) -> SessionId:
        return SessionId(self.uuid())

    def entry(self) -> EntryId:
        return EntryId(self.uuid())

    def request(self) -> RequestId:
        return RequestId(f"req-{self._bits() >> 64:016x}")

    def agent(self) -> AgentId:
        return AgentId(f"a{self._bits() >> 64:016x}")

    def short(self) -> str:
        return f"{self._bits() >> 96:08x}"


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def slug(path: str) -> str:
    """A directory's name under `projects/`: every character outside [A-Za-z0-9] becomes a dash."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)
