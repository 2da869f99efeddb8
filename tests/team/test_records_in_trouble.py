"""Inboxes and boards that cannot be read or written for a while, while members ask, answer and end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, all_turns, recorded, use
from foreign_mail import notes
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.events import Noted
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.core.questions import Allowed
from shoal.core.requests import Request
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.team.mailroom import Mailroom
from troupe import config, home, inbox, last_result, member, opened, troupe

CREATE = use("TeamCreate", team_name="crew")
ASK = use("SendMessage", to="ann", message={"type": "shutdown_request", "reason": "we are done"})


@contextmanager
def in_the_way(file: Path) -> Iterator[None]:
    """A directory stands where the file was."""
    aside = file.with_name(f"{file.name}.aside")
    file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        aside.rename(file)


def inbox_file(name: str) -> Path:
    return home() / "teams" / "crew" / "inboxes" / f"{name}.json"


async def noted(session: shoal.Session, words: str) -> None:
    """Until a note says so."""
    heard = asyncio.Event()

    def hear(event: Any) -> None:
        if isinstance(event, Noted) and words in event.text:
            heard.set()

    session.watch(hear)
    async with asyncio.timeout(10):
        await heard.wait()


@pytest.mark.spec("PPR-01")
async def test_an_answer_that_cannot_be_written_is_not_lost_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    model = troupe(
        lead=[CREATE, member("ann"), "wait", "end"],
        ann=[use("Write", "w1", file_path="a.txt", content="one"), "wrote"],
    )

    async def answer(session: shoal.Session) -> None:
        async for question in session.parts.desk.incoming():
            with in_the_way(inbox_file("ann")):
                waits = asyncio.create_task(noted(session, "The answer to ann waits"))
                await asyncio.sleep(0)
                session.parts.desk.answer(question.id, Allowed())
                await waits
            break

    options = {"skip_permissions": False, "attended": True}
    async with (
        opened(tmp_path, model, **options) as session,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(answer(session))
        await all_turns(session)
    assert (tmp_path / "a.txt").read_text() == "one"


@pytest.mark.spec("PPR-01")
async def test_what_is_allowed_for_the_session_holds_for_all_before_who_asked_hears_of_it(
    tmp_path: Path,
) -> None:
    model = troupe(
        lead=[CREATE, member("ann"), "wait", "end"],
        ann=[use("Bash", "b1", command="git init -q ."), "done"],
    )

    async def answer(session: shoal.Session) -> None:
        question = await anext(session.parts.desk.incoming())
        with in_the_way(inbox_file("ann")):
            waits = asyncio.create_task(noted(session, "The answer to ann waits"))
            await asyncio.sleep(0)
            session.parts.desk.answer(question.id, Allowed(remember="session"))
            await waits
            (update,) = session.parts.permissions.answers.updates
            assert "git init" in str(update)

    options = {"skip_permissions": False, "attended": True}
    async with (
        opened(tmp_path, model, **options) as session,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(answer(session))
        await all_turns(session)
        assert len(session.parts.permissions.answers.updates) == 1
    assert (tmp_path / ".git").is_dir()


@pytest.mark.spec("LIF-03")
async def test_who_takes_an_old_name_is_not_asked_to_end_for_the_one_that_had_it(tmp_path: Path) -> None:
    gate = Gate()
    heard: list[str] = []

    def listen(request: Request) -> str:
        heard.extend(message.text for message in request.messages)
        return "I begin"

    model = troupe(
        lead=[
            CREATE,
            member("ann"),
            use("Until"),
            ASK,
            "asked",
            "gone",
            member("ann", "Anew."),
            "wait",
            "end",
        ],
        ann=[lambda request: listen(request) if "Anew." in str(request.messages) else use("Gate")],
    )
    settings = '{"shoal": {"shutdown_grace": 0.2}}'
    async with opened(tmp_path, model, tools=[gate.tool, gate.until], settings=settings) as session:
        async with asyncio.timeout(20):
            await all_turns(session)
            await all_turns(session, "Go on.")
        assert [each.name for each in session.parts.teams.members()] == ["ann"]
        assert all(each["read"] for each in inbox("crew", "ann"))
    assert "Anew." in "\n".join(heard)
    assert "asks you to shut down" not in "\n".join(heard)


@pytest.mark.spec("LIF-04")
async def test_a_board_that_cannot_be_changed_does_not_keep_one_that_ended_in_the_roster(
    tmp_path: Path,
) -> None:
    model = troupe(
        lead=[CREATE, use("TaskCreate", subject="saw", description="d"), member("ann"), "wait", "end"],
        ann=[use("TaskUpdate", taskId="1", status="in_progress"), "ready"],
    )
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
        with in_the_way(home() / "shoal" / "tasks" / "crew" / "staging" / "slot-1.json"):
            assert await session.parts.teams.end("ann", "the person wants it so")
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]
    assert "Not everything of ann could be put away" in notes(recorded(session))


async def test_one_that_gets_no_inbox_is_not_in_the_roster(tmp_path: Path) -> None:
    def blocked(request: Request) -> Any:
        (home() / "shoal" / "teams" / "crew" / "foreign" / "ann").mkdir(parents=True)
        return member("ann")

    model = troupe(lead=[CREATE, blocked, last_result], ann=["ready"])
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
        assert session.parts.teams.members() == ()
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


async def test_mail_that_could_not_be_brought_is_brought_again(tmp_path: Path) -> None:
    ann = AgentName("ann")
    boxes = FileMailboxes(tmp_path, TeamName("crew"), clock=SystemClock(), ids=Ids())
    reports: list[str] = []
    room = Mailroom(boxes, SystemClock(), reports.append)
    tries: list[str] = []
    done = asyncio.Event()

    async def bring(mail: Mail) -> bool:
        tries.append(mail.id)
        if len(tries) == 1:
            raise StoreError("no room", path=tmp_path)
        done.set()
        return True

    await boxes.open(ann)
    mail = Mail(id="m-1", sender=AgentName("bob"), text="hello", timestamp="2026-01-01T00:00:00.000Z")
    await boxes.post(ann, mail)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        pump = tasks.create_task(room.pump(ann, bring))
        await done.wait()
        pump.cancel()
    assert tries == ["m-1", "m-1"]
    assert reports == ["The mail of ann waits: no room"]
    await boxes.aclose()
