"""Start, death, late start and end of MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import (
    HERE,
    is_alive,
    join_notes,
    list_result_texts,
    list_tool_results,
    make_rogue_config,
    map_statuses,
    open_session,
    wait_for_exit,
)

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from elapsed_times import scale_to_load
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import ToolStarted
from shoal.testing import FakeClock

pytestmark = pytest.mark.needs("mcp")


def pids(session: Any) -> list[int]:
    """List the ids of the server processes, which they wrote to their logs."""
    logs = Path(session.runtime.servers._host.logs)
    return [int(word) for log in logs.glob("*.log") for word in re.findall(r"\b\d{2,}\b", log.read_text())]


async def test_a_dead_server_is_restarted_once_and_then_calls_fail(tmp_path: Path) -> None:
    servers = {"frail": make_rogue_config("dies"), "sound": make_rogue_config("plain", "here")}
    call = call_tool("mcp__frail__echo", text="x")
    lead = [call, call, call, call_tool("mcp__sound__echo", text="I am"), "done"]
    async with open_session(tmp_path, script_agents(lead=lead), servers) as session:
        assert await run_all_turns(session) == "done"
        first, second, third, other = list_result_texts(session)
        assert [result.is_error for result in list_tool_results(session)] == [True, True, True, False]
        assert map_statuses(session) == {"frail": "failed", "sound": "connected"}
        told = join_notes(read_events(session))
        log = Path(session.runtime.servers._host.logs) / "frail.log"
        assert len(log.read_text().splitlines()) == 2
    assert "exit status 7" in first
    assert "restarted" in first
    assert "exit status 7" in second
    assert "is no longer available" in third
    assert other == "here I am"
    assert "The MCP server frail ended (exit status 7). It is being restarted." in told
    assert "is not available: it ended twice (exit status 7)" in told


@pytest.mark.spec("MCP-01", "RUN-09")
async def test_an_agents_own_server_starts_and_ends_with_it(tmp_path: Path) -> None:
    agents = {
        "worker": {
            "description": "works",
            "prompt": "Work.",
            "tools": ["Read"],
            "mcpServers": [{"own": make_rogue_config("plain", "mine")}],
        }
    }
    child = [
        call_tool("mcp__own__echo", text="alone"),
        lambda request: request.messages[-1].content[0].content,
    ]
    lead = [spawn_agent("child", subagent_type="worker"), call_tool("mcp__own__echo"), "done"]
    async with open_session(tmp_path, script_agents(lead=lead, child=child), {}, agents=agents) as session:
        await run_all_turns(session)
        reported, refused = list_result_texts(session)
        assert map_statuses(session) == {}
        (pid,) = pids(session)
        await wait_for_exit(pid, scale_to_load(2))
    assert "mine alone" in reported
    assert "There is no tool named 'mcp__own__echo'" in refused


@pytest.mark.spec("RUN-09")
async def test_servers_of_an_agent_that_cannot_start_are_stopped(tmp_path: Path) -> None:
    agents = {
        "worker": {
            "description": "works",
            "prompt": "Work.",
            "skills": ["no-such-skill"],
            "mcpServers": [{"own": make_rogue_config("plain")}],
        }
    }
    file = tmp_path / "agents.json"  # names in a mapping would be checked at the start
    file.write_text(json.dumps(agents))
    lead = [spawn_agent("child", subagent_type="worker"), "done"]
    async with open_session(tmp_path, script_agents(lead=lead), {}, agents=str(file)) as session:
        await run_all_turns(session)
        (refused,) = list_result_texts(session)
        (pid,) = pids(session)
        await wait_for_exit(pid, scale_to_load(2))
    assert "no-such-skill" in refused


@pytest.mark.spec("AGT-06", "USR-13")
async def test_a_required_server_that_cannot_start_is_named_at_once(tmp_path: Path) -> None:
    agents = {
        "picky": {
            "description": "d",
            "prompt": "p",
            "requiredMcpServers": ["bro*", "nowhere", "plain", "stranger", "off"],
        },
        "own": {"description": "d", "prompt": "p", "mcpServers": [{"mine": make_rogue_config("fails")}]},
        "bare": {"description": "d", "prompt": "p", "requiredMcpServers": ["bare"]},
    }
    servers = {
        "broken": make_rogue_config("fails"),
        "plain": make_rogue_config("plain"),
        "bare": make_rogue_config("none"),
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"stranger": {"command": "x"}}}))
    settings = {"mcpServers": {"off": {"command": "x"}}, "disabledMcpServers": ["off"]}
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text(json.dumps(settings))
    lead = [spawn_agent("child", f"c-{kind}", subagent_type=kind) for kind in agents]
    async with open_session(tmp_path, script_agents(lead=[*lead, "done"]), servers, agents=agents) as session:
        async with asyncio.timeout(25):
            await run_all_turns(session)
        picky, own, bare = list_result_texts(session)
        assert not session.supervisor.has_running_agents
    assert "bro* (exit status 4" in picky
    assert "nowhere (it is not configured" in picky
    assert "plain (" not in picky
    assert "stranger (the project that configures it is not trusted" in picky
    assert "off (it is disabled in the settings)" in picky
    assert "mine (exit status 4" in own
    assert "bare (it has no tools)" in bare


def release_server(pipe: Path) -> None:
    with pipe.open("w") as end:
        end.write("come up")


@pytest.mark.spec("AGT-06")
async def test_an_agent_waits_for_its_required_servers(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    agents = {
        "patient": {"description": "d", "prompt": "p", "requiredMcpServers": ["late"]},
        "choosy": {"description": "d", "prompt": "p", "tools": ["mcp__late__echo"]},
    }
    child = [
        call_tool("mcp__late__echo", text="and now"),
        lambda request: request.messages[-1].content[0].content,
    ]
    both = [
        spawn_agent("child", "c-1", subagent_type="patient"),
        spawn_agent("child", "c-2", subagent_type="choosy"),
    ]
    lead = [(both[0], both[1]), "done"]
    model = script_agents(lead=lead, child=child)
    options = {"agents": agents, "own": {"mcp_wait": 0}}
    async with open_session(
        tmp_path, model, {"late": make_rogue_config("slow", str(pipe))}, **options
    ) as session:
        turn = session.run("lead")
        async with asyncio.timeout(30):
            async for event in turn:
                if type(event).__name__ == "ToolStarted" and event.call == "c-2":
                    assert map_statuses(session) == {"late": "pending"}
                    await asyncio.to_thread(release_server, pipe)
        first, second = list_result_texts(session)
    assert "and now" in first
    assert "and now" in second


@pytest.mark.spec("AGT-06")
async def test_an_agent_waits_30_seconds_for_a_required_server(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    clock = FakeClock()
    agents = {"patient": {"description": "d", "prompt": "p", "requiredMcpServers": ["late"]}}
    model = script_agents(lead=[spawn_agent("child", "c-1", subagent_type="patient"), "done"])
    options = {"agents": agents, "own": {"mcp_wait": 0}, "clock": clock}
    async with (
        asyncio.timeout(30),
        open_session(tmp_path, model, {"late": make_rogue_config("slow", str(pipe))}, **options) as session,
    ):
        others = clock.sleepers
        log = Path(session.runtime.servers._host.logs) / "late.log"
        turn = session.run("lead")
        async for event in turn:
            if isinstance(event, ToolStarted):
                while not log.is_file():
                    await asyncio.sleep(0.02)  # another process, which is not on this clock
                # The server comes up, the agent waits for it, and the turn has its deadline.
                await clock.wait_for_sleepers(others + 3)
                await clock.advance(29)
                assert list_result_texts(session) == []
                await clock.advance(2)
        (refused,) = list_result_texts(session)
    assert re.search(r"late \(.*\)", refused)
    assert "30 s" in refused


@pytest.mark.spec("MCP-01")
async def test_tools_of_a_late_server_are_in_the_next_request(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    gate = ToolGate()
    seen: list[tuple[str, ...]] = []

    def look(line: Any) -> Any:
        def say(request: ModelRequest) -> Any:
            seen.append(tuple(tool.name for tool in request.tools))
            return line

        return say

    lead = [look(call_tool("Gate")), look(call_tool("mcp__late__echo", text="after all")), look("done")]
    options = {"tools": [gate.tool], "own": {"mcp_wait": 0}}
    async with open_session(
        tmp_path, script_agents(lead=lead), {"late": make_rogue_config("slow", str(pipe))}, **options
    ) as session:
        changed = asyncio.Event()
        session.runtime.servers.subscribe_to_tool_changes(lambda _: changed.set())
        async with asyncio.timeout(30):
            turn = session.run("lead")
            await gate.wait_until_reached()
            await asyncio.to_thread(release_server, pipe)
            await changed.wait()
            gate.is_open.set()
            async for _ in turn:
                pass
        assert list_result_texts(session)[1].endswith("after all")
    assert not any(name.startswith("mcp__") for name in seen[0])
    assert seen[1][: len(seen[0])] == seen[0], "what a cache knows stays in front"
    assert seen[1][len(seen[0]) :] == ("mcp__late__echo", "mcp__late__pid")


async def test_tools_of_ready_servers_are_in_configuration_order(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    servers = {
        "a": make_rogue_config("slow", str(pipe)),
        "b": make_rogue_config("plain"),
        "c": make_rogue_config("plain"),
    }
    async with open_session(tmp_path, script_agents(lead=["done"]), servers) as session:
        async with asyncio.timeout(30):
            while map_statuses(session) != {"a": "pending", "b": "connected", "c": "connected"}:
                await session.runtime.servers._change_event.wait()
            await asyncio.to_thread(release_server, pipe)
            await session.runtime.servers.wait_until_ready()
        mine = [name for name in session.agent.tools if name.startswith("mcp__")]
    assert mine == [f"mcp__{server}__{tool}" for server in "abc" for tool in ("echo", "pid")]


async def test_tools_added_later_by_a_server_are_available(tmp_path: Path) -> None:
    lead = [call_tool("mcp__growing__echo"), call_tool("mcp__growing__late", text="new"), "done"]
    async with open_session(
        tmp_path, script_agents(lead=lead), {"growing": make_rogue_config("more")}
    ) as session:
        changed = asyncio.Event()
        session.runtime.servers.subscribe_to_tool_changes(lambda _: changed.set())
        async with asyncio.timeout(30):
            await session.runtime.servers.wait_until_ready()
            changed.clear()
            turn = session.run("lead")
            async for event in turn:
                if type(event).__name__ == "ToolFinished" and event.tool.endswith("echo"):
                    await changed.wait()
        assert "mcp__growing__late" in session.agent.tools
        log = Path(session.runtime.servers._host.logs) / "growing.log"
    # At the start, and after the call that reported the change.
    assert log.read_text().count("listed") == 2


@pytest.mark.slow
@pytest.mark.spec("USR-23")
async def test_no_server_outlives_a_lead_that_is_killed(tmp_path: Path) -> None:
    agents = {
        "worker": {"description": "d", "prompt": "p", "mcpServers": [{"own": make_rogue_config("plain")}]}
    }
    lead = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "mcp_lead.py"),
        str(tmp_path),
        json.dumps({"mcpServers": {"shared": make_rogue_config("plain")}}),
        json.dumps(agents),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert lead.stdout is not None
    async with asyncio.timeout(60):
        assert await lead.stdout.readline() == b"at the gate\n"
    logs = list(Path(os.environ["SHOAL_HOME"]).glob("shoal/runs/*/mcp/*.log"))
    servers = [int(log.read_text().split()[1]) for log in logs]
    assert len(servers) == 2
    assert all(map(is_alive, servers))
    lead.kill()
    await lead.wait()
    async with asyncio.timeout(scale_to_load(5)):
        for pid in servers:
            await wait_for_exit(pid, 60)


async def test_closing_a_session_ends_its_servers(tmp_path: Path) -> None:
    async with open_session(
        tmp_path,
        script_agents(lead=["done"]),
        {"a": make_rogue_config("plain"), "b": make_rogue_config("mute")},
    ) as session:
        await session.runtime.servers.wait_until_ready()
        running = pids(session)
        assert len(running) == 2
        assert all(map(is_alive, running))
    assert not any(map(is_alive, running))


async def test_closing_a_session_does_not_wait_for_a_starting_server(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with asyncio.timeout(20):
        async with open_session(
            tmp_path, script_agents(lead=["done"]), {"late": make_rogue_config("slow", str(pipe))}
        ) as session:
            log = Path(session.runtime.servers._host.logs) / "late.log"
            while not (log.is_file() and log.read_text()):
                await asyncio.sleep(0.02)  # the file of another process
            (pid,) = pids(session)
        assert not is_alive(pid)


NO_SERVERS = """
import asyncio, sys
import shoal
from agent_scripts import run_all_turns, script_agents
async def main():
    async with shoal.open(model=script_agents(lead=["done"])) as session:
        await run_all_turns(session)
asyncio.run(main())
print([name for name in ("mcp", "anyio", "httpx2", "pydantic") if name in sys.modules])
"""


def test_a_session_without_servers_does_not_import_the_sdk(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", NO_SERVERS], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


NO_SDK = """
import asyncio, sys
sys.modules["mcp"] = None
import shoal
from agent_scripts import run_all_turns, script_agents
async def main():
    config = {"mcpServers": {"x": {"command": "true"}}}
    async with shoal.open(model=script_agents(lead=["done"]), mcp_config=[config]) as session:
        await run_all_turns(session)
        print(session.runtime.servers.list_statuses()[0].detail)
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_missing_extra_is_reported_with_the_command_to_install_it(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", NO_SDK], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert "pip install 'shoal[mcp]'" in done.stdout


def test_only_the_connection_modules_import_the_sdk() -> None:
    source = Path(__file__).parents[2] / "src" / "shoal"
    knows = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if re.search(r"^\s*(?:import|from) (?:mcp|mcp_types|anyio|httpx2)\b", file.read_text(), re.MULTILINE)
    }
    parts = (
        "oauth",
        "elicitation",
        "sdk_connection",
        "result_content",
        "filtering_transport",
        "stdio_transport",
    )
    server_parts = ("json_rpc_lines", "mcp_server")
    assert knows == {
        *(f"surfaces/mcp/{part}.py" for part in server_parts),
        *(f"tools/mcp/{part}.py" for part in parts),
    }
