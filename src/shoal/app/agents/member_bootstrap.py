"""Data that the process of a teammate gets from its lead at the start: its identity, limits and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.app.options import Options
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.agents.worktrees import MachineCheckoutPaths
from shoal.core.budgets.budget import Budget
from shoal.core.clock import Clock
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TeamName
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.store import Store
from shoal.stores.store_choice import get_shared_address
from shoal.team.channel.lead_channel import BudgetLimitSet, LeadChannel
from shoal.team.members.member_host import TeamMembership
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT
from shoal.wire.settings_codec import TeammateMode
from shoal.wire.trust_codec import TrustDecision


class InheritedPermissionOptions(Struct, frozen=True, kw_only=True):
    mode: PermissionMode
    skip_permissions: bool
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...]
    available_tools: tuple[str, ...] | None
    add_dirs: tuple[str, ...]
    settings: str | None
    setting_sources: tuple[str, ...] | None
    attended: bool
    allow_bypass: bool


class InheritedModelOptions(Struct, frozen=True, kw_only=True):
    model: str | None
    fallback_model: str | None
    thinking_tokens: int | None
    betas: tuple[str, ...]
    effort: str | None


class InheritedExtensionOptions(Struct, frozen=True, kw_only=True):
    agents: str | dict[str, Any] | None
    plugin_dirs: tuple[str, ...]
    mcp_config: tuple[str | dict[str, Any], ...]
    strict_mcp_config: bool
    bare: bool
    slash_commands: bool
    skills: tuple[str, ...] | None


class InheritedMemberOptions(Struct, frozen=True, kw_only=True):
    """Options of the lead's session that its members inherit; the names are those of `Options`."""

    cwd: str
    coordinator: bool | None
    max_turns: int | None
    seed: int | None
    teammate_mode: TeammateMode | None
    store: str | None
    """Address of a store in a database; None for the home directory."""
    trace: str
    """Parent of its trace in the lead's trace."""
    permissions: InheritedPermissionOptions
    models: InheritedModelOptions
    extensions: InheritedExtensionOptions


class AgentJobBootstrap(Struct, frozen=True, kw_only=True):
    agent: AgentId
    is_restarted: bool
    """True if an earlier process of this agent was lost."""
    definition: dict[str, Any] = {}
    """Definition of its type in the format of agent files, if only the program of the lead has it."""
    answer_schema: dict[str, Any] | None = None
    """JSON Schema of the answer that it must give; None if it gives a text."""


class LeadPaths(Struct, frozen=True, kw_only=True):
    """Paths on the lead's machine; empty on other machines."""

    run: str = ""
    transcript: str = ""
    snapshot: str = ""
    """Shell snapshot of the lead, if it has one, so that the member's process does not take its own."""


class MemberBootstrap(Struct, frozen=True, kw_only=True):
    name: AgentName
    team: TeamName
    order: SpawnRequest | None
    mode: PermissionMode | None
    call: str
    session: str
    paths: LeadPaths
    rules: BudgetLimitSet
    answered: tuple[
        AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion, ...
    ]
    """Session-wide permissions that a person has granted so far."""
    denied: tuple[str, ...]
    """Tools that its lead may not use now, so it may not use them either."""
    only: tuple[tuple[str, ...], ...] = ()
    """Tools of definitions with patterns that its lead is restricted to; it must satisfy each of these."""
    opened: InheritedMemberOptions
    trusted: dict[str, TrustDecision] = {}
    """The lead's decisions on settings files of the project, for a checkout on another machine."""
    checkout: MachineCheckoutPaths | None = None
    """Its checkout on another machine, which it must not leave; None if it shares the lead's files."""
    job: AgentJobBootstrap | None = None
    """Set if the process runs an agent for one job, and no member of a team."""

    def to_membership(self, channel: LeadChannel) -> TeamMembership:
        return TeamMembership(
            name=self.name,
            team=self.team,
            spawn_request=self.order,
            mode=self.mode,
            call=self.call,
            channel=channel,
            session=self.session,
            run_directory=self.paths.run,
            transcript=self.paths.transcript,
            snapshot=self.paths.snapshot,
            denied_tools=self.denied,
            only_tools=self.only,
            agent="" if self.job is None else self.job.agent,
            checkout=self.checkout,
        )

    def to_options(self, membership: TeamMembership, clock: Clock) -> Options:
        fields = msgspec.structs.asdict(self.opened)
        for group in ("permissions", "models", "extensions"):
            fields |= msgspec.structs.asdict(fields.pop(group))
        for name in ("add_dirs", "plugin_dirs"):
            fields[name] = tuple(map(Path, fields[name]))
        fields["cwd"] = Path(self.opened.cwd)
        return Options(**fields, membership=membership, clock=clock)


def build_inherited_options(
    options: Options,
    *,
    cwd: Path,
    model: str | None,
    mode: PermissionMode,
    seed: int | None,
    store: Store,
    trace: str,
) -> InheritedMemberOptions:
    """Build the options of a member's session from the current state of its lead's."""
    agents, sources = options.agents, options.setting_sources
    return InheritedMemberOptions(
        cwd=str(cwd),
        coordinator=options.coordinator,
        max_turns=options.max_turns,
        seed=seed,
        teammate_mode=options.teammate_mode,
        store=get_shared_address(store),
        trace=trace,
        permissions=InheritedPermissionOptions(
            mode=mode,
            skip_permissions=options.skip_permissions,
            allowed_tools=tuple(options.allowed_tools),
            disallowed_tools=tuple(options.disallowed_tools),
            # Only the lead answers with the tool for structured output.
            available_tools=None
            if options.available_tools is None
            else tuple(name for name in options.available_tools if name != STRUCTURED_OUTPUT),
            add_dirs=tuple(map(str, options.add_dirs)),
            settings=options.settings,
            setting_sources=None if sources is None else tuple(sources),
            attended=options.attended,
            allow_bypass=options.allow_bypass,
        ),
        models=InheritedModelOptions(
            model=model,
            fallback_model=options.fallback_model,
            thinking_tokens=options.thinking_tokens,
            betas=tuple(options.betas),
            effort=options.effort,
        ),
        extensions=InheritedExtensionOptions(
            agents=agents if agents is None or isinstance(agents, str) else dict(agents),
            plugin_dirs=tuple(map(str, options.plugin_dirs)),
            mcp_config=tuple(each if isinstance(each, str) else dict(each) for each in options.mcp_config),
            strict_mcp_config=options.strict_mcp_config,
            bare=options.bare,
            slash_commands=options.slash_commands,
            skills=None if options.skills is None else tuple(options.skills),
        ),
    )


def encode_member_bootstrap(bootstrap: MemberBootstrap) -> bytes:
    return msgspec.json.encode(bootstrap)


def decode_member_bootstrap(message: bytes) -> MemberBootstrap:
    """Decode the bootstrap message. Raises ValueError."""
    return msgspec.json.decode(message, type=MemberBootstrap)


def build_budget_limit_set(budget: Budget) -> BudgetLimitSet:
    tree = budget.limits
    if budget.deadline is not None:
        tree = replace(tree, max_seconds=max(0.0, budget.deadline - budget.clock.monotonic()))
    return BudgetLimitSet(tree=tree, per_agent=budget.per_agent, per_type=dict(budget.per_type))
