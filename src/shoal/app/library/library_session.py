"""Session of a Python program: typed turns, and agents that the program itself starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, overload

from msgspec.structs import replace

from shoal.app.agents.agent import Agent
from shoal.app.agents.argument_checks import (
    check_callback,
    check_count,
    check_prompt,
    check_prompts,
    check_text,
    name_function_in_errors,
)
from shoal.app.agents.option_words import leave_out_copies, name_options_in_error, name_options_in_text
from shoal.app.agents.program_agents import (
    MAPPED_AGENTS,
    QuotaGuard,
    SpawnOptions,
    choose_output_type,
    run_workers,
)
from shoal.app.agents.result import Result
from shoal.app.library.agent_handle import AgentHandle
from shoal.app.library.question_answerer import answer_questions
from shoal.app.library.session_deadline import find_time_limit, stop_work_at_time_limit
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.conversation.messages import Message
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, AgentUnusable, ShoalError
from shoal.core.events import Event
from shoal.core.keyword_checks import check_keywords, check_method_keywords
from shoal.core.output_type import AnswerT_co
from shoal.runs.event_channel import EventChannel

if TYPE_CHECKING:
    from typing import Unpack

    from shoal.app.options import Options
    from shoal.app.session.typed_commands import SlashCommandInvocation
    from shoal.core.agents.subagents import AgentMessageDeliveryReceipt, AgentStatusSnapshot
    from shoal.core.permissions.questions import Answer, Question

ClassT = TypeVar("ClassT", bound=type)
AgentT = TypeVar("AgentT")
_NOT_OPEN = (
    "The session is not open. Enter it with `async with shoal.open(...) as session:`, or call "
    "`await session.open()` first."
)
_OTHER_LOOP = (
    "The session belongs to another event loop or thread. Use it in the loop that opened it: from another "
    "thread, call asyncio.run_coroutine_threadsafe(...) with an async function that uses the session."
)


def guard_methods(*names: str) -> Callable[[ClassT], ClassT]:
    """Let methods refuse a session that is not open here, and name Python options instead of flags."""

    def decorate(changed: ClassT) -> ClassT:
        for name in names:
            setattr(changed, name, _guard_method(getattr(changed, name)))
        return changed

    return decorate


def _guard_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: LibrarySession[Any], *args: Any, **keywords: Any) -> Any:
        self.require_open()
        with self.translate_errors():
            result = method(self, *args, **keywords)
        return wait_for(self, result) if asyncio.iscoroutine(result) else result

    async def wait_for(session: LibrarySession[Any], coroutine: Coroutine[Any, Any, Any]) -> Any:
        with session.translate_errors():
            return await coroutine

    return call


_INHERITED_METHODS = (
    *("ask_side_question", "compact", "move_to_background", "queue_message", "set_delegate_mode", "set_mode"),
    *("set_model", "stop_agents", "stop_all", "stop_task", "undo", "wait_for_mcp_servers"),
)


@guard_methods(*_INHERITED_METHODS)
@check_method_keywords("session", *_INHERITED_METHODS)
class LibrarySession(Session, Generic[AnswerT_co]):
    """A session. Enter it with `async with`, or call `open` and `close`, for example in a notebook."""

    def __init__(
        self,
        options: Options,
        agents: Sequence[Agent[Any]] = (),
        *,
        by_command: bool = False,
        opened_by: str = "shoal.open",
        ask: Callable[[Session, Question], Awaitable[Answer | None]] | None = None,
    ) -> None:
        """`by_command` is True if a command opens it, so that errors name flags instead of options.

        `opened_by` is the function that the program called, for errors. `ask` answers questions instead of
        `on_question`, and also gets the session.
        """
        if ask is not None:
            options = replace(options, on_question=partial(ask, self))
        super().__init__(options, agents, names_options=not by_command)
        self._by_command = by_command
        self._opened_by = opened_by
        self._is_entered = self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._host: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._last_turn: Turn[Any] | None = None
        self._question_answerer: asyncio.Task[None] | None = None
        self._deadline_watcher: asyncio.Task[None] | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in {"parts", "_tasks", "_turns", "_ids"}:
                raise RuntimeError(_NOT_OPEN)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def __aenter__(self) -> LibrarySession[AnswerT_co]:
        self._refuse_second_opening()
        self._is_entered = True
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        if isinstance(self._options.budget, SharedBudget):
            self._options.budget.attach_loop()
        try:
            with self.translate_errors():
                await super().__aenter__()
        except BaseException:
            self._is_closed = True
            raise
        if not self._by_command:
            self.notes[:] = map(name_options_in_text, self.notes)
        try:
            self.workflows.agents.refuse_unknown_names()
        except BaseException:
            self._is_closed = True
            await super().__aexit__(None, None, None)
            raise
        if (limit := find_time_limit(self, self._options.deadline)) is not None:
            self._deadline_watcher = self._tasks.create_task(
                stop_work_at_time_limit(self, self._stop_lock, limit)
            )
        if (handler := self._options.on_question) is not None:
            self._question_answerer = self._tasks.create_task(answer_questions(self, handler))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._is_closed = True
        if self._deadline_watcher is not None:
            self._deadline_watcher.cancel()
        try:
            await self._end_turn_before_questions()
        finally:
            await super().__aexit__(*exc)

    async def _end_turn_before_questions(self) -> None:
        """Stop everything that may ask a question before nobody can answer it: it would wait forever."""
        if self._question_answerer is not None:
            await self.interrupt()
            await self.workflows.stop_all(format_end_reason("session_ended"))
            await self.teams.close()
            await self.supervisor.stop_all_agents(format_end_reason("session_ended"))
            self._question_answerer.cancel()

    async def open(self) -> LibrarySession[AnswerT_co]:
        """Open the session if you cannot use `async with`; `close` ends it."""
        self._refuse_second_opening()
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # One task enters and leaves: cells of a notebook run in tasks that end before the session.
        self._host = asyncio.create_task(self._host_session(opened), name="shoal session")
        try:
            await opened
        except asyncio.CancelledError:
            self._closing.set()
            await asyncio.wait([self._host])
            raise
        return self

    async def close(self) -> None:
        """Close a session that `open` opened, and end everything it started."""
        if self._host is None:
            if self._is_entered and not self._is_closed:
                raise RuntimeError("The session was entered with `async with`. Leave the block to close it.")
            return
        self.require_own_loop()
        self._closing.set()
        await self._host

    async def _host_session(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self:
                if not opened.done():
                    opened.set_result(None)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    @check_keywords("session.run()")
    def run(self, prompt: str | Message | SlashCommandInvocation | None) -> Turn[AnswerT_co]:
        """Start a turn: await it for its `Result`, or read its events or its `text()`."""
        self.require_open()
        check_prompt("session.run()", prompt)
        self.workflows.refuse_call_in_program("session.run()", "flow.agent()")
        last, loop = self._last_turn, asyncio.get_running_loop()
        is_after_abandoned = last is not None and last.is_abandoned and self.is_busy
        start_turn = self._run_after_current_turn if is_after_abandoned else self._turns.start_turn
        turn = start_turn(prompt, lambda: self._end_abandoned_turn(loop), self._name_options)
        self._last_turn = turn
        return cast("Turn[AnswerT_co]", turn)

    @check_keywords("session.steer()")
    def steer(self, message: str | Message) -> None:
        """Send a message to the working lead; it receives it at the next tool-round boundary."""
        self.require_open()
        check_prompt("session.steer()", message, is_required=True)
        super().steer(message)

    @check_keywords("session.subscribe()")
    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Subscribe to all events, in turns and between them; return a function that unsubscribes.

        The callback must not block. A callback that raises is removed, and the session continues.
        """
        self.require_open()
        check_callback("session.subscribe()", "callback", callback)
        return super().subscribe(callback)

    async def set_model(self, name: str | None) -> None:
        """Use another model from the next request on; None means the model that the session started with."""
        if name is not None:
            check_text("session.set_model()", "name", name)
        await super().set_model(name)

    async def compact(self, instructions: str = "") -> None:
        """Replace the conversation with a summary of itself."""
        if instructions != "":
            check_text("session.compact()", "instructions", instructions)
        await super().compact(instructions)

    async def stop_agents(
        self, reason: str = "it was stopped by the user"
    ) -> tuple[AgentStatusSnapshot, ...]:
        """Stop every agent except the lead; return those that were working."""
        check_text("session.stop_agents()", "reason", reason)
        return await super().stop_agents(reason)

    async def ask_side_question(self, question: str) -> str:
        """Return the lead's answer to a question that never enters its conversation, even while it works."""
        check_text("session.ask_side_question()", "question", question)
        return await super().ask_side_question(question)

    @check_keywords("session.send()")
    async def send(self, to: str, text: str) -> AgentMessageDeliveryReceipt:
        """Send a person's text to any agent. The lead receives it as steering, or in a new turn."""
        self.require_open()
        check_text("session.send()", "to", to)
        check_text("session.send()", "text", text)
        self.workflows.agents.refuse_start()
        with self.translate_errors():
            return await super().send(to, text)

    @check_keywords("session.next_turn()")
    async def next_turn(self, *, wait_for_input: bool = False) -> Turn[AnswerT_co] | None:
        self.require_open()
        return cast("Turn[AnswerT_co] | None", await super().next_turn(wait_for_input=wait_for_input))

    async def interrupt(self) -> bool:
        """End the running turn but not the session; False if none is running."""
        if not self._is_closed:
            self.require_open()
        return await super().interrupt()

    @overload
    async def spawn(
        self, agent: Agent[AgentT], prompt: str, **options: Unpack[SpawnOptions]
    ) -> AgentHandle[AgentT]: ...
    @overload
    async def spawn(self, agent: str, prompt: str, **options: Unpack[SpawnOptions]) -> AgentHandle[None]: ...
    @overload
    async def spawn(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        *,
        output: type[AgentT],
        **options: Unpack[SpawnOptions],
    ) -> AgentHandle[AgentT]: ...
    @check_keywords("session.spawn()", SpawnOptions)
    async def spawn(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        *,
        output: type[Any] | None = None,
        **options: Unpack[SpawnOptions],
    ) -> AgentHandle[Any]:
        """Start an agent without asking a model. Wait for a free slot if too many agents are running.

        `agent` is an `Agent`, or the name of one from a file. `output` overrides the type of its answer.
        Raises `AgentRequestRefused`.
        """
        self.require_open()
        self.workflows.refuse_call_in_program("session.spawn()", "flow.agent()")
        return await self._start_agent(agent, prompt, output, options)

    async def _start_agent(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        output: type[Any] | None,
        options: SpawnOptions,
        check_start: Callable[[], None] | None = None,
    ) -> AgentHandle[Any]:
        answer = choose_output_type(agent, output)
        with self.translate_errors():
            run = await self.workflows.agents.start_agent(
                agent, prompt, answer, options, check_start=check_start
            )
        return AgentHandle(self, run, answer)

    @overload
    async def map(
        self,
        agent: Agent[AgentT],
        prompts: Iterable[str],
        *,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[Result[AgentT]]: ...
    @overload
    async def map(
        self,
        agent: str,
        prompts: Iterable[str],
        *,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[Result[None]]: ...
    @overload
    async def map(
        self,
        agent: Agent[Any] | str,
        prompts: Iterable[str],
        *,
        output: type[AgentT],
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[Result[AgentT]]: ...
    @check_keywords("session.map()", SpawnOptions)
    async def map(
        self,
        agent: Agent[Any] | str,
        prompts: Iterable[str],
        *,
        output: type[Any] | None = None,
        at_once: int = MAPPED_AGENTS,
        **options: Unpack[SpawnOptions],
    ) -> list[Result[Any]]:
        """Run an agent for each prompt, at most `at_once` at a time, and return the results in order.

        A failed agent is a `Result` that is not `ok`; the others continue. When the provider refuses a
        request for quota, no further agent is started, and each remaining result says why. If `map` is
        canceled, it stops its agents. Raises `AgentUnusable`, as `spawn` does, if the agent, its model or an
        option cannot be used.
        """
        self.require_open()
        self.workflows.refuse_call_in_program("session.map()", "flow.map()")
        check_count("session.map()", "at_once", at_once)
        results: dict[int, Result[Any]] = {}
        remaining = enumerate(check_prompts("session.map()", prompts))
        with self.translate_errors():
            self.workflows.agents.refuse_unknown_agent("session.map()", agent)
        quota = QuotaGuard()

        async def run_prompt(numbered: tuple[int, str]) -> bool:
            index, prompt = numbered
            result = await self._run_mapped_agent(agent, prompt, output, options, quota)
            if isinstance(result.error, AgentUnusable) and not results:
                raise result.error  # the same for all prompts
            results[index] = result
            return True

        unsubscribe = super().subscribe(quota.watch)
        try:
            await run_workers(remaining, run_prompt, at_once)
        finally:
            unsubscribe()
        return [results[index] for index in sorted(results)]

    async def _run_mapped_agent(
        self,
        agent: Agent[Any] | str,
        prompt: str,
        output: type[Any] | None,
        options: SpawnOptions,
        quota: QuotaGuard,
    ) -> Result[Any]:
        try:
            with name_function_in_errors("session.map()"):
                handle = await self._start_agent(agent, prompt, output, options, quota.refuse_start)
        except AgentRequestRefused as refusal:
            return Result(reason="refused", text="", detail=str(refusal), error=refusal)
        try:
            return await handle.wait()
        except asyncio.CancelledError:
            await handle.stop(format_end_reason("waiting_call_canceled"))
            raise

    def create_background_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work until the session ends."""
        return self._tasks.create_task(work)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Let errors name Python options instead of flags, unless a command opened the session."""
        try:
            yield
        except ShoalError as error:
            self._name_options(error)
            raise

    def _name_options(self, error: ShoalError) -> None:
        if self._by_command:
            leave_out_copies(error)
        else:
            name_options_in_error(error, self._opened_by)

    def _refuse_second_opening(self) -> None:
        if self._is_entered or (self._host is not None and self._host is not asyncio.current_task()):
            raise RuntimeError("The session was already opened. Open another one with shoal.open().")

    @property
    def is_closed(self) -> bool:
        """True after the session was closed, or if opening it failed."""
        return self._is_closed

    def require_open(self) -> None:
        """Raise `RuntimeError` unless the session is open and belongs to this event loop."""
        if self._is_closed:
            raise RuntimeError("The session is closed. Open another one with shoal.open().")
        if not self._is_entered:
            raise RuntimeError(_NOT_OPEN)
        self.require_own_loop()

    def require_own_loop(self) -> None:
        """Raise `RuntimeError` in another event loop or thread: nothing in a session is thread-safe."""
        loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is not self._loop and (loop is not None or get_ident() != self._thread):
            raise RuntimeError(_OTHER_LOOP)

    def _end_abandoned_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the running turn from any thread."""

        def interrupt_soon() -> None:
            # A session that is closing interrupts the turn itself.
            with suppress(RuntimeError):
                self._tasks.create_task(self.interrupt())

        with suppress(RuntimeError):  # the loop is closed, and the turn with it
            loop.call_soon_threadsafe(interrupt_soon)

    def _run_after_current_turn(
        self,
        prompt: str | Message | SlashCommandInvocation | None,
        on_abandoned: Callable[[], None],
        on_error: Callable[[ShoalError], None],
    ) -> Turn[Any]:
        """Start a turn as soon as the abandoned one has ended."""
        abandoned, channel = self._turns.running, EventChannel()

        async def run_and_forward() -> None:
            try:
                if abandoned is not None:
                    await asyncio.wait([abandoned])
                async for event in self._turns.start_turn(prompt):
                    await channel.put(event)
            finally:
                channel.close()

        async def interrupt_forwarded() -> None:
            if abandoned is not None:
                await asyncio.wait([abandoned])
            await self.interrupt()

        task = self._tasks.create_task(run_and_forward())
        return Turn(channel, task, interrupt_forwarded, self._options.output, on_abandoned, on_error)
