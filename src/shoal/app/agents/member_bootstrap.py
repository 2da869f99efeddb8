"""Bootstrap message from a lead to a teammate's process: its identity, its job and its session options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.options import Options
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.clock import Clock
from shoal.core.names import AgentName, TeamName
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.team.channel.lead_channel import BudgetLimitSet, LeadChannel
from shoal.team.members.member_host import TeamMembership


class InheritedMemberOptions(Struct, frozen=True, kw_only=True):
    """Options of the lead's session that its members inherit; the names are those of `Options`."""

    cwd: str
    model: str | None
    mode: PermissionMode
    skip_permissions: bool
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...]
    add_dirs: tuple[str, ...]
    coordinator: bool | None
    agents: str | dict[str, Any] | None
    plugin_dirs: tuple[str, ...]
    mcp_config: tuple[str | dict[str, Any], ...]
    strict_mcp_config: bool
    thinking_tokens: int | None
    fallback_model: str | None
    betas: tuple[str, ...]
    max_turns: int | None
    settings: str | None
    setting_sources: tuple[str, ...] | None
    attended: bool
    seed: int | None


class MemberBootstrap(Struct, frozen=True, kw_only=True):
    name: AgentName
    team: TeamName
    order: SpawnRequest | None
    mode: PermissionMode | None
    call: str
    session: str
    run: str
    transcript: str
    snapshot: str
    """Shell snapshot of the lead, if it has one, so that not every process takes its own."""
    rules: BudgetLimitSet
    answered: tuple[
        AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion, ...
    ]
    """Session-wide permissions that a person has granted so far."""
    opened: InheritedMemberOptions
    trace: str = ""
    """Parent of its trace in the lead's trace."""

    def to_membership(self, channel: LeadChannel) -> TeamMembership:
        return TeamMembership(
            name=self.name,
            team=self.team,
            spawn_request=self.order,
            mode=self.mode,
            call=self.call,
            channel=channel,
            session=self.session,
            run_directory=self.run,
            transcript=self.transcript,
            snapshot=self.snapshot,
        )

    def to_options(self, membership: TeamMembership, clock: Clock) -> Options:
        fields = msgspec.structs.asdict(self.opened)
        fields["cwd"] = Path(self.opened.cwd)
        fields["add_dirs"] = tuple(map(Path, self.opened.add_dirs))
        fields["plugin_dirs"] = tuple(map(Path, self.opened.plugin_dirs))
        return Options(**fields, membership=membership, clock=clock, trace=self.trace)


def build_inherited_options(
    options: Options, *, cwd: Path, model: str | None, mode: PermissionMode, seed: int | None
) -> InheritedMemberOptions:
    """Build the options of a member's session from the current state of its lead's."""
    agents, sources = options.agents, options.setting_sources
    return InheritedMemberOptions(
        cwd=str(cwd),
        model=model,
        mode=mode,
        skip_permissions=options.skip_permissions,
        allowed_tools=tuple(options.allowed_tools),
        disallowed_tools=tuple(options.disallowed_tools),
        add_dirs=tuple(map(str, options.add_dirs)),
        coordinator=options.coordinator,
        agents=agents if agents is None or isinstance(agents, str) else dict(agents),
        plugin_dirs=tuple(map(str, options.plugin_dirs)),
        mcp_config=tuple(each if isinstance(each, str) else dict(each) for each in options.mcp_config),
        strict_mcp_config=options.strict_mcp_config,
        thinking_tokens=options.thinking_tokens,
        fallback_model=options.fallback_model,
        betas=tuple(options.betas),
        max_turns=options.max_turns,
        settings=options.settings,
        setting_sources=None if sources is None else tuple(sources),
        attended=options.attended,
        seed=seed,
    )


def encode_member_bootstrap(bootstrap: MemberBootstrap) -> bytes:
    return msgspec.json.encode(bootstrap)


def decode_member_bootstrap(message: bytes) -> MemberBootstrap:
    """Decode the bootstrap message. Raises ValueError."""
    return msgspec.json.decode(message, type=MemberBootstrap)
