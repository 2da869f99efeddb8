"""MCP servers in the driving program, named in its `initialize` request instead of a flag."""

from __future__ import annotations

from typing import Any

import pytest
from shoal_process import ShoalProgram
from stream_driver import make_control_request, make_prompt, start_driver

from shoal.testing import make_tool_call
from shoal.testing.servers import messages_server

TOOL = {"name": "moor", "description": "Moors a ship.", "inputSchema": {"type": "object", "properties": {}}}


def answer_mcp_message(message: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "harbour", "version": "1"},
            "instructions": "Moor only at low tide.",
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "moored at berth nine"}]},
    }
    answer = {"jsonrpc": "2.0", "result": results.get(message["method"], {})}
    return answer | ({"id": message["id"]} if "id" in message else {})


@pytest.mark.spec("CMP-117")
async def test_servers_that_initialize_names_are_used_like_those_of_a_flag(shoal: ShoalProgram) -> None:
    async with (
        messages_server([make_tool_call("mcp__harbour__moor"), "done"]) as server,
    ):
        shoal.use_server(server)
        async with start_driver(shoal, "--allowedTools", "mcp__harbour") as driver:
            await driver.send_lines(make_control_request("1", "initialize", sdkMcpServers=["harbour"]))
            while True:
                line = await driver.read_line()
                if line["type"] == "control_request":
                    body = line["request"]
                    assert (body["subtype"], body["server_name"]) == ("mcp_message", "harbour")
                    response = {"mcp_response": answer_mcp_message(body["message"])}
                    await driver.send_lines(
                        {
                            "type": "control_response",
                            "response": {
                                "subtype": "success",
                                "request_id": line["request_id"],
                                "response": response,
                            },
                        }
                    )
                elif line["type"] == "control_response":
                    assert line["response"]["subtype"] == "success"
                    await driver.send_lines(make_prompt("moor it"))
                elif line["type"] == "result":
                    break
        assert "mcp__harbour__moor" in [tool["name"] for tool in server.requests[0].body["tools"]]
        assert "Moor only at low tide." in str(server.requests[0].body["messages"])
        assert "moored at berth nine" in str(server.requests[1].body["messages"][-1])
