"""`shoal cost`: exact usage over every run of a session, including requests that were cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, ModelRequestSettled, TaskChanged
from shoal.core.ids import LEAD_ID, AgentId, RequestId
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.testing import make_tool_call, messages_server
from shoal.testing.mock_replies import StalledStreamFault


@pytest.mark.spec("USR-19")
async def test_the_cost_of_a_session_is_what_the_provider_reported_over_all_its_runs(
    shoal: ShoalProgram,
) -> None:
    async with messages_server([make_tool_call("Glob", pattern="*"), "one", "two"]) as server:
        shoal.use_server(server)
        await shoal("-p", "first", "--model", MODEL)
        await shoal("-p", "second", "--model", MODEL, "--continue")
        report = json.loads((await shoal("cost", "--json")).text)
        assert report["total"]["requests"] == 3
        assert report["total"]["usage"]["input_tokens"] == server.reported_usage.input_tokens
        assert report["total"]["usage"]["output_tokens"] == server.reported_usage.output_tokens
        assert report["total"]["usd"] > 0
        assert report["unsettled"] == []
        for_people = (await shoal("cost", report["session"][:8])).text
    assert "total   3 requests" in for_people


@pytest.mark.spec("USR-19")
async def test_costs_are_listed_by_agent_type_task_and_model(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, "--output-format", "json")
    session = ran.result["session_id"]
    record = FileJournal(home / "shoal" / "runs" / session / "journal.jsonl", SystemClock())
    dig = TaskChanged(
        agent=LEAD_ID, board="b", task="4", subject="Dig", status="in_progress", owner="finder-2"
    )
    record.append(dig)
    for number, usd in ((1, 0.25), (2, 0.5)):
        agent = AgentId(f"a{number}")
        record.append(
            AgentStarted(
                agent=agent,
                kind="Explore",
                name=f"finder-{number}",
                description=f"look into part {number}",
                parent=LEAD_ID,
                call="c",
                depth=1,
                model="m",
                mode="default",
                background=True,
                cwd="/",
            )
        )
        usage = Usage(input_tokens=100 * number, output_tokens=1)
        request = RequestId(f"r{number}")
        record.append(
            ModelRequestSettled(
                agent=agent, request=request, model="m", usage=usage, cost_usd=usd, duration_ms=1
            )
        )
    record.close()
    report = json.loads((await shoal("cost", "--json")).text)
    assert report["by_type"]["Explore"]["usage"]["input_tokens"] == 300
    assert report["by_type"]["Explore"]["usd"] == 0.75
    assert set(report["by_agent"]) == {"lead", "a1", "a2"}
    assert report["by_model"]["m"]["requests"] == 2
    assert {task: spent["requests"] for task, spent in report["by_task"].items()} == {"": 2, "#4 Dig": 1}
    assert report["by_task"]["#4 Dig"]["usd"] == 0.5
    assert report["spent"][1]["worker"] == {"kind": "Explore", "name": "finder-1", "task": "look into part 1"}
    for_people = (await shoal("cost")).text
    assert "  finder-2 (Explore: look into part 2)  m  1 request, " in for_people
    assert "  type Explore  2 requests" in for_people
    assert "  model m  2 requests" in for_people
    assert "  task #4 Dig  1 request, " in for_people


async def test_terminal_codes_in_agent_descriptions_are_removed(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, "--output-format", "json")
    journal = home / "shoal" / "runs" / ran.result["session_id"] / "journal.jsonl"
    record = FileJournal(journal, SystemClock())
    agent, hostile = AgentId("a1"), "dig\x07\rin all  nothing"
    facts: dict[str, Any] = {
        "kind": "Explore",
        "name": "",
        "parent": LEAD_ID,
        "cwd": "/",
        "call": "c",
        "depth": 1,
        "model": "m",
        "mode": "default",
    }
    record.append(AgentStarted(agent=agent, description=hostile, background=True, **facts))
    record.append(
        TaskChanged(agent=LEAD_ID, board="b", task="4", subject=hostile, status="in_progress", owner="a1")
    )
    settled: dict[str, Any] = {
        "model": "m",
        "usage": Usage(input_tokens=1),
        "cost_usd": 0.5,
        "duration_ms": 1,
    }
    record.append(ModelRequestSettled(agent=agent, request=RequestId("r1"), **settled))
    record.close()
    output = (await shoal("cost")).text
    assert "Explore: digin all nothing" in output
    assert "\x07" not in output
    assert "\r" not in output


@pytest.mark.spec("USR-19")
async def test_a_request_cut_by_kill_9_is_listed_as_unsettled(shoal: ShoalProgram) -> None:
    async with messages_server([["hello", StalledStreamFault(after=2)]]) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL) as run:
            assert run.stdin is not None
            run.stdin.close()
            await server.wait_for_requests(1)
            run.kill()
            await run.wait()
        report = json.loads((await shoal("cost", "--json")).text)
    assert [lost["model"] for lost in report["unsettled"]] == [MODEL.partition(":")[2]]
    assert report["total"]["requests"] == 0


async def test_a_directory_without_sessions_says_so(shoal: ShoalProgram) -> None:
    ran = await shoal("cost")
    assert ran.code == 1
    assert "There is no session in" in ran.err
