"""Resolves a spawn request: checks whether it is allowed, and builds its first prompt and loop limits."""

from __future__ import annotations

from typing import get_args

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner, LoopLimits
from shoal.agent.forks import FORK_KIND
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.model_notices import format_session_notice
from shoal.core.agents.agent_definitions import (
    THINKING_TOKENS_BY_EFFORT,
    AgentDefinition,
    DefinitionSource,
    compute_thinking_tokens,
)
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.errors import AgentUnusable
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.workspaces.local_workspace import LocalWorkspace

FORK_DEFINITION = AgentDefinition(
    name=FORK_KIND,
    description="A copy of the agent that starts it, with its full context.",
    prompt="",
    source=DefinitionSource(kind="builtin"),
)
_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)


def require_agent_start_allowed(parent: AgentRunner, kind: str) -> None:
    if (denial := get_permission_engine(parent).check_agent_start(kind)) is not None:
        raise AgentUnusable(format_session_notice("agent_denied", kind=kind, reason=denial.reason))


def require_valid_isolation(
    definition: AgentDefinition, request: SpawnRequest, *, is_on_machine: bool = False
) -> None:
    """`is_on_machine` is True in the process of an agent with isolation: remote, on its machine."""
    isolation = request.isolation or definition.run.isolation
    if request.cwd is not None and isolation is not None:
        raise AgentUnusable(format_session_notice("cwd_with_isolation"))
    if isolation == "remote" and not is_on_machine:
        raise AgentUnusable(format_session_notice("remote_isolation"))


def build_agent_first_prompt(
    request: SpawnRequest, workspace_text: str, skill_texts: tuple[str, ...] = ()
) -> Message:
    """Build the first prompt; `skill_texts` are the texts of its preloaded skills."""
    texts = (*skill_texts, workspace_text, request.prompt)
    return Message(role="user", content=tuple(TextBlock(text=text) for text in texts if text))


def resolve_loop_limits(
    default: LoopLimits, definition: AgentDefinition, request: SpawnRequest, thinking: int | None = None
) -> LoopLimits:
    """Resolve the loop limits; a resumed agent keeps `thinking`, because a change would miss the cache."""
    definition_effort = None if default.has_fixed_thinking else definition.effort
    effort = definition_effort if request.effort is None else request.effort
    is_adaptive = default.adaptive_thinking
    if thinking is None:
        thinking = default.thinking_tokens if effort is None else parse_effort_thinking_tokens(effort)
        is_adaptive = is_adaptive and effort is None
    return replace(
        default, max_turns=definition.run.max_turns, thinking_tokens=thinking, adaptive_thinking=is_adaptive
    )


def parse_effort_thinking_tokens(effort: str | int) -> int:
    """Return the thinking tokens of an effort. Raises `AgentRequestRefused` for an unknown level."""
    tokens = compute_thinking_tokens(effort)
    if tokens is None:
        levels = ", ".join(THINKING_TOKENS_BY_EFFORT)
        raise AgentUnusable(format_session_notice("unknown_effort", effort=repr(effort), levels=levels))
    return tokens


def parse_spawn_permission_mode(name: str) -> PermissionMode:
    return next((mode for mode in _MODES if mode == name), "default")


def change_agent_directory(cwd: str | None, workspace: LocalWorkspace) -> None:
    """Change the working directory. Raises `AgentRequestRefused` if the agent may not work there."""
    if cwd is None:
        return
    from shoal.workspaces.project_transfer import relocate_checkout_path

    # A teammate on a cluster may have moved to a machine with another home.
    cwd = relocate_checkout_path(cwd, workspace.root)
    if not workspace.change_directory(workspace.resolve_path(cwd)):
        raise AgentUnusable(format_session_notice("cwd_outside", cwd=cwd))
