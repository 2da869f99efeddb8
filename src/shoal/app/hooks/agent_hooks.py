"""Hooks of agents: those of the session and, while the agent lives, those of its own definition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.definitions.agent_trust import is_agent_trusted
from shoal.app.hooks.hook_sources import (
    are_definition_hooks_disabled,
    convert_to_subagent_stop_hook,
    list_unused_settings,
    parse_definition_hooks,
)
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.live_settings import AutoReloadingSettings
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import Clock
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import JournaledEvent
from shoal.core.extensions.hooks import (
    NO_DECISION,
    Hook,
    HookDecision,
    HookDispatcher,
    HookEvent,
    HookServices,
)
from shoal.core.extensions.skills import Skill
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.ports import ProcessLauncher, Workspace
from shoal.policy.hooks.hook_matcher import select_matching_hooks
from shoal.policy.hooks.hook_process import HookRunResources
from shoal.policy.hooks.hook_runner import HookRunner
from shoal.policy.permission_engine import PermissionEngine
from shoal.tools.command_environment import build_command_environment
from shoal.wire.hook_codec import ParsedHooks

VARIABLES_DIRECTORY = "env"
"""Directory with the variables that a run's hooks set for its agents' shell commands."""
_TEAM_EVENTS = ("TeammateIdle", "TaskCreated", "TaskCompleted")
_CONFIG_SOURCES = {
    "managed": "policy_settings",
    "project": "project_settings",
    "local": "local_settings",
    "user": "user_settings",
}
_START_EVENTS = ("Setup", "SessionStart")
_AGENT_EVENTS = ("SubagentStart", "SubagentStop")


class HookSubjectAgent(Struct, frozen=True, kw_only=True):
    """Agent that a hook event is about."""

    identity: AgentIdentity
    workspace: Workspace
    permissions: PermissionEngine
    transcript: str = ""
    """Path of the agent's transcript; empty if none is written."""


class HookRegistry:
    """Hooks shared by all agents of a session, and the runner for them."""

    def __init__(
        self,
        runner: HookRunner,
        settings: Settings,
        *,
        session: SessionId,
        transcript: str,
        project: Path,
        configured: ParsedHooks,
        live_settings: AutoReloadingSettings,
    ) -> None:
        self.runner = runner
        self.session = session
        self.transcript = transcript
        self.by_event: dict[HookEvent, tuple[Hook, ...]] = {}
        self.problems = configured.problems
        """Sentences about configured hooks that cannot be used."""
        self.unused_settings = list_unused_settings(settings, configured)
        """Sentences about settings and parts of configured hooks that are only a convenience."""
        self._prompt_listeners: tuple[Callable[[AgentId], None], ...] = ()
        self._settings = settings
        self.project = project
        self._skill_digests: set[str] = set()
        self._live_settings = live_settings
        self._is_reviewing_settings = False
        self._review_lock = asyncio.Lock()
        self._prompt_ids: IdGenerator | None = None
        self._prompt_id = ""
        self._is_prompt_id_unused = False

    def add(self, hooks: Iterable[Hook]) -> None:
        """Add hooks from any source for all agents from now on."""
        for hook in hooks:
            self.by_event[hook.event] = (*self.by_event.get(hook.event, ()), hook)

    def subscribe_to_prompts(self, listener: Callable[[AgentId], None]) -> None:
        """Call the listener with each agent to which the user sends a prompt."""
        self._prompt_listeners = (*self._prompt_listeners, listener)

    @property
    def prompt_id(self) -> str:
        """Id of the prompt that the lead works on; empty before the first one."""
        return self._prompt_id

    def on_prompt_submitted(self) -> None:
        """Called before a prompt is submitted to the lead: a turn may take several prompts."""
        if not self._is_prompt_id_unused:
            self._start_prompt()
        self._is_prompt_id_unused = False

    def _start_prompt(self) -> None:
        if self._prompt_ids is None:
            # Separate from the session's generator: whether there are hooks must not change other ids.
            text = f"{self.session} {self.runner.clock.now()}"
            self._prompt_ids = IdGenerator(int.from_bytes(sha256(text.encode()).digest()[:16]))
        self._prompt_id = self._prompt_ids.new_uuid()
        self._is_prompt_id_unused = True

    def on_item_delivered(self, item: InboxItem) -> None:
        """Called after a queued item has entered an agent's conversation."""
        if item.by == "person" and item.to == LEAD_ID and "UserPromptSubmit" not in self.by_event:
            self._start_prompt()

    def on_prompt(self, agent: AgentId) -> None:
        """Called after the user has sent a prompt to the agent."""
        if agent == LEAD_ID:
            self._start_prompt()
        for listener in self._prompt_listeners:
            listener(agent)

    def create_agent_hooks(self, subject: HookSubjectAgent, own: Iterable[Hook] = ()) -> AgentHookDispatcher:
        return AgentHookDispatcher(self, subject, own)

    def add_skill_hooks(self, skill: Skill) -> None:
        """Add the hooks of a trusted skill, once. Raises `AgentRequestRefused` if one cannot be used."""
        if skill.digest in self._skill_digests or are_definition_hooks_disabled(skill.source, self._settings):
            return
        found = parse_definition_hooks(skill.hooks, skill.source, self._settings)
        if found.problems:
            raise AgentRequestRefused(
                format_session_notice("skill_hooks_invalid", name=skill.name, problem=found.problems[0])
            )
        self._skill_digests.add(skill.digest)
        self.add(found.hooks)

    def start_settings_review(self) -> None:
        """Let hooks of `ConfigChange` decide whether changed settings apply, if there are any."""
        if "ConfigChange" in self.by_event:
            self._is_reviewing_settings = True
            self._live_settings.start_review()

    @property
    def is_reviewing_settings(self) -> bool:
        return self._is_reviewing_settings

    async def review_changed_settings(self, dispatcher: AgentHookDispatcher) -> None:
        """Run the hooks for each changed settings file; managed files apply in any case."""
        live_settings = self._live_settings
        if not self._is_reviewing_settings:
            return
        async with self._review_lock:
            changes = live_settings.list_changed_files()
            blocked: set[str] = set()
            for path, kind in changes:
                fields = {"source": _CONFIG_SOURCES.get(kind, "user_settings"), "file_path": path}
                decision = await dispatcher.run_hooks("ConfigChange", fields)
                is_blocked = decision.blocked is not None or decision.stop is not None
                if is_blocked and kind != "managed":
                    blocked.add(path)
            if changes or live_settings.is_trust_changed:
                live_settings.finish_review(blocked=blocked)

    def load_definition_hooks(self, definition: AgentDefinition) -> tuple[Hook, ...]:
        """Return the hooks of a definition. Raises `AgentRequestRefused` for untrusted or bad ones."""
        found = read_trusted_agent_hooks(definition, self._settings, self.project)
        return tuple(map(convert_to_subagent_stop_hook, found.hooks))


class AgentHookDispatcher:
    """Hooks of one agent, run for the events of its loop and its tools."""

    __slots__ = ("_own", "_session", "_shared", "_subject")

    def __init__(self, session: HookRegistry, subject: HookSubjectAgent, own: Iterable[Hook]) -> None:
        self._session = session
        self._shared = session.by_event
        self._subject = subject
        self._own: dict[HookEvent, tuple[Hook, ...]] = {}
        for hook in own:
            self._own[hook.event] = (*self._own.get(hook.event, ()), hook)

    @property
    def all(self) -> tuple[Hook, ...]:
        registries = (self._shared, self._own)
        return tuple(hook for each in registries for hooks in each.values() for hook in hooks)

    def has_hooks_for(self, event: HookEvent) -> bool:
        # Settings are reviewed before each call.
        is_review = event == "PreToolUse" and self._session.is_reviewing_settings
        return is_review or event in self._shared or event in self._own

    async def run_hooks(self, event: HookEvent, fields: Mapping[str, Any]) -> HookDecision:
        if event == "PreToolUse":
            await self._session.review_changed_settings(self)
        if event == "UserPromptSubmit" and self._subject.identity.is_lead:
            self._session.on_prompt_submitted()
        input_fields = {**self._build_common_hook_fields(event), **fields}
        if event in _START_EVENTS and fields.get("source") != "compact":
            # They run before the first prompt, which may have arrived meanwhile.
            input_fields.pop("prompt_id", None)
        hooks = select_matching_hooks(
            (*self._shared.get(event, ()), *self._own.get(event, ())),
            event,
            input_fields,
            self._subject.workspace.user,
        )
        if not hooks:
            return NO_DECISION
        subject = self._subject
        return await self._session.runner.run_hooks(
            event, hooks, input_fields, agent=subject.identity.agent, cwd=subject.workspace.cwd
        )

    def _build_common_hook_fields(self, event: HookEvent) -> dict[str, Any]:
        subject, identity = self._subject, self._subject.identity
        fields = {
            "session_id": self._session.session,
            "transcript_path": self._session.transcript,
            "cwd": str(subject.workspace.cwd),
            "permission_mode": subject.permissions.mode,
            "hook_event_name": event,
        }
        if self._session.prompt_id:
            fields["prompt_id"] = self._session.prompt_id
        if not identity.is_lead:
            fields |= {"agent_id": identity.agent, "agent_type": identity.kind}
        if event in _AGENT_EVENTS:
            fields["agent_transcript_path"] = subject.transcript
        if event in _TEAM_EVENTS and identity.team:
            fields["team_name"] = identity.team
            if identity.is_teammate:
                fields["teammate_name"] = identity.name
        return fields


def read_trusted_agent_hooks(definition: AgentDefinition, settings: Settings, project: Path) -> ParsedHooks:
    """Return the hooks of a definition. Raises `AgentRequestRefused` for untrusted or bad ones."""
    if not definition.hooks or are_definition_hooks_disabled(definition.source, settings):
        return ParsedHooks()
    if not is_agent_trusted(settings.home, project, definition):
        raise AgentRequestRefused(
            format_session_notice("agent_hooks_untrusted", name=definition.name, source=definition.source)
        )
    found = parse_definition_hooks(definition.hooks, definition.source, settings)
    if found.problems:
        raise AgentRequestRefused(
            format_session_notice(
                "agent_hooks_invalid",
                problem=found.problems[0],
                name=definition.name,
                source=definition.source,
            )
        )
    return found


def describe_agent_hooks(hooks: HookDispatcher) -> tuple[str, ...]:
    """Return a line for each hook of the agent, shown to the agent that starts it."""
    if not isinstance(hooks, AgentHookDispatcher):
        return ()
    return tuple(f"{hook.event} {hook.matcher or '*'}: {hook.name} ({hook.origin})" for hook in hooks.all)


def create_hook_runner(
    settings: Settings,
    project: Path,
    processes: ProcessLauncher,
    clock: Clock,
    emit: Callable[[JournaledEvent], None],
    variables_directory: Path,
    services: HookServices,
) -> HookRunner:
    directories = {"CLAUDE_PROJECT_DIR": str(project), "SHOAL_PROJECT_DIR": str(project)}
    env = build_command_environment(settings.tool_environment) | directories
    resources = HookRunResources(
        processes=processes, clock=clock, env=env, root=project, variables_directory=variables_directory
    )
    return HookRunner(resources, emit, services)
