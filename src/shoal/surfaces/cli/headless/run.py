"""Run without a person at the keyboard: results go to stdout, everything for people to stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from shoal.app.options import Options
from shoal.app.picture.standing import Standings
from shoal.app.session.commanding import understood
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.agents import Glimpse
from shoal.core.errors import BadDefinition, ShoalError, UnknownSkill
from shoal.core.events import Answered, Asked, EndReason, Event, Finished, WorkKept
from shoal.core.ids import LEAD
from shoal.core.questions import Denied, MayRun
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.headless.output import Output, StreamOutput, Wanted, output_for
from shoal.surfaces.cli.headless.signals import Signals
from shoal.surfaces.cli.headless.stdout import ReaderGone, Stdout
from shoal.surfaces.terminal import sentences
from shoal.surfaces.terminal.feed import Feed
from shoal.surfaces.terminal.sentences import say

if TYPE_CHECKING:
    from shoal.surfaces.cli.headless.beginning import Beginning
    from shoal.surfaces.cli.headless.control import StreamInput
    from shoal.surfaces.cli.headless.driving import DrivingProgram


_PASSING: tuple[EndReason, ...] = ("interrupted", "max_turns", "model_error")
"""Turn ends that do not prevent another turn."""


class Job(Struct, frozen=True, kw_only=True):
    """Input of a headless run. Without a prompt, prompts come from stdin as stream-json."""

    options: Options
    prompt: str | None
    output: Wanted
    relayed_servers: Sequence[str] = ()
    """MCP servers that live in the driving program."""
    quiet: bool = False
    verbose: bool = False
    """Report the cost of each turn at its end."""
    prepare: Callable[[Session], Awaitable[str]] | None = None
    """Returns the prompt once the session is open."""


def headless(job: Job) -> int:
    """Run the job and return the exit code."""
    signals = Signals()
    try:
        return asyncio.run(_run(job, signals))
    except asyncio.CancelledError:
        # Only a signal cancels the whole run; it came before a turn or after the last one.
        say("Interrupted.")
        return signals.exit_code


async def _run(job: Job, signals: Signals) -> int:
    output = output_for(job.output, Stdout())
    signals.listen()
    try:
        if job.prompt is None:
            assert isinstance(output, StreamOutput)
            return await _driven(job, output, signals)
        async with Session(job.options) as session:
            return await _Run(job, session, output, signals).work()
    except (ShoalError, OSError, ExceptionGroup) as error:
        return await _failed(sentences.unwrapped(error), output, debug=job.options.debug)


async def _driven(job: Job, output: StreamOutput, signals: Signals) -> int:
    from shoal.surfaces.cli.headless.beginning import begin
    from shoal.surfaces.cli.headless.driving import DrivingProgram

    async with DrivingProgram(output.send, job.options.clock) as program:
        begun = await begin(program, output, job.options, job.relayed_servers)
        async with Session(begun.options) as session:
            begun.settle(session)
            return await _Run(job, session, output, signals, Driven(program, begun)).work()


async def _failed(error: BaseException, output: Output, *, debug: bool) -> int:
    match error:
        case ReaderGone():
            return exits.READER_GONE
        case ShoalError() | OSError() if not debug:
            why = sentences.explain(error)
            say(why)
            await output.fail(why)
            await output.close()
            return exits.ERROR
        case _:
            raise error


class Driven(NamedTuple):
    by: DrivingProgram
    begun: Beginning


class _Run:
    def __init__(
        self, job: Job, session: Session, output: Output, signals: Signals, driven: Driven | None = None
    ) -> None:
        self._job = job
        self._driven = driven
        self._session = session
        self._output = output
        self._output.meet(session)
        self._signals = signals
        self._feed = Feed(session)
        self._standings = Standings()
        self._reason: EndReason = "done"
        self._stopped: tuple[Glimpse, ...] = ()
        """Agents that were stopped before they were done."""
        self._asked: dict[str, MayRun] = {}
        self._refused: list[MayRun] = []
        """Calls of this turn that were not run because nobody could be asked."""

    async def work(self) -> int:
        for note in self._session.notes:
            say(note)
        left_over = self._session.parts.left_over
        if left_over is not None and left_over.cut_off:
            say(sentences.cut_off_agents(left_over.cut_off))
        lines_lost = 0
        try:
            async with asyncio.TaskGroup() as group:
                watching = (
                    group.create_task(self._signals.interrupting(self._session)),
                    group.create_task(self._wake_when_stopped()),
                )
                if self._driven is None:
                    prompt = await understood(self._session.parts, await self._prompt())
                    await self._turn(self._session.run(prompt))
                    while self._goes_on and (turn := await self._woken_turn(group)) is not None:
                        await self._turn(turn)
                else:
                    lines_lost = await self._turns_from_stdin(self._driven, group)
                await self._end_what_runs()
                for task in watching:
                    task.cancel()
        except asyncio.CancelledError:
            # A signal between turns: working agents end with the session.
            now = self._session.agent.clock.monotonic()
            self._tell_stopped(tuple(run.glimpse(now) for run in self._session.parts.crew.at_work()))
            if self._stopped:
                await self._output.cut_short(sentences.stopped_agents(self._stopped))
            await self._output.close()
            raise
        await self._output.close()
        if self._signals.received:
            return self._signals.exit_code
        return (
            exits.of_reason(self._reason)
            or (exits.STOPPED if self._stopped else exits.OK)
            or (exits.ERROR if lines_lost else exits.OK)
        )

    async def _prompt(self) -> str:
        prepare = self._job.prepare
        return (self._job.prompt or "") if prepare is None else await prepare(self._session)

    async def _wake_when_stopped(self) -> None:
        """Wake when another process stops the run through its control socket."""
        await self._session.stopping.wait()
        self._feed.wake()

    @property
    def _goes_on(self) -> bool:
        """True if another turn may follow the one that ended."""
        if self._signals.received:
            return False
        return self._reason == "done" or (self._stays and self._reason in _PASSING)

    @property
    def _stays(self) -> bool:
        return self._session.parts.assistant

    async def _woken_turn(self, group: asyncio.TaskGroup) -> Turn | None:
        """Wait for the next turn that an arrival triggers; None when nothing will come."""
        coming = self._session.next_turn(wait_for_people=self._stays and self._job.prompt is not None)
        return await self._between(group.create_task(coming), lambda: False)

    async def _between(self, coming: asyncio.Task[Turn | None], otherwise: Callable[[], bool]) -> Turn | None:
        """Show progress until the turn comes; None if `should_stop` or the session's stop ends the wait."""
        coming.add_done_callback(lambda _: self._feed.wake())
        with self._progress() as hear:
            while not (coming.done() or otherwise() or self._session.stopping.is_set()):
                await self._feed.news()
                await self._catch_up(hear)
        if not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
        return None if coming.cancelled() else coming.result()

    async def _turns_from_stdin(self, driven: Driven, group: asyncio.TaskGroup) -> int:
        """Run the turns and return the number of unusable input lines."""
        from shoal.surfaces.cli.headless.control import StreamInput
        from shoal.surfaces.cli.headless.prompting import Prompting

        assert isinstance(self._output, StreamOutput)
        prompting = Prompting(self._session, self._output) if self._job.options.attended else None
        source = StreamInput(self._session, self._output, prompting, changed=self._feed.wake)
        if driven.begun.opening is not None:
            await source.welcome(driven.begun.opening)
        listening = [
            group.create_task(source.read(driven.by)),
            group.create_task(source.close_when_stopped()),
        ]
        if prompting is not None:
            listening.append(group.create_task(prompting.ask()))
        while not self._signals.received and (turn := await self._turn_for(source, group)) is not None:
            await self._turn(turn, source.hear)
            source.ended()
        for task in listening:
            task.cancel()
        return source.bad_lines

    async def _turn_for(self, source: StreamInput, group: asyncio.TaskGroup) -> Turn | None:
        """Return the turn for the next prompt or, while none waits, for an arrival; None at the end."""
        while True:
            if (prompt := source.take()) is not None:
                try:
                    return self._session.run(await understood(self._session.parts, prompt))
                except (UnknownSkill, BadDefinition) as error:
                    say(str(error))
                    await self._output.fail(str(error))
                    continue
            await self._rest_if_quiet()
            if source.closed:
                goes_on = self._reason in ("done", "interrupted")
                return await self._woken_turn(group) if goes_on else None
            coming = group.create_task(self._session.next_turn(wait_for_people=True))
            turn = await self._between(coming, lambda: source.ready)
            if turn is not None or self._session.cut_short:
                return turn
            waits = self._session.parts.queue.size(LEAD)
            if not source.ready and (waits or (self._stays and self._session.is_late)):
                # The deadline has passed: waiting prompts get no turn.
                return None

    async def _turn(self, turn: Turn, overhear: Callable[[Event], None] | None = None) -> None:
        # The init line must list the servers that the first request has.
        await self._session.parts.servers.ready()
        await self._output.begin(self._session)
        with self._progress() as hear:
            async for event in turn:
                await self._catch_up(hear, overhear)
                if isinstance(event, Finished):
                    finished = event
        await self._ended(finished)
        await self._rest_if_quiet()

    async def _rest_if_quiet(self) -> None:
        """Report idle: a program that answers questions keeps its end open until then."""
        if not self._session.parts.crew.working and not self._session.parts.queue.size(LEAD):
            await self._output.rest()

    async def _catch_up(
        self, hear: Callable[[Event], None], overhear: Callable[[Event], None] | None = None
    ) -> None:
        for event in self._feed.taken():
            self._standings.hear(event, self._session.agent.clock.monotonic())
            hear(event)
            self._note_refusals(event)
            if overhear is not None:
                overhear(event)
            if not isinstance(event, Finished):
                await self._output.hear(event)

    async def _end_what_runs(self) -> None:
        """Stop everything that still runs, and report what was stopped before it was done."""
        stopped = await self._session.parts.crew.stop_all("the run ended before it was done")
        self._tell_stopped(self._session.cut_short + stopped)
        shells = await self._session.parts.shells.stop_all()
        if shells:
            say(sentences.ended_shells([(shell.id, shell.command) for shell in shells]))
        with self._progress() as hear:
            # The stops are reported by now; the work they left behind is not.
            await self._catch_up(lambda event: hear(event) if isinstance(event, WorkKept) else None)
        if self._stopped:
            await self._output.cut_short(sentences.stopped_agents(self._stopped))
        await self._output.rest()

    def _tell_stopped(self, stopped: tuple[Glimpse, ...]) -> None:
        self._stopped = stopped
        if not stopped:
            return
        say(sentences.stopped_agents(stopped))
        if self._reason == "done" and self._job.options.persist:
            say(sentences.how_to_go_on(self._session.id))

    def _note_refusals(self, event: Event) -> None:
        match event:
            case Asked(question=MayRun() as question):
                self._asked[question.id] = question
            case Answered(question=question_id, answer=answer):
                asked = self._asked.pop(question_id, None)
                if asked is not None and isinstance(answer, Denied) and answer.by == "policy":
                    self._refused.append(asked)

    @contextmanager
    def _progress(self) -> Iterator[Callable[[Event], None]]:
        if self._job.quiet:
            yield lambda _: None
            return
        from shoal.surfaces.cli.headless.progress import progress_for

        desk = self._session.parts.desk
        waits = desk.patience is not None and not desk.attended
        progress = progress_for(sys.stderr, self._session.agent.clock, self._standings, waits=waits)
        try:
            yield progress.hear
        finally:
            progress.close()

    async def _ended(self, finished: Finished) -> None:
        self._reason = finished.reason
        if finished.reason != "done":
            say(sentences.ending(finished))
            if self._job.options.persist:
                say(sentences.how_to_go_on(self._session.id))
        elif finished.detail:
            say(f"note: {finished.detail}")
        if self._refused and finished.reason != "interrupted":
            say(sentences.how_to_allow(self._refused))
        self._refused.clear()
        if self._job.verbose:
            say(self._took(finished))
        await self._output.end(finished)

    def _took(self, finished: Finished) -> str:
        from shoal.core.wording import count, dollars, many, seconds

        facts = (
            many(finished.requests, "request"),
            f"{count(finished.usage.prompt_tokens)} tokens in",
            f"{count(finished.usage.output_tokens)} out",
            dollars(finished.cost_usd),
            seconds(finished.duration_ms / 1000),
            f"{self._session.agent.model.card.id}",
            f"session {self._session.id}",
        )
        return " · ".join(facts)
