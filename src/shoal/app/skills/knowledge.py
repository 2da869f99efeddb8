"""Knowledge that agents get in addition to their task: skills, commands and instruction files."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from shoal.app.definitions.instructions import LoadedInstructionFiles
from shoal.app.definitions.output_styles import ChosenOutputStyle
from shoal.app.definitions.path_instructions import AgentPathInstructions, PathInstructionFactory
from shoal.app.definitions.workflow_files import WorkflowFiles
from shoal.app.skills.catalog_changes import AgentAndSkillChangeReporter
from shoal.app.skills.mentions import MentionExpander
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
from shoal.app.skills.skill_invoker import PreloadedSkills, SkillInvoker
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.conversation.tools import Tool
from shoal.core.extensions.skills import ExternalSlashPromptSource, TypedCommand, WorkflowCommand
from shoal.core.ports import Workspace
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.tools.skill_tool import build_skill_tool, format_skill_list


class SkillsAndInstructions(Struct, frozen=True, kw_only=True):
    skills: SkillAndCommandLibrary
    unknown_skills: tuple[str, ...] = ()
    """Sentences about requested skills that do not exist."""
    invoker: SkillInvoker
    catalog_changes: AgentAndSkillChangeReporter
    instructions: LoadedInstructionFiles
    mentions: MentionExpander
    path_instructions: PathInstructionFactory | None = None
    """Instructions that depend on the files that an agent uses; None if instructions are off."""
    memory: str = ""
    """Notes about the project from earlier sessions, for the prompt of the lead."""
    output_style: ChosenOutputStyle = ChosenOutputStyle()
    prompts: tuple[ExternalSlashPromptSource, ...] = ()
    """Sources of additional commands."""
    workflows: WorkflowFiles | None = None
    """Workflows that can be typed as commands; None if commands are off."""

    def preload_agent_skills(self, definition: AgentDefinition) -> PreloadedSkills:
        """Return the texts an agent starts with. Raises `AgentRequestRefused` for a missing skill."""
        preloaded = self.invoker.preload_skills(definition.capabilities.skills, definition.name)
        changes = (
            self.catalog_changes.describe_changes_since_start()
            if definition.capabilities.tools is None
            else ""
        )
        return PreloadedSkills(
            texts=(*preloaded.texts, *filter(None, [changes])), directories=preloaded.directories
        )

    def create_path_instructions(
        self, workspace: Workspace, permissions: PermissionEngine
    ) -> AgentPathInstructions | None:
        factory = self.path_instructions
        return None if factory is None else factory.create_path_instructions(workspace, permissions)

    def list_slash_commands(self) -> tuple[TypedCommand, ...]:
        """Return everything the user can type as a slash command."""
        prompts = (each for source in self.prompts for each in source.list_prompts())
        workflows = (each for each in self.list_workflow_commands() if not each.problem)
        return (*self.skills.list_skills_for_user(), *prompts, *workflows)

    def list_workflow_commands(self) -> tuple[WorkflowCommand, ...]:
        """Return the workflows, including those that cannot run."""
        return () if self.workflows is None else self.workflows.list_commands()

    def create_skill_tool(self, supervisor: AgentSupervisor) -> Tool:
        return build_skill_tool(
            partial(self.invoker.invoke_skill, supervisor),
            format_skill_list(self.skills.list_skills_for_model()),
        )

    def list_skill_and_instruction_notices(self) -> tuple[str, ...]:
        """Return notices about unusable skills and omitted instructions."""
        return (
            *self.unknown_skills,
            *self.skills.describe_skill_file_problems(),
            *self.instructions.notes,
            *self.output_style.notes,
        )
