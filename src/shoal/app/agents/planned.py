"""Blueprint of an agent: its future identity and permissions."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent import Bounds
from shoal.agent.conversation import Conversation
from shoal.app.agents.limiting import lend, narrowing
from shoal.app.agents.orders import mode_named
from shoal.app.agents.seats import seated
from shoal.app.authority import authority_of
from shoal.app.mcp.servers import Kit
from shoal.app.quarters.quarters import Quarters
from shoal.app.skills.invoking import Preloaded
from shoal.core.agents import Order
from shoal.core.definitions import Definition, Toolset
from shoal.core.identity import Identity
from shoal.core.ids import AgentId
from shoal.core.ports import Model, Transcript
from shoal.policy.memory import Memory
from shoal.policy.permissions import RulePermissions
from shoal.policy.restriction import Narrowed
from shoal.runs.outfit import Newcomer
from shoal.stores.files.subagents import Remembered


class Plan(Struct, kw_only=True):
    """Everything needed to create an agent."""

    newcomer: Newcomer
    order: Order | None = None
    """Request it was spawned with; None for a resumed agent."""
    known: Preloaded = Preloaded()
    definition: Definition
    facts: Remembered
    resumed: bool = False
    kit: Kit
    toolset: Toolset
    model: Model
    quarters: Quarters
    bounds: Bounds
    transcript: Transcript
    conversation: Conversation


def identity_of(plan: Plan) -> Identity:
    facts, parent, agent = plan.facts, plan.newcomer.parent.identity, plan.newcomer.agent
    return seated(
        Identity(
            session=parent.session,
            agent=agent,
            name=facts.name or agent,
            team=parent.team,
            color=facts.color,
            parent=AgentId(facts.parent),
            kind=facts.agent_type,
            depth=facts.depth,
        ),
        plan.newcomer.seat,
        facts.mode,
    )


def permissions_of(plan: Plan) -> RulePermissions:
    """Build its permissions; a resumed agent's come from its resumer, restricted as they were."""
    quarters, toolset, facts = plan.quarters, plan.toolset, plan.facts
    resumed = plan.resumed
    permissions = authority_of(plan.newcomer.parent).child(
        quarters.workspace,
        mode=mode_named(facts.mode),
        only=(plan.definition.tools or ()) if toolset.only and not resumed else (),
        never=() if resumed else toolset.never,
        confined=quarters.main,
        before=Narrowed(only=facts.narrowed, never=facts.denied) if resumed else narrowing(plan.order),
    )
    lend(permissions, plan.order, plan.known)
    if not resumed:
        plan.facts = replace(facts, narrowed=permissions.narrowed.only, denied=permissions.narrowed.never)
    if facts.memory:
        permissions.memory = Memory(directory=facts.memory, only=facts.memory_tools)
        quarters.lend(Path(facts.memory))
    if quarters.secluded is not None and quarters.sandbox is not None:
        sandbox = quarters.sandbox
        quarters.secluded.paths = permissions.denied_paths
        permissions.sandboxed = lambda _: sandbox.vouches
    return permissions
