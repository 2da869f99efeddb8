"""Slash commands: parsing a typed command and running its turn."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.hook_points import add_hook_context_message, run_agent_hooks
from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.app.agents.spawn_requests import parse_effort_thinking_tokens
from shoal.app.workflows.json_values import format_returned_value
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.errors import (
    AgentRequestRefused,
    BudgetError,
    ModelError,
    NoModelConfigured,
    RunFailed,
    SettingsError,
    ShoalError,
    UnknownSkill,
    WorkflowError,
)
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.extensions.skills import (
    ExternalSlashPrompt,
    Skill,
    TypedCommand,
    WorkflowCommand,
    is_full_or_unprefixed_skill_name,
)
from shoal.core.text.control_tags import escape_control_tags

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime
    from shoal.app.session.session import Session

_COMMAND_PATTERN = re.compile(r"\s*/(\w[^\s/\\]*)(?:\s+(.*))?", re.DOTALL)


class SlashCommandInvocation(Struct, frozen=True, kw_only=True):
    """A slash command with its arguments."""

    command: TypedCommand
    """The command."""
    arguments: str
    """Text after the name."""
    text: str
    """Text as it was typed."""


def is_slash_command(runtime: Runtime, prompt: str | Message) -> bool:
    """Return True if the prompt starts with a slash and a known command, or a name that is not a root
    path."""
    name, _ = _split_slash_command(prompt)
    if not name:
        return False
    is_known = any(
        is_full_or_unprefixed_skill_name(name, each.name) for each in runtime.knowledge.list_slash_commands()
    )
    return is_known or not os.path.lexists(f"/{name}")


def parse_slash_command(runtime: Runtime, prompt: str | Message) -> str | Message | SlashCommandInvocation:
    """Return the prompt, or the invocation of its command.

    Raises `UnknownSkill` or `InvalidAgentDefinition`.
    """
    if not is_slash_command(runtime, prompt):
        return prompt
    name, arguments = _split_slash_command(prompt)
    prompts = (each for source in runtime.knowledge.prompts for each in source.list_prompts())
    found = next((each for each in prompts if each.name == name), None)
    command: TypedCommand = found or _find_skill_or_workflow(runtime, name)
    text = prompt if isinstance(prompt, str) else prompt.text
    return SlashCommandInvocation(command=command, arguments=arguments, text=text.strip())


def _find_skill_or_workflow(runtime: Runtime, name: str) -> Skill | WorkflowCommand:
    """Raises `UnknownSkill` or `InvalidAgentDefinition`."""
    try:
        return runtime.knowledge.skills.find_typed_skill(name)
    except UnknownSkill:
        workflows = runtime.knowledge.list_workflow_commands()
        found = [each for each in workflows if is_full_or_unprefixed_skill_name(name, each.name)]
        if not found:
            raise
        return next((each for each in found if each.name == name), found[0])


def _split_slash_command(prompt: str | Message) -> tuple[str, str]:
    """Split a prompt into command name and arguments; the name is empty if the prompt is not a command."""
    if isinstance(prompt, Message) and not all(isinstance(block, TextBlock) for block in prompt.content):
        return "", ""
    match = _COMMAND_PATTERN.fullmatch(prompt if isinstance(prompt, str) else prompt.text)
    return ("", "") if match is None else (match[1], (match[2] or "").strip())


async def parse_slash_command_when_ready(
    runtime: Runtime, prompt: str | Message
) -> str | Message | SlashCommandInvocation:
    """Parse a prompt, waiting first for the servers if it names a command of one."""
    text = prompt if isinstance(prompt, str) else prompt.text
    if text.lstrip().startswith(f"/{MCP_PREFIX}"):
        await runtime.servers.wait_until_ready()
        name = text.lstrip().removeprefix("/").split(maxsplit=1)[0]
        if all(name != each.name for each in runtime.knowledge.list_slash_commands()):
            # The first request does not wait for every server.
            await runtime.servers.wait_until_settled()
    return parse_slash_command(runtime, prompt)


async def run_prompt_or_slash_command(
    session: Session, prompt: Message | SlashCommandInvocation | None
) -> LoopResult:
    """Run one turn: add catalog changes, then run the prompt or the command."""
    agent, runtime = session.agent, session.runtime
    if changes := runtime.knowledge.catalog_changes.describe_new_changes(agent.tools):
        await agent.receive_message(user_message(changes), by="runtime")
    if texts := session.parts.first_texts:
        blocks = tuple(TextBlock(text=text) for text in texts)
        texts.clear()
        await agent.receive_message(Message(role="user", content=blocks), by="runtime")
    if not isinstance(prompt, SlashCommandInvocation):
        return await run_agent_loop(agent, prompt)
    try:
        if (blocked := await _run_expansion_hooks(agent, prompt)) is not None:
            return LoopResult(reason="blocked", detail=f"a UserPromptExpansion hook blocked it: {blocked}")
        if isinstance(prompt.command, WorkflowCommand):
            return await _run_typed_workflow(session, prompt, prompt.command)
        return await _run_slash_invocation(session, prompt, prompt.command)
    finally:
        # The command's permissions were granted before the agent's turn, which may never have started.
        agent.permissions.drop_turn_permissions()


async def _run_expansion_hooks(agent: AgentRunner, prompt: SlashCommandInvocation) -> str | None:
    """Run the hooks of a typed command; return the reason if one blocks it."""
    if not agent.hooks.has_hooks_for("UserPromptExpansion"):
        return None
    command = prompt.command
    decision = await run_agent_hooks(
        agent,
        "UserPromptExpansion",
        expansion_type="mcp_prompt" if isinstance(command, ExternalSlashPrompt) else "slash_command",
        command_name=command.name,
        command_args=prompt.arguments,
        command_source=_describe_command_source(command),
        prompt=prompt.text,
    )
    refusal = decision.stop if decision.blocked is None else decision.blocked
    if refusal is None:
        await add_hook_context_message(agent, "UserPromptExpansion", decision)
    return refusal


async def _run_slash_invocation(
    session: Session, prompt: SlashCommandInvocation, command: Skill | ExternalSlashPrompt
) -> LoopResult:
    agent, runtime = session.agent, session.runtime
    if isinstance(command, Skill) and command.execution.forks:
        return await _run_forked_skill(session, prompt, command)
    if isinstance(command, ExternalSlashPrompt):
        try:
            command_text = escape_control_tags(
                await _fetch_mcp_prompt_text(runtime, command.name, prompt.arguments)
            )
        except ShoalError as error:
            return LoopResult(reason="done", detail=f"/{command.name} is not available: {error}")
        except TimeoutError:
            return LoopResult(
                reason="done", detail=f"/{command.name} is not available: there was no response in time"
            )
    else:
        try:
            command_text = await runtime.knowledge.invoker.render_skill_and_grant_tools(
                command, prompt.arguments, agent
            )
        except AgentRequestRefused as refusal:
            return LoopResult(reason="done", detail=str(refusal))
    message = Message(
        role="user", content=(TextBlock(text=_format_slash_invocation(prompt)), TextBlock(text=command_text))
    )
    if isinstance(command, ExternalSlashPrompt):
        return await run_agent_loop(agent, message)
    limits = agent.limits
    if command.execution.effort is not None:
        tokens = parse_effort_thinking_tokens(command.execution.effort)
        agent.set_thinking_tokens(tokens)
    try:
        return (
            await run_agent_loop(agent, message)
            if command.execution.model is None
            else await _run_turn_with_other_model(session, command.execution.model, message)
        )
    finally:
        if command.execution.effort is not None:
            agent.limits = limits


def _describe_command_source(command: TypedCommand) -> str:
    match command:
        case Skill():
            return str(command.source)
        case WorkflowCommand():
            return str(command.path)
        case ExternalSlashPrompt():
            return "mcp"


async def _run_typed_workflow(
    session: Session, prompt: SlashCommandInvocation, command: WorkflowCommand
) -> LoopResult:
    """Run the workflow as this turn; what it returns is the answer and is added to the conversation."""
    from shoal.app.workflows.workflow_loader import load_workflow_command, parse_typed_arguments

    files = session.knowledge.workflows
    assert files is not None
    try:
        definition = load_workflow_command(command, files)
        returned = await definition.run(session, **parse_typed_arguments(definition, prompt.arguments))
    except (RunFailed, WorkflowError) as error:
        return await _add_command_output(session, prompt, f"The workflow failed: {error}", failed=True)
    except Exception as error:  # noqa: BLE001 - boundary around the user's program: it may raise anything
        text = f"The workflow raised {type(error).__name__}: {error}"
        return await _add_command_output(session, prompt, text, failed=True)
    return await _add_command_output(session, prompt, format_returned_value(returned))


async def _add_command_output(
    session: Session, prompt: SlashCommandInvocation, report: str, *, failed: bool = False
) -> LoopResult:
    """Add the output of a command that no model ran to the lead's conversation, and end the turn with it."""
    stdout = f"<local-command-stdout>{escape_control_tags(report)}</local-command-stdout>"
    text = f"{_format_slash_invocation(prompt)}\n{stdout}"
    await session.agent.receive_message(user_message(text), by="person")
    return LoopResult(reason="error", detail=report) if failed else LoopResult(reason="done", text=report)


async def _fetch_mcp_prompt_text(runtime: Runtime, name: str, arguments: str) -> str:
    """Fetch the text of a prompt, which may have been removed since it was typed. Raises `ShoalError` and
    `TimeoutError`."""
    for source in runtime.knowledge.prompts:
        if any(each.name == name for each in source.list_prompts()):
            return await source.expand_prompt(name, arguments)
    raise ShoalError("it is no longer offered")


async def _run_forked_skill(session: Session, prompt: SlashCommandInvocation, skill: Skill) -> LoopResult:
    """Run the skill in an agent; its report is the answer and is added to the lead's conversation."""
    output, shown = await session.runtime.knowledge.invoker.start_typed_forking_skill(
        session.supervisor, skill, prompt.arguments, session.agent
    )
    ended = await _add_command_output(session, prompt, output.text, failed=output.is_error)
    return replace(ended, text=shown)


async def _run_turn_with_other_model(session: Session, name: str, message: Message) -> LoopResult:
    agent = session.agent
    previous_model = agent.model
    try:
        model = await session.runtime.models.choose_model(name)
        agent.budget.require_priced_model(model.card)
    except (BudgetError, ModelError, NoModelConfigured, SettingsError) as error:
        session.note(f"Cannot use the command's model {name}, so the default model is used: {error}")
        return await run_agent_loop(agent, message)
    agent.model = model
    try:
        return await run_agent_loop(agent, message)
    finally:
        # Unless a person has set another model in the meantime.
        if agent.model is model:
            agent.model = previous_model


def _format_slash_invocation(prompt: SlashCommandInvocation) -> str:
    arguments = (
        f"\n<command-args>{escape_control_tags(prompt.arguments)}</command-args>" if prompt.arguments else ""
    )
    return f"<command-name>/{prompt.command.name}</command-name>{arguments}"
