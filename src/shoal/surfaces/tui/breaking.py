"""Reports a crash of the full screen: a log entry, and a message for the person."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.core.clock import SystemClock
from shoal.core.secrets import SHAPES_ALONE, Secrets
from shoal.core.wording import clean
from shoal.stores.files.debug import DebugLog
from shoal.surfaces.terminal.sentences import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.app.outside.watching import Run
    from shoal.app.session.session import Session
    from shoal.core.ids import SessionId


def tell_of_fault(
    error: BaseException, session: Session | None, unsent: Sequence[str], *, kept: bool
) -> None:
    """Report a crash in a local session that has ended, if any. `persisted`: it can be resumed."""
    if session is None:
        say(f"{_broke(error)} Without the full screen: shoal --plain. Where it broke is shown by --debug.")
        return
    settings = session.parts.settings
    where = _keep(error, settings.home, session.id, settings.secrets) if kept else None
    plain = "shoal --plain"
    if kept and session.turn:
        plain += f" --resume {session.id}"
    lines = (
        f"{_broke(error)} The session has ended{'; what was said and done is kept' if kept else ''}.",
        f"  Where it broke: {where}" if where else "  To see where it broke, add --debug.",
        f"  Go on without the full screen: {plain}",
    )
    say("\n".join((*lines, *_unsent(unsent))))


def tell_of_far_fault(error: BaseException, run: Run, unsent: Sequence[str]) -> None:
    """Report a crash while attached to a run of another process."""
    where = _keep(error, run.home, run.session, SHAPES_ALONE)
    lines = (
        f"{_broke(error)} The run goes on without it.",
        f"  Where it broke: {where}",
        f"  Come back: shoal attach {run.session[:8]}",
        f"  See it without the full screen: shoal watch {run.session[:8]}",
    )
    say("\n".join((*lines, *_unsent(unsent))))


def _broke(error: BaseException) -> str:
    return f"The full screen broke, which is a fault of Shoal's: {clean(f'{type(error).__name__}: {error}')}."


def _unsent(texts: Sequence[str]) -> Sequence[str]:
    words = [clean(text) for text in texts if text.strip()]
    return ("  You had typed, and it was not sent:", *words) if words else ()


def _keep(error: BaseException, home: Path, session: SessionId, secrets: Secrets) -> Path | None:
    """Write the traceback to the debug log, without variable values: conversations do not belong there."""
    with suppress(OSError):
        log = DebugLog(home / "debug", session, SystemClock(), secrets)
        try:
            log.keep("".join(traceback.format_exception(error)))
        finally:
            log.close()
        return log.path
    return None
