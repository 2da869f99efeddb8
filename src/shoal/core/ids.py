"""Identifiers. All of them come from the session, so that a seeded run repeats byte for byte."""

from __future__ import annotations

import os
import re
import uuid
import zlib
from hashlib import blake2b
from random import Random
from typing import NewType, Protocol

SessionId = NewType("SessionId", str)
"""Id of a session."""
AgentId = NewType("AgentId", str)
"""Id of an agent in its session."""
EntryId = NewType("EntryId", str)
"""Id of an entry in a transcript."""
RequestId = NewType("RequestId", str)
"""Id of a request to a model."""

_ID_MASK = (1 << 128) - 1
_ID_STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Golden ratio of the range, odd: successive positions are far apart and none repeats."""

LEAD_ID = AgentId("lead")
LEAD_KIND = "lead"
"""Type of the lead in totals by type."""


class IdGenerator:
    """Generates the identifiers and random numbers of a session; a seeded generator repeats itself.

    Identifiers are steps through a 128-bit range from a start position: none repeats, and the state is
    tiny. Every agent has two generators.
    """

    __slots__ = ("_position", "_random", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        self._seed = int.from_bytes(os.urandom(16)) if seed is None else seed
        self._position = -1
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """Random number generator. It takes kilobytes, so it is created on first use."""
        if self._random is None:
            self._random = Random(self._seed)  # noqa: S311 - jitter and names, not secrets
        return self._random

    def derive_generator(self) -> IdGenerator:
        """Create a generator for work whose timing must not change the ids of this one."""
        return IdGenerator(self._next_id_bits())

    def derive_for_resumed_session(self, entry: EntryId) -> IdGenerator:
        """Create a generator for a session resumed after this entry, so that no id is used twice."""
        return IdGenerator(self._next_id_bits() ^ zlib.crc32(entry.encode()) << 128)

    def _next_id_bits(self) -> int:
        if self._position < 0:
            # Hashed, so that no generator starts where another one passes.
            self._position = int.from_bytes(blake2b(b"%d" % self._seed, digest_size=16).digest())
        self._position = (self._position + _ID_STEP) & _ID_MASK
        return self._position

    def new_uuid(self) -> str:
        # Same as uuid.uuid4(), without the cost of building a UUID object.
        bits = self._next_id_bits() & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def new_session_id(self) -> SessionId:
        return SessionId(self.new_uuid())

    def new_entry_id(self) -> EntryId:
        return EntryId(self.new_uuid())

    def new_request_id(self) -> RequestId:
        bits = self._next_id_bits()
        # In two parts, because each long run of letters and digits in a stored line is checked for secrets.
        return RequestId(f"req-{bits >> 96:08x}-{bits >> 64 & 0xFFFFFFFF:08x}")

    def new_agent_id(self) -> AgentId:
        return AgentId(f"a{self._next_id_bits() >> 64:016x}")

    def new_short_id(self) -> str:
        return f"{self._next_id_bits() >> 96:08x}"


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def slugify_project_path(path: str) -> str:
    """Return the directory name under `projects/`: every character outside [A-Za-z0-9] becomes a dash."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)


class JitterSource(Protocol):
    """Source of random numbers that spread retries, like `random.Random`."""

    def random(self) -> float:
        """Return a number from 0 up to 1."""


class LazyJitter:
    """Random numbers of a generator that is created on first use: most sessions never retry."""

    __slots__ = ("_ids",)

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids

    def random(self) -> float:
        return self._ids.random.random()
