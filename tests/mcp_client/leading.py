"""A lead with an MCP server, in a process that a test kills: `mcp_lead.py PROJECT CONFIG`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import shoal
from cast import Gate, agent, cast, use


async def main() -> None:
    gate = Gate()
    child = [use("mcp__own__pid"), use("Gate"), "done"]
    lead = [use("mcp__shared__pid"), agent("child", subagent_type="worker"), "done"]
    async with shoal.open(
        cwd=Path(sys.argv[1]),
        model=cast(lead=lead, child=child),
        mcp_config=[sys.argv[2]],
        agents=sys.argv[3],
        skip_permissions=True,
        tools=[gate.tool],
        settings='{"shoal": {"mcp_wait": 60}}',
    ) as session:
        turn = session.run("lead")
        await gate.wait()
        sys.stdout.write("at the gate\n")
        sys.stdout.flush()
        async for _ in turn:
            pass


asyncio.run(main())
