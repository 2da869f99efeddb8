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
from shoal.core.agents.identity import assume_identity
from shoal.core.agents.subagents import AgentStatusSnapshot
from shoal.core.conversation.messages import Message, user_message
from shoal.core.errors import ModelError, ShoalError, StateFileError
from shoal.core.events import PREVIEW_LENGTH, Event, RunFinished, TextStreamed, TurnEnded, TurnStarted
from shoal.core.ids import LEAD_ID
from shoal.core.output_type import AnswerT_co, OutputType
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.task_groups import uncancel_current_task
from shoal.runs.event_channel import EventChannel
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT
from shoal.tools.tool_search_tool import TOOL_SEARCH

if TYPE_CHECKING:
    from shoal.app.session.session import Session

MAX_REMINDERS = 3
INTERRUPTED_TEXT = "[The user interrupted this turn.]"


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
        on_error: Callable[[ShoalError], None] | None = None,
    ) -> None:
        """`on_abandoned` is called, maybe from another thread, if the reader left the `async for` early.

        `on_error` is called with the error that ends the turn, before it is raised.
        """
        self._channel = channel
        self._task = task
        self._interrupt = interrupt
        self._output = output
        self._finished: RunFinished | None = None
        self._on_abandoned = on_abandoned
        self.is_abandoned = False
        self._on_error = on_error

    def __aiter__(self) -> AsyncIterator[Event]:
        return _TurnReader(self)

    async def __anext__(self) -> Event:
        event = self._channel.try_get() or await self._channel.get()
        if event is None:
            try:
                await self._task
            except ShoalError as error:
                if self._on_error is not None:
                    self._on_error(error)
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
        self.require_own_loop()
        self._channel.close()
        if not self._task.done():
            await self._interrupt()

    def require_own_loop(self) -> None:
        """Raise `RuntimeError` in another event loop than that of the session."""
        if asyncio.get_running_loop() is not self._task.get_loop():
            raise RuntimeError("The turn belongs to another event loop. Read it in the loop that started it.")

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
        self._turn.require_own_loop()
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
        if not self._has_read:
            self._turn.require_own_loop()
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


class TurnRunner:
    """Runs the turns of a session, one at a time."""

    def __init__(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        self._session = session
        self._runtime, self._agent, self._supervisor = session.runtime, session.agent, session.supervisor
        self._tasks = tasks
        self.running: asyncio.Task[None] | None = None
        self._channel: EventChannel | None = None
        self._is_interrupted = self._reporting_end = False

    def start_turn(
        self,
        prompt: str | Message | SlashCommandInvocation | None,
        on_abandoned: Callable[[], None] | None = None,
        on_error: Callable[[ShoalError], None] | None = None,
    ) -> Turn[Any]:
        self.require_no_running_turn()
        message = user_message(prompt) if isinstance(prompt, str) else prompt
        channel = self._channel = self._runtime.events.open_turn_channel()
        task = self.running = self._tasks.create_task(self._run_turn(message, channel))
        return Turn(channel, task, self.interrupt, self._runtime.options.output, on_abandoned, on_error)

    def require_no_running_turn(self) -> None:
        if self.running is not None:
            raise RuntimeError("A turn is already running. Wait for it, steer it or interrupt it.")

    async def interrupt(self) -> bool:
        """End the running turn but not the session; False if none is running."""
        task, channel = self.running, self._channel
        if task is None or channel is None or task is asyncio.current_task():
            return False
        # A task that is canceled before its first step never runs, and would never report its end.
        await asyncio.sleep(0)
        if task.done():
            return False
        channel.remove_capacity_limit()
        if not self._reporting_end:
            self._is_interrupted = True
            task.cancel()
        await asyncio.wait([task])
        return True

    async def _run_turn(self, prompt: Message | SlashCommandInvocation | None, channel: EventChannel) -> None:
        agent, budget = self._agent, self._agent.budget.budget
        if prompt is not None:
            self._runtime.hooks.on_prompt(LEAD_ID)
        assume_identity(agent.identity, agent.environment.workspace)
        self._runtime.events.start_turn()
        started_at, api_before, usage_before = agent.clock.monotonic(), agent.state.api_seconds, budget.usage
        replies_before = agent.state.reply_count
        error: Exception | None = None
        try:
            result, error = await self._run_turn_to_result(prompt)
            # From here on it cannot be interrupted: it only waits for its reader.
            self._reporting_end = True
            self._supervisor.announce_missed_results(LEAD_ID, result.interrupted_results)
            # An interrupted turn cannot report this itself.
            result = replace(result, requests=agent.state.reply_count - replies_before)
            milliseconds = round((agent.clock.monotonic() - started_at) * 1000)
            await self._record_turn_end(result, milliseconds)
            finished = RunFinished(
                agent=agent.identity.agent,
                reason=result.reason,
                limit=result.limit,
                text=result.text,
                detail=result.detail,
                requests=result.requests,
                usage=budget.usage - usage_before,
                cost_usd=budget.usd if budget.is_priced else None,
                duration_ms=milliseconds,
                duration_api_ms=round((agent.state.api_seconds - api_before) * 1000),
                output=None
                if self._runtime.config.structured_output is None
                else self._runtime.config.structured_output.answer,
                error=error,
            )
            self._runtime.events.notify_subscribers(finished)
            await channel.put(finished)
        finally:
            self.running = None
            self._is_interrupted = self._reporting_end = False
            channel.close()

    async def _run_turn_to_result(
        self, prompt: Message | SlashCommandInvocation | None
    ) -> tuple[LoopResult, Exception | None]:
        """Run a turn; expected ends are values, anything else is a bug and is raised."""
        try:
            self._runtime.lead.workspace.set_checkpoint_turn(self._session.turn)
            await self._session.publish_event(
                TurnStarted(
                    agent=self._agent.identity.agent,
                    turn=self._session.turn,
                    prompt="" if prompt is None else prompt.text[:PREVIEW_LENGTH],
                    after=self._agent.conversation.last_entry,
                )
            )
            # A turn that ended on a full disk could not close its calls.
            self._supervisor.announce_missed_results(
                LEAD_ID, self._agent.conversation.add_interrupted_call_results()
            )
            async with self._agent.clock.deadline(self._session.seconds_until_deadline):
                if (
                    stopped := await self._session.parts.lifecycle_hooks.add_start_hook_context()
                ) is not None:
                    return stopped, None
                await self._runtime.servers.wait_until_ready()
                await self._announce_late_servers()
                return await run_structured_turn(self._session, prompt), None
        except asyncio.CancelledError:
            if not self._is_interrupted:
                raise
            uncancel_current_task()
            result = LoopResult(reason="interrupted", detail="interrupted by the user")
            return self._close_open_tool_calls(result), None
        except TimeoutError:
            limit = self._runtime.options.deadline or 0
            return self._close_open_tool_calls(
                LoopResult(reason="deadline", detail=f"the deadline of {limit:g} s has passed")
            ), None
        except ModelError as error:
            # A provider may echo secrets of the request.
            error.args = (self._runtime.settings.secret_redactor.redact_text(str(error)),)
            return self._close_open_tool_calls(LoopResult(reason="model_error", detail=str(error))), error
        except StateFileError as error:
            return LoopResult(reason="store_error", detail=str(error)), error

    async def _announce_late_servers(self) -> None:
        names = self._runtime.servers.take_late_names()
        # A lead with ToolSearch knows all servers, and its searches wait for them.
        if names and TOOL_SEARCH not in self._agent.tools:
            text = format_session_notice("late_servers", names=", ".join(names))
            await self._agent.receive_message(user_message(text), by="runtime")

    def _close_open_tool_calls(self, result: LoopResult) -> LoopResult:
        """Give every open call a result, so that the conversation can continue."""
        try:
            self._supervisor.announce_missed_results(
                LEAD_ID, self._agent.conversation.add_interrupted_call_results()
            )
            if result.reason == "interrupted":
                self._agent.conversation.add_message(user_message(INTERRUPTED_TEXT), meta=True)
        except StateFileError as error:
            # A resume closes the open calls as well.
            return LoopResult(reason="store_error", detail=f"{result.detail}; {error}")
        return result

    async def _record_turn_end(self, result: LoopResult, milliseconds: int) -> None:
        event = TurnEnded(
            agent=self._agent.identity.agent,
            turn=self._session.turn,
            reason=result.reason,
            requests=result.requests,
            detail=result.detail,
            duration_ms=milliseconds,
        )
        try:
            await self._session.publish_event(event)
        except StateFileError:
            # The journal is what failed: the caller still gets its `RunFinished` event.
            if result.reason != "store_error":
                raise


class StoppedAgentsAndCommands(Struct, frozen=True, kw_only=True):
    """Agents and commands that were stopped."""

    agents: tuple[AgentStatusSnapshot, ...]
    """Agents that were working."""
    commands: tuple[BackgroundShell, ...]
    """Commands that ran in the background."""

    @property
    def ids(self) -> list[str]:
        """Ids of the agents and commands."""
        return [*(each.agent for each in self.agents), *(each.shell for each in self.commands)]
