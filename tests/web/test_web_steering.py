"""A run steered from a page: words, stops, answers, and tasks of its board."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, all_turns, use
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel
from troupe import inbox, last_words, member, opened, tell, troupe
from web_rig import Drawn, Stream, Web, served

CREATE = use("TeamCreate", team_name="crew")


@asynccontextmanager
async def at_work(session: shoal.Session, web: Web) -> AsyncIterator[tuple[str, Stream]]:
    """The run's path while its lead takes turns, and its frames."""
    async with asyncio.TaskGroup() as tasks:
        turns = tasks.create_task(all_turns(session))
        async with web.stream(f"/runs/{session.id}/frames") as frames:
            yield f"/runs/{session.id}", frames
        turns.cancel()


def shows(page: Drawn, name: str, *states: str) -> Any:
    return lambda frame: page.take(frame).states().get(name) in states


@pytest.mark.spec("SRF-01", "USR-18")
async def test_a_person_types_to_a_teammate_and_it_hears_that_first(tmp_path: Path) -> None:
    gate, page, heard = Gate(), Drawn(), asyncio.Event()

    def listening(request: Request) -> str:
        if "Leave the tests alone." in last_words(request):
            heard.set()
        return "I will."

    model = troupe(lead=[CREATE, member("ann"), "wait"], ann=[use("Gate"), listening])
    async with served() as web, opened(tmp_path, model, tools=[gate.tool]) as session:
        async with at_work(session, web) as (path, frames):
            await gate.wait()
            told = await web.post(f"{path}/send", {"to": "ann", "text": "Leave the tests alone."})
            assert (told["ok"], told["to"], told["how"]) == (True, "ann@crew", "queued")
            gate.opened.set()
            async with asyncio.timeout(10):
                await heard.wait()
            await frames.until(shows(page, "ann", "idle"))
        assert inbox("crew", "ann")[-1]["from"] == "user"
        assert "nothing to say" in (await web.post(f"{path}/send", {"to": "ann", "text": " "}, 400))["error"]
        assert (await web.post(f"{path}/send", {"to": "nobody", "text": "x"}, 409))["error"]
        assert (await web.post(f"{path}/send", {"wrong": 1}, 400))["error"]


@pytest.mark.spec("USR-18", "USR-08")
async def test_a_teammate_is_interrupted_then_stopped_and_another_killed(tmp_path: Path) -> None:
    gate, page = Gate(), Drawn()
    model = troupe(
        lead=[CREATE, member("ann"), member("bob"), "wait"],
        ann=[use("Gate"), "ready"],
        bob=[use("Gate"), "ready"],
    )
    settings = '{"shoal": {"shutdown_grace": 0.1}}'
    async with served() as web, opened(tmp_path, model, tools=[gate.tool], settings=settings) as session:
        async with at_work(session, web) as (path, frames):
            await frames.until(lambda frame: shows(page, "bob", "working")(frame) and gate.calls == 2)
            assert (await web.post(f"{path}/interrupt", {"agent": "ann@crew"}))["interrupted"]
            await frames.until(shows(page, "ann", "idle"))
            await web.post(f"{path}/stop", {"agent": "ann@crew"})
            await web.post(f"{path}/kill", {"agent": "bob@crew"})
            await frames.until(shows(page, "bob", "killed"))
            assert page.states()["ann"] in ("killed", "completed")
        assert "no agent" in (await web.post(f"{path}/stop", {"agent": "../ann"}, 404))["error"]
        assert "not killed" in (await web.post(f"{path}/kill", {"agent": "lead"}, 400))["error"]
        assert "no teammate" in (await web.post(f"{path}/stop", {"agent": "ann@crew"}, 409))["error"]


async def test_an_agent_for_one_job_goes_to_the_background_and_is_stopped(tmp_path: Path) -> None:
    gate, page = Gate(), Drawn()
    call = use("Agent", description="count", prompt="count", subagent_type="general-purpose")

    def mind(request: Request) -> Any:
        is_lead = request.messages[0].text == "lead"
        spoken = sum(message.role == "assistant" for message in request.messages)
        return ([call, "it runs"] if is_lead else [use("Gate"), "done"])[min(spoken, 1)]

    async with (
        served() as web,
        opened(tmp_path, ScriptedModel(mind), tools=[gate.tool]) as session,
        at_work(session, web) as (path, frames),
    ):
        await gate.wait()
        await frames.until(shows(page, "general-purpose", "working"))
        (agent,) = [key for (key,) in page.rows["agents"] if key != "lead"]
        assert (await web.post(f"{path}/background", {"agent": agent}))["moved"] == [agent]
        await web.post(f"{path}/stop", {"agent": agent})
        await frames.until(shows(page, "general-purpose", "killed"))


async def test_the_mode_is_changed_and_the_run_ended_from_a_page(tmp_path: Path) -> None:
    gate, page = Gate(), Drawn()
    async with served() as web:
        async with (
            opened(tmp_path, troupe(lead=[use("Gate"), "done"]), tools=[gate.tool]) as session,
            at_work(session, web) as (path, frames),
        ):
            await gate.wait()
            assert (await web.post(f"{path}/mode", {"mode": "plan"}))["mode"] == "plan"
            await frames.until(lambda frame: page.take(frame).run["mode"] == "plan")
            assert (await web.post(f"{path}/mode", {"mode": "wild"}, 400))["error"]
            assert (await web.post(f"{path}/stop", {"agent": "lead"}))["stopping"]
            assert session.stopping.is_set()
        assert "has ended" in (await web.post(f"{path}/mode", {"mode": "plan"}, 409))["error"]


@pytest.mark.spec("USR-05", "USR-26")
async def test_a_question_is_told_to_every_page_and_the_first_answer_stands(tmp_path: Path) -> None:
    model = troupe(
        lead=[CREATE, member("ann"), "wait"],
        ann=[use("Bash", command="touch painted"), tell("team-lead", "It is painted."), "ready"],
    )
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    async with served() as web, web.stream("/questions/stream") as questions:
        assert (await questions.next())[2] == []
        async with opened(tmp_path, model, **options) as session, at_work(session, web) as (path, frames):
            (asked,) = await questions.until(bool)
            assert (asked["session"], asked["name"]) == (session.id, "ann")
            assert asked["question"]["input"]["command"] == "touch painted"
            assert await web.get("/questions") == [asked]
            (line,) = await web.get("/runs")
            assert line["questions"] == 1
            at = f"{path}/questions/{asked['id']}"
            assert (await web.post(at, {"type": "chosen", "answers": {}}, 400))["error"]
            assert (await web.post(at, {"type": "of course"}, 400))["error"]
            assert await web.post(at, {"type": "allowed", "remember": "once"}) == {"stands": True}
            assert await web.post(at, {"type": "denied", "reason": "late"}) == {"stands": False}
            assert await questions.until(lambda rows: not rows) == []
            page = Drawn()
            await frames.until(shows(page, "ann", "idle"))
            assert (tmp_path / "painted").exists()
            row = page.rows["questions"][asked["id"],]
            assert (row["answer"]["type"], row["answered"] > 0) == ("allowed", True)
        assert "withdrawn" in (await web.post(f"{path}/questions/nothing", {"type": "allowed"}, 404))["error"]


@pytest.mark.spec("USR-26")
async def test_another_plan_comes_with_the_one_before_it(tmp_path: Path) -> None:
    model = troupe(
        lead=[
            use("ExitPlanMode", "one", plan="Paint it red."),
            use("ExitPlanMode", "two", plan="Paint it blue."),
            "done",
        ]
    )
    options = {"skip_permissions": False, "attended": True, "mode": "plan"}
    async with (
        served() as web,
        web.stream("/questions/stream") as questions,
        opened(tmp_path, model, **options) as session,
        at_work(session, web) as (path, _),
    ):
        (first,) = await questions.until(bool)
        assert "previous_plan" not in first
        no = {"type": "denied", "reason": "Not red.", "by": "policy"}
        assert (await web.post(f"{path}/questions/{first['id']}", no))["stands"]
        (second,) = await questions.until(lambda rows: rows and rows[0]["id"] != first["id"])
        assert (second["previous_plan"], second["question"]["plan"]) == (
            "Paint it red.",
            "Paint it blue.",
        )
        other = {"type": "approved", "digest": first["question"]["digest"]}
        assert (await web.post(f"{path}/questions/{second['id']}", other, 400))["error"]
        yes = {"type": "approved", "digest": second["question"]["digest"]}
        assert (await web.post(f"{path}/questions/{second['id']}", yes))["stands"]
        await questions.until(lambda rows: not rows)


async def test_a_question_of_a_run_that_ended_is_asked_no_longer(tmp_path: Path) -> None:
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    async with served() as web, web.stream("/questions/stream") as questions:
        async with (
            opened(tmp_path, troupe(lead=[use("Bash", command="true > x"), "done"]), **options) as session,
            at_work(session, web),
        ):
            await questions.until(bool)
        assert await questions.until(lambda rows: not rows) == []


async def test_tasks_are_added_given_ordered_and_taken_away_from_a_page(tmp_path: Path) -> None:
    gate, page = Gate(), Drawn()
    model = troupe(lead=[CREATE, member("ann"), "wait"], ann=[use("Gate"), "ready"])

    def task(number: str) -> Any:
        return page.rows["tasks"].get(("crew", number), {})

    async with served() as web:
        async with (
            opened(tmp_path, model, tools=[gate.tool]) as session,
            at_work(session, web) as (path, frames),
        ):
            await gate.wait()
            await frames.until(shows(page, "ann", "working"))
            first = {"board": "crew", "subject": "Paint the roof", "description": "Red."}
            told = await web.post(f"{path}/tasks", first, 201)
            assert told["task"]["id"] == "1"
            second = {"board": "crew", "subject": "Dry it", "blocked_by": ["1"], "owner": "ann"}
            await web.post(f"{path}/tasks", second, 201)
            await frames.until(lambda frame: page.take(frame) and task("2").get("owner") == "ann")
            assert task("2")["blocked_by"] == ["1"]
            assert any("task_assignment" in each["text"] for each in inbox("crew", "ann"))
            await web.patch(f"{path}/tasks/crew/1", {"rank": 2.5, "owner": "ann", "subject": "Paint"})
            await frames.until(lambda frame: page.take(frame) and task("1").get("rank") == 2.5)
            assert (task("1")["owner"], task("1")["subject"]) == ("ann", "Paint")
            whole = await web.get(f"{path}/tasks/crew/1")
            assert (whole["description"], whole["rank"], whole["blocks"]) == ("Red.", 2.5, ["2"])
            await web.patch(f"{path}/tasks/crew/1", {"owner": "", "rank": None})
            await frames.until(lambda frame: page.take(frame) and task("1").get("owner") == "")
            assert task("1")["rank"] is None
            await web.patch(f"{path}/tasks/crew/1", {"status": "deleted"})
            await frames.until(lambda frame: page.take(frame) and task("1").get("status") == "deleted")
            refused = [({}, 400), ({"status": "odd"}, 400), ({"owner": "../x"}, 400), ({"x": 1}, 400)]
            for body, status in refused:
                assert (await web.patch(f"{path}/tasks/crew/2", body, status))["error"]
            assert (await web.patch(f"{path}/tasks/crew/77", {"rank": 1}, 409))["error"]
            assert (await web.post(f"{path}/tasks", {**first, "board": "other"}, 404))["error"]
            assert (await web.post(f"{path}/tasks", {**first, "subject": " "}, 400))["error"]
            assert (await web.post(f"{path}/tasks", {**first, "blocked_by": ["9"]}, 409))["error"]
            assert (await web.get(f"{path}/tasks/crew/9", 404))["error"]
        assert "has ended" in (await web.patch(f"{path}/tasks/crew/2", {"rank": 1}, 409))["error"]


async def test_a_letter_is_shown_whole(tmp_path: Path) -> None:
    long = "The roof is tight. " * 100
    page = Drawn()
    model = troupe(lead=[CREATE, member("ann"), "wait"], ann=[tell("team-lead", long), "ready"])
    async with served() as web, opened(tmp_path, model) as session, at_work(session, web) as (path, frames):
        await frames.until(
            lambda frame: any(row["sender"] == "ann" for row in page.take(frame).rows["letters"].values())
        )
        row = next(row for row in page.rows["letters"].values() if row["text"].startswith("The roof"))
        assert len(row["text"]) <= 200
        whole = await web.get(f"{path}/letters/crew/{row['to']}/{row['id']}")
        assert whole["text"] == whole["words"] == long
        assert (await web.get(f"{path}/letters/crew/ann/{row['id']}", 404))["error"]
        assert (await web.get(f"{path}/letters/other/ann/{row['id']}", 404))["error"]


async def test_a_body_that_is_too_long_or_no_json_is_refused(tmp_path: Path) -> None:
    async with served() as web, opened(tmp_path, troupe(lead=["done"])) as session:
        path = f"/api/runs/{session.id}/send"
        long = await web.client.post(path, content=b"x" * (1 << 20) + b"x")
        assert (long.status_code, "longer than" in long.json()["error"]) == (413, True)
        for content in (b"", b"{", b"[]", b'{"to": 1, "text": "x"}', b"\xff\xfe"):
            reply = await web.client.post(path, content=content)
            assert (reply.status_code, bool(reply.json()["error"])) == (400, True)


async def test_a_run_that_is_resumed_asks_on_a_page_that_looked_before(tmp_path: Path) -> None:
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    model = troupe(lead=["ready", use("Bash", command="true > x"), "done"])
    async with opened(tmp_path, model, **options) as session:
        await all_turns(session)
    async with served() as web, web.stream("/questions/stream") as questions:
        assert (await questions.next())[2] == []
        async with (
            opened(tmp_path, model, resume=session.id, **options) as resumed,
            at_work(resumed, web) as (path, _),
        ):
            (asked,) = await questions.until(bool)
            assert asked["session"] == session.id
            await web.post(f"{path}/questions/{asked['id']}", {"type": "denied", "reason": "no"})
            assert await questions.until(lambda rows: not rows) == []
