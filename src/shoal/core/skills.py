"""What a skill is, and a command that a person types: a text that is given out when it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.definitions import Source

SkillKind: TypeAlias = Literal["skill", "command"]


class Skill(Struct, frozen=True, kw_only=True):
    """Of `SKILL.md`, or of a file of a command; a skill that a person may call is a command too."""

    name: str
    """With what it stands below: `plugin:skill`, `directory:command`."""
    description: str
    body: str
    source: Source
    kind: SkillKind = "skill"
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    """While it is in force: may be used without asking, where the source is trusted. One that forks has
    nothing else."""
    forks: bool = False
    """Whether an agent of its own does what it says."""
    agent: str | None = None
    """The type of that agent."""
    model: str | None = None
    argument_hint: str = ""
    for_model: bool = True
    """Whether the model may call for it by itself."""
    for_person: bool = True
    """Whether it is a command at the prompt."""
    digest: str = ""
    """Of the whole file, for which trust was given or not."""

    @property
    def directory(self) -> Path:
        """Where the files beside it stand."""
        assert self.source.path is not None
        return self.source.path.parent


class TypedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt of another program that a person can call for by typing `/name`."""

    name: str
    description: str
    argument_hint: str = ""


class TypedPrompts(Protocol):
    """Where such prompts come from, as from the servers of a session: `mcp__server__prompt`."""

    def list(self) -> tuple[TypedPrompt, ...]: ...

    async def text(self, name: str, arguments: str) -> str:
        """What it says. Raises a `ShoalError`."""
        ...


def named_alike(name: str, full: str) -> bool:
    """Whether a name means this one: by its whole name, or by what stands behind a colon of it."""
    return name == full or full.endswith(f":{name}")
