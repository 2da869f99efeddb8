"""Definition of a Python program's team, as it is stored with the team's run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from shoal.core.errors import InvalidAgentDefinition
from shoal.wire.agent_definition_codec import parse_json_agent_definitions
from shoal.wire.foreign_json import convert_to_schema, decode_to_schema

STORED_OPTION_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("model", "fallback_model", "mode", "effort", "settings"), str),
    **dict.fromkeys(("system_prompt", "append_system_prompt"), str),
    **dict.fromkeys(("allowed_tools", "disallowed_tools", "available_tools", "betas"), list[str]),
    **dict.fromkeys(("plugin_dirs", "skills", "add_dirs", "setting_sources"), list[str]),
    **dict.fromkeys(("thinking_tokens", "max_turns", "max_total_tokens", "max_agents"), int),
    **dict.fromkeys(("max_budget_usd", "deadline"), float),
    **dict.fromkeys(("strict_mcp_config", "slash_commands", "bare", "coordinator"), bool),
    **dict.fromkeys(("skip_permissions", "allow_bypass"), bool),
}
"""Types of the program's options that are restored when its team is resumed, by name."""


class StoredTeamDefinition(Struct, frozen=True, kw_only=True):
    """Everything that is needed to resume a team, except objects of the program."""

    team: str
    agents: dict[str, dict[str, Any]]
    """Fields of each agent, as in agent files."""
    members: dict[str, str]
    """Agent of each member, by the name of the member."""
    lead: str | None = None
    backend: str | None = None
    options: dict[str, Any] = {}
    """Options by name, as in `STORED_OPTION_TYPES`."""
    required: tuple[str, ...] = ()
    """Options that were objects of the program."""
    python_tools: tuple[str, ...] = ()
    """Agents that have Python tools."""


def encode_team_definition(definition: StoredTeamDefinition) -> bytes:
    return msgspec.json.encode(definition)


def parse_team_definition(content: bytes) -> StoredTeamDefinition:
    """Parse a definition; raise ValueError if the content is not one.

    A value that is ignored could be a limit of the team, so everything must be understood.
    """
    definition: StoredTeamDefinition = decode_to_schema(content, StoredTeamDefinition)
    if unknown := definition.options.keys() - STORED_OPTION_TYPES.keys():
        raise ValueError(f"unknown options: {', '.join(sorted(unknown))}")
    for name, value in definition.options.items():
        convert_to_schema(value, STORED_OPTION_TYPES[name])
    try:
        parse_json_agent_definitions(definition.agents)
    except InvalidAgentDefinition as error:
        raise ValueError(str(error)) from error
    agents = {*definition.members.values(), *([] if definition.lead is None else [definition.lead])}
    if missing := agents - definition.agents.keys():
        raise ValueError(f"it has no agent {', '.join(sorted(missing))}")
    return definition
