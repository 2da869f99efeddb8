"""Codec of a sub-agent's metadata. The document is one flat object."""

from __future__ import annotations

import msgspec

from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions
from shoal.wire.json_codec import flatten_groups


def encode_subagent_metadata(metadata: SubagentMetadata) -> bytes:
    return msgspec.json.encode(flatten_groups(metadata, "origin", "restrictions"))


def parse_subagent_metadata(document: bytes) -> SubagentMetadata:
    """Parse a document; raise ValueError if it is not valid, RecursionError if it is nested too deeply."""
    raw = msgspec.json.decode(document, type=dict[str, object])
    groups = {
        "origin": msgspec.convert(raw, SubagentOrigin),
        "restrictions": msgspec.convert(raw, SubagentRestrictions),
    }
    return msgspec.convert(raw | groups, SubagentMetadata)
