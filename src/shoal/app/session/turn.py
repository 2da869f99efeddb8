"""One turn of a session: as its caller sees it, and how it is run to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.app.agents.result import Result, build_turn_result
from shoal.app.model_notices import format_session_notice
from shoal.app.session.typed_commands import SlashCommandInvocation, run_prompt_or_slash_command
from shoal.core.agents.background_shells import BackgroundShell
from shoal.core.agents.subagents import AgentStatusSnapshot
from shoal.core.conversation.messages import Message, user_message
from shoal.core.errors import ShoalError
from shoal.core.events import Event, RunFinished, TextStreamed
from shoal.core.ids import LEAD_ID
from shoal.core.output_type import AnswerT_co, OutputType
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.runs.event_channel import EventChannel
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT

if TYPE_CHECKING:
    from shoal.app.session.session import Session

MAX_REMINDERS = 3


class Turn(AsyncIterator[Event], Generic[AnswerT_co]):
    """One turn: await it for its `Result`, or read its events, the last of which is `RunFinished`.

    The turn ends if its reader closes it with `aclose`, or leaves the `async for` early.
    """

    def __init__(
        self,
        channel: EventChannel,
        task: asyncio.Task[None],
        interrupt: Callable[[], Awaitable[object]],
        output: OutputType[Any] | None = None,
        on_abandoned: Callable[[], None] | None = None,
    ) -> None:
        """`on_abandoned` is called, maybe from another thread, if the reader left the `async for` early."""
        self._channel = channel
        self._task = task
        self._interrupt = interrupt
        self._output = output
        self._finished: RunFinished | None = None
        self._on_abandoned = on_abandoned
        self.is_abandoned = False
        self.on_error: Callable[[ShoalError], None] | None = None
        """Called with the error that ends the turn, before it is raised."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return _TurnReader(self)

    async def __anext__(self) -> Event:
        event = self._channel.try_get() or await self._channel.get()
        if event is None:
            try:
                await self._task
            except ShoalError as error:
                if self.on_error is not None:
                    self.on_error(error)
                raise
            raise StopAsyncIteration
        # `isinstance` of a struct that is False costs several times as much, and a turn has many events.
        if type(event) is RunFinished:
            self._finished = event
        return event

    def __await__(self) -> Generator[Any, None, Result[AnswerT_co]]:
        """Return the result. Raises `RunFailed` unless the work was completed."""
        result = yield from self.wait().__await__()
        result.raise_if_failed()
        return result

    async def wait(self) -> Result[AnswerT_co]:
        """Wait for the end and return the result, even if the turn failed or was interrupted."""
        async for _ in self:
            pass
        if self._finished is None:
            raise RuntimeError("The turn was closed, so it has no result.")
        return build_turn_result(self._finished, self._output)

    def text(self) -> AsyncIterator[str]:
        """Yield the pieces of the lead's text as the model writes it.

        Raises `RunFailed` if the turn fails. The turn ends if the `async for` is left early.
        """
        return _TextReader(self, self._read_text)

    async def _read_text(self) -> str:
        while True:
            try:
                event = await self.__anext__()
            except StopAsyncIteration:
                if self._finished is not None:
                    build_turn_result(self._finished, self._output).raise_if_failed()
                raise
            if isinstance(event, TextStreamed) and event.kind == "text" and event.agent == LEAD_ID:
                return event.text

    async def aclose(self) -> None:
        """End the turn if it is still running."""
        self._channel.close()
        if not self._task.done():
            await self._interrupt()

    def abandon(self) -> None:
        """End the turn soon because it has no reader."""
        if self._finished is None and self._on_abandoned is not None and not self._task.done():
            self.is_abandoned = True
            self._on_abandoned()


class _TurnReader(AsyncIterator[Event]):
    """Reader of a turn in an `async for`; nothing else refers to it, so it is deleted when that ends."""

    def __init__(self, turn: Turn[Any]) -> None:
        self._turn = turn
        self._has_read = False

    def __anext__(self) -> Coroutine[Any, Any, Event]:
        # No coroutine of its own after the first event: a crowd of agents emits thousands.
        return self._turn.__anext__() if self._has_read else self._read_first_event()

    async def _read_first_event(self) -> Event:
        event = await self._turn.__anext__()
        self._has_read = True
        return event

    def __del__(self) -> None:
        if self._has_read:
            self._turn.abandon()


class _TextReader(AsyncIterator[str]):
    """Reader of the text of a turn in an `async for`; it is deleted when that ends, as `_TurnReader` is."""

    def __init__(self, turn: Turn[Any], read_text: Callable[[], Coroutine[Any, Any, str]]) -> None:
        self._turn = turn
        self._read_text = read_text
        self._has_read = False

    def __anext__(self) -> Coroutine[Any, Any, str]:
        self._has_read = True
        # Not a coroutine of the reader: the traceback of a canceled one would keep the reader alive.
        return self._read_text()

    async def aclose(self) -> None:
        await self._turn.aclose()

    def __del__(self) -> None:
        if self._has_read:
            self._turn.abandon()


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
            reminder = format_session_notice("output_reminder", tool=STRUCTURED_OUTPUT)
            result = await run_agent_loop(agent, user_message(reminder), by="runtime")
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
