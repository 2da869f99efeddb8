"""Tools of `shoal mcp serve`, called through the official SDK's client in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from server_scripts import join_text
from shoal.app.run_access.background_runs import BackgroundRunFlags, BackgroundRunManager
from shoal.app.settings.configured_store import open_configured_store
from shoal.app.settings.settings import load_settings
from shoal.app.teams.external_member import ExternalMember
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.roster import NewMember
from team_scripts import get_home

if TYPE_CHECKING:
    from mcp.client.client import Client

pytestmark = pytest.mark.needs("mcp")


class ServedTools:
    """A client of the server, and the team files behind it."""

    def __init__(self, client: Client, member: ExternalMember) -> None:
        self.client = client
        self.member = member

    async def __call__(self, name: str, /, **given: Any) -> Any:
        result = await self.client.call_tool(name, given)
        if result.is_error:
            return join_text([block.model_dump() for block in result.content])
        return result.structured_content


@asynccontextmanager
async def serve_tools(cwd: Path, model: str | None = None, **flags: Any) -> AsyncIterator[ServedTools]:
    from mcp.client.client import Client

    from shoal.surfaces.mcp.mcp_server import TeamMcpServerTools, create_mcp_server

    clock, ids = SystemClock(), IdGenerator()
    settings = load_settings(cwd=cwd)
    team_store = TeamStore(open_configured_store(settings), clock=clock, ids=ids, report=lambda _: None)
    try:
        member = ExternalMember(team_store, home=settings.home, clock=clock, ids=ids, cwd=cwd)
        runs = BackgroundRunManager(
            settings.home,
            get_runs_directory(),
            cwd=cwd,
            flags=BackgroundRunFlags(model=model, **flags),
            ids=ids,
            clock=clock,
        )
        tools = TeamMcpServerTools(team_store, member, runs, model=model, kind="general-purpose")
        async with Client(create_mcp_server(tools)) as client:
            yield ServedTools(client, member)
    finally:
        await team_store.aclose()


def get_runs_directory() -> Path:
    return get_home() / "shoal" / "mcp" / "runs"


def leave_output(id_: str, output: object = None) -> None:
    """Leave what an earlier server that started the run has left of it."""
    directory = get_runs_directory()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{id_}.out").write_text("" if output is None else json.dumps(output))


async def add_member(call: ServedTools, name: str) -> None:
    new_member = NewMember(
        name=name, agent_type="worker", model="m", cwd="/", prompt="Dig.", backend_type="process"
    )
    await call.member.add_member(call.member.get_identity(None), new_member)


@pytest.mark.spec("LIM-10")
async def test_a_created_team_is_listed_and_shown_until_it_is_deleted(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        assert await call("team_list") == {"teams": []}
        made = await call("team_create", name="roof", description="Repairs")
        (lead,) = made["members"]
        assert (made["name"], made["description"], made["you"]) == ("roof", "Repairs", "team-lead")
        assert (lead["name"], made["members_left_out"]) == ("team-lead", 0)
        assert set(lead) == {"name", "type", "model", "working"}
        assert (await call("team_show"))["tasks"] == {"all": 0, "open": 0}
        (listed,) = (await call("team_list"))["teams"]
        assert (listed["name"], listed["you"]) == ("roof", "team-lead")
        for subject in ("Dig", "Fill"):
            await call("task_create", subject=subject)
        await call("task_update", task="2", status="in_progress")
        await call("task_update", task="2", status="completed")
        assert (await call("team_show", team="roof"))["tasks"] == {"all": 2, "open": 1}
        assert await call("team_delete", team="roof") == {"deleted": "roof"}
        assert await call("team_list") == {"teams": []}
        assert (await call("team_create", name="wall"))["description"] is None


@pytest.mark.spec("LIM-10")
async def test_a_lead_deletes_a_team_whose_started_members_have_ended(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        await call("team_create", name="roof")
        await add_member(call, "ann")
        assert "ann" in await call("team_delete")
        leave_output("ann@roof")
        async with serve_tools(tmp_path) as guest:
            await guest.member.join_team("roof", "bob")
            assert "Only the lead" in await guest("team_delete")
        names = [each["name"] for each in (await call("team_show"))["members"]]
        assert names == ["team-lead", "ann", "bob"]
        leave_output("bob@roof")
        assert await call("team_delete") == {"deleted": "roof"}


@pytest.mark.spec("LIM-10")
async def test_the_state_of_a_member_is_reported_by_its_id(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        await call("team_create", name="roof")
        await add_member(call, "ann")
        working = {"id": "ann@roof", "state": "running", "working": True}
        assert await call("run_status", id="ann@roof") in (working, {**working, "working": False})
        leave_output("ann@roof")
        done = {"state": "done", "exit_code": None, "detail": ""}
        assert await call("run_status", id="ann@roof") == {"id": "ann@roof", **done}
        assert "has no member 'bob'" in await call("run_status", id="bob@roof")
        # A member that has left, and whose process a server started.
        leave_output("bob@roof")
        assert await call("run_status", id="bob@roof") == {"id": "bob@roof", **done}
        assert "reports by message" in await call("run_result", id="ann@roof")


@pytest.mark.spec("LIM-10")
async def test_the_result_of_a_run_that_an_earlier_server_started_is_read(tmp_path: Path) -> None:
    from shoal.surfaces.mcp.mcp_server import LONGEST_TEXT

    leave_output("finished", {"result": "x" * (LONGEST_TEXT + 1), "total_cost_usd": 0.5})
    leave_output("failed", {"result": "No.", "is_error": True})
    leave_output("dead")
    async with serve_tools(tmp_path) as call:
        result = await call("run_result", id="finished")
        cut = f"\n[… cut, {LONGEST_TEXT + 1:,} characters in total]"
        assert result["text"] == "x" * LONGEST_TEXT + cut
        assert (result["id"], result["state"], result["cost_usd"]) == ("finished", "done", 0.5)
        states = [(await call("run_status", id=each))["state"] for each in ("finished", "failed", "dead")]
        assert states == ["done", "failed", "died"]


@pytest.mark.spec("LIM-10")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "ann", "template": "duo"}, "Pass only one of them."),
        ({"agent_type": "Explore"}, "`agent_type` applies to a member of your team. Pass `name` too."),
        ({"team": "roof"}, "`team` applies to a member of your team. Pass `name` too."),
        ({"name": "ann"}, "No model is configured"),
        ({"name": "a/b"}, "model"),
    ],
)
async def test_a_spawn_with_arguments_that_exclude_each_other_is_refused(
    tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    async with serve_tools(tmp_path) as call:
        await call("team_create", name="roof")
        assert reason in await call("spawn", prompt="Dig.", **given)
        assert len((await call("team_show"))["members"]) == 1


@pytest.mark.spec("LIM-10")
async def test_no_run_is_started_beyond_the_limit_and_its_member_is_removed(tmp_path: Path) -> None:
    async with serve_tools(tmp_path, model="anthropic:claude-sonnet-4-5", max_concurrent=0) as call:
        await call("team_create", name="roof")
        for given in ({}, {"name": "ann"}, {"template": "duo"}):
            assert "0" in await call("spawn", prompt="Dig.", **given)
        assert [each["name"] for each in (await call("team_show"))["members"]] == ["team-lead"]
    assert not get_runs_directory().exists()


@pytest.mark.spec("LIM-10")
@pytest.mark.parametrize(
    ("tool", "given", "refusal"),
    [
        ("team_list", {"team": "roof"}, "team_list has no argument 'team'. Its arguments: none."),
        ("run_status", {"x": 1, "b": 2}, "run_status has no argument 'b', 'x'. Its arguments: id."),
        ("run_status", {}, "run_status needs the argument 'id'."),
        ("run_status", {"id": None}, "The argument 'id' of run_status must be a valid string, not null."),
        ("team_create", {"name": ""}, "The argument 'name' of team_create must not be empty."),
        (
            "message_take",
            {"limit": 0},
            "The argument 'limit' of message_take must be greater than or equal to 1, not 0.",
        ),
        (
            "message_take",
            {"limit": 51},
            "The argument 'limit' of message_take must be less than or equal to 50, not 51.",
        ),
        (
            "message_take",
            {"wait_seconds": -1},
            "The argument 'wait_seconds' of message_take must be greater than or equal to 0, not -1.",
        ),
        (
            "message_take",
            {"wait_seconds": 301},
            "The argument 'wait_seconds' of message_take must be less than or equal to 300, not 301.",
        ),
        (
            "spawn",
            {"prompt": "x", "max_budget_usd": 0},
            "The argument 'max_budget_usd' of spawn must be greater than 0, not 0.",
        ),
        (
            "task_update",
            {"task": "1", "add_blocks": "2"},
            "The argument 'add_blocks' of task_update must be a valid list, not \"2\".",
        ),
        (
            "task_create",
            {"subject": "x", "blocked_by": [[1]]},
            "The argument 'blocked_by.0' of task_create must be a valid string, not [1].",
        ),
    ],
)
async def test_a_wrong_argument_is_refused_with_a_sentence(
    tmp_path: Path, tool: str, given: dict[str, Any], refusal: str
) -> None:
    async with serve_tools(tmp_path) as call:
        assert await call(tool, **given) == refusal


async def test_every_tool_lists_its_arguments_and_takes_no_others(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        tools = (await call.client.list_tools()).tools
        assert len(tools) == 13
        assert {tool.input_schema["additionalProperties"] for tool in tools} == {False}
        assert "Unknown tool" in str(await call("team_burn"))


@pytest.mark.spec("LIM-10")
async def test_mail_is_sent_taken_once_and_marked_with_its_kind(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        await call("team_create", name="roof")
        await add_member(call, "ann")
        for kind in ("message", "fyi"):
            (sent,) = (await call("message_send", to="ann", text="Fill.", summary="work", kind=kind))["sent"]
            assert set(sent) == {"id", "standing"}
        asked = await call("message_send", to="ann", text="Stop.", kind="shutdown_request")
        assert asked["request_id"].endswith("@ann")
        async with serve_tools(tmp_path) as guest:
            await guest.member.join_team("roof", "bob")
            await guest("message_send", to="team-lead", text="Done.", summary="report")
            assert "Only the lead" in await guest("team_delete")
        (taken,) = [each for each in (await call("message_take"))["messages"] if each["summary"] == "report"]
        assert (taken["from"], taken["kind"], taken["signature"]) == ("bob", "message", "verified")
        assert taken["text"] == "Done."
    written = json.loads((get_home() / "teams/roof/inboxes/ann.json").read_text())
    assert [each["text"] for each in written][:3] == ["Dig.", "Fill.", "Fill."]


@pytest.mark.spec("LIM-10", "TSK-05")
async def test_a_task_keeps_what_an_update_does_not_name(tmp_path: Path) -> None:
    async with serve_tools(tmp_path) as call:
        await call("team_create", name="roof")
        await call("task_create", subject="Dig", description="All.", metadata={"a": 1})
        await call("task_create", subject="Fill", blocked_by=[1])
        await call("task_create", subject="Rest")
        await call("task_update", task=1, subject="Dig deep", description="More.", metadata={"b": 2})
        await call("task_update", task=1, add_blocks=["3"])
        await call("task_update", task=3, add_blocked_by=[2])
        dig, fill, rest = [await call("task_get", task=number) for number in (1, 2, 3)]
        assert (dig["subject"], dig["description"]) == ("Dig deep", "More.")
        assert dig["metadata"] == {"a": 1, "b": 2}
        assert (dig["status"], dig["blocks"]) == ("pending", ["2", "3"])
        assert (fill["blockedBy"], rest["blockedBy"]) == (["1"], ["1", "2"])
        deleted = await call("task_update", task=3, status="deleted")
        assert deleted["id"] == "3"
        assert [task["id"] for task in (await call("task_list"))["tasks"]] == ["1", "2"]
