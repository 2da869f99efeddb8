"""A lead with a team whose process kills itself when one of its agents says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from crashing_scripts import SCRIPTS, SETTINGS

from agent_scripts import run_all_turns
from shoal.core.clock import SystemClock
from shoal.tools.function_tool import tool
from team_scripts import open_session, script_team


@tool(name="Die", reads_only=True)
async def kill_process() -> str:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


class SettableClock(SystemClock):
    """The machine's clock, which can be set back."""

    offset = 0

    def now(self) -> int:
        return super().now() - self.offset


CLOCK = SettableClock()


@tool(name="SetClockBack", reads_only=True)
async def set_clock_back() -> str:
    """By an hour."""
    CLOCK.offset = 3_600_000
    return "It is earlier now."


async def main(cwd: Path, session: str, part: str, pace: float) -> None:
    model, settings = script_team(pace, **SCRIPTS[part]), SETTINGS
    tools = [kill_process, set_clock_back]
    async with open_session(
        cwd, model, tools=tools, session_id=session, settings=settings, clock=CLOCK
    ) as lead:
        await run_all_turns(lead, "Begin.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
