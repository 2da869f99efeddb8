"""The Workflow tool, by which the lead's model writes a plan in Python and runs it in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from shoal.core.agents.workflow_scripts import (
    MAX_SCRIPT_AGENTS,
    MAX_SCRIPT_CHARACTERS,
    MAX_SCRIPT_LINE_CHARACTERS,
    MAX_SCRIPT_LINES,
    WorkflowOperations,
    WorkflowScript,
)
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import find_unshowable_character
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.function_tool import FunctionTool
from shoal.tools.tool_texts import format_tool_text

WORKFLOW_TOOL = "Workflow"


class WorkflowTool:
    """Tool whose permission question also states the estimated cost."""

    is_read_only = False
    is_concurrent = False
    deadline: float | None = 60

    def __init__(self, tool: FunctionTool, workflows: WorkflowOperations) -> None:
        self._tool = tool
        self._workflows = workflows
        self.schema: ToolSchema = tool.schema

    def describe_call(self, arguments: Mapping[str, Any]) -> str:
        script = self._find_script(arguments)
        if script is None:
            return ""
        agents = script.max_agents
        noun = "agent" if agents == 1 else "agents"
        cost = self._workflows.describe_cost(script.script, agents)
        return f"it may start up to {agents:,} {noun}, {cost}"

    def expand_call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        script = None if arguments.get("resume") is None else self._find_script(arguments)
        if script is None:
            return dict(arguments)
        shown = {"script": script.script, "max_agents": script.max_agents, "arguments": script.arguments}
        return {**arguments, **shown}

    def _find_script(self, arguments: Mapping[str, Any]) -> WorkflowScript | None:
        """Return the script that the call would start or resume; None if the call is refused."""
        # As the call gets them: some models send numbers as text.
        parsed = self._tool.parse_arguments(arguments)
        if isinstance(parsed, str) or (parsed["script"] is None) == (parsed["resume"] is None):
            return None
        if parsed["resume"] is not None:
            return self._workflows.find_script(parsed["resume"])
        return WorkflowScript(name=parsed["name"], script=parsed["script"], max_agents=parsed["max_agents"])

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._tool.run(arguments, context)


def build_workflow_tool(workflows: WorkflowOperations) -> Tool:
    @builtin_tool(name=WORKFLOW_TOOL)
    async def workflow_tool(
        name: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")] = "script",
        script: Annotated[str, Meta(max_length=MAX_SCRIPT_CHARACTERS)] | None = None,
        max_agents: Annotated[int, Meta(ge=1, le=MAX_SCRIPT_AGENTS)] = 1,
        arguments: dict[str, Any] | None = None,
        resume: str | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        if context.agent.agent != LEAD_ID:
            return create_tool_error_output(format_tool_text(WORKFLOW_TOOL, "lead_only"))
        if (script is None) == (resume is None):
            return create_tool_error_output(format_tool_text(WORKFLOW_TOOL, "one_of"))
        if resume is not None:
            workflow = await workflows.resume_script(resume, context)
        else:
            assert script is not None
            if problem := _find_unreadable_part(script):
                return create_tool_error_output(problem)
            request = WorkflowScript(
                name=name, script=script, max_agents=max_agents, arguments=arguments or {}
            )
            workflow = await workflows.start_script(request, context)
        return ToolOutput(
            content=format_tool_text(WORKFLOW_TOOL, "started", workflow=workflow),
            data={"status": "async_launched", "workflow": workflow},
        )

    return WorkflowTool(workflow_tool, workflows)


def _find_unreadable_part(script: str) -> str | None:
    """Return the message for the model if a person could not easily read the script; else None."""
    if script.count("\n") >= MAX_SCRIPT_LINES:
        return format_tool_text(WORKFLOW_TOOL, "too_long", lines=MAX_SCRIPT_LINES)
    for number, line in enumerate(script.split("\n"), 1):
        if len(line) > MAX_SCRIPT_LINE_CHARACTERS:
            limit = MAX_SCRIPT_LINE_CHARACTERS
            return format_tool_text(WORKFLOW_TOOL, "long_line", line=number, length=len(line), limit=limit)
        if (character := find_unshowable_character(line)) is not None:
            return format_tool_text(
                WORKFLOW_TOOL, "invisible", line=number, character=f"U+{ord(character):04X}"
            )
    return None
