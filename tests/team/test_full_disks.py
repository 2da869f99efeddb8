"""A team on a disk that is full for a while: the limit on file sizes stands in for it."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shoal
from cast import all_turns, use
from shoal.core.errors import StoreError
from shoal.core.events import TaskChanged
from shoal.core.mail import Mail
from shoal.core.names import AgentName
from shoal.core.tasks import Change, Draft
from shoal.stores.files.journal import read_journal
from troupe import config, home, member, opened, troupe

CREATE = use("TeamCreate", team_name="crew")


def journal_of(session: shoal.Session) -> Path:
    return home() / "shoal" / "runs" / session.agent.identity.session / "journal.jsonl"


@contextmanager
def full_journal(session: shoal.Session, room: int = 0) -> Iterator[None]:
    """No more bytes can be added to the journal; smaller files can be written."""
    journal = journal_of(session)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + room, limits[1]))
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


@pytest.mark.spec("USR-12", "TRN-02")
async def test_one_that_cannot_be_taken_up_stays_in_the_team_until_that_can_be_told(tmp_path: Path) -> None:
    model = troupe(lead=[CREATE, member("ann"), "wait", "end", "end"], ann=["ready"])
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
    (transcript,) = home().glob("projects/*/*/subagents/agent-ann@crew.jsonl")
    transcript.unlink()
    transcript.with_suffix(".meta.json").unlink()
    # Room for the start of the session and a note, and not for the end of a member.
    room = len(journal_of(session).read_bytes().splitlines()[0]) + 450
    with full_journal(session, room), pytest.raises(StoreError):
        async with opened(tmp_path, model, resume=session.id):
            pass
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead", "ann"]
    async with opened(tmp_path, model, resume=session.id) as session, asyncio.timeout(20):
        await all_turns(session)
        told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert told.count("teammate_terminated: task ann@crew") == 1
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


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
