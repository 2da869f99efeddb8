"""Acceptance commands, which decide whether work is done and run with the worker's permissions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.agent.agent import Agent
from shoal.agent.calls import carry_out
from shoal.core.agents import Ran
from shoal.core.identity import Identity
from shoal.core.ids import AgentId
from shoal.core.messages import ToolUse
from shoal.core.tools import Tool

PATIENCE = 600_000
"""Milliseconds that an acceptance command may take."""
_TAIL = 2_000


class Acceptance:
    """`find_agent` returns a working agent; `tools` are those of the session, not of the agent."""

    def __init__(self, tools: Mapping[str, Tool], agent: Callable[[AgentId], Agent]) -> None:
        self._tools = tools
        self._agent = agent

    async def of_task(self, command: str, whose: Identity) -> tuple[Ran, str]:
        return await self.run(command, self._agent(whose.agent))

    async def run(self, command: str, agent: Agent) -> tuple[Ran, str]:
        """Run the command; return its exit status and the end of its output."""
        call = ToolUse(
            id=f"accept-{agent.ids.short()}", name="Bash", input={"command": command, "timeout": PATIENCE}
        )
        outcome = await carry_out(agent, call, self._tools["Bash"])
        code = (outcome.data or {}).get("exit_code", 126)
        return Ran(command=command, exit_code=code), outcome.text[-_TAIL:]
