"""The list of runs, the frames of one, and its replay."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, use
from shoal.app.outside.watching import Run
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    Journaled,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId, RequestId, SessionId
from shoal.core.usage import Usage
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.places import journal_path
from shoal.stores.files.watch import DirectoryWatch
from troupe import home, member, opened, tell, troupe
from web_rig import Drawn, served

CREATE = use("TeamCreate", team_name="crew")
TASKS = [use("TaskCreate", f"t{n}", subject=f"step {n}", description="d") for n in (1, 2)]


def crew(gate: Gate) -> Any:
    return troupe(
        lead=[CREATE, TASKS, member("ann"), use("Until"), "wait", "so be it"],
        ann=[
            use("TaskUpdate", taskId="1", status="in_progress"),
            use("Gate"),
            use("TaskUpdate", "d", taskId="1", status="completed"),
            tell("team-lead", "Step one is done."),
            "ready",
        ],
    )


def written(session: str, *events: Journaled) -> Run:
    """A run whose process is gone, with these events."""
    run = Run(session=SessionId(session), home=home())
    journal = FileJournal(journal_path(home(), run.session), SystemClock())
    for event in events:
        journal.append(event)
    journal.close()
    return run


def started(session: str, prompt: str = "do it") -> list[Journaled]:
    return [
        SessionStarted(
            agent=LEAD, session=SessionId(session), cwd="/work", model="m", mode="default", tools=()
        ),
        TurnStarted(agent=LEAD, turn=1, prompt=prompt),
    ]


def joined(name: str) -> AgentStarted:
    return AgentStarted(
        agent=AgentId(f"{name}@crew"),
        kind="general-purpose",
        name=name,
        description="works",
        parent=LEAD,
        call="c",
        depth=1,
        model="m",
        mode="default",
        background=False,
        cwd="/work",
        team="",
    )


def settled(agent: str, tokens: int, usd: float) -> RequestSettled:
    usage = Usage(input_tokens=tokens)
    return RequestSettled(
        agent=AgentId(agent), request=RequestId("r"), model="m", usage=usage, cost_usd=usd, duration_ms=1
    )


@pytest.mark.spec("USR-18")
async def test_a_page_sees_a_team_work_and_end(tmp_path: Path) -> None:
    gate, page = Gate(), Drawn()
    async with served() as web:
        async with opened(tmp_path, crew(gate), tools=[gate.tool, gate.until, gate.open]) as session:
            async with asyncio.TaskGroup() as tasks:
                turns = tasks.create_task(all_turns(session))
                await gate.wait()
                async with web.stream(f"/runs/{session.id}/frames") as frames:

                    def shows(state: str, status: str) -> Any:
                        def is_so(frame: Any) -> bool:
                            task = page.take(frame).rows["tasks"].get(("crew", "1"), {})
                            return page.states().get("ann") == state and task.get("status") == status

                        return is_so

                    await frames.until(shows("working", "in_progress"))
                    assert page.live
                    assert page.rows["tasks"]["crew", "1"]["owner"] == "ann"
                    gate.opened.set()
                    await frames.until(shows("idle", "completed"))
                await turns
            (line,) = await web.get("/runs")
            assert (line["session"], line["live"], line["ended"]) == (session.id, True, False)
            assert (line["agents"], line["teams"], line["cwd"]) == (2, ["crew"], str(tmp_path))
        letters = {row["text"] for row in page.rows["letters"].values()}
        assert "Step one is done." in letters
        async with web.stream(f"/runs/{session.id}/frames?since=0") as frames:
            _, _, last = await frames.next()
        assert (last["live"], last["run"]["ended"]) == (False, True)
        (line,) = await web.get("/runs")
        assert (line["live"], line["ended"]) == (False, True)


async def test_a_page_that_looks_when_the_run_ends_is_told_so(tmp_path: Path) -> None:
    page = Drawn()
    async with served() as web:
        async with opened(tmp_path, troupe(lead=["done"])) as session:
            await all_turns(session)
            stream = web.stream(f"/runs/{session.id}/frames")
            frames = await stream.__aenter__()
            page.take((await frames.next())[2])
            assert page.live
        await frames.until(lambda frame: not page.take(frame).live)
        await stream.__aexit__(None, None, None)
    assert page.run["ended"]


async def test_a_dropped_connection_goes_on_at_its_offset(tmp_path: Path) -> None:
    gate, page, whole = Gate(), Drawn(), Drawn()
    async with served() as web, opened(tmp_path, crew(gate), tools=[gate.tool, gate.until]) as session:
        async with asyncio.TaskGroup() as tasks:
            turns = tasks.create_task(all_turns(session))
            await gate.wait()
            async with web.stream(f"/runs/{session.id}/frames") as frames:
                _, ident, frame = await frames.next()
                page.take(frame)
            gate.opened.set()
            await turns
        async with web.stream(f"/runs/{session.id}/frames", **{"Last-Event-ID": ident}) as frames:
            _, _, frame = await frames.next()
            assert int(ident) - 1 <= frame["since"] <= int(ident)
            assert frame["offset"] > int(ident)
            page.take(frame)
        async with web.stream(f"/runs/{session.id}/frames?since=0") as frames:
            whole.take((await frames.next())[2])
    assert page.all == whole.all


async def test_what_another_server_told_is_gone_on_with_after_a_crash_and_a_resumption() -> None:
    """That a run was lost has a number of its own, which a server that begins later never gave."""
    session = "11111111-1111-4111-8111-111111111111"
    page, whole = Drawn(), Drawn()
    written(session, *started(session), joined("ann"))
    async with served() as web, web.stream(f"/runs/{session}/frames") as frames:
        _, ident, frame = await frames.next()
        page.take(frame)
    assert page.states()["ann"] == "gone"
    written(session, *started(session), joined("ann"), SessionEnded(agent=LEAD))
    async with served() as web:
        async with web.stream(f"/runs/{session}/frames", **{"Last-Event-ID": ident}) as frames:
            page.take((await frames.next())[2])
        async with web.stream(f"/runs/{session}/frames") as frames:
            whole.take((await frames.next())[2])
    assert page.all == whole.all
    assert page.run["ended"]


async def test_an_agent_that_a_crash_took_is_told_gone_to_a_page_that_missed_it() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    page = Drawn()
    written(session, *started(session), joined("ann"))
    offset = Run(session=SessionId(session), home=home()).journal.stat().st_size
    written(session, *started(session))
    async with served() as web, web.stream(f"/runs/{session}/frames?since={offset}") as frames:
        page.take((await frames.next())[2])
    assert page.states()["ann"] == "gone"


async def test_all_pages_of_a_run_share_one_picture_of_it(tmp_path: Path) -> None:
    session = "11111111-1111-4111-8111-111111111111"
    run = written(session, *started(session))

    def watches() -> int:
        gc.collect()
        return sum(isinstance(each, DirectoryWatch) for each in gc.get_objects())

    async with served() as web, web.stream(f"/runs/{run.session}/frames") as one:
        await one.next()
        before = watches()
        async with (
            web.stream(f"/runs/{session}/frames") as two,
            web.stream(f"/runs/{session}/frames") as three,
        ):
            await two.next()
            await three.next()
            assert watches() == before


async def test_a_server_ends_in_order_while_pages_look_on() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    written(session, *started(session))
    async with (
        served() as web,
        web.stream(f"/runs/{session}/frames") as frames,
        web.stream(f"/runs/{session}/agents/lead/live") as live,
        web.stream("/questions/stream") as questions,
    ):
        for each in (frames, live, questions):
            await each.next()
        web.ended.set()
        # A stream that is cut off raises; one that ends in order is just over.
        for each in (frames, live, questions):
            await each.rest()


@pytest.mark.spec("USR-18", "USR-19")
@pytest.mark.parametrize("most", [1, 3, 400])
async def test_a_replay_ends_where_the_run_did(tmp_path: Path, most: int) -> None:
    gate, page, replayed = Gate(), Drawn(), Drawn()
    gate.opened.set()
    async with served() as web:
        async with opened(tmp_path, crew(gate), tools=[gate.tool, gate.until]) as session:
            await all_turns(session)
        async with web.stream(f"/runs/{session.id}/frames") as frames:
            page.take((await frames.next())[2])
        steps = (await web.get(f"/runs/{session.id}/replay?frames={most}"))["frames"]
        (line,) = await web.get("/runs")
    assert 1 <= len(steps) <= most
    assert [each["since"] for each in steps] == [0, *(each["offset"] for each in steps[:-1])]
    for step in steps:
        replayed.take(step)
    assert replayed.all == page.all
    told = sum(row["tokens"] for row in page.rows["agents"].values())
    costs = page.rows["costs"].values()
    assert told == line["tokens"] == sum(row["input_tokens"] + row["output_tokens"] for row in costs) > 0


async def test_the_replay_of_a_run_that_was_lost_ends_with_its_agents_gone() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    written(session, *started(session), joined("ann"), joined("bob"))
    page = Drawn()
    async with served() as web:
        for step in (await web.get(f"/runs/{session}/replay?frames=2"))["frames"]:
            page.take(step)
    assert page.states() == {"lead": "idle", "ann": "gone", "bob": "gone"}
    assert page.live is False


async def test_runs_that_cannot_be_listed_are_no_empty_list() -> None:
    place = home() / "shoal" / "runs"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("not a directory")
    async with served() as web:
        told = await web.get("/runs", status=409)
    assert f"The runs in {place} cannot be listed" in told["error"]


async def test_runs_are_listed_the_newest_first_in_pages() -> None:
    sessions = [f"{n:08d}-1111-4111-8111-111111111111" for n in range(1, 6)]
    for number, session in enumerate(sessions, 1):
        run = written(
            session, *started(session, f"job {number}"), settled("lead", number, 0.5), joined("ann")
        )
        os.utime(run.journal, (number, number))
    (home() / "shoal" / "runs" / "not-begun").mkdir()
    async with served() as web:
        lines = await web.get("/runs?limit=2")
        assert [line["prompt"] for line in lines] == ["job 5", "job 4"]
        lines = await web.get(f"/runs?limit=2&before={lines[-1]['session']}")
        assert [line["prompt"] for line in lines] == ["job 3", "job 2"]
        lines = await web.get(f"/runs?before={lines[-1]['last']}")
        assert [(line["prompt"], line["tokens"], line["usd"], line["agents"]) for line in lines] == [
            ("job 1", 1, 0.5, 2)
        ]


async def test_a_line_of_the_list_goes_on_with_its_run_and_no_event_counts_inside_another() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    forged = '{"at":"2026-01-01T00:00:00.000Z","type":"request_settled","agent":"lead","cost_usd":9}'
    written(session, *started(session, f"first\n{forged}"), settled("lead", 1, 0.25))
    async with served() as web:
        (line,) = await web.get("/runs")
        assert (line["usd"], line["tokens"], line["ended"]) == (0.25, 1, False)
        written(session, settled("ann@crew", 2, 0.5), SessionEnded(agent=LEAD))
        (line,) = await web.get("/runs")
        assert (line["usd"], line["tokens"], line["ended"]) == (0.75, 3, True)
        assert json.loads(line["prompt"].partition("\n")[2])["cost_usd"] == 9


async def test_a_page_is_told_when_the_list_of_runs_may_be_another() -> None:
    sessions = [f"{n:08d}-1111-4111-8111-111111111111" for n in (1, 2)]
    written(sessions[0], *started(sessions[0], "the first"))
    async with served() as web, web.stream("/questions/stream") as stream:
        assert (await stream.next())[2] == []
        written(sessions[1], *started(sessions[1], "the second"))
        while (await stream.next())[0] != "runs":
            pass
        lines = await web.get("/runs")
        assert [line["prompt"] for line in lines] == ["the second", "the first"]
