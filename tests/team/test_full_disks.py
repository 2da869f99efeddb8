"""A team on a disk that is full for a while: the limit on file sizes stands in for it."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import shoal
from cast import all_turns, use
from shoal.core.events import TaskChanged
from shoal.core.mail import Mail
from shoal.core.names import AgentName
from shoal.core.tasks import Change, Draft
from shoal.stores.files.journal import read_journal
from troupe import config, home, member, opened, troupe

CREATE = use("TeamCreate", team_name="crew")


@contextmanager
def full_journal(session: shoal.Session) -> Iterator[None]:
    """Nothing can be added to the journal; smaller files can be written."""
    journal = home() / "shoal" / "runs" / session.agent.identity.session / "journal.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)


async def test_the_end_of_a_member_on_a_full_disk_ends_nobody_else_and_is_told(tmp_path: Path) -> None:
    model = troupe(lead=[CREATE, [member("ann"), member("bob")], "wait", "end"], ann=["ready"], bob=["ready"])
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
        with full_journal(session):
            assert await session.parts.teams.end("ann", "the person wants it so")
            assert [each.name for each in session.parts.teams.members()] == ["bob"]
            await session.parts.teams.quiet()
        await all_turns(session)
        told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert "the person wants it so" in told
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead", "bob"]


async def test_mail_and_tasks_stand_though_the_journal_has_no_room_to_tell_of_them(tmp_path: Path) -> None:
    model = troupe(lead=[CREATE, member("ann"), "wait"], ann=["ready"])
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
        board = session.parts.between.board("crew")
        with full_journal(session):
            boxes = session.parts.between.mailboxes("crew")
            mail = Mail(id="m-1", sender=AgentName("bob"), text="hello", timestamp="2026-01-01T00:00:00.000Z")
            receipt = await boxes.post(AgentName("team-lead"), mail)
            task = await board.create(Draft(subject="dig", description=""))
            await board.update(task.id, Change(owner=AgentName("bob")), by=AgentName("bob"))
        await board.update(task.id, Change(subject="dig deep"), by=AgentName("bob"))
        history = await boxes.history(AgentName("team-lead"))
        await session.parts.teams.quiet()
    assert receipt.id == "m-1"
    assert [each.text for each in history if each.id == "m-1"] == ["hello"]
    journal = home() / "shoal" / "runs" / session.id / "journal.jsonl"
    told = [each.event for each in read_journal(journal) if isinstance(each.event, TaskChanged)]
    assert [(each.subject, each.owner) for each in told] == [("dig deep", "bob")]
