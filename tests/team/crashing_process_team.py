"""A lead with teammates in separate processes, to be killed from outside."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from agent_scripts import run_all_turns
from server_scripts import open_process_session


async def main(cwd: Path, session: str) -> None:
    async with open_process_session(cwd, session_id=session) as lead:
        await run_all_turns(lead, "Begin.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
