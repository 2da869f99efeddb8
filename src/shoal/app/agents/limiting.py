"""Limits an agent's tools by its spawn request, and lends it permissions."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.skills.invoking import Preloaded
from shoal.core.agents import Order
from shoal.core.definitions import Definition, Source, Toolset, tool_names
from shoal.core.errors import AgentRefused
from shoal.policy.permissions import RulePermissions
from shoal.policy.restriction import Narrowed
from shoal.policy.rules import parse_rule


def limited(toolset: Toolset, order: Order) -> Toolset:
    """Return the tools of the definition that the request allows. Raises `AgentRefused`."""
    if not order.only_tools:
        return toolset
    wanted = tool_names(
        Definition(name="", description="", prompt="", source=Source(kind="builtin"), tools=order.only_tools),
        toolset.names,
    )
    if wanted.missing:
        raise AgentRefused(
            f"{order.description} is not started: it allows tools that its agent does not have here: "
            f"{', '.join(wanted.missing)}. Take them out of its allowed-tools, or name another agent."
        )
    return replace(toolset, names=wanted.names)


def narrowing(order: Order | None) -> Narrowed | None:
    """Build the restriction that also applies to the agents it starts."""
    return Narrowed(only=(order.only_tools,)) if order is not None and order.only_tools else None


def lend(permissions: RulePermissions, order: Order | None, known: Preloaded) -> None:
    """Lend permissions while the agent works; a resumed agent has to ask."""
    for directory in known.directories:
        permissions.open_for_reading(directory)
    if order is not None and order.lent:
        permissions.lend((parse_rule(entry, order.description) for entry in order.lent), lasting=True)
