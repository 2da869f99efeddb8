"""Definition of a Python program's team, as it is stored with the team's run."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
from msgspec import Struct

from shoal.core.errors import InvalidAgentDefinition
from shoal.wire.agent_definition_codec import parse_json_agent_definitions
from shoal.wire.foreign_json import convert_to_schema, decode_to_schema


class StoredTeamOptions(TypedDict, total=False):
    """Options of the program that are restored when its team is resumed."""

    model: str
    fallback_model: str
    mode: str
    allowed_tools: list[str]
    disallowed_tools: list[str]
    available_tools: list[str]
    system_prompt: str
    append_system_prompt: str
    effort: str
    thinking_tokens: int
    betas: list[str]
    max_turns: int
    max_budget_usd: float
    max_total_tokens: int
    max_agents: int
    deadline: float
    strict_mcp_config: bool
    plugin_dirs: list[str]
    skills: list[str]
    slash_commands: bool
    add_dirs: list[str]
    settings: str
    setting_sources: list[str]
    bare: bool
    skip_permissions: bool
    allow_bypass: bool
    coordinator: bool


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
    """Options by name, as in `StoredTeamOptions`."""
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
    convert_to_schema(definition.options, StoredTeamOptions)
    if unknown := definition.options.keys() - StoredTeamOptions.__annotations__.keys():
        raise ValueError(f"unknown options: {', '.join(sorted(unknown))}")
    try:
        parse_json_agent_definitions(definition.agents)
    except InvalidAgentDefinition as error:
        raise ValueError(str(error)) from error
    agents = {*definition.members.values(), *([] if definition.lead is None else [definition.lead])}
    if missing := agents - definition.agents.keys():
        raise ValueError(f"it has no agent {', '.join(sorted(missing))}")
    return definition
