"""Documents of the work that agents on other machines have sent: a line of JSON, then a git bundle."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from shoal.core.store import WorkPart


def encode_work_state(part: WorkPart) -> bytes:
    """Encode everything but the bundle."""
    fields = asdict(part)
    del fields["bundle"]
    return msgspec.json.encode(fields, order="sorted")


def parse_work_state(state: bytes, bundle: bytes = b"") -> WorkPart:
    """Raises ValueError."""
    return msgspec.convert({**msgspec.json.decode(state, type=dict), "bundle": bundle}, WorkPart)


def encode_work_part(part: WorkPart) -> bytes:
    return encode_work_state(part) + b"\n" + part.bundle


def parse_work_part(document: bytes) -> WorkPart:
    """Raises ValueError."""
    state, _, bundle = document.partition(b"\n")
    return parse_work_state(state, bundle)
