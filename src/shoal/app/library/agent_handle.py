"""Handle of an agent that a program started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, Generic

from shoal.app.agents.argument_checks import check_text
from shoal.app.agents.result import Result, build_agent_result
from shoal.core.agents.subagents import AgentRunStatus
from shoal.core.events import AgentEnded, Event
from shoal.core.keyword_checks import check_keywords
from shoal.core.output_type import AnswerT_co, OutputType
from shoal.runs.event_channel import EventChannel

if TYPE_CHECKING:
    from shoal.app.library.library_session import LibrarySession
    from shoal.runs.agent_run import AgentRun

STOPPED_BY_PROGRAM = "the program stopped it"


class AgentHandle(Generic[AnswerT_co]):
    """A started agent: await it for its result, send it messages, stop it, or read its events."""

    def __init__(self, session: LibrarySession[Any], run: AgentRun, output: OutputType[Any] | None) -> None:
        self._session = session
        self._run = run
        self._output = output

    def __repr__(self) -> str:
        return f"<agent {self.id} {self.status}>"

    @property
    def id(self) -> str:
        """Id of the agent, also in its events."""
        return self._run.id

    @property
    def name(self) -> str:
        """Name given at the start; empty if there is none."""
        return self._run.facts.name

    @property
    def status(self) -> AgentRunStatus:
        """State of its latest run."""
        return self._find_run().status

    def __await__(self) -> Generator[Any, None, Result[AnswerT_co]]:
        """Wait for the end and return the result. Raises `RunFailed` unless the work was completed."""
        result = yield from self.wait().__await__()
        result.raise_if_failed()
        return result

    async def wait(self) -> Result[AnswerT_co]:
        """Wait for the end and return the result, even if the agent failed or was stopped."""
        self._session.require_own_loop()
        run = self._find_run()
        # Closed, not only ended: the work in its worktree belongs to the result.
        await run.wait_until_closed()
        assert run.completion is not None
        return build_agent_result(run.completion, self._session.find_agent_cost(run.id), self._output)

    @check_keywords("handle.send()")
    async def send(self, text: str) -> None:
        """Send a message. A running agent gets it at its next step; an ended agent is resumed with it."""
        self._session.require_open()
        check_text("handle.send()", "text", text)
        self._session.workflows.agents.refuse_start()
        await self._session.supervisor.send_user_message(self.id, text)

    @check_keywords("handle.stop()")
    async def stop(self, reason: str = STOPPED_BY_PROGRAM) -> Result[AnswerT_co]:
        """Stop the agent, if it is running, and return its result."""
        self._session.require_own_loop()
        check_text("handle.stop()", "reason", reason)
        await self._session.supervisor.stop_run_if_running(self._find_run(), reason)
        return await self.wait()

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the agent from now on; the last one is `AgentEnded`."""
        self._session.require_own_loop()
        if self._find_run().completion is not None:
            return
        channel = EventChannel()
        agent = self._run.id

        def put_event(event: Event) -> None:
            if event.agent == agent:
                channel.force_put(event)

        unsubscribe = self._session.subscribe(put_event)
        try:
            while (event := await channel.get()) is not None:
                yield event
                if isinstance(event, AgentEnded):
                    return
        finally:
            unsubscribe()

    def _find_run(self) -> AgentRun:
        """Return the latest run: a message resumes an ended agent in another one."""
        return self._session.supervisor.find_latest_run(self._run)
