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
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import ToolContext, ToolOutput
from shoal.core.events import ToolOutputReturned
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskUpdate
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.task_tools import build_task_tools


class TaskToolHarness:
    """Agents of one team, each with its own tool context, on one team store."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
        tools = build_task_tools(self.record.open_agent_board, self.record.notify_assigned)
        self.tools = {tool.schema.name: tool for tool in tools}
        self.board = self.record.open_board("roof")

    def create_context(self, name: str) -> ToolContext:
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

    async def call_tool(self, tool: str, by: str = "alice", **arguments: Any) -> ToolOutput:
        return await self.tools[tool].run(arguments, self.create_context(by))

    async def call_for_text(self, tool: str, by: str = "alice", **arguments: Any) -> str:
        outcome = await self.call_tool(tool, by, **arguments)
        assert not outcome.is_error, outcome.content
        return str(outcome.content)

    async def call_for_failure(self, tool: str, by: str = "alice", **arguments: Any) -> str:
        outcome = await self.call_tool(tool, by, **arguments)
        assert outcome.is_error, outcome.content
        return str(outcome.content)

    async def create_tasks(self, count: int) -> None:
        for number in range(1, count + 1):
            await self.call_for_text("TaskCreate", subject=f"Task {number}", description=f"Do {number}.")

    async def add_member(self, name: str) -> None:
        member = NewMember(name=name, agent_type="general", model="m", cwd="/", prompt="work")
        await self.record.rosters.add_member("roof", member)
        await self.record.open_mailboxes("roof").open_inbox(name)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TaskToolHarness]:
    harness = TaskToolHarness(tmp_path / "home")
    lead = NewMember(name="x", agent_type="general", model="m", cwd="/", prompt="")
    await harness.record.rosters.create_team("roof", lead=lead, session="s", description=None)
    yield harness
    await harness.record.aclose()


@pytest.mark.spec("TSK-01")
def test_the_task_tools_have_the_documented_inputs(harness: TaskToolHarness) -> None:
    inputs = {name: tool.schema.input_schema for name, tool in harness.tools.items()}
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
    assert {name for name, tool in harness.tools.items() if tool.is_read_only} == {"TaskGet", "TaskList"}


@pytest.mark.spec("TSK-01", "TSK-10")
async def test_a_task_is_created_read_listed_and_updated(harness: TaskToolHarness) -> None:
    await harness.call_for_text(
        "TaskCreate", subject="One", description="All of it", metadata={"a": 1, "b": 2}
    )
    await harness.call_for_text("TaskUpdate", taskId="1", metadata={"a": None, "c": [3]}, subject="First")
    assert "All of it" in await harness.call_for_text("TaskGet", taskId="1")
    listed = await harness.call_tool("TaskList")
    assert listed.content == "#1 pending: First"
    assert listed.data is not None
    assert listed.data["tasks"][0]["metadata"] == {"b": 2, "c": [3]}
    assert "nothing" in (await harness.call_for_failure("TaskUpdate", taskId="1")).lower()


@pytest.mark.spec("TSK-01")
async def test_every_input_of_the_task_tools_is_in_the_file_and_in_their_output(
    harness: TaskToolHarness,
) -> None:
    await harness.create_tasks(2)
    given = {"subject": "Mend", "description": "The roof", "activeForm": "Mending", "metadata": {"a": 1}}
    made = await harness.call_tool("TaskCreate", **given)
    new = {"id": "3", **given, "status": "pending", "blocks": [], "blockedBy": []}
    assert made.data == {"task": new} == (await harness.call_tool("TaskGet", taskId="3")).data
    changes = {"subject": "Paint", "description": "The door", "activeForm": "Painting"}
    await harness.call_for_text(
        "TaskUpdate", taskId="3", **changes, addBlocks=["1"], addBlockedBy=["2"], owner="bob"
    )
    path = harness.home / "tasks" / "roof" / "3.json"
    changed = {**new, **changes, "owner": "bob", "blocks": ["1"], "blockedBy": ["2"]}
    assert json.loads(path.read_bytes()) == changed
    assert (await harness.call_tool("TaskGet", taskId="3")).data == {"task": changed}
    listed = (await harness.call_tool("TaskList")).data
    assert listed is not None
    assert listed["tasks"][2] == changed


@pytest.mark.spec("TSK-11", "TSK-05")
@pytest.mark.parametrize("wish", [{"owner": "alice"}, {"status": "in_progress"}])
async def test_setting_the_owner_or_the_status_claims_a_task(
    harness: TaskToolHarness, wish: dict[str, str]
) -> None:
    await harness.create_tasks(1)
    assert "yours" in await harness.call_for_text("TaskUpdate", taskId="1", **wish)
    task = await harness.board.get("1")
    assert (task.owner, task.status, task.claim_attempt is not None) == ("alice", "in_progress", True)
    assert "alice" in await harness.call_for_failure("TaskUpdate", "bob", taskId="1", status="in_progress")
    assert "yours" in await harness.call_for_text("TaskUpdate", taskId="1", **wish)
    await harness.call_for_text("TaskUpdate", taskId="1", status="completed")
    assert "completed" in await harness.call_for_failure("TaskUpdate", taskId="1", owner="alice")


@pytest.mark.spec("TSK-03", "TSK-04", "TSK-12")
async def test_impossible_task_updates_are_refused_with_advice(harness: TaskToolHarness) -> None:
    await harness.create_tasks(2)
    await harness.call_for_text("TaskUpdate", taskId="2", addBlockedBy=["1"])
    assert "1" in await harness.call_for_failure("TaskUpdate", taskId="2", status="in_progress")
    assert "forever" in await harness.call_for_failure("TaskUpdate", taskId="1", addBlockedBy=["2"])
    assert "itself" in await harness.call_for_failure("TaskUpdate", taskId="1", addBlocks=["1"])
    assert "no task 9" in await harness.call_for_failure("TaskUpdate", taskId="1", addBlocks=["9"])
    assert "no task 9" in await harness.call_for_failure("TaskGet", taskId="9")
    assert "TaskList" in await harness.call_for_failure("TaskUpdate", taskId="9", status="in_progress")
    assert "not a task id" in await harness.call_for_failure("TaskGet", taskId="../1")
    assert "taskID" in await harness.call_for_failure("TaskGet", taskID="1")
    assert [task.blocks for task in await harness.board.list_tasks()] == [("2",), ()]


async def test_a_claim_with_an_invalid_dependency_leaves_the_task_pending(harness: TaskToolHarness) -> None:
    await harness.create_tasks(1)
    await harness.call_for_failure("TaskUpdate", taskId="1", status="in_progress", addBlockedBy=["7"])
    task = await harness.board.get("1")
    assert (task.status, task.owner) == ("pending", None)


@pytest.mark.spec("LIM-10")
async def test_a_task_cannot_be_started_while_the_same_update_lets_it_wait(harness: TaskToolHarness) -> None:
    await harness.create_tasks(2)
    for start in ({"status": "in_progress"}, {"owner": "alice"}):
        refusal = await harness.call_for_failure("TaskUpdate", taskId="1", addBlockedBy=["2"], **start)
        assert "Task 1 cannot be started: it waits for #2" in refusal
    assert (await harness.board.get("1")).status == "pending"
    # Work that has begun may wait for something that turned out to be missing.
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress")
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress", addBlockedBy=["2"])
    assert (await harness.board.get("1")).status == "in_progress"


async def test_a_refused_update_of_an_own_task_does_not_release_it(harness: TaskToolHarness) -> None:
    await harness.create_tasks(1)
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress")
    await harness.call_for_failure("TaskUpdate", taskId="1", status="in_progress", subject=" ")
    held = await harness.board.get("1")
    assert (held.status, held.owner) == ("in_progress", "alice")
    await harness.call_for_text("TaskUpdate", taskId="1", status="completed")


@pytest.mark.spec("TSK-06")
async def test_completing_a_task_lists_the_unblocked_tasks(harness: TaskToolHarness) -> None:
    await harness.create_tasks(3)
    await harness.call_for_text("TaskUpdate", taskId="1", addBlocks=["2", "3"])
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress")
    assert "2, 3" in await harness.call_for_text("TaskUpdate", taskId="1", status="completed")


@pytest.mark.spec("USR-24")
async def test_only_the_lead_may_change_the_acceptance_of_a_task(harness: TaskToolHarness) -> None:
    await harness.call_tool(
        "TaskCreate", "team-lead", subject="s", description="d", metadata={"acceptance": "make"}
    )
    for wished in ("true", None):
        eased = await harness.call_tool("TaskUpdate", taskId="1", metadata={"acceptance": wished})
        assert eased.is_error
        assert "Only the lead can change" in str(eased.content)
    task = await harness.board.get("1")
    assert (task.metadata, task.status) == ({"acceptance": "make"}, "pending")
    assert not (
        await harness.call_tool("TaskUpdate", taskId="1", metadata={"acceptance": "make", "x": 1})
    ).is_error
    changed = await harness.call_tool("TaskUpdate", "team-lead", taskId="1", metadata={"acceptance": "true"})
    assert not changed.is_error


@pytest.mark.spec("USR-25")
async def test_a_former_owner_cannot_complete_a_task(harness: TaskToolHarness) -> None:
    await harness.create_tasks(1)
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress")
    await harness.board.release_owner_tasks("alice")
    await harness.call_for_text("TaskUpdate", "bob", taskId="1", status="in_progress")
    assert "bob" in await harness.call_for_failure("TaskUpdate", taskId="1", status="completed")
    await harness.board.release_owner_tasks("bob")
    assert "no longer held" in await harness.call_for_failure("TaskUpdate", taskId="1", status="completed")
    assert (await harness.board.get("1")).status == "pending"


async def test_the_lead_may_complete_the_task_of_a_member(harness: TaskToolHarness) -> None:
    await harness.create_tasks(1)
    await harness.call_for_text("TaskUpdate", taskId="1", status="in_progress")
    await harness.call_for_text("TaskUpdate", "team-lead", taskId="1", status="completed")
    assert (await harness.board.get("1")).status == "completed"


@pytest.mark.spec("TSK-02")
async def test_an_unclaimed_task_can_be_completed_and_reopened_by_other_members(
    harness: TaskToolHarness,
) -> None:
    await harness.create_tasks(2)
    for task, owner in (("1", ""), ("2", "bob")):
        await harness.call_for_text("TaskUpdate", "team-lead", taskId=task, owner=owner)
        await harness.call_for_text("TaskUpdate", taskId=task, status="completed")
        assert (await harness.board.get(task)).status == "completed"
        await harness.call_for_text("TaskUpdate", "carol", taskId=task, status="pending")
        reopened = await harness.board.get(task)
        assert (reopened.status, reopened.owner) == ("pending", None)


@pytest.mark.spec("TSK-02")
async def test_a_deleted_task_stays_deleted(harness: TaskToolHarness) -> None:
    await harness.create_tasks(2)
    await harness.call_for_text("TaskUpdate", taskId="2", addBlockedBy=["1"])
    await harness.call_for_text("TaskUpdate", taskId="1", status="deleted")
    assert await harness.call_for_text("TaskList") == "#2 pending: Task 2"
    assert "no task 1" in await harness.call_for_failure("TaskUpdate", taskId="1", status="pending")


@pytest.mark.spec("TSK-08", "TSK-11")
async def test_an_assignment_is_mailed_except_to_oneself(harness: TaskToolHarness) -> None:
    await harness.add_member("alice")
    await harness.add_member("bob")
    await harness.create_tasks(2)
    await harness.call_for_text("TaskUpdate", "team-lead", taskId="1", owner="bob")
    await harness.call_for_text("TaskUpdate", "bob", taskId="2", owner="bob")
    (mail,) = await harness.record.open_mailboxes("roof").take_unread("bob")
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
    assert (await harness.board.get("1")).status == "pending"
    # From one to another: the new owner is told, and the one before hears nothing more.
    await harness.call_for_text("TaskUpdate", "bob", taskId="1", owner="alice")
    (mail,) = await harness.record.open_mailboxes("roof").take_unread("alice")
    assert (mail.sender, json.loads(mail.text)["assignedBy"]) == ("bob", "bob")
    assert len(await harness.record.open_mailboxes("roof").read_history("bob")) == 1


@pytest.mark.spec("TSK-06", "TSK-11")
async def test_an_owner_is_notified_only_when_its_task_is_unblocked(harness: TaskToolHarness) -> None:
    await harness.add_member("alice")
    await harness.add_member("bob")
    await harness.create_tasks(4)
    boxes = harness.record.open_mailboxes("roof")
    for task, owner in (("3", "bob"), ("4", "alice")):
        await harness.call_for_text("TaskUpdate", owner, taskId=task, addBlockedBy=["1", "2"])
        await harness.board.update(task, TaskUpdate(owner=owner), by="team-lead")
    await harness.call_for_text("TaskUpdate", "alice", taskId="1", status="completed")
    assert await boxes.take_unread("bob") == ()
    output = await harness.call_for_text("TaskUpdate", "alice", taskId="2", status="completed")
    assert "Your tasks that are now unblocked: 4." in output
    assert "Now unblocked: 3 (bob, notified)." in output
    (mail,) = await boxes.take_unread("bob")
    assert json.loads(mail.text)["taskId"] == "3"
    assert await boxes.take_unread("alice") == ()


@pytest.mark.spec("TSK-03")
async def test_concurrent_task_updates_are_all_stored(harness: TaskToolHarness) -> None:
    await harness.create_tasks(7)
    async with asyncio.TaskGroup() as group:
        for number in range(2, 8):
            group.create_task(harness.call_for_text("TaskUpdate", taskId=str(number), addBlockedBy=["1"]))
            group.create_task(
                harness.call_for_text("TaskUpdate", taskId="1", metadata={f"k{number}": number})
            )
    task = await harness.board.get("1")
    assert sorted(task.blocks) == ["2", "3", "4", "5", "6", "7"]
    assert len(task.metadata) == 6


@pytest.mark.spec("TSK-13", "TSK-03")
async def test_a_session_without_a_team_has_its_own_board_and_six_calls_of_one_turn_all_count(
    tmp_path: Path,
) -> None:
    def make_call(tool: str, number: int, **arguments: Any) -> ToolUseBlock:
        return ToolUseBlock(id=f"{tool}-{number}", name=tool, input=arguments)

    script: list[Any] = [
        tuple(make_call("TaskCreate", n, subject=f"Task {n}", description="") for n in range(1, 8)),
        tuple(make_call("TaskUpdate", n, taskId=str(n), addBlockedBy=["1"]) for n in range(2, 8)),
        tuple(make_call("TaskGet", n, taskId=str(n)) for n in range(1, 8)),
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(script)) as session:
        returned = [event async for event in session.run("go") if isinstance(event, ToolOutputReturned)]
        name = str(session.id)
    assert [event.result.is_error for event in returned] == [False] * 20
    directory = Path(os.environ["SHOAL_HOME"]) / "tasks" / name
    first = json.loads((directory / "1.json").read_bytes())
    assert sorted(first["blocks"]) == ["2", "3", "4", "5", "6", "7"]


async def test_a_session_without_persistence_leaves_no_board(tmp_path: Path) -> None:
    create = ToolUseBlock(id="c", name="TaskCreate", input={"subject": "One", "description": ""})
    model = ScriptedModel([create, "done"])
    async with shoal.open(cwd=tmp_path, model=model, persist=False) as session:
        returned = [event async for event in session.run("go") if isinstance(event, ToolOutputReturned)]
    assert not returned[0].result.is_error
    assert not (Path(os.environ["SHOAL_HOME"]) / "tasks").exists()
