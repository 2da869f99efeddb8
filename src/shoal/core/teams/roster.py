"""Team rosters: teams and their members."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.agents.subagents import ResourceRequest
from shoal.core.names import (
    LEAD_NAME,
    RESERVED_NAMES,
    AgentName,
    TeamName,
    find_free_name,
    map_to_inbox_name,
    parse_agent_name,
)

MemberColor: TypeAlias = Literal["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"]
MEMBER_COLORS: tuple[MemberColor, ...] = (
    "blue",
    "green",
    "yellow",
    "purple",
    "orange",
    "pink",
    "cyan",
    "red",
)
"""Assigned in the order in which teammates are spawned, then repeated."""
EXTERNAL_MEMBER_TYPE = "guest"
"""Type of an external member: another program that joined on its own and that no lead starts or stops."""
BackendType: TypeAlias = Literal["tmux", "in-process", "iterm2", "process", "ray"]


class RosterEntry(Struct, frozen=True, kw_only=True):
    """Member in a roster. Times are Unix milliseconds. The lead has no prompt, color, backend or activity."""

    agent_id: str
    """`{name}@{team}`."""
    name: AgentName
    agent_type: str
    model: str
    joined_at: int
    cwd: str
    tmux_pane_id: str = ""
    subscriptions: tuple[str, ...] = ()
    prompt: str | None = None
    color: str | None = None
    plan_mode_required: bool | None = None
    backend_type: str | None = None
    is_active: bool | None = None
    is_down: bool = False
    """True if it failed unexpectedly and has not been started again."""
    resources: ResourceRequest | None = None
    """Resources that were requested when it was started, in addition to those of its definition."""

    @property
    def inbox_name(self) -> AgentName:
        """Name of its inbox file; the name itself may have other characters if another program chose it."""
        return map_to_inbox_name(self.name)

    @property
    def team(self) -> TeamName:
        return TeamName(self.agent_id.rpartition("@")[2])


class NewMember(Struct, frozen=True, kw_only=True):
    """Member to be added; its name may get a number, its color is the next free one."""

    name: AgentName
    agent_type: str
    model: str
    cwd: str
    prompt: str
    backend_type: BackendType = "in-process"
    tmux_pane_id: str = "in-process"
    plan_mode_required: bool = False
    resources: ResourceRequest | None = None

    def to_lead_entry(self, team: TeamName, *, at: int) -> RosterEntry:
        return RosterEntry(
            agent_id=format_agent_id(LEAD_NAME, team),
            name=LEAD_NAME,
            agent_type=self.agent_type,
            model=self.model,
            joined_at=at,
            cwd=self.cwd,
        )

    def to_teammate_entry(
        self, name: AgentName, team: TeamName, *, at: int, spawned_before: int
    ) -> RosterEntry:
        return RosterEntry(
            agent_id=format_agent_id(name, team),
            name=name,
            agent_type=self.agent_type,
            model=self.model,
            joined_at=at,
            cwd=self.cwd,
            tmux_pane_id=self.tmux_pane_id,
            prompt=self.prompt,
            color=next_member_color(spawned_before),
            plan_mode_required=self.plan_mode_required,
            backend_type=self.backend_type,
            is_active=True,
            resources=self.resources,
        )


class TeamRoster(Struct, frozen=True, kw_only=True):
    name: TeamName
    description: str | None
    created_at: int
    lead_agent_id: str
    lead_session_id: str
    members: tuple[RosterEntry, ...]
    given_name: str = ""
    """Name in the file, if another program spells it differently from its directory."""

    @property
    def title(self) -> str:
        """Name for people: with the spelling of the program that created the team."""
        return f"{self.name} ({self.given_name})" if self.given_name else self.name

    def find_member(self, name: str) -> RosterEntry | None:
        return next((member for member in self.members if member.name == name), None)

    def resolve_member(self, text: str) -> RosterEntry | None:
        """Find a member by its name, its id or the name of its inbox file."""
        name = text.removesuffix(f"@{self.name}")
        if self.given_name:
            name = name.removesuffix(f"@{self.given_name}")
        return self.find_member(name) or next(
            (member for member in self.members if text == member.agent_id or name == member.inbox_name), None
        )

    def choose_member_name(self, new_member: NewMember) -> AgentName:
        """Return the requested name, with a number if it is taken. Raises `InvalidName`."""
        taken = {member.name for member in self.members} | RESERVED_NAMES
        return AgentName(find_free_name(parse_agent_name(new_member.name), taken))


def format_agent_id(name: AgentName, team: TeamName) -> str:
    return f"{name}@{team}"


def next_member_color(spawned_before: int) -> MemberColor:
    return MEMBER_COLORS[spawned_before % len(MEMBER_COLORS)]
