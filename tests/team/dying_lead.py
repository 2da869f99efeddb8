"""A lead with a team whose process kills itself when one of its agents says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from dying_parts import PARTS, SETTINGS

from cast import all_turns
from shoal.core.clock import SystemClock
from shoal.tools.define import tool
from troupe import opened, troupe


@tool(name="Die", reads_only=True)
async def die() -> str:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


class Settable(SystemClock):
    """The machine's clock, which can be set back."""

    behind = 0

    def now(self) -> int:
        return super().now() - self.behind


CLOCK = Settable()


@tool(name="SetClockBack", reads_only=True)
async def set_clock_back() -> str:
    """By an hour."""
    CLOCK.behind = 3_600_000
    return "It is earlier now."


async def main(cwd: Path, session: str, part: str, pace: float) -> None:
    model, settings = troupe(pace, **PARTS[part]), SETTINGS
    tools = [die, set_clock_back]
    async with opened(cwd, model, tools=tools, session_id=session, settings=settings, clock=CLOCK) as lead:
        await all_turns(lead, "Begin.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
