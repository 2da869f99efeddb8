"""Skills and slash commands: texts that are loaded on demand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.agents.agent_definitions import DefinitionSource

SkillKind: TypeAlias = Literal["skill", "command"]


class SkillInformation(Struct, frozen=True, kw_only=True):
    """Information about a skill for people; it has no effect."""

    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = {}


class SkillExecution(Struct, frozen=True, kw_only=True):
    """Way in which a skill is executed: by the agent that invokes it, or by a sub-agent."""

    forks: bool = False
    """True if a sub-agent executes it."""
    agent: str | None = None
    """Type of that sub-agent."""
    model: str | None = None
    effort: str | int | None = None
    """Effort of the turn that runs it, or of its sub-agent."""


class Skill(Struct, frozen=True, kw_only=True):
    """Skill from `SKILL.md`, or command from its file; a skill that a person may call is a command too."""

    name: str
    """Name with its namespace: `plugin:skill`, `directory:command`."""
    description: str
    body: str
    source: DefinitionSource
    kind: SkillKind = "skill"
    information: SkillInformation = SkillInformation()
    allowed_tools: tuple[str, ...] = ()
    """Tools allowed without asking while it is active, if the source is trusted."""
    denied_tools: tuple[str, ...] = ()
    """Tools taken away while it is active."""
    execution: SkillExecution = SkillExecution()
    hooks: Mapping[str, Any] = {}
    """Hooks that run from its first use to the end of the session."""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    """Names of its arguments in order, for `$name` in the body."""
    for_model: bool = True
    """True if the model may invoke it."""
    for_person: bool = True
    """True if it is a command at the prompt."""
    digest: str = ""
    """Digest of the whole file, to which trust applies."""

    @property
    def directory(self) -> Path:
        """Directory of its accompanying files."""
        assert self.source.path is not None
        return self.source.path.parent


class ExternalSlashPrompt(Struct, frozen=True, kw_only=True):
    """Prompt of another program that a person can invoke by typing `/name`."""

    name: str
    description: str
    argument_hint: str = ""


class WorkflowCommand(Struct, frozen=True, kw_only=True):
    """Workflow of a file that a person can run by typing `/name`."""

    name: str
    """Name with its namespace: `plugin:workflow`."""
    description: str
    argument_hint: str = ""
    path: Path
    function: str
    """Name of its function in the file."""
    problem: str = ""
    """Why it cannot run."""


TypedCommand: TypeAlias = Skill | ExternalSlashPrompt | WorkflowCommand


class ExternalSlashPromptSource(Protocol):
    """Source of slash prompts, such as the MCP servers of a session: `mcp__server__prompt`."""

    def list_prompts(self) -> tuple[ExternalSlashPrompt, ...]: ...

    async def expand_prompt(self, name: str, arguments: str) -> str:
        """Return the text of the prompt. Raises a `ShoalError`."""
        ...


def is_full_or_unprefixed_skill_name(name: str, full: str) -> bool:
    """Return True if a name is the full name, or the part of it after a colon."""
    return name == full or full.endswith(f":{name}")
