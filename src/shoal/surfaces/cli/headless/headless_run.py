"""Run without a person at the keyboard: results go to stdout, everything for people to stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from shoal.app.options import Options
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.agents.subagents import AgentStatusSnapshot
from shoal.core.errors import InvalidAgentDefinition, SettingsError, ShoalError, UnknownSkill
from shoal.core.events import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    RepetitionStopped,
    RunFinished,
    TurnEndReason,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import DenyAnswer, PermissionQuestion
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.headless.output_formats import (
    HeadlessOutputOptions,
    HeadlessOutputWriter,
    StreamJsonOutputWriter,
    create_headless_output,
    send_stream_line,
    write_start_failure,
)
from shoal.surfaces.cli.headless.signal_handler import HeadlessSignalHandler
from shoal.surfaces.cli.headless.stdout import AsyncStdoutWriter, StdoutReaderGoneError
from shoal.surfaces.terminal import user_messages
from shoal.surfaces.terminal.event_feed import EventFeed
from shoal.surfaces.terminal.user_messages import print_user_message

if TYPE_CHECKING:
    from shoal.surfaces.cli.headless.driving_program import DrivingProgramConnection
    from shoal.surfaces.cli.headless.stream_initialization import StreamInitializationResult
    from shoal.surfaces.cli.headless.stream_input import StreamJsonInputReader


_RECOVERABLE_ENDS: tuple[TurnEndReason, ...] = ("interrupted", "max_turns", "model_error")
"""Ways a turn can end that still allow another turn."""


class HeadlessRunRequest(Struct, frozen=True, kw_only=True):
    """Input of a headless run. Without a prompt, prompts come from stdin as stream-json."""

    options: Options
    prompt: str | None
    output: HeadlessOutputOptions
    relayed_servers: Sequence[str] = ()
    """MCP servers that live in the driving program."""
    quiet: bool = False
    prompt_tool: str | None = None
    """MCP tool that answers questions."""
    verbose: bool = False
    """Report the cost of each turn at its end."""
    prepare: Callable[[Session], Awaitable[str]] | None = None
    """Returns the prompt once the session is open."""


def run_headless(job: HeadlessRunRequest) -> int:
    """Run the job and return the exit code."""
    signals = HeadlessSignalHandler()
    try:
        return asyncio.run(_run_job(job, signals))
    except asyncio.CancelledError:
        # Only a signal cancels the whole run; it came before a turn or after the last one.
        print_user_message("Interrupted.")
        return signals.exit_code
    finally:
        signals.restore_signals()


async def _run_job(job: HeadlessRunRequest, signals: HeadlessSignalHandler) -> int:
    stdout = AsyncStdoutWriter()
    output: HeadlessOutputWriter | None = None
    signals.install_handlers()
    try:
        async with _open_session(job, stdout) as (session, program):
            output = create_headless_output(job.output, stdout, session)
            return await _HeadlessRun(job, session, output, signals, program).run_turns()
    except (ShoalError, OSError, ExceptionGroup) as raised:
        match user_messages.unwrap_error_group(raised):
            case StdoutReaderGoneError():
                return exit_codes.BROKEN_PIPE
            case ShoalError() | OSError() as error if not job.options.debug:
                await _report_run_failure(user_messages.explain_error(error), job, stdout, output)
                return exit_codes.ERROR
            case error:
                raise error from None
    finally:
        signals.ignore_signals()


@asynccontextmanager
async def _open_session(
    job: HeadlessRunRequest, stdout: AsyncStdoutWriter
) -> AsyncIterator[tuple[Session, InitializedDrivingProgram | None]]:
    """Open the session; without a prompt, the program that drives it may change its options first."""
    if job.prompt is not None:
        async with Session(job.options) as session:
            yield session, None
        return
    from shoal.surfaces.cli.headless.driving_program import DrivingProgramConnection
    from shoal.surfaces.cli.headless.stream_initialization import process_initialize_request

    async with DrivingProgramConnection(partial(send_stream_line, stdout), job.options.clock) as program:
        initialization = await process_initialize_request(program, job.options, job.relayed_servers)
        async with Session(initialization.options) as session:
            yield session, InitializedDrivingProgram(program, initialization)


async def _report_run_failure(
    explanation: str,
    job: HeadlessRunRequest,
    stdout: AsyncStdoutWriter,
    output: HeadlessOutputWriter | None,
) -> None:
    print_user_message(explanation)
    if output is None:
        await write_start_failure(job.output.format, stdout, explanation)
    else:
        await output.report_run_failure(explanation)
        await output.write_pending_result()


class InitializedDrivingProgram(NamedTuple):
    program: DrivingProgramConnection
    initialization: StreamInitializationResult


class _HeadlessRun:
    def __init__(
        self,
        job: HeadlessRunRequest,
        session: Session,
        output: HeadlessOutputWriter,
        signals: HeadlessSignalHandler,
        connection: InitializedDrivingProgram | None,
    ) -> None:
        self._job = job
        self._connection = connection
        self._session = session
        self._output = output
        self._signals = signals
        self._feed = EventFeed(session)
        self._statuses = RunViewAgentsState()
        self._reason: TurnEndReason = "done"
        self._stopped_agents: tuple[AgentStatusSnapshot, ...] = ()
        """Agents that were stopped before they were done."""
        self._down_members: tuple[TeammateStatusSnapshot, ...] = ()
        """Members that were down at the end of the run."""
        self._repetition_stops: list[RepetitionStopped] = []
        """Stops of agents that were in a loop."""
        self._open_questions: dict[str, PermissionQuestion] = {}
        self._refused_calls: list[PermissionQuestion] = []
        """Calls of this turn that were not run because nobody was available to answer."""

    async def run_turns(self) -> int:
        for note in () if self._job.quiet else self._session.notes:
            print_user_message(note)
        recovered = self._session.recovered
        if recovered is not None and recovered.cut_off_results:
            print_user_message(user_messages.describe_cut_off_agents(recovered.cut_off_results))
        lost_lines = 0
        await self._check_prompt_tool()
        try:
            async with asyncio.TaskGroup() as group:
                watch_tasks = (
                    group.create_task(self._signals.interrupt_on_signal(self._session)),
                    group.create_task(self._wake_when_stopped()),
                    *self._start_prompt_tool(group),
                )
                if self._connection is None:
                    prompt = await self._session.parse_slash_command_when_ready(
                        await self._prepare_initial_prompt()
                    )
                    await self._run_turn(self._session.run(prompt))
                    while (
                        self._can_run_another_turn
                        and (turn := await self._wait_for_next_turn(group)) is not None
                    ):
                        await self._run_turn(turn)
                else:
                    lost_lines = await self._run_turns_from_stdin(self._connection, group)
                await self._stop_remaining_work()
                for task in watch_tasks:
                    task.cancel()
        except asyncio.CancelledError:
            # A signal between turns: working agents end with the session.
            self._report_stopped_agents(self._session.list_running_subagents())
            if self._stopped_agents:
                await self._output.report_incomplete_result(
                    user_messages.describe_stopped_agents(self._stopped_agents)
                )
            await self._output.write_pending_result()
            raise
        await self._output.write_pending_result()
        if self._signals.received:
            return self._signals.exit_code
        return (
            exit_codes.get_turn_end_exit_code(self._reason)
            or (
                exit_codes.STOPPED
                if self._stopped_agents or self._down_members or self._repetition_stops
                else exit_codes.OK
            )
            or (exit_codes.ERROR if lost_lines else exit_codes.OK)
        )

    async def _check_prompt_tool(self) -> None:
        """Raise `SettingsError` before the first request if nobody could answer a question."""
        tool = self._job.prompt_tool
        if tool is None:
            return
        from shoal.app.session.session_changes import check_mcp_tool

        if (problem := await check_mcp_tool(self._session, tool)) is not None:
            raise SettingsError(f"There is no tool {tool} for --permission-prompt-tool: {problem}.")

    def _start_prompt_tool(self, group: asyncio.TaskGroup) -> tuple[asyncio.Task[None], ...]:
        if self._job.prompt_tool is None:
            return ()
        from shoal.surfaces.cli.headless.question_forwarder import McpToolQuestionForwarder

        forwarder = McpToolQuestionForwarder(self._session, self._job.prompt_tool)
        return (group.create_task(forwarder.forward_questions()),)

    async def _prepare_initial_prompt(self) -> str:
        prepare_prompt = self._job.prepare
        return (self._job.prompt or "") if prepare_prompt is None else await prepare_prompt(self._session)

    async def _wake_when_stopped(self) -> None:
        """Wake when another process stops the run through its control socket."""
        await self._session.stop_requested.wait()
        self._feed.wake()

    @property
    def _can_run_another_turn(self) -> bool:
        """True if another turn may follow the one that ended."""
        if self._signals.received:
            return False
        return self._reason == "done" or (self._is_assistant and self._reason in _RECOVERABLE_ENDS)

    @property
    def _is_assistant(self) -> bool:
        return self._session.is_assistant

    async def _wait_for_next_turn(self, group: asyncio.TaskGroup) -> Turn | None:
        """Wait for the next turn that an arrival triggers; None if nothing more will arrive."""
        next_turn = self._session.next_turn(
            wait_for_input=self._is_assistant and self._job.prompt is not None
        )
        return await self._wait_for_turn(group.create_task(next_turn), lambda: False)

    async def _wait_for_turn(
        self, turn_task: asyncio.Task[Turn | None], should_stop: Callable[[], bool]
    ) -> Turn | None:
        """Show progress until the turn comes; None if `should_stop` or the session's stop ends the wait."""
        turn_task.add_done_callback(lambda _: self._feed.wake())
        with self._show_progress() as show_event:
            while not (turn_task.done() or should_stop() or self._session.stop_requested.is_set()):
                await self._feed.wait_for_events()
                await self._process_events(show_event)
        if not turn_task.done():
            turn_task.cancel()
            await asyncio.wait([turn_task])
        return None if turn_task.cancelled() else turn_task.result()

    async def _run_turns_from_stdin(
        self, connection: InitializedDrivingProgram, group: asyncio.TaskGroup
    ) -> int:
        """Run the turns and return the number of unusable input lines."""
        from shoal.surfaces.cli.headless.question_forwarder import DrivingProgramQuestionForwarder
        from shoal.surfaces.cli.headless.stream_input import StreamJsonInputReader

        assert isinstance(self._output, StreamJsonOutputWriter)
        forwarder = (
            DrivingProgramQuestionForwarder(self._session, self._output)
            if self._job.options.attended and self._job.prompt_tool is None
            else None
        )
        source = StreamJsonInputReader(self._session, self._output, forwarder, on_change=self._feed.wake)
        if connection.initialization.initialize_request is not None:
            await source.answer_initialize(connection.initialization.initialize_request)
        reader_tasks = [
            group.create_task(source.process_input_lines(connection.program)),
            group.create_task(source.close_when_stopped()),
        ]
        if forwarder is not None:
            reader_tasks.append(group.create_task(forwarder.forward_questions()))
        while (
            not self._signals.received
            and (turn := await self._next_turn_from_stdin(source, group)) is not None
        ):
            await self._run_turn(turn, source.track_lead_event)
            source.mark_turn_ended()
        for task in reader_tasks:
            task.cancel()
        return source.bad_lines

    async def _next_turn_from_stdin(
        self, source: StreamJsonInputReader, group: asyncio.TaskGroup
    ) -> Turn | None:
        """Return the turn for the next prompt or, while none waits, for an arrival; None at the end."""
        while True:
            if (prompt := source.take_prompt()) is not None:
                try:
                    return self._session.run(await self._session.parse_slash_command_when_ready(prompt))
                except (UnknownSkill, InvalidAgentDefinition) as error:
                    print_user_message(str(error))
                    await self._output.report_run_failure(str(error))
                    continue
            await self._report_idle_if_quiet()
            if source.is_closed:
                can_continue = self._reason in ("done", "interrupted")
                return await self._wait_for_next_turn(group) if can_continue else None
            turn_task = group.create_task(self._session.next_turn(wait_for_input=True))
            turn = await self._wait_for_turn(turn_task, lambda: source.has_prompt_or_is_closed)
            if turn is not None or self._session.interrupted_agents:
                return turn
            waking_count = self._session.count_waking_items()
            if not source.has_prompt_or_is_closed and (
                waking_count or (self._is_assistant and self._session.is_past_deadline)
            ):
                # The deadline has passed: waiting prompts get no turn.
                return None

    async def _run_turn(self, turn: Turn, on_event: Callable[[Event], None] | None = None) -> None:
        # The init line must list the servers that the first request has.
        await self._session.wait_for_mcp_servers()
        await self._output.begin_turn()
        with self._show_progress() as show_event:
            async for event in turn:
                await self._process_events(show_event, on_event)
                if isinstance(event, RunFinished):
                    finished = event
        await self._report_turn_end(finished)
        await self._report_idle_if_quiet()

    async def _report_idle_if_quiet(self) -> None:
        """Report idle: a program that answers questions keeps its end open until then."""
        if not self._session.has_running_subagents and not self._session.count_waking_items():
            await self._output.report_idle()

    async def _process_events(
        self, show_event: Callable[[Event], None], on_event: Callable[[Event], None] | None = None
    ) -> None:
        for event in self._feed.drain():
            self._statuses.apply_event(event, self._session.clock.monotonic())
            show_event(event)
            self._record_permission_refusals(event)
            if isinstance(event, RepetitionStopped):
                self._repetition_stops.append(event)
            if on_event is not None:
                on_event(event)
            if not isinstance(event, RunFinished):
                await self._output.handle_event(event)

    async def _stop_remaining_work(self) -> None:
        """Stop everything that still runs, and report what was stopped before it was done."""
        await self._report_team_leftovers()
        # The end of a turn of the lead says that the lead was in a loop.
        repetition_stops = [stop for stop in self._repetition_stops if stop.agent != LEAD_ID]
        if repetition_stops:
            print_user_message(user_messages.describe_repetition_stops(repetition_stops))
        stopped_agents = await self._session.stop_agents("the run ended before the work was finished")
        self._report_stopped_agents(self._session.interrupted_agents + stopped_agents)
        shells = await self._session.stop_shells()
        if shells:
            print_user_message(
                user_messages.describe_ended_shells([(shell.id, shell.command) for shell in shells])
            )
        with self._show_progress() as show_event:
            # The stops are reported by now; the work they left behind is not.
            await self._process_events(
                lambda event: show_event(event) if isinstance(event, WorktreeWorkRetained) else None
            )
        if incomplete := [
            *([user_messages.describe_stopped_agents(self._stopped_agents)] if self._stopped_agents else ()),
            *([user_messages.describe_down_members(self._down_members)] if self._down_members else ()),
            *([user_messages.describe_repetition_stops(repetition_stops)] if repetition_stops else ()),
        ]:
            await self._output.report_incomplete_result("\n".join(incomplete))
        await self._output.report_idle()

    async def _report_team_leftovers(self) -> None:
        """Report the members that are down and the tasks that are not completed."""
        from shoal.app.session.session_changes import list_down_members, list_unfinished_tasks

        self._down_members = list_down_members(self._session)
        if self._down_members:
            print_user_message(user_messages.describe_down_members(self._down_members))
        if tasks := await list_unfinished_tasks(self._session):
            print_user_message(user_messages.describe_unfinished_tasks(tasks))

    def _report_stopped_agents(self, stopped_agents: tuple[AgentStatusSnapshot, ...]) -> None:
        self._stopped_agents = stopped_agents
        if not stopped_agents:
            return
        print_user_message(user_messages.describe_stopped_agents(stopped_agents))
        if self._reason == "done" and self._job.options.persist:
            print_user_message(user_messages.format_resume_hint(self._session.id))

    def _record_permission_refusals(self, event: Event) -> None:
        match event:
            case QuestionAsked(question=PermissionQuestion() as question):
                self._open_questions[question.id] = question
            case QuestionAnswered(question=question_id, answer=answer):
                open_question = self._open_questions.pop(question_id, None)
                if open_question is not None and isinstance(answer, DenyAnswer) and answer.by == "policy":
                    self._refused_calls.append(open_question)

    @contextmanager
    def _show_progress(self) -> Iterator[Callable[[Event], None]]:
        if self._job.quiet:
            yield lambda _: None
            return
        from shoal.surfaces.cli.headless.progress_display import create_progress_display

        questions_stay_open = self._session.questions.keeps_questions_open
        progress = create_progress_display(
            sys.stderr, self._session.clock, self._statuses, questions_stay_open=questions_stay_open
        )
        try:
            yield progress.show_event
        finally:
            progress.close()

    async def _report_turn_end(self, finished: RunFinished) -> None:
        self._reason = finished.reason
        if finished.reason != "done":
            print_user_message(user_messages.describe_turn_end(finished))
            if self._job.options.persist:
                print_user_message(user_messages.format_resume_hint(self._session.id))
        elif finished.detail:
            print_user_message(f"note: {finished.detail}")
        if self._refused_calls and finished.reason != "interrupted":
            print_user_message(user_messages.format_permission_hint(self._refused_calls))
        self._refused_calls.clear()
        if self._job.verbose and not self._job.quiet:
            print_user_message(self._format_turn_cost(finished))
        await self._output.end_turn(finished)

    def _format_turn_cost(self, finished: RunFinished) -> str:
        from shoal.core.text.text_format import (
            format_count_with_noun,
            format_dollars,
            format_duration,
            format_token_count,
        )

        cost_parts = (
            format_count_with_noun(finished.requests, "request"),
            f"{format_token_count(finished.usage.prompt_tokens)} tokens in",
            f"{format_token_count(finished.usage.output_tokens)} out",
            format_dollars(finished.cost_usd),
            format_duration(finished.duration_ms / 1000),
            f"{self._session.model_card.id}",
            f"session {self._session.id}",
        )
        return " · ".join(cost_parts)
