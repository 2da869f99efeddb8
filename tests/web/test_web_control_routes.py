"""A run steered from a page: words, stops, answers, and tasks of its board."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel
from team_scripts import get_last_text, open_session, read_inbox, script_team, send_message, spawn_member
from web_client import PageState, SseStream, WebTestClient, serve_home

CREATE = call_tool("TeamCreate", team_name="crew")


@asynccontextmanager
async def run_turns(session: shoal.Session, web: WebTestClient) -> AsyncIterator[tuple[str, SseStream]]:
    """Run the turns of the lead; yield the path of the run and its frames."""
    async with asyncio.TaskGroup() as tasks:
        turns = tasks.create_task(run_all_turns(session))
        async with web.open_stream(f"/runs/{session.id}/frames") as frames:
            yield f"/runs/{session.id}", frames
        turns.cancel()


def match_agent_state(page: PageState, name: str, *states: str) -> Any:
    return lambda frame: page.apply_frame(frame).map_agent_states().get(name) in states


@pytest.mark.spec("SRF-01", "USR-18")
async def test_a_prompt_from_a_page_reaches_a_member_before_its_other_mail(tmp_path: Path) -> None:
    gate, page, prompt_received = ToolGate(), PageState(), asyncio.Event()

    def listening(request: ModelRequest) -> str:
        if "Leave the tests alone." in get_last_text(request):
            prompt_received.set()
        return "I will."

    model = script_team(lead=[CREATE, spawn_member("ann"), "wait"], ann=[call_tool("Gate"), listening])
    async with serve_home() as web, open_session(tmp_path, model, tools=[gate.tool]) as session:
        async with run_turns(session, web) as (path, frames):
            await gate.wait_until_reached()
            reply = await web.post_json(f"{path}/send", {"to": "ann", "text": "Leave the tests alone."})
            assert (reply["ok"], reply["to"], reply["how"]) == (True, "ann@crew", "queued")
            gate.is_open.set()
            async with asyncio.timeout(10):
                await prompt_received.wait()
            await frames.read_until(match_agent_state(page, "ann", "idle"))
        assert read_inbox("crew", "ann")[-1]["from"] == "user"
        assert "message" in (await web.post_json(f"{path}/send", {"to": "ann", "text": " "}, 400))["error"]
        assert (await web.post_json(f"{path}/send", {"to": "nobody", "text": "x"}, 409))["error"]
        assert (await web.post_json(f"{path}/send", {"wrong": 1}, 400))["error"]


@pytest.mark.spec("USR-18", "USR-08")
async def test_members_are_interrupted_stopped_and_killed_from_a_page(tmp_path: Path) -> None:
    gate, page = ToolGate(), PageState()
    model = script_team(
        lead=[CREATE, spawn_member("ann"), spawn_member("bob"), "wait"],
        ann=[call_tool("Gate"), "ready"],
        bob=[call_tool("Gate"), "ready"],
    )
    settings = '{"shoal": {"shutdown_grace": 0.1}}'
    async with (
        serve_home() as web,
        open_session(tmp_path, model, tools=[gate.tool], settings=settings) as session,
    ):
        async with run_turns(session, web) as (path, frames):
            await frames.read_until(
                lambda frame: match_agent_state(page, "bob", "working")(frame) and gate.calls == 2
            )
            assert (await web.post_json(f"{path}/interrupt", {"agent": "ann@crew"}))["interrupted"]
            await frames.read_until(match_agent_state(page, "ann", "idle"))
            await web.post_json(f"{path}/stop", {"agent": "ann@crew"})
            await web.post_json(f"{path}/kill", {"agent": "bob@crew"})
            await frames.read_until(match_agent_state(page, "bob", "killed"))
            assert page.map_agent_states()["ann"] in ("killed", "completed")
        assert "no agent" in (await web.post_json(f"{path}/stop", {"agent": "../ann"}, 404))["error"]
        assert "cannot be killed" in (await web.post_json(f"{path}/kill", {"agent": "lead"}, 400))["error"]
        assert "no teammate" in (await web.post_json(f"{path}/stop", {"agent": "ann@crew"}, 409))["error"]
        assert "no teammate" in (await web.post_json(f"{path}/restart", {"agent": "ann@crew"}, 409))["error"]


async def test_a_sub_agent_is_moved_to_the_background_and_stopped_from_a_page(tmp_path: Path) -> None:
    gate, page = ToolGate(), PageState()
    call = call_tool("Agent", description="count", prompt="count", subagent_type="general-purpose")

    def script(request: ModelRequest) -> Any:
        is_lead = request.messages[0].text == "lead"
        spoken = sum(message.role == "assistant" for message in request.messages)
        return ([call, "it runs"] if is_lead else [call_tool("Gate"), "done"])[min(spoken, 1)]

    async with (
        serve_home() as web,
        open_session(tmp_path, ScriptedModel(script), tools=[gate.tool]) as session,
        run_turns(session, web) as (path, frames),
    ):
        await gate.wait_until_reached()
        await frames.read_until(match_agent_state(page, "general-purpose", "working"))
        (agent,) = [key for (key,) in page.rows["agents"] if key != "lead"]
        assert (await web.post_json(f"{path}/background", {"agent": agent}))["moved"] == [agent]
        await web.post_json(f"{path}/stop", {"agent": agent})
        await frames.read_until(match_agent_state(page, "general-purpose", "killed"))


async def test_the_permission_mode_is_changed_and_the_run_is_ended_from_a_page(tmp_path: Path) -> None:
    gate, page = ToolGate(), PageState()
    async with serve_home() as web:
        async with (
            open_session(
                tmp_path, script_team(lead=[call_tool("Gate"), "done"]), tools=[gate.tool]
            ) as session,
            run_turns(session, web) as (path, frames),
        ):
            await gate.wait_until_reached()
            assert (await web.post_json(f"{path}/mode", {"mode": "plan"}))["mode"] == "plan"
            await frames.read_until(lambda frame: page.apply_frame(frame).run["mode"] == "plan")
            assert (await web.post_json(f"{path}/mode", {"mode": "wild"}, 400))["error"]
            assert (await web.post_json(f"{path}/stop", {"agent": "lead"}))["stopping"]
            assert session.stop_requested.is_set()
        assert "has ended" in (await web.post_json(f"{path}/mode", {"mode": "plan"}, 409))["error"]


@pytest.mark.spec("USR-05", "USR-26")
async def test_a_question_reaches_every_page_and_the_first_answer_counts(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait"],
        ann=[
            call_tool("Bash", command="touch painted"),
            send_message("team-lead", "It is painted."),
            "ready",
        ],
    )
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    async with serve_home() as web, web.open_stream("/questions/stream") as questions:
        assert (await questions.read_event())[2] == []
        async with (
            open_session(tmp_path, model, **options) as session,
            run_turns(session, web) as (path, frames),
        ):
            (asked,) = await questions.read_until(bool)
            assert (asked["session"], asked["name"]) == (session.id, "ann")
            assert asked["question"]["input"]["command"] == "touch painted"
            assert await web.get_json("/questions") == [asked]
            (line,) = await web.get_json("/runs")
            assert line["questions"] == 1
            at = f"{path}/questions/{asked['id']}"
            assert (await web.post_json(at, {"type": "chosen", "answers": {}}, 400))["error"]
            assert (await web.post_json(at, {"type": "of course"}, 400))["error"]
            assert await web.post_json(at, {"type": "allowed", "remember": "once"}) == {"stands": True}
            assert await web.post_json(at, {"type": "denied", "reason": "late"}) == {"stands": False}
            assert await questions.read_until(lambda rows: not rows) == []
            page = PageState()
            await frames.read_until(match_agent_state(page, "ann", "idle"))
            assert (tmp_path / "painted").exists()
            row = page.rows["questions"][asked["id"],]
            assert (row["answer"]["type"], row["answered"] > 0) == ("allowed", True)
        assert (
            "withdrawn"
            in (await web.post_json(f"{path}/questions/nothing", {"type": "allowed"}, 404))["error"]
        )


@pytest.mark.spec("USR-26")
async def test_a_revised_plan_is_shown_with_the_previous_one(tmp_path: Path) -> None:
    model = script_team(
        lead=[
            call_tool("ExitPlanMode", "one", plan="Paint it red."),
            call_tool("ExitPlanMode", "two", plan="Paint it blue."),
            "done",
        ]
    )
    options = {"skip_permissions": False, "attended": True, "mode": "plan"}
    async with (
        serve_home() as web,
        web.open_stream("/questions/stream") as questions,
        open_session(tmp_path, model, **options) as session,
        run_turns(session, web) as (path, _),
    ):
        (first,) = await questions.read_until(bool)
        assert "previous_plan" not in first
        no = {"type": "denied", "reason": "Not red.", "by": "policy"}
        assert (await web.post_json(f"{path}/questions/{first['id']}", no))["stands"]
        (second,) = await questions.read_until(lambda rows: rows and rows[0]["id"] != first["id"])
        assert (second["previous_plan"], second["question"]["plan"]) == (
            "Paint it red.",
            "Paint it blue.",
        )
        other = {"type": "approved", "digest": first["question"]["digest"]}
        assert (await web.post_json(f"{path}/questions/{second['id']}", other, 400))["error"]
        yes = {"type": "approved", "digest": second["question"]["digest"]}
        assert (await web.post_json(f"{path}/questions/{second['id']}", yes))["stands"]
        await questions.read_until(lambda rows: not rows)


async def test_questions_of_an_ended_run_are_not_shown(tmp_path: Path) -> None:
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    async with serve_home() as web, web.open_stream("/questions/stream") as questions:
        async with (
            open_session(
                tmp_path, script_team(lead=[call_tool("Bash", command="true > x"), "done"]), **options
            ) as session,
            run_turns(session, web),
        ):
            await questions.read_until(bool)
        assert await questions.read_until(lambda rows: not rows) == []


async def test_tasks_are_added_assigned_ordered_and_deleted_from_a_page(tmp_path: Path) -> None:
    gate, page = ToolGate(), PageState()
    model = script_team(lead=[CREATE, spawn_member("ann"), "wait"], ann=[call_tool("Gate"), "ready"])

    def task(number: str) -> Any:
        return page.rows["tasks"].get(("crew", number), {})

    async with serve_home() as web:
        async with (
            open_session(tmp_path, model, tools=[gate.tool]) as session,
            run_turns(session, web) as (path, frames),
        ):
            await gate.wait_until_reached()
            await frames.read_until(match_agent_state(page, "ann", "working"))
            first = {"board": "crew", "subject": "Paint the roof", "description": "Red."}
            reply = await web.post_json(f"{path}/tasks", first, 201)
            assert reply["task"]["id"] == "1"
            second = {"board": "crew", "subject": "Dry it", "blocked_by": ["1"], "owner": "ann"}
            await web.post_json(f"{path}/tasks", second, 201)
            await frames.read_until(lambda frame: page.apply_frame(frame) and task("2").get("owner") == "ann")
            assert task("2")["blocked_by"] == ["1"]
            assert any("task_assignment" in each["text"] for each in read_inbox("crew", "ann"))
            await web.patch_json(f"{path}/tasks/crew/1", {"rank": 2.5, "owner": "ann", "subject": "Paint"})
            await frames.read_until(lambda frame: page.apply_frame(frame) and task("1").get("rank") == 2.5)
            assert (task("1")["owner"], task("1")["subject"]) == ("ann", "Paint")
            whole = await web.get_json(f"{path}/tasks/crew/1")
            assert (whole["description"], whole["rank"], whole["blocks"]) == ("Red.", 2.5, ["2"])
            await web.patch_json(f"{path}/tasks/crew/1", {"owner": "", "rank": None})
            await frames.read_until(lambda frame: page.apply_frame(frame) and task("1").get("owner") == "")
            assert task("1")["rank"] is None
            await web.patch_json(f"{path}/tasks/crew/1", {"status": "deleted"})
            await frames.read_until(
                lambda frame: page.apply_frame(frame) and task("1").get("status") == "deleted"
            )
            refused = [({}, 400), ({"status": "odd"}, 400), ({"owner": "../x"}, 400), ({"x": 1}, 400)]
            for body, status in refused:
                assert (await web.patch_json(f"{path}/tasks/crew/2", body, status))["error"]
            assert (await web.patch_json(f"{path}/tasks/crew/77", {"rank": 1}, 409))["error"]
            assert (await web.post_json(f"{path}/tasks", {**first, "board": "other"}, 404))["error"]
            assert (await web.post_json(f"{path}/tasks", {**first, "subject": " "}, 400))["error"]
            assert (await web.post_json(f"{path}/tasks", {**first, "blocked_by": ["9"]}, 409))["error"]
            assert (await web.get_json(f"{path}/tasks/crew/9", 404))["error"]
        assert "has ended" in (await web.patch_json(f"{path}/tasks/crew/2", {"rank": 1}, 409))["error"]


async def test_a_mail_message_is_shown_in_full(tmp_path: Path) -> None:
    long = "The roof is tight. " * 100
    page = PageState()
    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait"], ann=[send_message("team-lead", long), "ready"]
    )
    async with (
        serve_home() as web,
        open_session(tmp_path, model) as session,
        run_turns(session, web) as (path, frames),
    ):
        await frames.read_until(
            lambda frame: any(
                row["sender"] == "ann" for row in page.apply_frame(frame).rows["letters"].values()
            )
        )
        row = next(row for row in page.rows["letters"].values() if row["text"].startswith("The roof"))
        assert len(row["text"]) <= 200
        whole = await web.get_json(f"{path}/letters/crew/{row['to']}/{row['id']}")
        assert whole["text"] == whole["words"] == long
        assert (await web.get_json(f"{path}/letters/crew/ann/{row['id']}", 404))["error"]
        assert (await web.get_json(f"{path}/letters/other/ann/{row['id']}", 404))["error"]


async def test_a_request_body_that_is_too_long_or_not_json_is_refused(tmp_path: Path) -> None:
    async with serve_home() as web, open_session(tmp_path, script_team(lead=["done"])) as session:
        path = f"/api/runs/{session.id}/send"
        long = await web.client.post(path, content=b"x" * (1 << 20) + b"x")
        assert (long.status_code, "longer than" in long.json()["error"]) == (413, True)
        for content in (b"", b"{", b"[]", b'{"to": 1, "text": "x"}', b"\xff\xfe"):
            reply = await web.client.post(path, content=content)
            assert (reply.status_code, bool(reply.json()["error"])) == (400, True)


async def test_a_question_of_a_resumed_run_reaches_a_page_opened_before(tmp_path: Path) -> None:
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    model = script_team(lead=["ready", call_tool("Bash", command="true > x"), "done"])
    async with open_session(tmp_path, model, **options) as session:
        await run_all_turns(session)
    async with serve_home() as web, web.open_stream("/questions/stream") as questions:
        assert (await questions.read_event())[2] == []
        async with (
            open_session(tmp_path, model, resume=session.id, **options) as resumed,
            run_turns(resumed, web) as (path, _),
        ):
            (asked,) = await questions.read_until(bool)
            assert asked["session"] == session.id
            await web.post_json(f"{path}/questions/{asked['id']}", {"type": "denied", "reason": "no"})
            assert await questions.read_until(lambda rows: not rows) == []
