"""Files that another program is writing in place, slowly and without a lock: they are not judged at once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.teams.file_roster_store import FileRosterStore

WRITER = Path(__file__).with_name("slow_writer.py")
TEAM, ANN, TASK = TeamName("crew"), AgentName("ann"), TaskId("1")
LOOK_SECONDS = 0.3
"""Time in which a reader that judges a file at once has done so."""

reports: list[str] = []


@pytest.fixture
async def store(home: Path) -> AsyncIterator[TeamStore]:
    reports.clear()
    store = TeamStore(home, clock=SystemClock(), ids=IdGenerator(), report=reports.append)
    lead = NewMember(name="team-lead", agent_type="lead", model="m", cwd="/", prompt="")
    await store.rosters.create_team(TEAM, lead=lead, session="s", description=None)
    member = NewMember(name=ANN, agent_type="worker", model="m", cwd="/", prompt="Begin.")
    await store.add_member(TEAM, member)
    await store.open_board(TEAM).create(TaskDraft(subject="Dig", description=""))
    yield store
    await store.aclose()


async def write_slowly_during(path: Path, text: str, read: Callable[[], Awaitable[Any]]) -> Any:
    """Start the read while the file is empty, and finish the write only when the read waits."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), str(path), text, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"truncated\n"
        reading = asyncio.ensure_future(read())
        await asyncio.wait([reading], timeout=LOOK_SECONDS)
        process.stdin.write(b"\n")
        assert await process.stdout.readline() == b"half\n"
        await asyncio.wait([reading], timeout=LOOK_SECONDS)
        process.stdin.write(b"\n")
        assert await process.wait() == 0
        return await reading


def check_that_nothing_was_judged(home: Path) -> None:
    assert reports == []
    assert list(home.rglob("*.corrupt*")) == []


@pytest.mark.slow
@pytest.mark.spec("LIM-12", "HOM-05")
async def test_a_roster_in_a_slow_write_is_read_when_it_is_complete(store: TeamStore, home: Path) -> None:
    path = home / "teams" / TEAM / "config.json"
    roster = json.loads(path.read_text())

    def add_member(name: str) -> str:
        roster["members"].append({"agentId": f"{name}@crew", "name": name, "agentType": "w", "model": "m"})
        return json.dumps(roster)

    found = await write_slowly_during(path, add_member("codex"), lambda: store.rosters.read_team_roster(TEAM))
    assert [member.name for member in found.members] == ["team-lead", "ann", "codex"]
    view = FileRosterStore(home, clock=SystemClock(), report_problem=reports.append, read_only=True)
    seen = await write_slowly_during(path, add_member("bob"), lambda: view.read_team_roster(TEAM))
    assert [member.name for member in seen.members] == ["team-lead", "ann", "codex", "bob"]
    await write_slowly_during(
        path, add_member("eve"), lambda: store.rosters.update_member(TEAM, ANN, is_active=False)
    )
    after = json.loads(path.read_text())["members"]
    assert [member["name"] for member in after] == ["team-lead", "ann", "codex", "bob", "eve"]
    assert after[1]["isActive"] is False
    check_that_nothing_was_judged(home)


@pytest.mark.spec("LIM-12", "BOX-04")
async def test_mail_for_an_inbox_in_a_slow_write_is_added_when_it_is_complete(
    store: TeamStore, home: Path
) -> None:
    path = home / "teams" / TEAM / "inboxes" / "ann.json"
    mailboxes = store.open_mailboxes(TEAM)
    foreign = {"from": "bob", "text": "From another program.", "timestamp": "1", "read": False}
    content = json.dumps([*json.loads(path.read_text()), foreign])
    mail = MailMessage(id="m1", sender=AgentName("bob"), text="From Shoal.", timestamp="2")
    await write_slowly_during(path, content, lambda: store.post_mail(TEAM, ANN, mail))
    texts = ["Begin.", "From another program.", "From Shoal."]
    assert [each.text for each in await mailboxes.take_unread(ANN)] == texts
    content = json.dumps([*json.loads(path.read_text()), {**foreign, "text": "Again."}])
    taken = await write_slowly_during(path, content, lambda: mailboxes.take_unread(ANN))
    assert [each.text for each in taken] == [*texts, "Again."]
    check_that_nothing_was_judged(home)


@pytest.mark.spec("LIM-12", "TSK-12")
@pytest.mark.parametrize(
    ("change", "is_known"),
    [(change, known) for change in ("get", "update", "claim", "delete") for known in (True, False)]
    + [("release", True)],  # a new board does not know yet whose task it is
)
async def test_a_task_in_a_slow_write_is_changed_when_it_is_complete(
    store: TeamStore, home: Path, change: str, is_known: bool
) -> None:
    path = home / "tasks" / TEAM / "1.json"
    board = store.open_board(TEAM)
    if change == "release":
        await board.claim(TASK, by=ANN)
    content = json.dumps({**json.loads(path.read_text()), "foreign": 1})
    if not is_known:
        board = FileTaskBoard(
            home, TEAM, clock=SystemClock(), ids=IdGenerator(), report_problem=reports.append
        )
    changes: dict[str, Callable[[], Awaitable[Any]]] = {
        "get": lambda: board.get(TASK),
        "update": lambda: board.update(TASK, TaskUpdate(description="new"), by=ANN),
        "claim": lambda: board.claim(TASK, by=ANN),
        "delete": lambda: board.delete(TASK),
        "release": lambda: board.release_owner_tasks(ANN),
    }
    await write_slowly_during(path, content, changes[change])
    if change == "delete":
        assert not path.exists()
    else:
        stored = json.loads(path.read_text())
        assert stored["foreign"] == 1
        expected = {"update": ("pending", "new"), "claim": ("in_progress", "")}.get(change, ("pending", ""))
        assert (stored["status"], stored["description"]) == expected
    check_that_nothing_was_judged(home)
    if not is_known:
        await board.aclose()
