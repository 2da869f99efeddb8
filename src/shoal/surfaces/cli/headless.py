"""A run without a person at the keyboard: results to stdout, everything for people to stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from shoal.app.options import Options
from shoal.app.session import Session
from shoal.core.errors import ShoalError
from shoal.core.events import Answered, Asked, EndReason, Event, Finished
from shoal.core.messages import Message
from shoal.core.questions import Denied, MayRun
from shoal.surfaces.cli import exits, sentences
from shoal.surfaces.cli.output import Output, StreamOutput, Wanted, output_for
from shoal.surfaces.cli.sentences import say
from shoal.surfaces.cli.signals import Signals
from shoal.surfaces.cli.stdout import ReaderGone, Stdout


class Job(Struct, frozen=True, kw_only=True):
    """What a headless run is asked to do. Without a prompt, prompts come from stdin as stream-json."""

    options: Options
    prompt: str | None
    output: Wanted
    quiet: bool = False
    verbose: bool = False
    """Tell the person at the end of each turn what it took."""


def headless(job: Job) -> int:
    """Run it; the exit code."""
    signals = Signals()
    try:
        return asyncio.run(_run(job, signals))
    except asyncio.CancelledError:
        # Only a signal cancels the whole run; it came before a turn or after the last.
        say("Interrupted.")
        return signals.exit_code


async def _run(job: Job, signals: Signals) -> int:
    output = output_for(job.output, Stdout())
    signals.listen()
    try:
        async with Session(job.options) as session:
            return await _Run(job, session, output, signals).work()
    except (ShoalError, OSError, ExceptionGroup) as error:
        return await _failed(sentences.unwrapped(error), output, debug=job.options.debug)


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


class _Run:
    def __init__(self, job: Job, session: Session, output: Output, signals: Signals) -> None:
        self._job = job
        self._session = session
        self._output = output
        self._signals = signals
        self._reason: EndReason = "done"
        self._asked: dict[str, MayRun] = {}
        self._refused: list[MayRun] = []
        """Calls of this turn that were not run because nobody could be asked."""

    async def work(self) -> int:
        for note in self._session.notes:
            say(note)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._signals.interrupting(self._session))
            if self._job.prompt is not None:
                await self._turn(self._job.prompt)
                lines_lost = 0
            else:
                lines_lost = await self._turns_from_stdin(group)
            watching.cancel()
        await self._output.close()
        if self._signals.received:
            return self._signals.exit_code
        return exits.of_reason(self._reason) or (exits.ERROR if lines_lost else exits.OK)

    async def _turns_from_stdin(self, group: asyncio.TaskGroup) -> int:
        """How many lines of input could not be used."""
        from shoal.surfaces.cli.control import StreamInput
        from shoal.surfaces.cli.prompting import Prompting

        assert isinstance(self._output, StreamOutput)
        prompting = Prompting(self._session, self._output) if self._job.options.attended else None
        source = StreamInput(self._session, self._output, prompting)
        listening = [group.create_task(source.read()), group.create_task(source.close_when_stopped())]
        if prompting is not None:
            listening.append(group.create_task(prompting.ask()))
        while not self._signals.received and (prompt := await source.prompt()) is not None:
            await self._turn(prompt, source.hear)
            source.ended()
        for task in listening:
            task.cancel()
        return source.bad_lines

    async def _turn(self, prompt: str | Message, overhear: Callable[[Event], None] | None = None) -> None:
        await self._output.begin(self._session)
        with self._progress() as hear:
            async for event in self._session.run(prompt):
                hear(event)
                self._note_refusals(event)
                if overhear is not None:
                    overhear(event)
                if isinstance(event, Finished):
                    finished = event
                else:
                    await self._output.hear(event)
        await self._ended(finished)

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
        from shoal.surfaces.cli.progress import progress_for

        progress = progress_for(sys.stderr, self._session.agent.clock)
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
        from shoal.surfaces.cli.paint import count, dollars, seconds

        facts = (
            f"{finished.requests} request{'' if finished.requests == 1 else 's'}",
            f"{count(finished.usage.prompt_tokens)} tokens in",
            f"{count(finished.usage.output_tokens)} out",
            dollars(finished.cost_usd),
            seconds(finished.duration_ms / 1000),
            f"{self._session.agent.model.card.id}",
            f"session {self._session.id}",
        )
        return " · ".join(facts)
