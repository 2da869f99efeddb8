"""Hooks of agents: those of the session, and those of the agent's own definition while it lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.definitions.agent_trust import trusts_agent
from shoal.app.hooks.sources import hooks_of
from shoal.app.settings.settings import Settings
from shoal.core.arrivals import Item
from shoal.core.clock import Clock
from shoal.core.definitions import Definition
from shoal.core.errors import AgentRefused
from shoal.core.events import Journaled
from shoal.core.hooks import UNMOVED, Hook, HookEvent, Hooks, Verdict
from shoal.core.identity import Identity
from shoal.core.ids import AgentId, SessionId
from shoal.core.ports import Processes, Workspace
from shoal.policy.hooks.choosing import chosen
from shoal.policy.hooks.commands import Shop
from shoal.policy.hooks.running import HookRunner
from shoal.policy.permissions import RulePermissions
from shoal.runs.hook_news import QueuedHookNews
from shoal.tools.environment import command_environment

_ABOUT_TEAMS = ("TeammateIdle", "TaskCreated", "TaskCompleted")
_ABOUT_AGENTS = ("SubagentStart", "SubagentStop")


class Whose(Struct, frozen=True, kw_only=True):
    """Agent that a hook event is about."""

    identity: Identity
    workspace: Workspace
    permissions: RulePermissions
    transcript: str = ""
    """Path of the agent's transcript; empty if none is written."""


class SessionHooks:
    """Hooks shared by all agents of a session, and the runner for them."""

    def __init__(
        self, runner: HookRunner, settings: Settings, *, session: SessionId, transcript: str, project: Path
    ) -> None:
        self.runner = runner
        self.session = session
        self.transcript = transcript
        self.by_event: dict[HookEvent, tuple[Hook, ...]] = {}
        self.problems: tuple[str, ...] = ()
        """Sentences about configured hooks that cannot be used."""
        self.news: QueuedHookNews | None = None
        self._settings = settings
        self._project = project

    def add(self, hooks: Iterable[Hook]) -> None:
        """Add hooks from any source for all agents from now on."""
        for hook in hooks:
            self.by_event[hook.event] = (*self.by_event.get(hook.event, ()), hook)

    def hear(self, news: QueuedHookNews) -> None:
        """Send the notices of background hooks to this notifier."""
        self.news = self.runner.news = news

    def entered(self, item: Item) -> None:
        """Handle that a queued item has entered an agent's conversation."""
        if self.news is not None:
            self.news.entered(item)

    def prompted(self, agent: AgentId) -> None:
        """Handle that the user has sent a prompt to the agent."""
        if self.news is not None:
            self.news.heard_else(agent)

    def of(self, whose: Whose, own: Iterable[Hook] = ()) -> AgentHooks:
        return AgentHooks(self, whose, own)

    def own(self, definition: Definition) -> tuple[Hook, ...]:
        """Return the hooks of a definition. Raises `AgentRequestRefused` for untrusted or bad ones."""
        if not definition.hooks:
            return ()
        named = f"The agent {definition.name} ({definition.source}) was not started"
        if not trusts_agent(self._settings.home, self._project, definition):
            raise AgentRefused(
                f"{named}: it brings hooks, which a person has not trusted. They can, after "
                "`shoal trust --show`, with `shoal trust`."
            )
        found = hooks_of(definition, self._settings)
        if found.problems:
            raise AgentRefused(f"{named}: its hooks cannot all be used. {found.problems[0]}")
        return found.hooks


class AgentHooks:
    """Hooks of one agent, run for the events of its loop and its tools."""

    __slots__ = ("_own", "_session", "_shared", "_whose")

    def __init__(self, session: SessionHooks, whose: Whose, own: Iterable[Hook]) -> None:
        self._session = session
        self._shared = session.by_event
        self._whose = whose
        self._own: dict[HookEvent, tuple[Hook, ...]] = {}
        for hook in own:
            self._own[hook.event] = (*self._own.get(hook.event, ()), hook)

    @property
    def all(self) -> tuple[Hook, ...]:
        both = (self._shared, self._own)
        return tuple(hook for each in both for hooks in each.values() for hook in hooks)

    def wants(self, event: HookEvent) -> bool:
        return event in self._shared or event in self._own

    async def run(self, event: HookEvent, fields: Mapping[str, Any]) -> Verdict:
        whole = {**self._common(event), **fields}
        hooks = chosen((*self._shared.get(event, ()), *self._own.get(event, ())), event, whole)
        if not hooks:
            return UNMOVED
        who = self._whose
        return await self._session.runner.run(
            event, hooks, whole, agent=who.identity.agent, cwd=who.workspace.cwd
        )

    def _common(self, event: HookEvent) -> dict[str, Any]:
        who, identity = self._whose, self._whose.identity
        fields = {
            "session_id": self._session.session,
            "transcript_path": self._session.transcript,
            "cwd": str(who.workspace.cwd),
            "permission_mode": who.permissions.mode,
            "hook_event_name": event,
        }
        if not identity.is_lead:
            fields |= {"agent_id": identity.agent, "agent_type": identity.kind}
        if event in _ABOUT_AGENTS:
            fields["agent_transcript_path"] = who.transcript
        if event in _ABOUT_TEAMS and identity.team:
            fields["team_name"] = identity.team
            if identity.is_teammate:
                fields["teammate_name"] = identity.name
        return fields


def listed(hooks: Hooks) -> tuple[str, ...]:
    """Return a line for each hook of the agent, shown to whoever starts it."""
    if not isinstance(hooks, AgentHooks):
        return ()
    return tuple(f"{hook.event} {hook.matcher or '*'}: {hook.name} ({hook.origin})" for hook in hooks.all)


def hook_runner(
    settings: Settings, project: Path, processes: Processes, clock: Clock, emit: Callable[[Journaled], None]
) -> HookRunner:
    where = {"CLAUDE_PROJECT_DIR": str(project), "SHOAL_PROJECT_DIR": str(project)}
    env = command_environment(settings.tool_environment) | where
    return HookRunner(Shop(processes=processes, clock=clock, env=env, root=project), emit)
