"""Turns with structured output: the lead is reminded until its answer matches the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.app.session.typed_commands import SlashCommandInvocation, run_prompt_or_slash_command
from shoal.core.messages import Message, user_message
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT

if TYPE_CHECKING:
    from shoal.app.session.session import Session

MAX_REMINDERS = 3
_REMINDER = (
    f"Your answer is not given yet: call {STRUCTURED_OUTPUT} with it, in the form that the tool describes."
)


async def run_structured_turn(
    session: Session, prompt: Message | SlashCommandInvocation | None
) -> LoopResult:
    """Run a turn and require its structured output, unless background agents will trigger another turn."""
    agent, output_tool = session.agent, session.runtime.config.structured_output
    if output_tool is None:
        return await run_prompt_or_slash_command(session, prompt)

    def is_structured_output_missing(loop_result: LoopResult) -> bool:
        return loop_result.reason == "done" and not output_tool.has_answer and not session.has_working_agents

    output_tool.forget_answer()
    result = await run_prompt_or_slash_command(session, prompt)
    for _ in range(MAX_REMINDERS):
        if is_structured_output_missing(result):
            result = await run_agent_loop(agent, user_message(_REMINDER), by="runtime")
    if is_structured_output_missing(result):
        detail = f"no answer in the form that was asked for, after {MAX_REMINDERS} reminders"
        return replace(result, reason="no_output", detail=detail)
    return result
