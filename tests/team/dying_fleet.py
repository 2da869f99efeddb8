"""A lead with teammates in separate processes, to be killed from outside."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from cast import all_turns
from fleet import opened


async def main(cwd: Path, session: str) -> None:
    async with opened(cwd, session_id=session) as lead:
        await all_turns(lead, "Begin.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
