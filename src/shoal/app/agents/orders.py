"""Resolves a spawn request: whether it is allowed, its first prompt and its loop limits."""

from __future__ import annotations

from typing import get_args

from msgspec.structs import replace

from shoal.agent.agent import Agent, Bounds
from shoal.agent.forking import FORK
from shoal.app.authority import authority_of
from shoal.core.agents import Order
from shoal.core.definitions import Definition, Source
from shoal.core.errors import AgentRefused
from shoal.core.messages import Message, Text
from shoal.core.permissions import Mode
from shoal.core.ports import Model
from shoal.workspaces.local import LocalWorkspace

_THINKING = {"low": 1_024, "medium": 4_096, "high": 16_384, "xhigh": 32_768, "max": 65_536}
FORKED = Definition(
    name=FORK,
    description="A copy of the agent that starts it, with all it knows.",
    prompt="",
    source=Source(kind="builtin"),
)
NO_FORK = (
    "You are a fork, and a fork cannot fork. Do the work yourself, or name with subagent_type an agent that "
    "begins with your prompt alone."
)
_MODES: tuple[Mode, ...] = get_args(Mode)


def refuse_where_forbidden(parent: Agent, kind: str) -> None:
    if (refused := authority_of(parent).refusal_to_start(kind)) is not None:
        raise AgentRefused(f"The agent {kind} was not started: {refused.reason}")


def refuse_where_it_cannot_work(definition: Definition, order: Order) -> None:
    isolation = order.isolation or definition.isolation
    if order.cwd is not None and isolation is not None:
        raise AgentRefused(
            "cwd and isolation cannot be had together: an agent in a worktree works there. Leave one out."
        )
    if isolation == "remote":
        raise AgentRefused("isolation: remote needs an engine for other machines, and none is configured.")


def first_prompt(definition: Definition, order: Order, told: str, known: tuple[str, ...] = ()) -> Message:
    """Build the first prompt; `skill_texts` are the texts of its preloaded skills."""
    texts = (definition.initial_prompt, *known, told, order.prompt)
    return Message(role="user", content=tuple(Text(text=text) for text in texts if text))


def bounds_for(usual: Bounds, definition: Definition, order: Order, thinking: int | None = None) -> Bounds:
    """Resolve the loop limits; a resumed agent keeps `thinking`, because a change would miss the cache."""
    effort = definition.effort if order.effort is None else order.effort
    if thinking is None:
        thinking = usual.thinking_tokens if effort is None else thinking_tokens(effort)
    return replace(usual, max_turns=definition.max_turns, thinking_tokens=thinking)


def thinking_tokens(effort: str | int) -> int:
    """Return the thinking tokens of an effort. Raises `AgentRefused` for an unknown level."""
    if isinstance(effort, int):
        return max(0, effort)
    if effort not in _THINKING:
        raise AgentRefused(f"{effort!r} is no effort: give {', '.join(_THINKING)} or a number of tokens.")
    return _THINKING[effort]


def mode_named(name: str) -> Mode:
    return next((mode for mode in _MODES if mode == name), "default")


def name_of(model: Model) -> str:
    """Return the model name with its provider, which is valid whatever the defaults are later."""
    return f"{model.card.provider}:{model.card.id}"


def move_to(cwd: str | None, workspace: LocalWorkspace) -> None:
    """Change the working directory. Raises `AgentRefused` if the agent may not work there."""
    if cwd is not None and not workspace.move(workspace.locate(cwd)):
        raise AgentRefused(f"{cwd} is outside the project and the granted directories, or no directory.")
