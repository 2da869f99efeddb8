"""Identifiers. All of them come from the session, so that a seeded run repeats byte for byte."""

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
"""Golden ratio of the range, odd: successive positions are far apart and none repeats."""

LEAD = AgentId("lead")
LEAD_KIND = "lead"
"""Type of the lead in totals by type."""


class Ids:
    """Generates the identifiers and random numbers of a session; a seeded generator repeats itself.

    Identifiers are steps through a 128-bit range from a start position: none repeats, and the state is
    tiny. Every agent has two generators.
    """

    __slots__ = ("_at", "_random", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        self._seed = int.from_bytes(os.urandom(16)) if seed is None else seed
        self._at = -1
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """Random number generator. It takes kilobytes, so it is created on first use."""
        if self._random is None:
            self._random = Random(self._seed)  # noqa: S311 - jitter and names, not secrets
        return self._random

    def branch(self) -> Ids:
        """Create a generator for work whose timing must not change the ids of this one."""
        return Ids(self._bits())

    def beyond(self, entry: EntryId) -> Ids:
        """Create a generator for a session resumed after this entry, so that no id is used twice."""
        return Ids(self._bits() ^ zlib.crc32(entry.encode()) << 128)

    def _bits(self) -> int:
        if self._at < 0:
            # Hashed, so that no generator starts where another one passes.
            self._at = int.from_bytes(blake2b(b"%d" % self._seed, digest_size=16).digest())
        self._at = (self._at + _STEP) & _CIRCLE
        return self._at

    def uuid(self) -> str:
        # Same as uuid.uuid4(), without the cost of building a UUID object.
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
    """Return the directory name under `projects/`: every character outside [A-Za-z0-9] becomes a dash."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)
