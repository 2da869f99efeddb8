"""Starts the full-screen terminal: sessions one after another in one app."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.clock import SystemClock
from shoal.core.journal_progress import journal_progress
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR, SecretRedactor
from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.stores.files.sessions.debug_log import DebugLog
from shoal.surfaces.terminal.screen import open_terminal_screen
from shoal.surfaces.terminal.session_loop import print_session_farewell, run_terminal_sessions
from shoal.surfaces.terminal.text_styles import DIM, YELLOW
from shoal.surfaces.terminal.user_messages import describe_cut_off_agents, print_user_message
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.local_run_client import TuiLocalRunClient
from shoal.surfaces.tui.remote_run_client import TuiRemoteRunClient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.app.options import Options
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.app.session.session import Session
    from shoal.core.agents.subagents import AgentStatusSnapshot
    from shoal.core.ids import SessionId
    from shoal.surfaces.terminal.session_loop import PreparePrompt

_LIGHT = ("7", "15")
"""Background color numbers of light terminals, as in COLORFGBG."""
HANGUP_EXIT_SECONDS = 20.0
"""Seconds until the process exits after the terminal is gone."""

LEAVE_SECONDS = 20.0
"""Seconds allowed for a run to end cleanly after the screen crashed."""


def report_local_crash(
    error: BaseException, session: Session | None, unsent: Sequence[str], *, persisted: bool
) -> None:
    """Report a crash in a local session that has ended, if any. `persisted`: it can be resumed."""
    if session is None:
        print_user_message(
            f"{_describe_crash(error)} Use the plain terminal: shoal --plain. Add --debug for a traceback."
        )
        return
    settings = session.settings
    log_path = _log_crash(error, settings.home, session.id, settings.secret_redactor) if persisted else None
    plain_command = "shoal --plain"
    if persisted and session.turn:
        plain_command += f" --resume {session.id}"
    lines = (
        f"{_describe_crash(error)} The session has "
        f"ended{'; its conversation is stored' if persisted else ''}.",
        f"  Traceback: {log_path}" if log_path else "  Add --debug for a traceback.",
        f"  Continue in the plain terminal: {plain_command}",
    )
    print_user_message("\n".join((*lines, *_format_unsent_texts(unsent))))


def report_attached_crash(error: BaseException, run: RunHandle, unsent: Sequence[str]) -> None:
    """Report a crash while attached to a run of another process."""
    log_path = _log_crash(error, run.home, run.session, KEY_SHAPE_REDACTOR)
    lines = (
        f"{_describe_crash(error)} The run continues.",
        f"  Traceback: {log_path}",
        f"  Come back: shoal attach {run.session[:8]}",
        f"  Watch it without the full screen: shoal watch {run.session[:8]}",
    )
    print_user_message("\n".join((*lines, *_format_unsent_texts(unsent))))


def _describe_crash(error: BaseException) -> str:
    fault = strip_terminal_codes(f"{type(error).__name__}: {error}")
    return f"The full screen failed because of a bug in Shoal: {fault}."


def _format_unsent_texts(texts: Sequence[str]) -> Sequence[str]:
    unsent_texts = [strip_terminal_codes(text) for text in texts if text.strip()]
    return ("  This text was not sent:", *unsent_texts) if unsent_texts else ()


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


async def run_full_screen_sessions(
    options: Options, prompt: str | None, home: Path, prepare_prompt: PreparePrompt | None = None
) -> int:
    """Run sessions until the user leaves; return the exit status."""
    ended_sessions: list[tuple[Session, Sequence[AgentStatusSnapshot]]] = []

    async def run_sessions_and_exit_app(app: ShoalApp) -> int:
        try:
            return await run_terminal_sessions(
                options,
                prompt,
                prepare_prompt,
                open_terminal=partial(attach_session_to_app, app),
                on_session_end=lambda *ended: ended_sessions.append(ended),
            )
        finally:
            app.exit()

    app = ShoalApp(home / "shoal" / "history", run_sessions_and_exit_app)
    try:
        status = await run_app(app)
    finally:
        if app.fault is not None and not options.debug:
            session = app.run_client.session if isinstance(app.run_client, TuiLocalRunClient) else None
            report_local_crash(app.fault, session, app.unsent_texts, persisted=options.persist)
    if app.fault is not None and options.debug:
        raise app.fault
    screen = open_terminal_screen(sys.stdout)
    for session, stopped_agents in ended_sessions:
        print_session_farewell(screen, session, stopped_agents)
    screen.close()
    return status


async def run_attached_full_screen(run: RunHandle, home: Path) -> int:
    """Show a run of another process until the user leaves; return the exit status."""

    async def show_run_and_exit_app(app: ShoalApp) -> int:
        try:
            run_client = TuiRemoteRunClient(run, SystemClock(), app)
            await app.attach_run(run_client)
            return await run_client.run_until_left()
        finally:
            app.exit()

    app = ShoalApp(home / "shoal" / "history", show_run_and_exit_app)
    app.theme = choose_textual_theme(None, os.environ)
    status = await run_app(app)
    if app.fault is not None:
        report_attached_crash(app.fault, run, app.unsent_texts)
        return status
    screen = open_terminal_screen(sys.stdout)
    if run.is_live:
        screen.write(f"  The run continues. Come back: shoal attach {run.session[:8]}\n", DIM)
    screen.close()
    return status


async def attach_session_to_app(app: ShoalApp, session: Session) -> TuiLocalRunClient:
    """Show this session in the app from now on."""
    run_client = TuiLocalRunClient(session, app)
    app.theme = choose_textual_theme(session.settings.own.theme, os.environ)
    if not session.messages:
        run_client.notices.write_note("/help lists the commands, F2 shows the agents, Ctrl-D exits.")
    for note in session.notes:
        run_client.notices.write_note(to_one_line(note), YELLOW)
    recovered = session.recovered
    if recovered is not None and recovered.cut_off_results:
        run_client.notices.write_note(describe_cut_off_agents(recovered.cut_off_results), YELLOW)
    await app.attach_run(run_client)
    return run_client


def choose_textual_theme(setting: str | None, environ: Mapping[str, str]) -> str:
    """Return Textual's theme name; terminals announce a light background in COLORFGBG."""
    background = "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT else "dark"
    return f"ansi-{background}" if setting == "ansi" else f"textual-{setting or background}"


async def run_app(app: ShoalApp) -> int:
    """Run the app and its coroutine; the end of one ends both. Raises the exception that ended it."""
    # Lines on standard error would destroy the screen.
    journal_progress.set(None)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.leave_run, 128 + signal.SIGTERM)
    # Not by the loop: a write to a terminal that is gone may block the loop itself.
    old_handler = signal.signal(signal.SIGHUP, lambda *_: _handle_hangup(loop, app))
    try:
        await app.run_async()
        task = app.startup_task
        if app.fault is not None and app.run_client is not None and app.run_client.is_open:
            # Even if the screen crashed, the run ends as if the user had left.
            app.leave_run(1)
            assert task is not None
            await asyncio.wait([task], timeout=LEAVE_SECONDS)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGHUP, old_handler)
    if task is not None and not task.cancelled():
        return task.result()
    return app.exit_status or (app.return_code or 0)


def _handle_hangup(loop: asyncio.AbstractEventLoop, app: ShoalApp) -> None:
    """Leave the run after the terminal is gone: output goes to /dev/null, and the exit is bounded."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null_fd, stream)
    os.close(null_fd)
    status = 128 + signal.SIGHUP
    last = threading.Timer(HANGUP_EXIT_SECONDS, os._exit, (status,))
    last.daemon = True
    last.start()
    loop.call_soon_threadsafe(app.leave_run, status)
