"""Invocation of skills and commands: their text for the caller, or an agent that does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent import Agent
from shoal.agent.calls import carry_out
from shoal.app.authority import authority_of
from shoal.app.definitions.project_places import project_places
from shoal.app.skills.skills import Skills
from shoal.app.skills.text import Piece, pieces
from shoal.app.skills.trust import SkillTrust
from shoal.core.agents import Completion, Launched, Order
from shoal.core.errors import AgentRefused, BadDefinition, UnknownSkill, WorkspaceError
from shoal.core.filenames import shown
from shoal.core.ids import AgentId
from shoal.core.messages import ToolUse
from shoal.core.neutral import neutral
from shoal.core.skills import Skill
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.policy.rules import Rule, parse_rule
from shoal.runs.crew import AgentCrew
from shoal.tools.agents import told_start
from shoal.tools.define import tool

PATIENCE = 60_000
"""Milliseconds that a shell command in a skill's text may take."""
_MOST_PUT_IN = 20
_LONGEST_PUT_IN = 50_000
"""Maximum characters of one file or of the output of one command."""
USUAL_AGENT = "general-purpose"
_UNTRUSTED = (
    "What it would allow ({}) is not allowed by it: its file belongs to the project and is not trusted. A "
    "person sees and trusts it with `shoal trust`."
)


class Preloaded(Struct, frozen=True, kw_only=True):
    """Skills that an agent has from the start."""

    texts: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()


class Invoking:
    """Runs skills with the tools of the session; `note` sends a note to the user."""

    crew: AgentCrew
    """Set once it exists."""

    def __init__(
        self,
        skills: Skills,
        trust: SkillTrust,
        *,
        tools: Mapping[str, Tool],
        cwd: Path,
        note: Callable[[str], None],
    ) -> None:
        self.skills = skills
        self._trust = trust
        self._tools = tools
        self._root = os.path.realpath([*project_places(cwd)][-1])
        self._note = note

    async def use(self, name: str, arguments: str, site: Site) -> Outcome:
        """Run a skill for an agent that called the skill tool."""
        try:
            skill = self.skills.skills.find(name)
        except (UnknownSkill, BadDefinition) as error:
            return failed(str(error))
        if not skill.for_model:
            return failed(f"The skill {skill.name} is for people to call: type /{skill.name} at the prompt.")
        agent = self.crew.agent(AgentId(site.agent.agent))
        if skill.forks:
            try:
                return told_start(await self.forked(skill, arguments, agent, site))
            except AgentRefused as refusal:
                return failed(str(refusal))
        return Outcome(
            content=await self.text(skill, arguments, agent),
            data={"skill": skill.name, "directory": str(skill.directory)},
        )

    async def typed_fork(self, skill: Skill, arguments: str, agent: Agent) -> Outcome:
        """Start a forking skill that the user typed, as if the agent had called it."""

        wanted = skill

        @tool(name="Skill", deadline=None)
        async def begin(skill: str, site: Site) -> Outcome:
            """Start it; its name is there for the rules about it."""
            try:
                return told_start(await self.forked(wanted, arguments, agent, site))
            except AgentRefused as refusal:
                return failed(str(refusal))

        call = ToolUse(id=f"typed-{agent.ids.short()}", name="Skill", input={"skill": skill.name})
        return await carry_out(agent, call, begin)

    async def text(self, skill: Skill, arguments: str, agent: Agent) -> str:
        """Return the text of a skill, and grant its tools to this agent until its turn ends."""
        told = [self._heading(skill)] if skill.kind == "skill" else []
        granted = self._trust.granted(skill)
        authority_of(agent).lend(_rules(skill, granted))
        self._open(skill, agent)
        if skill.allowed_tools and not granted:
            untrusted = _UNTRUSTED.format(", ".join(skill.allowed_tools))
            self._note(f"/{skill.name}: {untrusted}")
            told.append(untrusted)
        return "\n\n".join([*told, await self._body(skill, arguments, agent)])

    async def forked(self, skill: Skill, arguments: str, agent: Agent, site: Site) -> Completion | Launched:
        """Start an agent for the skill with only the tools it allows. Raises `AgentRequestRefused`."""
        heading = f"{self._heading(skill)}\n\n" if skill.kind == "skill" else ""
        granted = self._trust.granted(skill)
        with authority_of(agent).lending(_rules(skill, granted)):
            body = await self._body(skill, arguments, agent)
        order = Order(
            description=f"/{skill.name}",
            prompt=heading + body,
            kind=skill.agent or USUAL_AGENT,
            model=skill.model,
            only_tools=skill.allowed_tools,
            lent=granted,
        )
        self._open(skill, agent)
        return await self.crew.start(order, site)

    def preloaded(self, names: tuple[str, ...], whose: str) -> Preloaded:
        """Return the skills of a definition. Raises `AgentRequestRefused`, naming a missing skill."""
        found: list[Skill] = []
        for name in names:
            try:
                found.append(self.skills.skills.find(name))
            except (UnknownSkill, BadDefinition) as error:
                raise AgentRefused(
                    f"The agent {whose} is not started without its skill {name!r}: {error}"
                ) from error
        texts = tuple(f"{self._heading(each)}\n\n{neutral(each.body)}" for each in found)
        opened = tuple(place for each in found if (place := self._readable(each)) is not None)
        return Preloaded(texts=texts, directories=opened)

    async def _body(self, skill: Skill, arguments: str, agent: Agent) -> str:
        places = {"CLAUDE_SKILL_DIR": str(skill.directory)}
        parts: list[str] = []
        room = _MOST_PUT_IN
        for piece in pieces(skill.body, arguments, places, files=skill.kind == "command"):
            room -= piece.kind != "text"
            is_too_much = room < 0 and piece.kind != "text"
            parts.append(_not_put_in(piece) if is_too_much else await self._put_in(piece, agent))
        return neutral("".join(parts))

    async def _put_in(self, piece: Piece, agent: Agent) -> str:
        match piece.kind:
            case "text":
                return piece.text
            case "command":
                given = {"command": piece.text, "timeout": PATIENCE}
                return _bounded(await self._carried_out(agent, "Bash", given))
            case "file":
                return await self._file(piece.text, agent)

    async def _file(self, path: str, agent: Agent) -> str:
        """Return the content of a file; an @ that names no file stays as it is."""
        try:
            located = agent.surroundings.workspace.locate(path)
            is_file = located.is_file()
        except (OSError, ValueError, WorkspaceError):
            is_file = False
        if not is_file:
            return f"@{path}"
        read = await self._carried_out(agent, "Read", {"file_path": str(located)})
        return f"{path}:\n{_bounded(read)}\n"

    async def _carried_out(self, agent: Agent, tool: str, given: dict[str, object]) -> str:
        call = ToolUse(id=f"typed-{agent.ids.short()}", name=tool, input=given)
        return (await carry_out(agent, call, self._tools[tool])).text

    def _heading(self, skill: Skill) -> str:
        return (
            f"The skill {skill.name}, from {shown(skill.source.path or '')}. Paths in it are relative to its "
            f"directory, {shown(skill.directory)}; read the files there when they are needed."
        )

    def _open(self, skill: Skill, agent: Agent) -> None:
        if (directory := self._readable(skill)) is not None:
            authority_of(agent).open_for_reading(directory)

    def _readable(self, skill: Skill) -> Path | None:
        """Return the skill's directory if it may be read: a project's skill may be a link to anywhere."""
        if skill.kind != "skill":
            return None
        real = os.path.realpath(skill.directory)
        inside = f"{real}/".startswith(f"{self._root.rstrip('/')}/")
        return Path(real) if inside or self._trust.of(skill) == "trusted" else None


def _rules(skill: Skill, granted: Sequence[str]) -> list[Rule]:
    return [parse_rule(entry, f"{skill.kind} {skill.name}") for entry in granted]


def _not_put_in(piece: Piece) -> str:
    return f"[{piece.text}: left out, {_MOST_PUT_IN} commands and files are put in at most]"


def _bounded(text: str) -> str:
    if len(text) <= _LONGEST_PUT_IN:
        return text
    return f"{text[:_LONGEST_PUT_IN]}\n[… {len(text) - _LONGEST_PUT_IN:,} more characters are left out]"
