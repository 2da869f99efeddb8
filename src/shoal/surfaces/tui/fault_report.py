"""Reports a crash of the full screen: a log entry, and a message for the person."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.core.clock import SystemClock
from shoal.core.redaction import KEY_SHAPE_REDACTOR, SecretRedactor
from shoal.core.text_format import strip_terminal_codes
from shoal.stores.files.debug_log import DebugLog
from shoal.surfaces.terminal.user_messages import print_user_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.app.run_access.run_handle import RunHandle
    from shoal.app.session.session import Session
    from shoal.core.ids import SessionId


def report_local_crash(
    error: BaseException, session: Session | None, unsent: Sequence[str], *, persisted: bool
) -> None:
    """Report a crash in a local session that has ended, if any. `persisted`: it can be resumed."""
    if session is None:
        print_user_message(
            f"{_describe_crash(error)} Without the full screen: shoal --plain. "
            "Where it broke is shown by --debug."
        )
        return
    settings = session.runtime.settings
    log_path = _log_crash(error, settings.home, session.id, settings.secret_redactor) if persisted else None
    plain_command = "shoal --plain"
    if persisted and session.turn:
        plain_command += f" --resume {session.id}"
    lines = (
        f"{_describe_crash(error)} "
        f"The session has ended{'; what was said and done is kept' if persisted else ''}.",
        f"  Where it broke: {log_path}" if log_path else "  To see where it broke, add --debug.",
        f"  Go on without the full screen: {plain_command}",
    )
    print_user_message("\n".join((*lines, *_format_unsent_texts(unsent))))


def report_attached_crash(error: BaseException, run: RunHandle, unsent: Sequence[str]) -> None:
    """Report a crash while attached to a run of another process."""
    log_path = _log_crash(error, run.home, run.session, KEY_SHAPE_REDACTOR)
    lines = (
        f"{_describe_crash(error)} The run goes on without it.",
        f"  Where it broke: {log_path}",
        f"  Come back: shoal attach {run.session[:8]}",
        f"  See it without the full screen: shoal watch {run.session[:8]}",
    )
    print_user_message("\n".join((*lines, *_format_unsent_texts(unsent))))


def _describe_crash(error: BaseException) -> str:
    fault = strip_terminal_codes(f"{type(error).__name__}: {error}")
    return f"The full screen broke, which is a fault of Shoal's: {fault}."


def _format_unsent_texts(texts: Sequence[str]) -> Sequence[str]:
    unsent_texts = [strip_terminal_codes(text) for text in texts if text.strip()]
    return ("  You had typed, and it was not sent:", *unsent_texts) if unsent_texts else ()


def _log_crash(error: BaseException, home: Path, session: SessionId, secrets: SecretRedactor) -> Path | None:
    """Write the traceback to the debug log, without variable values: conversations do not belong there."""
    with suppress(OSError):
        log = DebugLog(home / "debug", session, SystemClock(), secrets)
        try:
            log.write_text("".join(traceback.format_exception(error)))
        finally:
            log.close()
        return log.path
    return None
