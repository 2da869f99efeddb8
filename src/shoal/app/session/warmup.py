"""Opens a warm-up session and prepares for a teammate when the fork server imports this module.

Everything imported and computed on the way is shared by the processes that are forked afterward.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from shoal.app.agents.member_bootstrap import decode_member_bootstrap
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.models.catalogue import resolve_model
from shoal.models.scripted_model import ScriptedModel
from shoal.wire.mail_body_codec import parse_mail_body

_LAZY_MODULES = (
    "shoal.app.teams.journaled_board",
    "shoal.app.teams.journaled_mailboxes",
    "shoal.models.providers",
    "shoal.models.rate_limiter",
    "shoal.policy.shell_policy",
    "shoal.stores.files.file_store",
    "shoal.stores.files.mailboxes.file_mailbox_store",
    "shoal.stores.files.sessions.file_session_store",
    "shoal.stores.files.teams.file_roster_store",
    "shoal.stores.files.board.file_task_board",
    "shoal.stores.files.teams.team_keys",
    "shoal.team.team_supervisor",
    *(("inotify_simple",) if sys.platform == "linux" else ()),
)
"""Modules that every teammate imports, in functions that the warm-up session does not call."""


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
    # Each forked process has another environment, and chooses its directory itself.
    tempfile.tempdir = None


def _prepare_for_teammate() -> None:
    """Import what a teammate needs, and build the decoders of what it reads first."""
    for module in _LAZY_MODULES:
        importlib.import_module(module)
    resolve_model("anthropic:sonnet")  # loads the catalog
    parse_mail_body("{}")
    with suppress(ValueError):  # refused, but only after the decoder is built
        decode_member_bootstrap(b"{}")


_warm_up_in_temporary_home()
_prepare_for_teammate()
