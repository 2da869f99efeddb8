"""The task tools on a real board, and in a real session."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.events import ToolOutputReturned
from shoal.core.identity import AgentIdentity
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.messages import ToolUseBlock
from shoal.core.roster import NewMember
from shoal.core.tasks import TaskUpdate
from shoal.core.tools import ToolContext, ToolOutput
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.task_tools import build_task_tools


class Room:
    """Agents of one team, each with a site of its own, on one record."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
        tools = build_task_tools(self.record.open_agent_board, self.record.notify_assigned)
        self.tools = {tool.schema.name: tool for tool in tools}
        self.board = self.record.open_board("roof")

    def site(self, name: str) -> ToolContext:
        lead = name == "team-lead"
        agent = AgentIdentity(
            session=SessionId("s"), agent=LEAD_ID if lead else AgentId(f"{name}@roof"), name=name, team="roof"
        )
        absent: Any = None
        return ToolContext(
            call_id="c",
            agent=agent,
            workspace=absent,
            processes=absent,
            question_broker=absent,
            results=absent,
            clock=SystemClock(),
            ids=IdGenerator(2),
            report_progress=absent,
            env={},
        )

    async def call(self, tool: str, by: str = "alice", **arguments: Any) -> ToolOutput:
        return await self.tools[tool].run(arguments, self.site(by))

    async def text(self, tool: str, by: str = "alice", **arguments: Any) -> str:
        outcome = await self.call(tool, by, **arguments)
        assert not outcome.is_error, outcome.content
        return str(outcome.content)

    async def failure(self, tool: str, by: str = "alice", **arguments: Any) -> str:
        outcome = await self.call(tool, by, **arguments)
        assert outcome.is_error, outcome.content
        return str(outcome.content)

    async def fill(self, count: int) -> None:
        for number in range(1, count + 1):
            await self.text("TaskCreate", subject=f"Task {number}", description=f"Do {number}.")

    async def member(self, name: str) -> None:
        newcomer = NewMember(name=name, agent_type="general", model="m", cwd="/", prompt="work")
        await self.record.rosters.add_member("roof", newcomer)
        await self.record.open_mailboxes("roof").open_inbox(name)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path / "home")
    lead = NewMember(name="x", agent_type="general", model="m", cwd="/", prompt="")
    await room.record.rosters.create_team("roof", lead=lead, session="s", description=None)
    yield room
    await room.record.aclose()


@pytest.mark.spec("TSK-01")
def test_the_inputs_have_the_names_that_models_know(room: Room) -> None:
    inputs = {name: tool.schema.input_schema for name, tool in room.tools.items()}
    properties = {name: set(schema.get("properties", {})) for name, schema in inputs.items()}
    assert properties == {
        "TaskCreate": {"subject", "description", "activeForm", "metadata"},
        "TaskGet": {"taskId"},
        "TaskList": set(),
        "TaskUpdate": {
            "taskId",
            "subject",
            "description",
            "activeForm",
            "status",
            "addBlocks",
            "addBlockedBy",
            "owner",
            "metadata",
        },
    }
    required = {name: set(schema.get("required", ())) for name, schema in inputs.items()}
    assert required["TaskCreate"] == {"subject", "description"}
    assert required["TaskGet"] == required["TaskUpdate"] == {"taskId"}
    assert {name for name, tool in room.tools.items() if tool.is_read_only} == {"TaskGet", "TaskList"}


@pytest.mark.spec("TSK-01", "TSK-10")
async def test_a_task_is_made_read_listed_and_changed(room: Room) -> None:
    await room.text("TaskCreate", subject="One", description="All of it", metadata={"a": 1, "b": 2})
    await room.text("TaskUpdate", taskId="1", metadata={"a": None, "c": [3]}, subject="First")
    assert "All of it" in await room.text("TaskGet", taskId="1")
    listed = await room.call("TaskList")
    assert listed.content == "#1 pending: First"
    assert listed.data is not None
    assert listed.data["tasks"][0]["metadata"] == {"b": 2, "c": [3]}
    assert "nothing" in (await room.failure("TaskUpdate", taskId="1")).lower()


@pytest.mark.spec("TSK-01")
async def test_every_input_of_the_tools_is_in_the_file_and_in_what_they_answer(room: Room) -> None:
    await room.fill(2)
    given = {"subject": "Mend", "description": "The roof", "activeForm": "Mending", "metadata": {"a": 1}}
    made = await room.call("TaskCreate", **given)
    new = {"id": "3", **given, "status": "pending", "blocks": [], "blockedBy": []}
    assert made.data == {"task": new} == (await room.call("TaskGet", taskId="3")).data
    changes = {"subject": "Paint", "description": "The door", "activeForm": "Painting"}
    await room.text("TaskUpdate", taskId="3", **changes, addBlocks=["1"], addBlockedBy=["2"], owner="bob")
    path = room.home / "tasks" / "roof" / "3.json"
    changed = {**new, **changes, "owner": "bob", "blocks": ["1"], "blockedBy": ["2"]}
    assert json.loads(path.read_bytes()) == changed
    assert (await room.call("TaskGet", taskId="3")).data == {"task": changed}
    listed = (await room.call("TaskList")).data
    assert listed is not None
    assert listed["tasks"][2] == changed


@pytest.mark.spec("TSK-11", "TSK-05")
@pytest.mark.parametrize("wish", [{"owner": "alice"}, {"status": "in_progress"}])
async def test_to_take_a_task_is_to_claim_it(room: Room, wish: dict[str, str]) -> None:
    await room.fill(1)
    assert "yours" in await room.text("TaskUpdate", taskId="1", **wish)
    task = await room.board.get("1")
    assert (task.owner, task.status, task.attempt is not None) == ("alice", "in_progress", True)
    assert "alice" in await room.failure("TaskUpdate", "bob", taskId="1", status="in_progress")
    assert "yours" in await room.text("TaskUpdate", taskId="1", **wish)
    await room.text("TaskUpdate", taskId="1", status="completed")
    assert "completed" in await room.failure("TaskUpdate", taskId="1", owner="alice")


@pytest.mark.spec("TSK-03", "TSK-04", "TSK-12")
async def test_what_cannot_be_is_refused_with_what_to_do(room: Room) -> None:
    await room.fill(2)
    await room.text("TaskUpdate", taskId="2", addBlockedBy=["1"])
    assert "1" in await room.failure("TaskUpdate", taskId="2", status="in_progress")
    assert "forever" in await room.failure("TaskUpdate", taskId="1", addBlockedBy=["2"])
    assert "itself" in await room.failure("TaskUpdate", taskId="1", addBlocks=["1"])
    assert "no task 9" in await room.failure("TaskUpdate", taskId="1", addBlocks=["9"])
    assert "no task 9" in await room.failure("TaskGet", taskId="9")
    assert "TaskList" in await room.failure("TaskUpdate", taskId="9", status="in_progress")
    assert "not a task id" in await room.failure("TaskGet", taskId="../1")
    assert "taskID" in await room.failure("TaskGet", taskID="1")
    assert [task.blocks for task in await room.board.list_tasks()] == [("2",), ()]


async def test_a_claim_with_a_bad_rest_leaves_the_task_free(room: Room) -> None:
    await room.fill(1)
    await room.failure("TaskUpdate", taskId="1", status="in_progress", addBlockedBy=["7"])
    task = await room.board.get("1")
    assert (task.status, task.owner) == ("pending", None)


@pytest.mark.spec("TSK-06")
async def test_completing_says_what_became_free(room: Room) -> None:
    await room.fill(3)
    await room.text("TaskUpdate", taskId="1", addBlocks=["2", "3"])
    await room.text("TaskUpdate", taskId="1", status="in_progress")
    assert "2, 3" in await room.text("TaskUpdate", taskId="1", status="completed")


@pytest.mark.spec("USR-24")
async def test_who_does_a_task_does_not_change_what_it_is_accepted_by(room: Room) -> None:
    await room.call("TaskCreate", "team-lead", subject="s", description="d", metadata={"acceptance": "make"})
    for wished in ("true", None):
        eased = await room.call("TaskUpdate", taskId="1", metadata={"acceptance": wished})
        assert eased.is_error
        assert "only the lead changes that" in str(eased.content)
    task = await room.board.get("1")
    assert (task.metadata, task.status) == ({"acceptance": "make"}, "pending")
    assert not (await room.call("TaskUpdate", taskId="1", metadata={"acceptance": "make", "x": 1})).is_error
    changed = await room.call("TaskUpdate", "team-lead", taskId="1", metadata={"acceptance": "true"})
    assert not changed.is_error


@pytest.mark.spec("USR-25")
async def test_who_lost_a_task_cannot_complete_it(room: Room) -> None:
    await room.fill(1)
    await room.text("TaskUpdate", taskId="1", status="in_progress")
    await room.board.release_owner_tasks("alice")
    await room.text("TaskUpdate", "bob", taskId="1", status="in_progress")
    assert "bob" in await room.failure("TaskUpdate", taskId="1", status="completed")
    await room.board.release_owner_tasks("bob")
    assert "no longer held" in await room.failure("TaskUpdate", taskId="1", status="completed")
    assert (await room.board.get("1")).status == "pending"


async def test_the_lead_may_end_what_another_works_on(room: Room) -> None:
    await room.fill(1)
    await room.text("TaskUpdate", taskId="1", status="in_progress")
    await room.text("TaskUpdate", "team-lead", taskId="1", status="completed")
    assert (await room.board.get("1")).status == "completed"


@pytest.mark.spec("TSK-02")
async def test_a_task_is_completed_at_once_by_one_who_never_began_it_and_reopened_by_another(
    room: Room,
) -> None:
    await room.fill(2)
    for task, owner in (("1", ""), ("2", "bob")):
        await room.text("TaskUpdate", "team-lead", taskId=task, owner=owner)
        await room.text("TaskUpdate", taskId=task, status="completed")
        assert (await room.board.get(task)).status == "completed"
        await room.text("TaskUpdate", "carol", taskId=task, status="pending")
        again = await room.board.get(task)
        assert (again.status, again.owner) == ("pending", None)


@pytest.mark.spec("TSK-02")
async def test_deleted_is_for_good(room: Room) -> None:
    await room.fill(2)
    await room.text("TaskUpdate", taskId="2", addBlockedBy=["1"])
    await room.text("TaskUpdate", taskId="1", status="deleted")
    assert await room.text("TaskList") == "#2 pending: Task 2"
    assert "no task 1" in await room.failure("TaskUpdate", taskId="1", status="pending")


@pytest.mark.spec("TSK-08", "TSK-11")
async def test_an_assignment_by_another_is_mailed_and_one_to_oneself_is_not(room: Room) -> None:
    await room.member("alice")
    await room.member("bob")
    await room.fill(2)
    await room.text("TaskUpdate", "team-lead", taskId="1", owner="bob")
    await room.text("TaskUpdate", "bob", taskId="2", owner="bob")
    (mail,) = await room.record.open_mailboxes("roof").take_unread("bob")
    body = json.loads(mail.text)
    assert (mail.sender, mail.summary, mail.color) == ("team-lead", None, None)
    assert body.pop("timestamp") == mail.timestamp
    assert body == {
        "type": "task_assignment",
        "taskId": "1",
        "subject": "Task 1",
        "description": "Do 1.",
        "assignedBy": "team-lead",
    }
    assert (await room.board.get("1")).status == "pending"
    # From one to another: the new owner is told, and the one before hears nothing more.
    await room.text("TaskUpdate", "bob", taskId="1", owner="alice")
    (mail,) = await room.record.open_mailboxes("roof").take_unread("alice")
    assert (mail.sender, json.loads(mail.text)["assignedBy"]) == ("bob", "bob")
    assert len(await room.record.open_mailboxes("roof").read_history("bob")) == 1


@pytest.mark.spec("TSK-06", "TSK-11")
async def test_an_owner_is_told_when_its_task_can_begin_and_no_sooner(room: Room) -> None:
    await room.member("alice")
    await room.member("bob")
    await room.fill(4)
    boxes = room.record.open_mailboxes("roof")
    for task, owner in (("3", "bob"), ("4", "alice")):
        await room.text("TaskUpdate", owner, taskId=task, owner=owner, addBlockedBy=["1", "2"])
        await room.board.release_owner_tasks(owner)
        await room.board.update(task, TaskUpdate(owner=owner), by="team-lead")
    await room.text("TaskUpdate", "alice", taskId="1", status="completed")
    assert await boxes.take_unread("bob") == ()
    said = await room.text("TaskUpdate", "alice", taskId="2", status="completed")
    assert "Yours, and free to begin now: 4." in said
    assert "Can begin now: 3 (bob, who is told)." in said
    (mail,) = await boxes.take_unread("bob")
    assert json.loads(mail.text)["taskId"] == "3"
    assert await boxes.take_unread("alice") == ()


@pytest.mark.spec("TSK-03")
async def test_many_updates_at_once_lose_nothing(room: Room) -> None:
    await room.fill(7)
    async with asyncio.TaskGroup() as group:
        for number in range(2, 8):
            group.create_task(room.text("TaskUpdate", taskId=str(number), addBlockedBy=["1"]))
            group.create_task(room.text("TaskUpdate", taskId="1", metadata={f"k{number}": number}))
    task = await room.board.get("1")
    assert sorted(task.blocks) == ["2", "3", "4", "5", "6", "7"]
    assert len(task.metadata) == 6


@pytest.mark.spec("TSK-13", "TSK-03")
async def test_a_session_without_a_team_has_its_own_board_and_six_calls_of_one_turn_all_count(
    tmp_path: Path,
) -> None:
    def call(tool: str, number: int, **arguments: Any) -> ToolUseBlock:
        return ToolUseBlock(id=f"{tool}-{number}", name=tool, input=arguments)

    mind: list[Any] = [
        tuple(call("TaskCreate", n, subject=f"Task {n}", description="") for n in range(1, 8)),
        tuple(call("TaskUpdate", n, taskId=str(n), addBlockedBy=["1"]) for n in range(2, 8)),
        tuple(call("TaskGet", n, taskId=str(n)) for n in range(1, 8)),
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind)) as session:
        returned = [event async for event in session.run("go") if isinstance(event, ToolOutputReturned)]
        name = str(session.id)
    assert [event.result.is_error for event in returned] == [False] * 20
    directory = Path(os.environ["SHOAL_HOME"]) / "tasks" / name
    first = json.loads((directory / "1.json").read_bytes())
    assert sorted(first["blocks"]) == ["2", "3", "4", "5", "6", "7"]


async def test_a_session_that_keeps_nothing_leaves_no_board(tmp_path: Path) -> None:
    create = ToolUseBlock(id="c", name="TaskCreate", input={"subject": "One", "description": ""})
    model = ScriptedModel([create, "done"])
    async with shoal.open(cwd=tmp_path, model=model, persist=False) as session:
        returned = [event async for event in session.run("go") if isinstance(event, ToolOutputReturned)]
    assert not returned[0].result.is_error
    assert not (Path(os.environ["SHOAL_HOME"]) / "tasks").exists()
