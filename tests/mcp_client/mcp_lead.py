"""A lead with an MCP server, in a process that a test kills: `mcp_lead.py PROJECT CONFIG`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import shoal
from agent_scripts import ToolGate, call_tool, script_agents, spawn_agent


async def main() -> None:
    gate = ToolGate()
    child = [call_tool("mcp__own__pid"), call_tool("Gate"), "done"]
    lead = [call_tool("mcp__shared__pid"), spawn_agent("child", subagent_type="worker"), "done"]
    async with shoal.open(
        cwd=Path(sys.argv[1]),
        model=script_agents(lead=lead, child=child),
        mcp_config=[sys.argv[2]],
        agents=sys.argv[3],
        skip_permissions=True,
        tools=[gate.tool],
        settings='{"shoal": {"mcp_wait": 60}}',
    ) as session:
        turn = session.run("lead")
        await gate.wait_until_reached()
        sys.stdout.write("at the gate\n")
        sys.stdout.flush()
        async for _ in turn:
            pass


asyncio.run(main())
