"""The metadata of a sub-agent is one flat JSON object, whatever the groups of its fields in the code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions
from shoal.wire.subagent_metadata_codec import encode_subagent_metadata, parse_subagent_metadata

DOCUMENT: dict[str, Any] = {
    "agentType": "Explore",
    "description": "Look around",
    "name": "ann",
    "model": "anthropic:a",
    "mode": "plan",
    "system": "You look.",
    "tools": ["Read"],
    "cwd": "/p",
    "isolation": "worktree",
    "worktree": "agent-a1",
    "parent": "a0",
    "call": "c1",
    "depth": 2,
    "color": "red",
    "background": True,
    "thinkingTokens": 7,
    "narrowed": [["Bash(git:*)", "Read"]],
    "denied": ["Edit"],
    "memory": "/m",
    "memoryTools": ["Write"],
    "forkOf": "e1",
    "after": "e0",
}


def test_every_field_is_read_and_written_at_the_top_level():
    metadata = parse_subagent_metadata(json.dumps(DOCUMENT).encode())
    assert metadata.origin == SubagentOrigin(parent="a0", call="c1", depth=2, fork_of="e1", after="e0")
    assert metadata.restrictions == SubagentRestrictions(
        narrowed=(("Bash(git:*)", "Read"),), denied=("Edit",), memory="/m", memory_tools=("Write",)
    )
    assert json.loads(encode_subagent_metadata(metadata)) == DOCUMENT


def test_defaults_are_not_written():
    assert encode_subagent_metadata(SubagentMetadata(agent_type="Plan")) == b'{"agentType":"Plan"}'
    assert parse_subagent_metadata(b'{"agentType":"Plan"}') == SubagentMetadata(agent_type="Plan")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (DOCUMENT | {"depth": "two"}, "`$.depth`"),
        (DOCUMENT | {"denied": "Edit"}, "`$.denied`"),
        ({"depth": 2}, "agentType"),
        ([], "object"),
    ],
)
def test_an_invalid_field_is_named(document: object, problem: str):
    with pytest.raises(ValueError, match=problem.replace("$", r"\$")):
        parse_subagent_metadata(json.dumps(document).encode())


def test_a_foreign_field_with_the_name_of_a_group_is_ignored():
    metadata = parse_subagent_metadata(json.dumps(DOCUMENT | {"origin": 5, "restrictions": []}).encode())
    assert metadata.origin.depth == 2
