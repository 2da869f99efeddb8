"""MCP servers that live in the program: their tools are the agent's, through the public SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def harbour(rig: SdkHarness) -> Any:
    @rig.sdk.tool("add", "Adds two numbers.", {"a": float, "b": float})
    async def add(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"sum: {given['a'] + given['b']}"}]}

    @rig.sdk.tool("look", "Takes a picture.", {})
    async def look(given: dict[str, Any]) -> dict[str, Any]:
        image = {"type": "image", "data": DOT, "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "a dot"}, image]}

    @rig.sdk.tool("sink", "Fails.", {})
    async def sink(given: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("it sank")

    return rig.sdk.create_sdk_mcp_server("harbour", tools=[add, look, sink])


async def test_tools_of_the_program_are_called_and_their_answers_reach_the_model(rig: SdkHarness) -> None:
    mind = [
        make_tool_call("mcp__harbour__add", a=2, b=3),
        make_tool_call("mcp__harbour__look"),
        make_tool_call("mcp__harbour__sink"),
        "all three",
    ]
    async with messages_server(mind) as server:
        told = await rig.run_query(
            server,
            "go",
            mcp_servers={"harbour": harbour(rig)},
            allowed_tools=["mcp__harbour__add", "mcp__harbour__look", "mcp__harbour__sink"],
            tools=[],
        )
    offered = {tool["name"]: tool for tool in server.requests[0].body["tools"]}
    assert set(offered) == {"mcp__harbour__add", "mcp__harbour__look", "mcp__harbour__sink"}
    assert offered["mcp__harbour__add"]["input_schema"]["required"] == ["a", "b"]
    assert told.init["mcp_servers"] == [{"name": "harbour", "status": "connected"}]
    assert told.result.result == "all three"
    assert "sum: 5" in dump_request(server, 1)
    (result,) = server.requests[2].body["messages"][-1]["content"]
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["content"][1]["source"]["data"] == DOT
    (failed,) = server.requests[3].body["messages"][-1]["content"]
    assert failed["is_error"]
    assert "it sank" in str(failed)


async def test_a_tool_of_the_program_is_asked_about_like_any_other(rig: SdkHarness) -> None:
    asked: list[str] = []

    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(tool)
        return rig.sdk.PermissionResultAllow()

    mind = [make_tool_call("mcp__harbour__add", a=1, b=1), "added"]
    options = {"mcp_servers": {"harbour": harbour(rig)}, "can_use_tool": may}
    async with messages_server(mind) as server, rig.create_client(server, **options) as client:
        await client.query("go")
        await receive_answer(client)
        status = await client.get_mcp_status()
    assert asked == ["mcp__harbour__add"]
    assert "sum: 2" in dump_request(server, 1)
    (standing,) = status["mcpServers"]
    assert (standing["name"], standing["status"]) == ("harbour", "connected")
    assert {tool["name"] for tool in standing["tools"]} >= {"mcp__harbour__add"}


async def test_a_tool_of_the_program_that_never_answers_ends_at_its_deadline(rig: SdkHarness) -> None:
    @rig.sdk.tool("wait", "Waits.", {})
    async def wait(given: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    slow = rig.sdk.create_sdk_mcp_server("slow", tools=[wait])
    async with messages_server([make_tool_call("mcp__slow__wait"), "went on"]) as server:
        told = await rig.run_query(
            server,
            "go",
            mcp_servers={"slow": slow},
            allowed_tools=["mcp__slow__wait"],
            settings=json.dumps({"shoal": {"mcp_deadline": 1}}),
        )
    assert told.result.result == "went on"
    assert "did not finish within 1 s" in dump_request(server, 1)


async def test_an_agent_in_the_background_uses_tools_of_the_program(rig: SdkHarness) -> None:
    """Stdin stays open for it: the run is not at rest before the agent has reported."""
    order = make_tool_call("Agent", description="count", prompt="job count", run_in_background=True)

    def mind(body: Any) -> Any:
        text = str(body["messages"])
        if text.startswith("[{'role': 'user', 'content': [{'type': 'text', 'text': 'job count'"):
            return "counted" if "tool_result" in text else make_tool_call("mcp__harbour__add", a=20, b=1)
        if "<task-notification>" in text:
            return "It counted."
        return "Waiting." if "works in the background" in text else order

    async with messages_server(mind) as server:
        told = await rig.run_query(
            server,
            "begin",
            mcp_servers={"harbour": harbour(rig)},
            allowed_tools=["mcp__harbour__add"],
        )
    assert told.result.result == "It counted."
    assert any("sum: 21" in str(request.body) for request in server.requests)


async def test_a_stream_of_prompts_keeps_the_tools_of_the_program_to_its_end(rig: SdkHarness) -> None:
    first_is_done = asyncio.Event()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "one"}, "parent_tool_use_id": None}
        await first_is_done.wait()
        yield {"type": "user", "message": {"role": "user", "content": "two"}, "parent_tool_use_id": None}

    add = make_tool_call("mcp__harbour__add", a=1, b=1)
    results: list[str] = []
    async with messages_server([add, "first", add, "second"]) as server, asyncio.timeout(TIMEOUT):
        options = rig.build_options(
            server, mcp_servers={"harbour": harbour(rig)}, allowed_tools=["mcp__harbour__add"]
        )
        async for message in rig.sdk.query(prompt=prompts(), options=options):
            if isinstance(message, rig.sdk.ResultMessage):
                results.append(message.result)
                first_is_done.set()
    assert results == ["first", "second"]
    assert dump_request(server, 3).count("sum: 2") == 2


async def test_a_server_that_fails_costs_no_other(rig: SdkHarness) -> None:
    broken = harbour(rig) | {"instance": _Broken()}
    async with messages_server([make_tool_call("mcp__harbour__add", a=1, b=2), "done"]) as server:
        told = await rig.run_query(
            server,
            "go",
            mcp_servers={"broken": broken, "harbour": harbour(rig)},
            allowed_tools=["mcp__harbour__add"],
        )
    standings = {each["name"]: each["status"] for each in told.init["mcp_servers"]}
    assert standings == {"broken": "failed", "harbour": "connected"}
    assert "sum: 3" in dump_request(server, 1)


class _Broken:
    """A server that the SDK cannot run."""

    name = "broken"
