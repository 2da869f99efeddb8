"""Invocation of skills and commands: their text for the caller, or an agent that does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.skills.mentions import list_mentioned_directory
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
from shoal.app.skills.skill_text import (
    SkillTextPart,
    SkillTextValues,
    fill_rule_directories,
    split_skill_body,
)
from shoal.app.skills.skill_trust import SkillTrustDecisionStore
from shoal.core.agents.agent_definitions import compute_thinking_tokens, name_effort_level
from shoal.core.agents.subagents import (
    AgentResult,
    BackgroundAgentLaunchResult,
    RemoteAgentLaunchResult,
    SpawnRequest,
)
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import AgentRequestRefused, InvalidAgentDefinition, UnknownSkill, WorkspaceError
from shoal.core.extensions.skills import Skill
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.filenames import escape_filename
from shoal.policy.permission_rules import ToolPermissionRule, parse_permission_rule
from shoal.policy.rule_names import refuse_misspelled_rules
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.running_agents import RunningAgents
from shoal.tools.agent_tools import format_agent_start_result, remove_agent_result_trailer
from shoal.tools.function_tool import tool
from shoal.wire.skill_codec import skips_first_argument
from shoal.wire.tool_response_codec import remove_command_notes

COMMAND_TIMEOUT_MS = 60_000
"""Milliseconds that a shell command in a skill's text may take."""
_MAX_EXPANSIONS = 20
_MAX_EXPANSION_CHARS = 50_000
"""Maximum characters of one file or of the output of one command."""
DEFAULT_AGENT = "general-purpose"


class PreloadedSkills(Struct, frozen=True, kw_only=True):
    """Skills that an agent has from the start."""

    texts: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()


class SkillInvoker:
    """Runs skills with the tools of the session; `note` sends a note to the user."""

    def __init__(
        self,
        skills: SkillAndCommandLibrary,
        trust: SkillTrustDecisionStore,
        *,
        running_agents: RunningAgents,
        cwd: Path,
        hooks: HookRegistry,
        note: Callable[[str], None],
    ) -> None:
        self.skills = skills
        self._running_agents = running_agents
        self._trust = trust
        self._project = cwd
        self._root = os.path.realpath([*iter_project_directories(cwd)][-1])
        self._hooks = hooks
        self._note = note
        self._noted: set[str] = set()

    async def invoke_skill(
        self, supervisor: AgentSupervisor, name: str, arguments: str, context: ToolContext
    ) -> ToolOutput:
        """Run a skill for an agent that called the skill tool; `supervisor` starts a forking one."""
        try:
            skill = self.skills.find_skill(name, for_model=True)
        except (UnknownSkill, InvalidAgentDefinition) as error:
            return create_tool_error_output(str(error))
        if not skill.for_model:
            return create_tool_error_output(format_session_notice("skill_for_user", name=skill.name))
        agent = self._running_agents.require_agent(AgentId(context.agent.agent))
        if skill.execution.forks:
            try:
                return format_agent_start_result(
                    await self._start_skill_agent(supervisor, skill, arguments, agent, context)
                )
            except AgentRequestRefused as refusal:
                return create_tool_error_output(str(refusal))
        try:
            content = await self.render_skill_and_grant_tools(skill, arguments, agent)
        except AgentRequestRefused as refusal:
            return create_tool_error_output(str(refusal))
        if skill.execution.effort is not None and not agent.limits.has_fixed_thinking:
            agent.state.turn_thinking_tokens = compute_thinking_tokens(skill.execution.effort)
        return ToolOutput(content=content, data={"skill": skill.name, "directory": str(skill.directory)})

    async def start_typed_forking_skill(
        self, supervisor: AgentSupervisor, skill: Skill, arguments: str, agent: AgentRunner
    ) -> tuple[ToolOutput, str]:
        """Start a forking skill that the user typed, as if the agent had called it.

        Return the output for the agent, and the text for the user.
        """

        typed_skill, finished = skill, list[AgentResult]()

        @tool(name="Skill", deadline=None)
        async def start_skill(skill: str, context: ToolContext) -> ToolOutput:
            """Start it; its name is passed for the rules about it."""
            try:
                result = await self._start_skill_agent(supervisor, typed_skill, arguments, agent, context)
            except AgentRequestRefused as refusal:
                return create_tool_error_output(str(refusal))
            if isinstance(result, AgentResult):
                finished.append(result)
            return format_agent_start_result(result)

        call = ToolUseBlock(id=f"typed-{agent.ids.new_short_id()}", name="Skill", input={"skill": skill.name})
        output = await run_unrecorded_tool_call(agent, call, start_skill)
        shown = remove_agent_result_trailer(output.text, finished[0]) if finished else output.text
        return output, shown

    async def render_skill_and_grant_tools(self, skill: Skill, arguments: str, agent: AgentRunner) -> str:
        """Return the text of a skill, and grant its tools to this agent until its turn ends.

        Raises `AgentRequestRefused` if its hooks cannot run.
        """
        self._start_skill_hooks(skill)
        sections = [self._format_skill_heading(skill)] if skill.kind == "skill" else []
        granted = self._list_granted_tools(skill)
        permissions = get_permission_engine(agent)
        permissions.deny_tools_for_turn(_parse_denied_rules(skill, agent))
        permissions.grant_allow_rules(_parse_granted_rules(skill, granted))
        self._allow_reading_directory(skill, agent)
        if skill.allowed_tools and not granted:
            untrusted = format_session_notice("skill_untrusted", tools=", ".join(skill.allowed_tools))
            self._note(f"/{skill.name}: {untrusted}")
            sections.append(untrusted)
        return "\n\n".join([*sections, await self._render_body(skill, arguments, agent)])

    async def _start_skill_agent(
        self,
        supervisor: AgentSupervisor,
        skill: Skill,
        arguments: str,
        agent: AgentRunner,
        context: ToolContext,
    ) -> AgentResult | BackgroundAgentLaunchResult | RemoteAgentLaunchResult:
        """Start an agent for the skill, which need not ask for the tools it allows.

        Raises `AgentRequestRefused`.
        """
        self._start_skill_hooks(skill)
        heading = f"{self._format_skill_heading(skill)}\n\n" if skill.kind == "skill" else ""
        get_permission_engine(agent).deny_tools_for_turn(_parse_denied_rules(skill, agent))
        granted = self._list_granted_tools(skill)
        with get_permission_engine(agent).grant_allow_rules_temporarily(_parse_granted_rules(skill, granted)):
            body = await self._render_body(skill, arguments, agent)
        request = SpawnRequest(
            description=f"/{skill.name}",
            prompt=heading + body,
            kind=skill.execution.agent or DEFAULT_AGENT,
            model=skill.execution.model,
            effort=None if agent.limits.has_fixed_thinking else skill.execution.effort,
            lent=granted,
        )
        self._allow_reading_directory(skill, agent)
        return await supervisor.start_agent(request, context)

    def preload_skills(self, names: tuple[str, ...], agent_name: str) -> PreloadedSkills:
        """Return the skills of a definition. Raises `AgentRequestRefused`, naming a missing skill."""
        found: list[Skill] = []
        for name in names:
            try:
                found.append(self.skills.find_skill(name))
            except (UnknownSkill, InvalidAgentDefinition) as error:
                raise AgentRequestRefused(
                    format_session_notice(
                        "agent_skill_failed", agent=agent_name, name=repr(name), error=error
                    )
                ) from error
        texts = tuple(
            f"{self._format_skill_heading(each)}\n\n{escape_control_tags(self._fill_preloaded_body(each))}"
            for each in found
        )
        directories = tuple(
            place for each in found if (place := self._find_readable_directory(each)) is not None
        )
        return PreloadedSkills(texts=texts, directories=directories)

    def _fill_preloaded_body(self, skill: Skill) -> str:
        """Fill in what does not depend on a call; commands do not run, because no agent is there yet."""
        variables = self._list_directories(skill)
        if (lead := self._running_agents.find_agent(LEAD_ID)) is not None:
            variables["CLAUDE_SESSION_ID"] = lead.identity.session
        return SkillTextValues(names=skill.argument_names, variables=variables).fill(skill.body)

    async def _render_body(self, skill: Skill, arguments: str, agent: AgentRunner) -> str:
        effort = (
            agent.effort_level
            if skill.execution.effort is None
            else name_effort_level(skill.execution.effort)
        )
        values = SkillTextValues(
            arguments=arguments,
            names=skill.argument_names,
            variables={
                **self._list_directories(skill),
                "CLAUDE_SESSION_ID": agent.identity.session,
                "CLAUDE_EFFORT": effort,
            },
        )
        is_ambiguous = bool(arguments) and skips_first_argument(skill.body, skill.argument_names)
        if is_ambiguous and skill.name not in self._noted:
            self._noted.add(skill.name)
            self._note(f"/{skill.name} uses $1 but not $0; $0 is the first argument and $1 the second.")
        parts: list[str] = []
        remaining = _MAX_EXPANSIONS
        for piece in split_skill_body(skill.body, values, with_files=skill.kind == "command"):
            remaining -= piece.kind != "text"
            is_over_limit = remaining < 0 and piece.kind != "text"
            parts.append(
                _format_omitted_expansion(piece)
                if is_over_limit
                else await self._expand_skill_text_part(piece, agent)
            )
        return escape_control_tags("".join(parts))

    async def _expand_skill_text_part(self, piece: SkillTextPart, agent: AgentRunner) -> str:
        match piece.kind:
            case "text":
                return piece.text
            case "command" if not self.skills.policy.runs_commands:
                return "[shell command execution is disabled by settings: disableSkillShellExecution]"
            case "command":
                arguments = {"command": piece.text, "timeout": COMMAND_TIMEOUT_MS}
                output = await self._run_unrecorded_tool(agent, "Bash", arguments)
                # Remarks about a command that succeeded are for callers of the tool.
                data = output.data if isinstance(output.data, Mapping) and not output.is_error else {}
                return _truncate_expansion(remove_command_notes(output.text, data))
            case "file":
                return await self._expand_file_reference(piece.text, agent)

    async def _expand_file_reference(self, path: str, agent: AgentRunner) -> str:
        """Return the content of a file or a directory; an @ that names neither stays as it is."""
        workspace = agent.environment.workspace
        try:
            resolved = workspace.resolve_path(workspace.user.expand_home(path))
            is_file, is_directory = resolved.is_file(), resolved.is_dir()
        except (OSError, ValueError, WorkspaceError):
            is_file = is_directory = False
        if not is_file and not is_directory:
            return f"@{path}"
        output = await (
            list_mentioned_directory(agent, resolved)
            if is_directory
            else self._run_unrecorded_tool(agent, "Read", {"file_path": str(resolved)})
        )
        if (instructions := agent.context.path_instructions) is not None and not output.is_error:
            instructions.add_used_file(str(resolved))
        return f"{path}:\n{_truncate_expansion(output.text)}\n"

    async def _run_unrecorded_tool(
        self, agent: AgentRunner, tool: str, arguments: dict[str, object]
    ) -> ToolOutput:
        call = ToolUseBlock(id=f"typed-{agent.ids.new_short_id()}", name=tool, input=arguments)
        return await run_unrecorded_tool_call(agent, call, agent.environment.session_tools[tool])

    def _list_granted_tools(self, skill: Skill) -> tuple[str, ...]:
        directories = self._list_directories(skill)
        granted = self._trust.list_granted_tools(skill)
        return tuple(fill_rule_directories(entry, directories) for entry in granted)

    def _list_directories(self, skill: Skill) -> dict[str, str]:
        directories = {"CLAUDE_SKILL_DIR": str(skill.directory), "CLAUDE_PROJECT_DIR": str(self._project)}
        if skill.source.kind == "plugin":
            data_directories = self.skills.plugin_data_directories
            plugin = next((each for each in skill.directory.parents if each in data_directories), None)
            if plugin is not None:
                data = data_directories[plugin]
                directories |= {"CLAUDE_PLUGIN_ROOT": str(plugin), "CLAUDE_PLUGIN_DATA": str(data)}
        return directories

    def _start_skill_hooks(self, skill: Skill) -> None:
        """Start the hooks of a skill. Raises `AgentRequestRefused` for untrusted or bad ones."""
        if not skill.hooks:
            return
        if self._trust.read_skill_trust(skill) != "trusted":
            raise AgentRequestRefused(
                format_session_notice("skill_hooks_untrusted", name=skill.name, source=skill.source)
            )
        self._hooks.add_skill_hooks(skill)

    def _format_skill_heading(self, skill: Skill) -> str:
        return format_session_notice(
            "skill_heading",
            name=skill.name,
            source=escape_filename(skill.source.path or ""),
            directory=escape_filename(skill.directory),
        )

    def _allow_reading_directory(self, skill: Skill, agent: AgentRunner) -> None:
        if (directory := self._find_readable_directory(skill)) is not None:
            get_permission_engine(agent).allow_reading(directory)

    def _find_readable_directory(self, skill: Skill) -> Path | None:
        """Return the skill's directory if it may be read: a project's skill may be a link to anywhere."""
        if skill.kind != "skill":
            return None
        real_path = os.path.realpath(skill.directory)
        is_in_project = f"{real_path}/".startswith(f"{self._root.rstrip('/')}/")
        return Path(real_path) if is_in_project or self._trust.read_skill_trust(skill) == "trusted" else None


def _parse_denied_rules(skill: Skill, agent: AgentRunner) -> list[ToolPermissionRule]:
    """Return what the skill takes away. Raises `SettingsError` for an entry that names no tool."""
    location = skill.source.locate_field("denied_tools") or str(skill.source)
    refuse_misspelled_rules(location, skill.denied_tools, agent.environment.session_tools)
    return [parse_permission_rule(entry, location) for entry in skill.denied_tools]


def _parse_granted_rules(skill: Skill, granted: Sequence[str]) -> list[ToolPermissionRule]:
    return [parse_permission_rule(entry, f"{skill.kind} {skill.name}") for entry in granted]


def _format_omitted_expansion(piece: SkillTextPart) -> str:
    return f"[{piece.text}: omitted; at most {_MAX_EXPANSIONS} commands and files are inserted]"


def _truncate_expansion(text: str) -> str:
    if len(text) <= _MAX_EXPANSION_CHARS:
        return text
    omitted = len(text) - _MAX_EXPANSION_CHARS
    return f"{text[:_MAX_EXPANSION_CHARS]}\n[… {omitted:,} more characters are left out]"
