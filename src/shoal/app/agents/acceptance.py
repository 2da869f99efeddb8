"""Commands that decide whether work is done: run by the runtime, with the authority of whose work it is."""

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
"""Milliseconds that such a command may take."""
_TAIL = 2_000


class Acceptance:
    """`agent` finds one at work; `tools` are those of the session, whether the agent has them or not."""

    def __init__(self, tools: Mapping[str, Tool], agent: Callable[[AgentId], Agent]) -> None:
        self._tools = tools
        self._agent = agent

    async def of_task(self, command: str, whose: Identity) -> tuple[Ran, str]:
        return await self.run(command, self._agent(whose.agent))

    async def run(self, command: str, agent: Agent) -> tuple[Ran, str]:
        """How it ended, and the end of what it wrote."""
        call = ToolUse(
            id=f"accept-{agent.ids.short()}", name="Bash", input={"command": command, "timeout": PATIENCE}
        )
        outcome = await carry_out(agent, call, self._tools["Bash"])
        code = (outcome.data or {}).get("exit_code", 126)
        return Ran(command=command, exit_code=code), outcome.text[-_TAIL:]
