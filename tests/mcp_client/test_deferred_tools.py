"""Tools of MCP servers that an agent has to search for, and servers that connect in the background."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from mcp_helpers import (
    join_notes,
    list_result_texts,
    make_guide_config,
    make_rogue_config,
    map_statuses,
    open_session,
)

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from moved_homes import make_stdio_server
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import ToolOutput
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.function_tool import FunctionTool, tool
from shoal.tools.tool_search_tool import find_tools
from team_scripts import get_home


def make_tools(count: int) -> list[FunctionTool]:
    def make_tool(number: int) -> FunctionTool:
        @tool(name=f"mcp__files__{'copy' if number == 7 else 'action'}_{number}")
        async def act(path: str, target: str = "", mode: str = "quick") -> ToolOutput:
            """Do one of many things with a file on a far machine, and say afterwards what has been done."""
            return ToolOutput(content=f"did {number} to {path}")

        return act

    return [make_tool(number) for number in range(count)]


def measure_schemas(request: ModelRequest) -> int:
    return len(json.dumps([[each.name, each.description, each.input_schema] for each in request.tools])) // 4


@pytest.mark.spec("CMP-111")
async def test_a_child_with_300_tools_starts_small_and_loads_what_it_finds(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def search(request: ModelRequest) -> Any:
        requests.append(request)
        return call_tool("ToolSearch", query="+files copy", max_results=3)

    def copy(request: ModelRequest) -> Any:
        requests.append(request)
        return call_tool("mcp__files__copy_7", path="a.txt")

    def end(request: ModelRequest) -> str:
        return str(request.messages[-1].content)

    model = script_agents(lead=[spawn_agent("child"), "done"], child=[search, copy, end])
    async with shoal.open(cwd=tmp_path, model=model, tools=make_tools(300), skip_permissions=True) as session:
        await run_all_turns(session)
    first, second = requests
    assert measure_schemas(first) <= 6_000
    names = [each.name for each in first.tools]
    assert "ToolSearch" in names
    assert not any(name.startswith("mcp__") for name in names)
    description = next(each.description for each in first.tools if each.name == "ToolSearch")
    assert "Servers: files." in description
    loaded = [each.name for each in second.tools if each.name.startswith("mcp__")]
    assert loaded[0] == "mcp__files__copy_7" or "mcp__files__copy_7" in loaded
    assert [each.name for each in second.tools][: len(names)] == names
    assert "did 7 to a.txt" in list_result_texts(session)[0]


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_a_child_and_a_teammate_start_small_with_300_tools_of_a_server(tmp_path: Path) -> None:
    settings = {"mcpServers": {"many": make_stdio_server("many", 300)}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    first_requests: dict[str, ModelRequest] = {}

    def choose_reply(request: ModelRequest) -> Any:
        prompt = request.messages[0].text
        who = next((name for name in ("CHILD", "MATE") if name in prompt), "lead")
        first_requests.setdefault(who, request)
        if who != "lead":
            return "done"
        calls = [
            call_tool("ToolSearch", query="tool_7"),
            call_tool("mcp__many__tool_7", query="x"),
            spawn_agent("CHILD begins"),
            call_tool("TeamCreate", team_name="crew"),
            spawn_agent("MATE begins", name="mate", team_name="crew"),
        ]
        spoken = sum(message.role == "assistant" for message in request.messages)
        return calls[spoken] if spoken < len(calls) else "done"

    model = ScriptedModel(choose_reply)
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session, "begin")
        assert map_statuses(session) == {"many": "connected"}
    assert first_requests.keys() == {"lead", "CHILD", "MATE"}
    for request in first_requests.values():
        assert measure_schemas(request) <= 6_000
        names = [each.name for each in request.tools]
        assert "ToolSearch" in names
        assert not any(name.startswith("mcp__") for name in names)


@pytest.mark.spec("CMP-111")
@pytest.mark.parametrize(
    ("value", "is_sent"), [("true", False), ("false", True), ("auto:1", True), ("", True)]
)
async def test_the_variable_decides_when_tools_are_deferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, is_sent: bool
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", value)
    async with shoal.open(cwd=tmp_path, model=script_agents(lead=["x"]), tools=make_tools(3)) as session:
        names = [schema.name for schema in session.agent.schemas.sent]
    assert ("mcp__files__action_0" in names) is is_sent
    assert ("ToolSearch" in names) is not is_sent


@pytest.mark.spec("CMP-111")
async def test_tools_that_a_definition_names_are_sent(tmp_path: Path) -> None:
    names: list[str] = []

    def work(request: ModelRequest) -> str:
        names.extend(each.name for each in request.tools)
        return "done"

    chosen = ["Read", "mcp__files__copy_7"]
    defined = {"mover": {"description": "d", "prompt": "p", "tools": chosen}}
    model = script_agents(lead=[spawn_agent("work", subagent_type="mover"), "done"], work=[work])
    async with shoal.open(
        cwd=tmp_path, model=model, tools=make_tools(300), agents=defined, skip_permissions=True
    ) as session:
        await run_all_turns(session)
    assert sorted(names) == sorted(chosen)


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_the_first_request_does_not_wait_for_a_server_and_a_search_does(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    server = make_rogue_config("slow", str(pipe))
    (get_home() / "settings.json").write_text(json.dumps({"mcpServers": {"slow": server}}))
    seen: list[list[str]] = []

    def start(request: ModelRequest) -> Any:
        seen.append([each.name for each in request.tools])
        Thread(target=pipe.write_text, args=("go",)).start()
        return call_tool("ToolSearch", query="echo")

    def use(request: ModelRequest) -> Any:
        seen.append([each.name for each in request.tools])
        return call_tool("mcp__slow__echo", text="hello")

    model = script_agents(lead=[start, use, "done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
        assert map_statuses(session) == {"slow": "connected"}
    assert "mcp__slow__echo" not in seen[0]
    assert "ToolSearch" in seen[0]
    assert "mcp__slow__echo" in seen[1]
    found, echoed = list_result_texts(session)
    assert "mcp__slow__echo" in found
    assert "hello" in echoed


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize("can_search", [False, True])
async def test_a_call_to_a_server_that_is_still_connecting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_search: bool
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", str(can_search).lower())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = {"mcpServers": {"slow": make_rogue_config("slow", str(pipe))}, "shoal": {"mcp_wait": 0.05}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    calls = [call_tool("mcp__slow__echo", text="early"), call_tool("mcp__slower__echo", text="wrong"), "done"]
    later = [call_tool("ToolSearch", query="echo")] if can_search else []
    model = ScriptedModel([*calls, *later, call_tool("mcp__slow__echo", text="hello"), "done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
        Thread(target=pipe.write_text, args=("go",)).start()
        await session.runtime.servers.wait_until_settled()
        await run_all_turns(session, "Go on.")
    early, wrong, *_, echoed = list_result_texts(session)
    assert early.startswith(
        "The tool mcp__slow__echo is not available yet, because the MCP server slow is still connecting. "
    )
    assert early.endswith("then call it again.")
    assert ("ToolSearch" in early) is can_search
    assert wrong.startswith("There is no tool named 'mcp__slower__echo'.")
    assert "hello" in echoed


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_an_agent_without_a_search_is_not_told_to_wait_for_a_tool_that_it_cannot_get(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = {"mcpServers": {"slow": make_rogue_config("slow", str(pipe))}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    agents = {"reader": {"description": "d", "prompt": "p", "tools": ["Read"]}}
    results: list[str] = []

    def look(request: ModelRequest) -> str:
        results.append(str(request.messages[-1].content))
        return "done"

    reader = [call_tool("mcp__slow__echo", text="early"), look]
    model = script_agents(lead=[spawn_agent("reader", subagent_type="reader"), "done"], reader=reader)
    async with shoal.open(cwd=tmp_path, model=model, agents=agents, skip_permissions=True) as session:
        await run_all_turns(session)
        assert map_statuses(session) == {"slow": "pending"}
    (result,) = results
    assert "There is no tool named 'mcp__slow__echo'." in result


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_a_lead_without_a_server_that_works_gets_no_search(tmp_path: Path) -> None:
    settings = {"mcpServers": {"broken": {"command": str(tmp_path / "none")}}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    async with shoal.open(cwd=tmp_path, model=script_agents(lead=["done"])) as session:
        assert "ToolSearch" in session.agent.tools
        await session.runtime.servers.wait_until_settled()
        assert map_statuses(session) == {"broken": "failed"}
        assert "ToolSearch" not in session.agent.tools


def gate_server(pipe: Path, server: dict[str, Any]) -> dict[str, Any]:
    """Return a server that starts once something is written to the pipe."""
    os.mkfifo(pipe)
    command = shlex.join([server["command"], *server["args"]])
    return {"command": "sh", "args": ["-c", f"read x < {pipe}; exec {command}"]}


def make_opening_tool(session: shoal.Session, tmp_path: Path) -> FunctionTool:
    @tool(name="Open", reads_only=True, deadline=30)
    async def open_gate(name: str) -> str:
        """Let a server start, and wait until it is connected."""
        changed = asyncio.Event()
        session.runtime.servers.subscribe_to_tool_changes(lambda _: changed.set())
        Thread(target=(tmp_path / name).write_text, args=("go\n",)).start()
        while map_statuses(session)[name] != "connected":
            await changed.wait()
            changed.clear()
        return "connected"

    return open_gate


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_the_lead_keeps_every_tool_and_its_place_while_servers_connect(tmp_path: Path) -> None:
    servers = {
        name: gate_server(tmp_path / name, make_stdio_server(name, count))
        for name, count in (("few", 3), ("many", 300))
    }
    (get_home() / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    seen: list[list[str]] = []
    calls = [call_tool("Open", name="few"), call_tool("Open", name="many"), "done", "again"]

    def reply(request: ModelRequest) -> Any:
        seen.append([each.name for each in request.tools])
        return calls[len(seen) - 1]

    session = shoal.open(cwd=tmp_path, model=ScriptedModel(reply), tools=[], skip_permissions=True)
    async with session:
        opening_tool = session.parts.tools["Open"] = make_opening_tool(session, tmp_path)
        session.agent.set_tools({**session.agent.tools, "Open": opening_tool})
        await run_all_turns(session)
        await run_all_turns(session, "more")
    first, second, third, fourth = seen
    few = [f"mcp__few__tool_{number}" for number in range(3)]
    assert "ToolSearch" in first
    assert second == [*first, *few]
    assert (third, fourth) == (second, second)


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize(("denied", "is_found"), [([], True), (["mcp__late"], False)])
async def test_a_sub_agent_finds_tools_of_a_server_that_connects_after_its_start(
    tmp_path: Path, denied: list[str], is_found: bool
) -> None:
    server = gate_server(tmp_path / "late", make_stdio_server("late", 3))
    (get_home() / "settings.json").write_text(
        json.dumps({"mcpServers": {"late": server}, "permissions": {"deny": denied}})
    )
    seen: list[list[str]] = []
    calls = [call_tool("ToolSearch", query="tool_2"), call_tool("mcp__late__tool_2", query="x"), "done"]

    def work(request: ModelRequest) -> Any:
        if not seen:
            Thread(target=(tmp_path / "late").write_text, args=("go\n",)).start()
        seen.append([each.name for each in request.tools])
        return calls[len(seen) - 1]

    model = script_agents(lead=[spawn_agent("child"), "done"], child=[work])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    assert "ToolSearch" in seen[0]
    assert seen[1] == [*seen[0], *(["mcp__late__tool_2"] if is_found else [])]


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
async def test_an_agent_whose_tools_are_listed_gets_no_search_while_a_server_connects(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = {"mcpServers": {"slow": make_rogue_config("slow", str(pipe))}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    offered: dict[str, list[str]] = {}

    def work(request: ModelRequest) -> str:
        offered[request.messages[0].text.split()[-1]] = [each.name for each in request.tools]
        return "done"

    def make_agent(*tools: str) -> dict[str, Any]:
        return {"description": "d", "prompt": "p", "tools": [*tools]}

    agents = {"reader": make_agent("Read"), "helper": make_agent("*")}
    spawns = [spawn_agent(name, name, subagent_type=name) for name in agents]
    model = script_agents(lead=[*spawns, "done"], reader=[work], helper=[work])
    async with shoal.open(cwd=tmp_path, model=model, agents=agents, skip_permissions=True) as session:
        await run_all_turns(session)
        assert map_statuses(session) == {"slow": "pending"}
    assert offered["reader"] == ["Read"]
    assert "ToolSearch" in offered["helper"]
    async with shoal.open(cwd=tmp_path, model=model, agents=agents, agent="reader") as session:
        assert [schema.name for schema in session.agent.schemas.sent] == ["Read"]


@pytest.mark.spec("CMP-086", "CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize("is_always_loaded", [True, False])
async def test_tools_of_a_server_that_is_always_loaded_are_in_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_always_loaded: bool
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", "true")
    server = {**make_rogue_config("plain"), "alwaysLoad": is_always_loaded}
    (get_home() / "settings.json").write_text(json.dumps({"mcpServers": {"near": server}}))
    names: list[str] = []

    def look(request: ModelRequest) -> str:
        names.extend(each.name for each in request.tools)
        return "done"

    async with shoal.open(cwd=tmp_path, model=script_agents(lead=[look]), skip_permissions=True) as session:
        await run_all_turns(session)
    assert ("mcp__near__echo" in names) is is_always_loaded


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize("way", ["variable", "env", "deny", "ask", "flag", "definition"])
async def test_without_a_search_the_first_request_has_the_tools_of_all_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    settings: dict[str, Any] = {"mcpServers": {"near": make_rogue_config("plain")}}
    options: dict[str, Any] = {}
    match way:
        case "variable":
            monkeypatch.setenv("ENABLE_TOOL_SEARCH", "false")
        case "env":
            settings["env"] = {"ENABLE_TOOL_SEARCH": "false"}
        case "flag":
            options["disallowed_tools"] = ["ToolSearch"]
        case "definition":
            options["agents"] = {"x": {"description": "d", "prompt": "p", "disallowedTools": ["ToolSearch"]}}
            options["agent"] = "x"
        case _:
            settings["permissions"] = {way: ["ToolSearch"]}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    names: list[str] = []

    def look(request: ModelRequest) -> str:
        names.extend(each.name for each in request.tools)
        return "done"

    model = script_agents(lead=[look])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True, **options) as session:
        await run_all_turns(session)
    assert "mcp__near__echo" in names
    assert "ToolSearch" not in names


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize("can_search", [False, True])
async def test_a_server_that_the_first_request_stops_waiting_for_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_search: bool
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", str(can_search).lower())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    servers = {"slow": make_rogue_config("slow", str(pipe))}
    settings = {"mcpServers": servers, "shoal": {"mcp_wait": 0.05}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    requests: list[tuple[str, list[str]]] = []

    def look(request: ModelRequest) -> str:
        requests.append((str(request.messages), [each.name for each in request.tools]))
        return "done"

    model = ScriptedModel(look)
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session, "first")
        Thread(target=pipe.write_text, args=("go",)).start()
        await session.runtime.servers.wait_until_settled()
        await run_all_turns(session, "second")
        notes = join_notes(read_events(session))
    (first, first_tools), (second, second_tools) = requests
    notice = "These MCP servers are still connecting: slow."
    assert notes.count("Still connecting: slow (MCP).") == 1
    assert [first.count(notice), second.count(notice)] == ([0, 0] if can_search else [1, 1])
    assert ("ToolSearch" in first_tools) is can_search
    assert ("mcp__slow__echo" in second_tools) is not can_search


@pytest.mark.spec("CMP-111")
@pytest.mark.needs("mcp")
@pytest.mark.spec("CMP-062")
@pytest.mark.needs("mcp")
@pytest.mark.parametrize(("value", "waits"), [("0", True), ("false", True), ("1", False), ("soon", False)])
async def test_a_variable_makes_the_first_request_wait_for_all_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, waits: bool
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("MCP_CONNECTION_NONBLOCKING", value)
    settings = {"mcpServers": {"slow": make_guide_config(gate=str(gate))}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    opened: list[bool] = []

    def record(request: ModelRequest) -> str:
        opened.append("mcp__slow__look" in [tool.name for tool in request.tools])
        return "done"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(record)) as session:
        turn = session.run("lead")
        if not waits:
            await turn
        Thread(target=gate.write_text, args=("open",), daemon=True).start()
        if waits:
            await turn
        assert opened == [waits]
        assert any("MCP_CONNECTION_NONBLOCKING" in note for note in session.notes) is (value == "soon")
        await session.runtime.servers.wait_until_settled()


@pytest.mark.spec("CMP-062")
@pytest.mark.needs("mcp")
async def test_the_wait_for_all_servers_ends_with_their_startup_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_CONNECTION_NONBLOCKING", "0")
    monkeypatch.setenv("MCP_TIMEOUT", "500")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    settings = {"mcpServers": {"stuck": make_guide_config(gate=str(gate))}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["done"])) as session, asyncio.timeout(60):
        assert (await session.run("lead")).text == "done"


async def test_the_first_request_waits_for_a_server_that_a_flag_names(tmp_path: Path) -> None:
    settings = {"mcpServers": {"near": make_rogue_config("plain")}}
    (get_home() / "settings.json").write_text(json.dumps(settings))
    model = script_agents(lead=[call_tool("mcp__near__echo", text="hello"), "done"])
    async with shoal.open(cwd=tmp_path, model=model, allowed_tools=["mcp__near"]) as session:
        await run_all_turns(session)
    assert "hello" in list_result_texts(session)[0]


@pytest.mark.spec("CMP-042", "CMP-111")
@pytest.mark.needs("mcp")
async def test_a_hook_waits_for_the_server_of_its_tool(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hook = {"type": "mcp_tool", "server": "slow", "tool": "echo", "input": {"text": "from the hook"}}
    settings = {
        "mcpServers": {"slow": make_rogue_config("slow", str(pipe))},
        "hooks": {"PreToolUse": [{"matcher": "Write", "hooks": [hook]}]},
    }
    (get_home() / "settings.json").write_text(json.dumps(settings))

    def write(_: ModelRequest) -> Any:
        Thread(target=pipe.write_text, args=("go",)).start()
        return call_tool("Write", file_path=str(tmp_path / "made"), content="x")

    model = script_agents(lead=[write, "done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    assert (tmp_path / "made").exists()


@pytest.mark.spec("CMP-110", "CMP-111")
@pytest.mark.needs("mcp")
async def test_a_search_waits_for_the_server_of_its_tool(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    servers = {"slow": make_rogue_config("slow", str(pipe))}
    settings = {"mcpServers": servers, "shoal": {"web_search": "mcp__slow__echo"}}
    (get_home() / "settings.json").write_text(json.dumps(settings))

    def search(_: ModelRequest) -> Any:
        Thread(target=pipe.write_text, args=("go",)).start()
        return call_tool("WebSearch", query="tides")

    model = script_agents(lead=[search, "done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    assert str(pipe) in list_result_texts(session)[0]  # what the server answers


@pytest.mark.spec("CMP-086")
@pytest.mark.needs("mcp")
async def test_the_timeout_of_a_server_limits_its_calls(tmp_path: Path) -> None:
    server = {**make_rogue_config("mute"), "timeout": 300}
    model = script_agents(lead=[call_tool("mcp__mute__echo", text="x"), "done"])
    async with open_session(tmp_path, model, {"mute": server}) as session:
        await run_all_turns(session)
    assert "within 0.3 s" in list_result_texts(session)[0]


@pytest.mark.spec("CMP-086")
@pytest.mark.needs("mcp")
async def test_a_headers_helper_that_fails_keeps_its_server_from_connecting(tmp_path: Path) -> None:
    marker = tmp_path / "called"
    helper = f"echo $CLAUDE_CODE_MCP_SERVER_NAME > {marker}; exit 3"
    server = {"type": "http", "url": "http://127.0.0.1:9/mcp", "headersHelper": helper}
    async with open_session(tmp_path, script_agents(lead=["done"]), {"far": server}) as session:
        await run_all_turns(session)
        (status,) = session.runtime.servers.list_statuses()
    assert marker.read_text() == "far\n"
    assert (status.status, status.detail) == ("failed", "its headersHelper ended with exit status 3")


@pytest.mark.spec("CMP-088")
async def test_a_server_of_an_agents_definition_that_is_denied_keeps_the_agent_from_starting(
    tmp_path: Path,
) -> None:
    (get_home() / "settings.json").write_text(json.dumps({"deniedMcpServers": [{"serverName": "own"}]}))
    defined = {"user": {"description": "d", "prompt": "p", "mcpServers": {"own": make_rogue_config("plain")}}}
    model = script_agents(lead=[spawn_agent("child", subagent_type="user"), "done"], child=["x"])
    async with shoal.open(cwd=tmp_path, model=model, agents=defined, skip_permissions=True) as session:
        await run_all_turns(session)
    assert "deniedMcpServers in the settings does not permit" in list_result_texts(session)[0]


def test_exact_names_and_required_words_are_found() -> None:
    schemas = {each.schema.name: each.schema for each in make_tools(10)}
    assert find_tools(schemas, "select:mcp__files__copy_7,nobody", 5) == ["mcp__files__copy_7"]
    assert find_tools(schemas, "copy", 1) == ["mcp__files__copy_7"]
    assert find_tools(schemas, "+copy machine", 5) == ["mcp__files__copy_7"]
    assert find_tools(schemas, "+nothing file", 5) == []


@pytest.mark.spec("CMP-111")
@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_nothing_is_deferred_if_a_rule_restricts_the_search(tmp_path: Path, kind: str) -> None:
    names: list[str] = []

    def work(request: ModelRequest) -> str:
        names.extend(each.name for each in request.tools)
        return "done"

    model = script_agents(lead=[spawn_agent("child"), "done"], child=[work])
    settings = json.dumps({"permissions": {kind: ["ToolSearch"]}})
    async with shoal.open(cwd=tmp_path, model=model, tools=make_tools(300), settings=settings) as session:
        own_names = [schema.name for schema in session.agent.schemas.sent]
        await run_all_turns(session)
    for offered in (own_names, names):
        assert "mcp__files__action_0" in offered
        assert "ToolSearch" not in offered


@pytest.mark.spec("CMP-111")
async def test_nothing_is_deferred_for_an_agent_whose_definition_denies_the_search(tmp_path: Path) -> None:
    names: list[str] = []

    def work(request: ModelRequest) -> str:
        names.extend(each.name for each in request.tools)
        return "done"

    agents = {"child": {"description": "d", "prompt": "p", "disallowedTools": ["ToolSearch"]}}
    model = script_agents(lead=[spawn_agent("child", subagent_type="child"), "done"], child=[work])
    async with shoal.open(cwd=tmp_path, model=model, tools=make_tools(300), agents=agents) as session:
        assert "ToolSearch" in [schema.name for schema in session.agent.schemas.sent]
        await run_all_turns(session)
    assert "mcp__files__action_0" in names
    assert "ToolSearch" not in names
