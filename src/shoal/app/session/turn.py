"""One turn of a session: as its caller sees it, and how it is run to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.app.session.typed_commands import SlashCommandInvocation, run_prompt_or_slash_command
from shoal.core.agents.background_shells import BackgroundShell
from shoal.core.agents.subagents import AgentStatusSnapshot
from shoal.core.conversation.messages import Message, user_message
from shoal.core.events import Event
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.runs.event_channel import EventChannel
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT

if TYPE_CHECKING:
    from shoal.app.session.session import Session

MAX_REMINDERS = 3
_REMINDER = (
    f"You have not answered yet: call {STRUCTURED_OUTPUT} with your answer, in the form that "
    "the tool describes."
)


class Turn(AsyncIterator[Event]):
    """Events of one turn; the last one is `RunFinished`. `aclose` before that ends the turn."""

    def __init__(
        self, channel: EventChannel, task: asyncio.Task[None], interrupt: Callable[[], Awaitable[bool]]
    ) -> None:
        self._channel = channel
        self._task = task
        self._interrupt = interrupt

    async def __anext__(self) -> Event:
        event = self._channel.try_get() or await self._channel.get()
        if event is None:
            await self._task
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        self._channel.close()
        if not self._task.done():
            await self._interrupt()


class LastWorkingPermissionModeTracker:
    """Mode in which the agent last worked; modes that a person only cycles through do not count."""

    def __init__(self) -> None:
        self._mode: PermissionMode | None = None
        self._replies = -1

    def resolve_mode_before_plan(self, now: PermissionMode, replies: int) -> PermissionMode | None:
        """Return the mode to restore after a plan; None if only plan mode was used.

        `replies` is the number of model replies so far.
        """
        if replies != self._replies:
            self._replies = replies
            self._mode = self._mode if now == "plan" else now
        # Leaving bypassPermissions does not imply that it is wanted again.
        return "default" if self._mode == "bypassPermissions" != now else self._mode


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
        detail = f"no answer in the requested format after {MAX_REMINDERS} reminders"
        return replace(result, reason="no_output", detail=detail)
    return result


class StoppedAgentsAndCommands(Struct, frozen=True, kw_only=True):
    """Agents and commands that were stopped."""

    agents: tuple[AgentStatusSnapshot, ...]
    commands: tuple[BackgroundShell, ...]

    @property
    def ids(self) -> list[str]:
        return [*(each.agent for each in self.agents), *(each.shell for each in self.commands)]
