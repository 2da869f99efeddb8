"""A team on a temporarily full disk, simulated by the limit on file sizes."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from shoal.core.errors import StateFileError
from shoal.core.events import TaskChanged
from shoal.core.names import AgentName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.sessions.file_journal import read_journal
from team_scripts import get_home, open_session, read_team_config, script_team, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


def get_journal_path(session: shoal.Session) -> Path:
    return get_home() / "shoal" / "runs" / session.agent.identity.session / "journal.jsonl"


@contextmanager
def fill_journal(session: shoal.Session, room: int = 0) -> Iterator[None]:
    """Make appends to the journal fail; smaller files can still be written."""
    journal = get_journal_path(session)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)


async def test_ending_a_member_on_a_full_disk_is_reported_and_affects_no_other_member(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREATE, [spawn_member("ann"), spawn_member("bob")], "wait", "end"], ann=["ready"], bob=["ready"]
    )
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        with fill_journal(session):
            assert await session.teams.end_member("ann", "the user wants it so")
            assert [each.name for each in session.teams.list_members()] == ["bob"]
            await session.teams.wait_until_idle()
        await run_all_turns(session)
        told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert "the user wants it so" in told
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "bob"]


@pytest.mark.spec("USR-12", "TRN-02")
async def test_a_member_that_cannot_be_resumed_stays_in_the_roster_until_that_is_recorded(
    tmp_path: Path,
) -> None:
    model = script_team(lead=[CREATE, spawn_member("ann"), "wait", "end", "end"], ann=["ready"])
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
    (transcript,) = get_home().glob("projects/*/*/subagents/agent-ann@crew.jsonl")
    transcript.unlink()
    transcript.with_suffix(".meta.json").unlink()
    # Room for the start of the session and a note, and not for the end of a member.
    room = len(get_journal_path(session).read_bytes().splitlines()[0]) + 450
    with fill_journal(session, room), pytest.raises(StateFileError):
        async with open_session(tmp_path, model, resume=session.id):
            pass
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann"]
    async with open_session(tmp_path, model, resume=session.id) as session, asyncio.timeout(20):
        await run_all_turns(session)
        told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert told.count("teammate_terminated: task ann@crew") == 1
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


async def test_mail_and_tasks_are_stored_when_the_journal_is_full(tmp_path: Path) -> None:
    model = script_team(lead=[CREATE, spawn_member("ann"), "wait"], ann=["ready"])
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        board = session.runtime.team_store.open_board("crew")
        with fill_journal(session):
            boxes = session.runtime.team_store.open_mailboxes("crew")
            mail = MailMessage(
                id="m-1", sender=AgentName("bob"), text="hello", timestamp="2026-01-01T00:00:00.000Z"
            )
            receipt = await boxes.post(AgentName("team-lead"), mail)
            task = await board.create(TaskDraft(subject="dig", description=""))
            await board.update(task.id, TaskUpdate(owner=AgentName("bob")), by=AgentName("bob"))
        await board.update(task.id, TaskUpdate(subject="dig deep"), by=AgentName("bob"))
        history = await boxes.read_history(AgentName("team-lead"))
        await session.teams.wait_until_idle()
    assert receipt.id == "m-1"
    assert [each.text for each in history if each.id == "m-1"] == ["hello"]
    journal = get_home() / "shoal" / "runs" / session.id / "journal.jsonl"
    told = [each.event for each in read_journal(journal) if isinstance(each.event, TaskChanged)]
    assert [(each.subject, each.owner) for each in told] == [("dig deep", "bob")]
