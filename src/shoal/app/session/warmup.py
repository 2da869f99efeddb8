"""Opens a warm-up session when the fork server imports this module.

Everything imported and computed on the way is shared by the processes that are forked afterwards.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.models.scripted_model import ScriptedModel


async def _run_warmup_session(cwd: Path) -> None:
    model = ScriptedModel(["Ready."])
    options = Options(cwd=cwd, model=model, persist=False, skip_permissions=True, begun=None)
    async with Session(options) as session:
        async for _ in session.run("Rehearse."):
            pass


def _warm_up_in_temporary_home() -> None:
    """Run the warm-up session in a temporary home."""
    previous_home = os.environ.get("SHOAL_HOME")
    with tempfile.TemporaryDirectory(prefix="shoal-") as home:
        os.environ["SHOAL_HOME"] = home
        try:
            asyncio.run(_run_warmup_session(Path(home)))
        finally:
            if previous_home is None:
                del os.environ["SHOAL_HOME"]
            else:
                os.environ["SHOAL_HOME"] = previous_home


_warm_up_in_temporary_home()
