"""MCP servers inside a program that uses the public SDK: agents can call their tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def make_harbour_server(harness: SdkHarness) -> Any:
    @harness.sdk.tool("add", "Adds two numbers.", {"a": float, "b": float})
    async def add(tool_input: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"sum: {tool_input['a'] + tool_input['b']}"}]}

    @harness.sdk.tool("look", "Takes a picture.", {})
    async def look(tool_input: dict[str, Any]) -> dict[str, Any]:
        image = {"type": "image", "data": DOT, "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "a dot"}, image]}

    @harness.sdk.tool("sink", "Fails.", {})
    async def sink(tool_input: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("it sank")

    return harness.sdk.create_sdk_mcp_server("harbour", tools=[add, look, sink])


async def test_results_of_the_programs_tools_reach_the_model(harness: SdkHarness) -> None:
    replies = [
        make_tool_call("mcp__harbour__add", a=2, b=3),
        make_tool_call("mcp__harbour__look"),
        make_tool_call("mcp__harbour__sink"),
        "all three",
    ]
    async with messages_server(replies) as server:
        messages = await harness.run_query(
            server,
            "go",
            mcp_servers={"harbour": make_harbour_server(harness)},
            allowed_tools=["mcp__harbour__add", "mcp__harbour__look", "mcp__harbour__sink"],
            tools=[],
        )
    offered = {tool["name"]: tool for tool in server.requests[0].body["tools"]}
    assert set(offered) == {"mcp__harbour__add", "mcp__harbour__look", "mcp__harbour__sink"}
    assert offered["mcp__harbour__add"]["input_schema"]["required"] == ["a", "b"]
    assert messages.init["mcp_servers"] == [{"name": "harbour", "status": "connected"}]
    assert messages.result.result == "all three"
    assert "sum: 5" in dump_request(server, 1)
    (result,) = server.requests[2].body["messages"][-1]["content"]
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["content"][1]["source"]["data"] == DOT
    (failed,) = server.requests[3].body["messages"][-1]["content"]
    assert failed["is_error"]
    assert "it sank" in str(failed)


async def test_a_tool_of_the_program_needs_permission_like_any_other(harness: SdkHarness) -> None:
    asked_tools: list[str] = []

    async def allow_tool(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        asked_tools.append(tool)
        return harness.sdk.PermissionResultAllow()

    replies = [make_tool_call("mcp__harbour__add", a=1, b=1), "added"]
    options = {"mcp_servers": {"harbour": make_harbour_server(harness)}, "can_use_tool": allow_tool}
    async with messages_server(replies) as server, harness.create_client(server, **options) as client:
        await client.query("go")
        await receive_answer(client)
        status = await client.get_mcp_status()
    assert asked_tools == ["mcp__harbour__add"]
    assert "sum: 2" in dump_request(server, 1)
    (server_status,) = status["mcpServers"]
    assert (server_status["name"], server_status["status"]) == ("harbour", "connected")
    assert server_status["scope"] == "dynamic"
    assert {tool["name"] for tool in server_status["tools"]} >= {"mcp__harbour__add"}


async def test_a_hanging_tool_of_the_program_ends_at_its_deadline(harness: SdkHarness) -> None:
    @harness.sdk.tool("wait", "Waits.", {})
    async def wait(tool_input: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    slow = harness.sdk.create_sdk_mcp_server("slow", tools=[wait])
    async with messages_server([make_tool_call("mcp__slow__wait"), "went on"]) as server:
        messages = await harness.run_query(
            server,
            "go",
            mcp_servers={"slow": slow},
            allowed_tools=["mcp__slow__wait"],
            settings=json.dumps({"shoal": {"mcp_deadline": 1}}),
        )
    assert messages.result.result == "went on"
    assert "did not finish within 1 s" in dump_request(server, 1)


async def test_an_agent_in_the_background_uses_tools_of_the_program(harness: SdkHarness) -> None:
    """Stdin stays open until the agent has reported."""
    agent_call = make_tool_call("Agent", description="count", prompt="job count", run_in_background=True)

    def choose_reply(body: Any) -> Any:
        text = str(body["messages"])
        if text.startswith("[{'role': 'user', 'content': [{'type': 'text', 'text': 'job count'"):
            return "counted" if "tool_result" in text else make_tool_call("mcp__harbour__add", a=20, b=1)
        if "<task-notification>" in text:
            return "It counted."
        return "Waiting." if "works in the background" in text else agent_call

    async with messages_server(choose_reply) as server:
        messages = await harness.run_query(
            server,
            "begin",
            mcp_servers={"harbour": make_harbour_server(harness)},
            allowed_tools=["mcp__harbour__add"],
        )
    assert messages.result.result == "It counted."
    assert any("sum: 21" in str(request.body) for request in server.requests)


async def test_tools_of_the_program_work_until_the_last_prompt_of_a_stream(harness: SdkHarness) -> None:
    first_is_done = asyncio.Event()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "one"}, "parent_tool_use_id": None}
        await first_is_done.wait()
        yield {"type": "user", "message": {"role": "user", "content": "two"}, "parent_tool_use_id": None}

    add = make_tool_call("mcp__harbour__add", a=1, b=1)
    results: list[str] = []
    async with messages_server([add, "first", add, "second"]) as server, asyncio.timeout(TIMEOUT):
        options = harness.build_options(
            server, mcp_servers={"harbour": make_harbour_server(harness)}, allowed_tools=["mcp__harbour__add"]
        )
        async for message in harness.sdk.query(prompt=prompts(), options=options):
            if isinstance(message, harness.sdk.ResultMessage):
                results.append(message.result)
                first_is_done.set()
    assert results == ["first", "second"]
    assert dump_request(server, 3).count("sum: 2") == 2


async def test_a_failing_server_leaves_the_others_connected(harness: SdkHarness) -> None:
    broken = make_harbour_server(harness) | {"instance": BrokenServer()}
    async with messages_server([make_tool_call("mcp__harbour__add", a=1, b=2), "done"]) as server:
        messages = await harness.run_query(
            server,
            "go",
            mcp_servers={"broken": broken, "harbour": make_harbour_server(harness)},
            allowed_tools=["mcp__harbour__add"],
        )
    statuses = {status["name"]: status["status"] for status in messages.init["mcp_servers"]}
    assert statuses == {"broken": "failed", "harbour": "connected"}
    assert "sum: 3" in dump_request(server, 1)


class BrokenServer:
    """A server that the SDK cannot run."""

    name = "broken"


@pytest.mark.parametrize(
    "settings",
    [{"deniedMcpServers": [{"serverName": "harbour"}]}, {"allowedMcpServers": [{"serverName": "other"}]}],
)
async def test_settings_permit_servers_of_the_program_or_not(
    harness: SdkHarness, settings: dict[str, Any]
) -> None:
    replies = [make_tool_call("mcp__harbour__add", a=1, b=1), "refused"]
    options = {
        "mcp_servers": {"harbour": make_harbour_server(harness)},
        "allowed_tools": ["mcp__harbour__add"],
        "settings": json.dumps(settings),
    }
    async with messages_server(replies) as server:
        messages = await harness.run_query(server, "go", **options)
    assert not any(tool["name"].startswith("mcp__") for tool in server.requests[0].body["tools"])
    assert "sum: 2" not in dump_request(server, 1)
    assert messages.init["mcp_servers"] == [{"name": "harbour", "status": "disabled"}]
