"""What a person or a program asks of a session, before settings fill in the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from shoal.core.clock import Clock, SystemClock
from shoal.core.decisions import Mode
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.team.lead_link import LeadLink
from shoal.team.outpost import Membership


class Options(Struct, frozen=True, kw_only=True):
    name: str = "lead"
    """What the agent is called, by others and on the task board."""
    team: str | None = None
    """The team whose task board it works on; without one it has a board of its own."""
    cwd: Path | None = None
    """The project; the process's own directory when None."""
    model: str | Model | None = None
    """`provider:name`, an alias, or a model object; what is configured when None."""
    mode: Mode | None = None
    skip_permissions: bool = False
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    available_tools: Sequence[str] | None = None
    """The only tools the agent is given, of the built-in ones and the caller's own; None is all."""
    add_dirs: Sequence[Path] = ()
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    coordinator: bool | None = None
    """Whether the lead only starts, tells and stops agents; what is configured when None."""
    assistant: bool | None = None
    """Whether the session stays open and its agents all run in the background; as configured when None."""
    agents: str | Mapping[str, Any] | None = None
    """Definitions of agents for this session: names and their fields, as JSON, a file of it, or a mapping."""
    plugin_dirs: Sequence[Path] = ()
    """Directories of plug-ins for this session, beside those of settings and of the home."""
    mcp_config: Sequence[str | Mapping[str, Any]] = ()
    """MCP servers for this session: JSON, a file of it, or a mapping, each as `.mcp.json` is."""
    strict_mcp_config: bool = False
    """Whether those are all: nothing of settings and of `.mcp.json`."""
    channels: Sequence[str] = ()
    """MCP servers that may push messages to the lead, each as `server:NAME`, beside those of settings."""
    tools: Sequence[Tool] = ()
    """Tools of the caller's own, beside the built-in ones."""
    output_schema: Mapping[str, Any] | None = None
    """A JSON Schema that the lead's answer has to fit, beside its text; `Finished.output` is the answer."""
    thinking_tokens: int | None = None
    """How far agents think before they answer; what is configured when None."""
    fallback_model: str | None = None
    """Asked in place of a model that does not answer."""
    betas: Sequence[str] = ()
    """Of the Messages API."""
    setting_sources: Sequence[str] | None = None
    """Whose files count, of `user`, `project` and `local`; None is all. Managed ones always do."""
    hooks: Mapping[str, Sequence[Any]] | None = None
    """Of the caller's own, by event: functions, (matcher, function), `Hook`s, or entries as in settings."""
    begun: Literal["startup", "clear"] | None = "startup"
    """How the session came to be, for hooks; None for one that is only looked at, in which none runs."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    """For the whole session with all its agents, what it spent before it was resumed included."""
    max_total_tokens: int | None = None
    """As the budget: everything the models read and write."""
    max_agents: int | None = None
    """Agents that may ever be started beside the lead."""
    deadline: float | None = None
    """Seconds for the whole session's work."""
    resume: str | None = None
    """The id of a session to go on with, or the beginning of one."""
    continue_last: bool = False
    fork: bool = False
    """Go on in a copy, and leave the resumed session as it is."""
    session_id: str | None = None
    settings: str | None = None
    """A settings file, or JSON itself."""
    record: Path | None = None
    """Where every request and reply is kept for `replay:`."""
    attended: bool = False
    """Whether a person is there to answer questions."""
    persist: bool = True
    """False keeps nothing on disk: no transcript, no journal, no resuming."""
    debug: bool = False
    seed: int | None = None
    membership: Membership | None = None
    """Which member of which team this process is; None for a session of its own."""
    trace: str = ""
    """The `traceparent` of somebody's trace, in which the session's telemetry goes on."""
    clock: Clock = SystemClock()

    @property
    def link(self) -> LeadLink | None:
        """To the lead whose run this process is part of."""
        return None if self.membership is None else self.membership.link
