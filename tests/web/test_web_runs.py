"""The list of runs, the frames of one, and its replay."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    JournaledEvent,
    ModelRequestSettled,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, RequestId, SessionId
from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions.file_journal import FileJournal
from team_scripts import get_home, open_session, script_team, send_message, spawn_member
from web_client import PageState, serve_home

CREATE = call_tool("TeamCreate", team_name="crew")
TASKS = [call_tool("TaskCreate", f"t{n}", subject=f"step {n}", description="d") for n in (1, 2)]


def script_gated_crew(gate: ToolGate) -> Any:
    return script_team(
        lead=[CREATE, TASKS, spawn_member("ann"), call_tool("Until"), "wait", "so be it"],
        ann=[
            call_tool("TaskUpdate", taskId="1", status="in_progress"),
            call_tool("Gate"),
            call_tool("TaskUpdate", "d", taskId="1", status="completed"),
            send_message("team-lead", "Step one is done."),
            "ready",
        ],
    )


def write_run(session: str, *events: JournaledEvent) -> RunHandle:
    """Write a run with these events whose process has ended."""
    run = RunHandle(session=SessionId(session), home=get_home())
    journal = FileJournal(get_journal_path(get_home(), run.session), SystemClock())
    for event in events:
        journal.append(event)
    journal.close()
    return run


def make_start_events(session: str, prompt: str = "do it") -> list[JournaledEvent]:
    return [
        SessionStarted(
            agent=LEAD_ID, session=SessionId(session), cwd="/work", model="m", mode="default", tools=()
        ),
        TurnStarted(agent=LEAD_ID, turn=1, prompt=prompt),
    ]


def make_member_start(name: str) -> AgentStarted:
    return AgentStarted(
        agent=AgentId(f"{name}@crew"),
        kind="general-purpose",
        name=name,
        description="works",
        parent=LEAD_ID,
        call="c",
        depth=1,
        model="m",
        mode="default",
        background=False,
        cwd="/work",
        team="",
    )


def make_settled_request(agent: str, tokens: int, usd: float) -> ModelRequestSettled:
    usage = Usage(input_tokens=tokens)
    return ModelRequestSettled(
        agent=AgentId(agent), request=RequestId("r"), model="m", usage=usage, cost_usd=usd, duration_ms=1
    )


@pytest.mark.spec("USR-18")
async def test_a_page_shows_a_team_work_and_end(tmp_path: Path) -> None:
    gate, page = ToolGate(), PageState()
    async with serve_home() as web:
        async with open_session(
            tmp_path, script_gated_crew(gate), tools=[gate.tool, gate.wait_tool, gate.open_tool]
        ) as session:
            async with asyncio.TaskGroup() as tasks:
                turns = tasks.create_task(run_all_turns(session))
                await gate.wait_until_reached()
                async with web.open_stream(f"/runs/{session.id}/frames") as frames:

                    def shows(state: str, status: str) -> Any:
                        def is_so(frame: Any) -> bool:
                            task = page.apply_frame(frame).rows["tasks"].get(("crew", "1"), {})
                            return (
                                page.map_agent_states().get("ann") == state and task.get("status") == status
                            )

                        return is_so

                    await frames.read_until(shows("working", "in_progress"))
                    assert page.live
                    assert page.rows["tasks"]["crew", "1"]["owner"] == "ann"
                    gate.is_open.set()
                    await frames.read_until(shows("idle", "completed"))
                await turns
            (line,) = await web.get_json("/runs")
            assert (line["session"], line["live"], line["ended"]) == (session.id, True, False)
            assert (line["agents"], line["teams"], line["cwd"]) == (2, ["crew"], str(tmp_path))
        mail_texts = {row["text"] for row in page.rows["letters"].values()}
        assert "Step one is done." in mail_texts
        async with web.open_stream(f"/runs/{session.id}/frames?since=0") as frames:
            _, _, last = await frames.read_event()
        assert (last["live"], last["run"]["ended"]) == (False, True)
        (line,) = await web.get_json("/runs")
        assert (line["live"], line["ended"]) == (False, True)


async def test_an_open_page_is_notified_when_the_run_ends(tmp_path: Path) -> None:
    page = PageState()
    async with serve_home() as web:
        async with open_session(tmp_path, script_team(lead=["done"])) as session:
            await run_all_turns(session)
            stream = web.open_stream(f"/runs/{session.id}/frames")
            frames = await stream.__aenter__()
            page.apply_frame((await frames.read_event())[2])
            assert page.live
        await frames.read_until(lambda frame: not page.apply_frame(frame).live)
        await stream.__aexit__(None, None, None)
    assert page.run["ended"]


async def test_a_dropped_connection_resumes_at_its_offset(tmp_path: Path) -> None:
    gate, page, whole = ToolGate(), PageState(), PageState()
    async with (
        serve_home() as web,
        open_session(tmp_path, script_gated_crew(gate), tools=[gate.tool, gate.wait_tool]) as session,
    ):
        async with asyncio.TaskGroup() as tasks:
            turns = tasks.create_task(run_all_turns(session))
            await gate.wait_until_reached()
            async with web.open_stream(f"/runs/{session.id}/frames") as frames:
                _, ident, frame = await frames.read_event()
                page.apply_frame(frame)
            gate.is_open.set()
            await turns
        async with web.open_stream(f"/runs/{session.id}/frames", **{"Last-Event-ID": ident}) as frames:
            _, _, frame = await frames.read_event()
            assert int(ident) - 1 <= frame["since"] <= int(ident)
            assert frame["offset"] > int(ident)
            page.apply_frame(frame)
        async with web.open_stream(f"/runs/{session.id}/frames?since=0") as frames:
            whole.apply_frame((await frames.read_event())[2])
    assert page.comparable_state == whole.comparable_state


async def test_a_page_continues_on_another_server_after_a_crash_and_a_resume() -> None:
    """The loss of a run has an event number that a later server never assigned."""
    session = "11111111-1111-4111-8111-111111111111"
    page, whole = PageState(), PageState()
    write_run(session, *make_start_events(session), make_member_start("ann"))
    async with serve_home() as web, web.open_stream(f"/runs/{session}/frames") as frames:
        _, ident, frame = await frames.read_event()
        page.apply_frame(frame)
    assert page.map_agent_states()["ann"] == "gone"
    write_run(session, *make_start_events(session), make_member_start("ann"), SessionEnded(agent=LEAD_ID))
    async with serve_home() as web:
        async with web.open_stream(f"/runs/{session}/frames", **{"Last-Event-ID": ident}) as frames:
            page.apply_frame((await frames.read_event())[2])
        async with web.open_stream(f"/runs/{session}/frames") as frames:
            whole.apply_frame((await frames.read_event())[2])
    assert page.comparable_state == whole.comparable_state
    assert page.run["ended"]


async def test_a_page_that_missed_a_crash_shows_the_lost_agent() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    page = PageState()
    write_run(session, *make_start_events(session), make_member_start("ann"))
    offset = RunHandle(session=SessionId(session), home=get_home()).journal_path.stat().st_size
    write_run(session, *make_start_events(session))
    async with serve_home() as web, web.open_stream(f"/runs/{session}/frames?since={offset}") as frames:
        page.apply_frame((await frames.read_event())[2])
    assert page.map_agent_states()["ann"] == "gone"


@pytest.mark.slow
async def test_all_pages_of_a_run_share_one_run_view(tmp_path: Path) -> None:
    session = "11111111-1111-4111-8111-111111111111"
    run = write_run(session, *make_start_events(session))

    def watches() -> int:
        gc.collect()
        return sum(isinstance(each, DirectoryWatch) for each in gc.get_objects())

    async with serve_home() as web, web.open_stream(f"/runs/{run.session}/frames") as one:
        await one.read_event()
        before = watches()
        async with (
            web.open_stream(f"/runs/{session}/frames") as two,
            web.open_stream(f"/runs/{session}/frames") as three,
        ):
            await two.read_event()
            await three.read_event()
            assert watches() == before


async def test_a_head_request_of_a_stream_leaves_its_connection_usable() -> None:
    async with serve_home() as web:
        reply = await web.client.head("/api/questions/stream")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert await web.get_json("/runs") == []


async def test_a_server_stops_cleanly_with_open_pages() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    write_run(session, *make_start_events(session))
    async with (
        serve_home() as web,
        web.open_stream(f"/runs/{session}/frames") as frames,
        web.open_stream(f"/runs/{session}/agents/lead/live") as live,
        web.open_stream("/questions/stream") as questions,
    ):
        for each in (frames, live, questions):
            await each.read_event()
        web.stop.set()
        # A stream that is cut off raises; one that ends in order is just over.
        for each in (frames, live, questions):
            await each.read_to_end()


@pytest.mark.spec("USR-18", "USR-19")
@pytest.mark.parametrize("most", [1, 3, 400])
async def test_a_replay_ends_where_the_run_ended(tmp_path: Path, most: int) -> None:
    gate, page, replayed = ToolGate(), PageState(), PageState()
    gate.is_open.set()
    async with serve_home() as web:
        async with open_session(
            tmp_path, script_gated_crew(gate), tools=[gate.tool, gate.wait_tool]
        ) as session:
            await run_all_turns(session)
        async with web.open_stream(f"/runs/{session.id}/frames") as frames:
            page.apply_frame((await frames.read_event())[2])
        steps = (await web.get_json(f"/runs/{session.id}/replay?frames={most}"))["frames"]
        (line,) = await web.get_json("/runs")
    assert 1 <= len(steps) <= most
    assert [each["since"] for each in steps] == [0, *(each["offset"] for each in steps[:-1])]
    for step in steps:
        replayed.apply_frame(step)
    assert replayed.comparable_state == page.comparable_state
    told = sum(row["tokens"] for row in page.rows["agents"].values())
    costs = page.rows["costs"].values()
    assert told == line["tokens"] == sum(row["input_tokens"] + row["output_tokens"] for row in costs) > 0


async def test_the_replay_of_a_lost_run_ends_with_its_agents_lost() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    write_run(session, *make_start_events(session), make_member_start("ann"), make_member_start("bob"))
    page = PageState()
    async with serve_home() as web:
        for step in (await web.get_json(f"/runs/{session}/replay?frames=2"))["frames"]:
            page.apply_frame(step)
    assert page.map_agent_states() == {"lead": "idle", "ann": "gone", "bob": "gone"}
    assert page.live is False


async def test_unreadable_runs_are_an_error_and_not_an_empty_list() -> None:
    place = get_home() / "shoal" / "runs"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("not a directory")
    async with serve_home() as web:
        told = await web.get_json("/runs", status=409)
    assert f"Cannot list the runs in {place}" in told["error"]


async def test_runs_are_listed_newest_first_in_pages() -> None:
    sessions = [f"{n:08d}-1111-4111-8111-111111111111" for n in range(1, 6)]
    for number, session in enumerate(sessions, 1):
        run = write_run(
            session,
            *make_start_events(session, f"job {number}"),
            make_settled_request("lead", number, 0.5),
            make_member_start("ann"),
        )
        os.utime(run.journal_path, (number, number))
    (get_home() / "shoal" / "runs" / "not-begun").mkdir()
    async with serve_home() as web:
        lines = await web.get_json("/runs?limit=2")
        assert [line["prompt"] for line in lines] == ["job 5", "job 4"]
        lines = await web.get_json(f"/runs?limit=2&before={lines[-1]['session']}")
        assert [line["prompt"] for line in lines] == ["job 3", "job 2"]
        lines = await web.get_json(f"/runs?before={lines[-1]['last']}")
        assert [(line["prompt"], line["tokens"], line["usd"], line["agents"]) for line in lines] == [
            ("job 1", 1, 0.5, 2)
        ]


async def test_a_run_list_entry_counts_each_event_of_its_run_once() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    forged = '{"at":"2026-01-01T00:00:00.000Z","type":"request_settled","agent":"lead","cost_usd":9}'
    write_run(session, *make_start_events(session, f"first\n{forged}"), make_settled_request("lead", 1, 0.25))
    async with serve_home() as web:
        (line,) = await web.get_json("/runs")
        assert (line["usd"], line["tokens"], line["ended"]) == (0.25, 1, False)
        write_run(session, make_settled_request("ann@crew", 2, 0.5), SessionEnded(agent=LEAD_ID))
        (line,) = await web.get_json("/runs")
        assert (line["usd"], line["tokens"], line["ended"]) == (0.75, 3, True)
        assert json.loads(line["prompt"].partition("\n")[2])["cost_usd"] == 9


async def test_a_page_is_notified_when_the_list_of_runs_may_have_changed() -> None:
    sessions = [f"{n:08d}-1111-4111-8111-111111111111" for n in (1, 2)]
    write_run(sessions[0], *make_start_events(sessions[0], "the first"))
    async with serve_home() as web, web.open_stream("/questions/stream") as stream:
        assert (await stream.read_event())[2] == []
        write_run(sessions[1], *make_start_events(sessions[1], "the second"))
        while (await stream.read_event())[0] != "runs":
            pass
        lines = await web.get_json("/runs")
        assert [line["prompt"] for line in lines] == ["the second", "the first"]
