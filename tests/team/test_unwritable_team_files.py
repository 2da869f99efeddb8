"""Inboxes and boards that temporarily cannot be read or written."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from foreign_mail import join_notes
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import StateFileError
from shoal.core.events import NoteAdded
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.permissions.questions import AllowAnswer
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.team.mail.mail_pump import MailPump
from team_scripts import (
    get_home,
    get_last_result,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

CREATE = call_tool("TeamCreate", team_name="crew")
ASK = call_tool("SendMessage", to="ann", message={"type": "shutdown_request", "reason": "we are done"})


@contextmanager
def block_file(file: Path) -> Iterator[None]:
    """Replace the file, if it exists, with a directory for a while."""
    aside = file.with_name(f"{file.name}.aside")
    if existed := file.exists():
        file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        if existed:
            aside.rename(file)


def get_inbox_path(name: str) -> Path:
    return get_home() / "teams" / "crew" / "inboxes" / f"{name}.json"


def get_staged_inbox_path(name: str) -> Path:
    """Return the file that the next content of the inbox is written to."""
    return get_home() / "shoal" / "teams" / "crew" / "staging" / f"{name}.json"


async def wait_for_note(session: shoal.Session, words: str) -> None:
    """Wait for a note with this text."""
    heard = asyncio.Event()

    def hear(event: Any) -> None:
        if isinstance(event, NoteAdded) and words in event.text:
            heard.set()

    session.subscribe(hear)
    async with asyncio.timeout(10):
        await heard.wait()


@pytest.mark.spec("PPR-01")
async def test_an_answer_that_cannot_be_written_is_retried(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait", "end"],
        ann=[call_tool("Write", "w1", file_path="a.txt", content="one"), "wrote"],
    )

    async def answer(session: shoal.Session) -> None:
        async for question in session.runtime.question_broker.watch_questions():
            with block_file(get_staged_inbox_path("ann")):
                waits = asyncio.create_task(wait_for_note(session, "The answer to ann is delayed"))
                await asyncio.sleep(0)
                session.runtime.question_broker.submit_answer(question.id, AllowAnswer())
                await waits
            break

    options = {"skip_permissions": False, "attended": True}
    async with (
        open_session(tmp_path, model, **options) as session,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(answer(session))
        await run_all_turns(session)
    assert (tmp_path / "a.txt").read_text() == "one"


@pytest.mark.spec("PPR-01")
async def test_a_session_wide_answer_applies_before_the_member_gets_it(
    tmp_path: Path,
) -> None:
    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait", "end"],
        ann=[call_tool("Bash", "b1", command="git init -q inner"), "done"],
    )

    async def answer(session: shoal.Session) -> None:
        question = await anext(session.runtime.question_broker.watch_questions())
        with block_file(get_staged_inbox_path("ann")):
            waits = asyncio.create_task(wait_for_note(session, "The answer to ann is delayed"))
            await asyncio.sleep(0)
            session.runtime.question_broker.submit_answer(question.id, AllowAnswer(remember="session"))
            await waits
            (update,) = session.runtime.lead.permissions.answers.updates
            assert "git init" in str(update)

    options = {"skip_permissions": False, "attended": True}
    async with (
        open_session(tmp_path, model, **options) as session,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(answer(session))
        await run_all_turns(session)
        assert len(session.runtime.lead.permissions.answers.updates) == 1
    assert (tmp_path / "inner/.git").is_dir()


@pytest.mark.spec("LIF-03")
async def test_a_new_member_does_not_get_the_shutdown_request_of_its_predecessor(tmp_path: Path) -> None:
    gate = ToolGate()
    heard: list[str] = []

    def listen(request: ModelRequest) -> str:
        heard.extend(message.text for message in request.messages)
        return "I begin"

    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            call_tool("Until"),
            ASK,
            "asked",
            "gone",
            spawn_member("ann", "Anew."),
            "wait",
            "end",
        ],
        ann=[lambda request: listen(request) if "Anew." in str(request.messages) else call_tool("Gate")],
    )
    settings = '{"shoal": {"shutdown_grace": 0.2}}'
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], settings=settings) as session:
        async with asyncio.timeout(20):
            await run_all_turns(session)
            await run_all_turns(session, "Go on.")
        assert [each.name for each in session.teams.list_members()] == ["ann"]
        assert all(each["read"] for each in read_inbox("crew", "ann"))
    assert "Anew." in "\n".join(heard)
    assert "asks you to shut down" not in "\n".join(heard)


@pytest.mark.spec("LIF-04")
async def test_an_ended_member_leaves_the_roster_though_the_board_cannot_be_written(
    tmp_path: Path,
) -> None:
    model = script_team(
        lead=[
            CREATE,
            call_tool("TaskCreate", subject="saw", description="d"),
            spawn_member("ann"),
            "wait",
            "end",
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="in_progress"), "ready"],
    )
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        with block_file(get_home() / "shoal" / "tasks" / "crew" / "staging" / "slot-1.json"):
            assert await session.teams.end_member("ann", "the user wants it so")
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert "ann could not be cleaned up completely" in join_notes(read_events(session))


async def test_a_member_without_inbox_is_not_in_the_roster(tmp_path: Path) -> None:
    def block_and_spawn(request: ModelRequest) -> Any:
        (get_home() / "shoal" / "teams" / "crew" / "foreign" / "ann").mkdir(parents=True)
        return spawn_member("ann")

    model = script_team(lead=[CREATE, block_and_spawn, get_last_result], ann=["ready"])
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        assert session.teams.list_members() == ()
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


async def test_a_member_that_did_not_start_leaves_the_roster_once_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, roster_writes = os.write, 0

    def fail_second_roster_write(fd: int, content: bytes) -> int:
        nonlocal roster_writes
        if Path(f"/proc/self/fd/{fd}").readlink().name == "roster.staged":
            roster_writes += 1
            if roster_writes == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, content)

    def block_and_spawn(request: ModelRequest) -> Any:
        (get_home() / "shoal" / "teams" / "crew" / "foreign" / "ann").mkdir(parents=True)
        monkeypatch.setattr(os, "write", fail_second_roster_write)
        return spawn_member("ann")

    model = script_team(
        lead=[CREATE, block_and_spawn, send_message("ann", "Are you there?"), get_last_result]
    )
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann"]
        answer = await run_all_turns(session, "Ask ann.")
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert "There is no agent 'ann'" in answer
    assert "ann did not start and is still in the roster" in join_notes(read_events(session))


async def test_mail_that_could_not_be_delivered_is_delivered_again(tmp_path: Path) -> None:
    ann = AgentName("ann")
    boxes = FileMailboxStore(tmp_path, TeamName("crew"), clock=SystemClock(), ids=IdGenerator())
    reports: list[str] = []
    room = MailPump(boxes, SystemClock(), reports.append)
    tries: list[str] = []
    done = asyncio.Event()

    async def bring(mail: MailMessage) -> bool:
        tries.append(mail.id)
        if len(tries) == 1:
            raise StateFileError("no room", path=tmp_path)
        done.set()
        return True

    await boxes.open_inbox(ann)
    mail = MailMessage(id="m-1", sender=AgentName("bob"), text="hello", timestamp="2026-01-01T00:00:00.000Z")
    await boxes.post(ann, mail)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        pump = tasks.create_task(room.pump_inbox(ann, bring))
        await done.wait()
        pump.cancel()
    assert tries == ["m-1", "m-1"]
    assert reports == ["Mail for ann is delayed: no room"]
    await boxes.aclose()
