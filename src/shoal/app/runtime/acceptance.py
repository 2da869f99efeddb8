"""Acceptance commands, which decide whether work is done and run with the worker's permissions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.core.agents import ShellCommandResult
from shoal.core.identity import AgentIdentity
from shoal.core.ids import AgentId
from shoal.core.messages import ToolUseBlock
from shoal.core.tools import Tool

COMMAND_TIMEOUT_MS = 600_000
"""Milliseconds that an acceptance command may take."""
_TAIL_LENGTH = 2_000


class TaskAcceptanceCommandRunner:
    """`find_agent` returns a working agent; `tools` are those of the session, not of the agent."""

    def __init__(self, tools: Mapping[str, Tool], find_agent: Callable[[AgentId], AgentRunner]) -> None:
        self._tools = tools
        self._find_agent = find_agent

    async def run_for_task_owner(self, command: str, owner: AgentIdentity) -> tuple[ShellCommandResult, str]:
        return await self.run_command(command, self._find_agent(owner.agent))

    async def run_command(self, command: str, agent: AgentRunner) -> tuple[ShellCommandResult, str]:
        """Run the command; return its exit status and the end of its output."""
        call = ToolUseBlock(
            id=f"accept-{agent.ids.new_short_id()}",
            name="Bash",
            input={"command": command, "timeout": COMMAND_TIMEOUT_MS},
        )
        output = await run_unrecorded_tool_call(agent, call, self._tools["Bash"])
        exit_code = (output.data or {}).get("exit_code", 126)
        return ShellCommandResult(command=command, exit_code=exit_code), output.text[-_TAIL_LENGTH:]
