"""Memory of an agent between its runs: its directory and the index in its system prompt."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.project_memory import INDEX_NAME, MAX_LINES, read_memory_index
from shoal.app.model_notices import format_session_notice
from shoal.core.agents.agent_definitions import AgentDefinition, ToolSelection, select_definition_tools
from shoal.core.errors import AgentRequestRefused
from shoal.core.text.filenames import escape_filename

_MEMORY_TOOLS = ("Read", "Edit", "Write")
_DIRECTORY_BY_SCOPE = {"project": "agent-memory", "local": "agent-memory-local"}


class AgentMemory(Struct, frozen=True, kw_only=True):
    """Memory directory and tools; `directory` has no symlink below the project or the home."""

    directory: Path
    tools: tuple[str, ...]
    """All tools of the agent, including those that its memory needs."""
    added_tools: tuple[str, ...] = ()
    """Tools that it has only for its memory."""

    def build_prompt_section(self) -> str:
        """Build the section of the system prompt with the current index."""
        directory = escape_filename(self.directory)
        usage = (
            format_session_notice("memory_writable", index=INDEX_NAME, lines=MAX_LINES)
            if {"Edit", "Write"} & {*self.tools}
            else format_session_notice("memory_read_only")
        )
        section = format_session_notice("memory", directory=directory, usage=usage)
        index = read_memory_index(self.directory) or f"There is no {INDEX_NAME} yet."
        return f"{section}\n\n{index}"


def resolve_agent_memory(
    definition: AgentDefinition, toolset: ToolSelection, offered: Iterable[str], *, home: Path, project: Path
) -> AgentMemory | None:
    """Return its memory, None if it has none. Raises `AgentRequestRefused` if a symlink leads elsewhere."""
    if definition.memory is None:
        return None
    if definition.memory == "user":
        base, relative_path = home, f"agent-memory/{_build_memory_directory_name(definition, project)}"
    else:
        base, relative_path = (
            project,
            f".claude/{_DIRECTORY_BY_SCOPE[definition.memory]}/{_escape_colons_in_agent_name(definition.name)}",
        )
    directory = Path(os.path.realpath(base)) / relative_path
    if (real_path := os.path.realpath(directory)) != str(directory):
        # A repository could otherwise use any directory of the user as an agent's memory.
        raise AgentRequestRefused(
            format_session_notice(
                "linked_memory",
                name=definition.name,
                source=definition.source,
                directory=escape_filename(directory),
                target=escape_filename(real_path),
            )
        )
    offered = tuple(offered)
    # Tools that the definition disallows stay off, even for the memory.
    allowed_names = select_definition_tools(replace(definition.capabilities, tools=None), offered).names
    added_tools = tuple(name for name in _MEMORY_TOOLS if name in allowed_names and name not in toolset.names)
    selected = {*toolset.names, *added_tools}
    return AgentMemory(
        directory=directory,
        tools=tuple(name for name in offered if name in selected),
        added_tools=added_tools,
    )


def _build_memory_directory_name(definition: AgentDefinition, project: Path) -> str:
    """Return a name that keeps a project's agent from sharing memory with a user agent of the same name."""
    if definition.source.kind != "project":
        return _escape_colons_in_agent_name(definition.name)
    digest = sha256(os.path.realpath(project).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{_escape_colons_in_agent_name(definition.name)},{digest[:8]}"


def _escape_colons_in_agent_name(name: str) -> str:
    # No agent name contains a comma, so that no other agent can have this directory.
    return name.replace(":", ",")
