"""Writes the journal of a busy team from another process, at a given rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    AssistantSaid,
    Journaled,
    MailPosted,
    RequestSent,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    ToolStarted,
)
from shoal.core.ids import LEAD, AgentId, EntryId, RequestId, SessionId
from shoal.core.usage import Usage
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.locks import SessionLock
from shoal.stores.files.places import journal_path

_TICK = 0.01
"""Seconds between two bursts; within one, members write one after the other."""
_TEAM, _MODEL = "crew", "claude-sonnet-4-5"


def main(home: Path, session: SessionId, members: int, each: int, seconds: float) -> None:
    """Write events; the run is live until the last one is written."""
    lock = SessionLock(home, session)
    journal = FileJournal(journal_path(home, session), SystemClock())
    agents = [AgentId(f"member-{number}@{_TEAM}") for number in range(members)]
    for event in _begun(session, agents):
        journal.append(event)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.readline()
    minds = [_work(agent, number) for number, agent in enumerate(agents)]
    turn = cycle(minds)
    start, written, total = time.monotonic(), 0, round(members * each * seconds)
    while written < total:
        due = min(total, round((time.monotonic() - start) * members * each))
        while written < due:
            journal.append(next(next(turn)))
            written += 1
        time.sleep(_TICK)
    took = time.monotonic() - start
    journal.append(SessionEnded(agent=LEAD))
    journal.close()
    lock.release()
    sys.stdout.write(f"{written / took}\n")


def _begun(session: SessionId, agents: list[AgentId]) -> Iterator[Journaled]:
    yield SessionStarted(agent=LEAD, session=session, cwd="/", model=_MODEL, mode="default", tools=())
    for agent in agents:
        yield AgentStarted(
            agent=agent,
            kind="general-purpose",
            name=agent.partition("@")[0],
            description="work on the board",
            parent=LEAD,
            call="c",
            depth=1,
            model=_MODEL,
            mode="default",
            background=False,
            cwd="/",
            team=_TEAM,
        )


def _work(agent: AgentId, number: int) -> Iterator[Journaled]:
    """Generate events of a working member: a request, calls, a mail message, a task, repeatedly."""
    name, usage = agent.partition("@")[0], Usage(input_tokens=2_000, output_tokens=150)
    for step in cycle(range(1_000)):
        request = RequestId(f"req-{number}-{step}")
        yield RequestSent(agent=agent, request=request, model=_MODEL)
        yield RequestSettled(
            agent=agent, request=request, model=_MODEL, usage=usage, cost_usd=0.01, duration_ms=900
        )
        yield AssistantSaid(agent=agent, entry=EntryId(f"e{step}"), preview="I look at it.", tool_uses=2)
        for call in ("read", "write"):
            yield ToolStarted(agent=agent, call=f"{call}-{step}", tool="Bash", preview=f"make {call}-{step}")
            yield ToolFinished(
                agent=agent,
                call=f"{call}-{step}",
                tool="Bash",
                is_error=False,
                size=400,
                duration_ms=30,
                preview="ok " * 60,
            )
        if step % 5 == 0:
            yield MailPosted(
                agent=LEAD,
                team=_TEAM,
                mail=f"{number}-{step}",
                sender=name,
                to="team-lead",
                kind="message",
                preview="It is done as you asked. " * 6,
            )
            yield TaskChanged(
                agent=LEAD,
                board=_TEAM,
                task=str(number + 1),
                subject="a task",
                status="in_progress",
                owner=name,
            )


if __name__ == "__main__":
    place, run, members, each, seconds = sys.argv[1:]
    main(Path(place), SessionId(run), int(members), int(each), float(seconds))
