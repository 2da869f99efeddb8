"""Options of a session, before settings fill in the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.tools import Tool
from shoal.core.output_type import OutputType
from shoal.core.permissions.permission_changes import RequestedPermissionMode
from shoal.core.permissions.questions import Answer, Question
from shoal.core.ports import Model
from shoal.core.store import Store
from shoal.wire.settings_codec import TeammateMode

if TYPE_CHECKING:
    from shoal.team.channel.lead_channel import LeadChannel
    from shoal.team.members.member_host import TeamMembership
    from shoal.tools.relayed_mcp import RelayedMcpServer

QuestionHandler: TypeAlias = Callable[[Question], Answer | Awaitable[Answer | None] | None]
"""Answers a question, maybe later. Without an answer the question is denied, unless a person can answer."""


class AgentExtras(Struct, frozen=True, kw_only=True):
    """Parts of an agent that only the program's process has."""

    tools: tuple[Tool, ...] = ()
    output: OutputType[Any] | None = None
    """Type of the answer that every agent with this definition must give."""
    fields: Mapping[str, Any] = {}
    """The definition in the format of agent files, for the process of an agent on another machine."""


class Options(Struct, frozen=True, kw_only=True):
    """Options of a session, as the command line and `shoal.open` pass them."""

    name: str = "lead"
    """Name of the agent, for other agents and on the task board."""
    team: str | None = None
    """Team whose task board it uses; without one the session has its own board."""
    home: Path | None = None
    """Home directory, where all state is stored; from the environment if None."""
    environ: Mapping[str, str] | None = None
    """Environment variables for the session and its commands; those of the process if None."""
    cwd: Path | None = None
    """Project directory; the current directory of the process if None."""
    model: str | Model | None = None
    """`provider:name`, an alias, or a model object; the configured model if None."""
    mode: RequestedPermissionMode | None = None
    """Permission mode; as configured if None. `manual` is `default`, and so is `auto` for now."""
    skip_permissions: bool = False
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    available_tools: Sequence[str] | None = None
    """The only tools of all agents of the session, built-in or from the caller; all if None."""
    add_dirs: Sequence[Path] = ()
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    coordinator: bool | None = None
    """True if the lead only starts, messages and stops agents; as configured if None."""
    assistant: bool | None = None
    """True if the session stays open and all its agents run in the background; as configured if None."""
    agents: str | Mapping[str, Any] | None = None
    """Agent definitions for this session: fields by name, as JSON, the path of a JSON file, or a mapping."""
    agent_extras: Mapping[str, AgentExtras] = {}
    """Python tools and output types of agents in `agents`, by name."""
    agent: str | None = None
    """Agent whose prompt, tools and model the lead uses; as configured if None."""
    plugin_dirs: Sequence[Path] = ()
    """Plug-in directories for this session, in addition to those of settings and the home."""
    mcp_config: Sequence[str | Mapping[str, Any]] = ()
    """MCP servers for this session in the format of `.mcp.json`: JSON, the path of a file, or a mapping."""
    strict_mcp_config: bool = False
    """True to use only those, and ignore settings and `.mcp.json`."""
    relayed_servers: Sequence[RelayedMcpServer] = ()
    """MCP servers of the program that drives the session."""
    channels: Sequence[str] = ()
    """MCP servers that may push messages to the lead, as `server:NAME`, in addition to those of settings."""
    tools: Sequence[Tool] = ()
    """Tools of the caller, in addition to the built-in ones."""
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema for the lead's structured answer, in addition to its text; see `RunFinished.output`."""
    output: OutputType[Any] | None = None
    """Python type of the lead's structured answer; replaces `output_schema`."""
    thinking_tokens: int | None = None
    """Thinking budget of agents before an answer; as configured if None."""
    effort: str | None = None
    """Effort of the lead: low, medium, high, xhigh or max. `CLAUDE_CODE_EFFORT_LEVEL` overrides it."""
    fallback_model: str | None = None
    """Model used if the first does not answer, or up to three, separated by commas."""
    betas: Sequence[str] = ()
    """Messages API betas to enable."""
    bare: bool = False
    """True to load no hooks, skills, agents, plug-ins, MCP servers or instructions from files. Those that the
    caller passes, managed hooks and all permission rules still apply."""
    slash_commands: bool = True
    """False to load no skills and commands."""
    skills: Sequence[str] | None = None
    """Names of the only skills that agents can use; all if None."""
    allow_bypass: bool = False
    """True if the session may switch to `bypassPermissions` mode later."""
    setting_sources: Sequence[str] | None = None
    """Settings files to load: `user`, `project` and `local`; all if None. Managed files always apply."""
    hooks: Mapping[str, Sequence[Any]] | None = None
    """Hooks of the caller by event: functions, (matcher, function), `Hook`s, or entries as in settings."""
    setup: Literal["init", "maintenance"] | None = None
    """Trigger of the Setup hooks, which run before the session starts; they do not run if None."""
    begun: Literal["startup", "clear"] | None = "startup"
    """How the session was started, for hooks; None for a session that is only inspected and runs no hooks."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    """Limit for the whole session with all its agents, including the spending before it was resumed."""
    budget: SharedBudget | None = None
    """Budget that the session shares with others of the program, in addition to its own limits."""
    max_total_tokens: int | None = None
    """Limit for all tokens that models read and write, counted like the budget."""
    max_agents: int | None = None
    """Maximum number of agents ever started in addition to the lead."""
    deadline: float | None = None
    """Time limit in seconds for the whole session."""
    resume: str | None = None
    """Id of a session to resume, or its first characters."""
    continue_last: bool = False
    fork: bool = False
    """True to continue in a copy and leave the resumed session unchanged."""
    session_id: str | None = None
    settings: str | None = None
    """Path of a settings file, or JSON."""
    record: Path | None = None
    """Path of the file in which every request and reply is recorded for `replay:`."""
    on_question: QuestionHandler | None = None
    """Function in the program that answers questions from all agents."""
    attended: bool = False
    """True if a person can answer questions."""
    persist: bool = True
    """False to write nothing to disk: no transcript and no journal, so the session cannot be resumed."""
    store: Store | Path | str | None = None
    """Store of sessions and teams: an object, directory, `postgresql://…`, `file:DIRECTORY` or `memory:`; as
    configured if None, by default the home."""
    title: str | None = None
    """Human-readable name by which the session can be resumed."""
    teammate_mode: TeammateMode | None = None
    """Backend for teammates; as configured if None."""
    debug: bool = False
    debug_file: Path | None = None
    """Path of the debug log, if it is not in the home directory."""
    debug_filter: str = ""
    """Words, separated by commas, of which an event's name must contain one; `!word` excludes events."""
    seed: int | None = None
    membership: TeamMembership | None = None
    """Team and member name of this process; None for an independent session."""
    trace: str = ""
    """`traceparent` of an existing trace that the session's telemetry continues."""
    clock: Clock = SystemClock()

    @property
    def lead_channel(self) -> LeadChannel | None:
        """Connection to the lead of the run that this process belongs to."""
        return None if self.membership is None else self.membership.channel
