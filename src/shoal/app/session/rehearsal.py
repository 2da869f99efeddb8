"""A session's opening, rehearsed: imported by the fork server, so that forked processes find it all done.

What is imported and computed on the way is shared by every process that is forked afterwards.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.models.scripted import ScriptedModel


async def _rehearse(cwd: Path) -> None:
    model = ScriptedModel(["Ready."])
    options = Options(cwd=cwd, model=model, persist=False, skip_permissions=True, begun=None)
    async with Session(options) as session:
        async for _ in session.run("Rehearse."):
            pass


def _nowhere() -> None:
    """In a home of its own, which is gone afterwards."""
    before = os.environ.get("SHOAL_HOME")
    with tempfile.TemporaryDirectory(prefix="shoal-") as home:
        os.environ["SHOAL_HOME"] = home
        try:
            asyncio.run(_rehearse(Path(home)))
        finally:
            if before is None:
                del os.environ["SHOAL_HOME"]
            else:
                os.environ["SHOAL_HOME"] = before


_nowhere()
