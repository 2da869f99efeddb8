"""Codec of a sub-agent's metadata. The document is one flat object."""

from __future__ import annotations

import msgspec

from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions


def encode_subagent_metadata(metadata: SubagentMetadata) -> bytes:
    fields = msgspec.to_builtins(metadata)
    groups = (fields.pop("origin", {}), fields.pop("restrictions", {}))
    return msgspec.json.encode({**fields, **groups[0], **groups[1]})


def parse_subagent_metadata(document: bytes) -> SubagentMetadata:
    """Parse a document; raise ValueError if it is not valid, RecursionError if it is nested too deeply."""
    raw = msgspec.json.decode(document, type=dict[str, object])
    groups = {
        "origin": msgspec.convert(raw, SubagentOrigin),
        "restrictions": msgspec.convert(raw, SubagentRestrictions),
    }
    return msgspec.convert(raw | groups, SubagentMetadata)
