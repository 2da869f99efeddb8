"""Writes the journal of a busy team from another process, at a given rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    AssistantReplied,
    JournaledEvent,
    MailPosted,
    ModelRequestSent,
    ModelRequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, RequestId, SessionId
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal

_TICK = 0.01
"""Seconds between two bursts; within one, members write one after the other."""
_TEAM, _MODEL = "crew", "claude-sonnet-4-5"


def main(home: Path, session: SessionId, members: int, each: int, seconds: float) -> None:
    """Write events; the run is live until the last one is written."""
    lock = SessionLock(home, session)
    journal = FileJournal(get_journal_path(home, session), SystemClock())
    agents = [AgentId(f"member-{number}@{_TEAM}") for number in range(members)]
    for event in _generate_start_events(session, agents):
        journal.append(event)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.readline()
    generators = [_generate_work_events(agent, number) for number, agent in enumerate(agents)]
    turn = cycle(generators)
    start, written, total = time.monotonic(), 0, round(members * each * seconds)
    while written < total:
        due = min(total, round((time.monotonic() - start) * members * each))
        while written < due:
            journal.append(next(next(turn)))
            written += 1
        time.sleep(_TICK)
    elapsed = time.monotonic() - start
    journal.append(SessionEnded(agent=LEAD_ID))
    journal.close()
    lock.release()
    sys.stdout.write(f"{written / elapsed}\n")


def _generate_start_events(session: SessionId, agents: list[AgentId]) -> Iterator[JournaledEvent]:
    yield SessionStarted(agent=LEAD_ID, session=session, cwd="/", model=_MODEL, mode="default", tools=())
    for agent in agents:
        yield AgentStarted(
            agent=agent,
            kind="general-purpose",
            name=agent.partition("@")[0],
            description="work on the board",
            parent=LEAD_ID,
            call="c",
            depth=1,
            model=_MODEL,
            mode="default",
            background=False,
            cwd="/",
            team=_TEAM,
        )


def _generate_work_events(agent: AgentId, number: int) -> Iterator[JournaledEvent]:
    """Generate events of a working member: a request, calls, a mail message, a task, repeatedly."""
    name, usage = agent.partition("@")[0], Usage(input_tokens=2_000, output_tokens=150)
    for step in cycle(range(1_000)):
        request = RequestId(f"req-{number}-{step}")
        yield ModelRequestSent(agent=agent, request=request, model=_MODEL)
        yield ModelRequestSettled(
            agent=agent, request=request, model=_MODEL, usage=usage, cost_usd=0.01, duration_ms=900
        )
        yield AssistantReplied(agent=agent, entry=EntryId(f"e{step}"), preview="I look at it.", tool_uses=2)
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
                agent=LEAD_ID,
                team=_TEAM,
                mail=f"{number}-{step}",
                sender=name,
                to="team-lead",
                kind="message",
                preview="It is done as you asked. " * 6,
            )
            yield TaskChanged(
                agent=LEAD_ID,
                board=_TEAM,
                task=str(number + 1),
                subject="a task",
                status="in_progress",
                owner=name,
            )


if __name__ == "__main__":
    place, run, members, each, seconds = sys.argv[1:]
    main(Path(place), SessionId(run), int(members), int(each), float(seconds))
