"""Panes of iTerm2, through its `it2` program; a pipe reports the start and end of a pane's command."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.program_runner import ProgramRunResult, run_program
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.teams.member_backends import PaneExit, PaneSpec, PaneTerminal
from shoal.core.teams.roster import BackendType

START_TIMEOUT = 60.0
"""Seconds allowed for a command to start in a new pane: iTerm2 types it into a shell, which may start
slowly."""
_SESSION = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_COLORS = {
    "blue": (64, 128, 255),
    "green": (64, 192, 64),
    "yellow": (224, 192, 0),
    "purple": (176, 96, 224),
    "orange": (255, 144, 32),
    "pink": (255, 128, 192),
    "cyan": (0, 192, 208),
    "red": (224, 64, 64),
}


class _Iterm2PaneState:
    """State of one of our panes; its command holds the pipe open while it runs."""

    def __init__(self, pipe: Path) -> None:
        self.pid = 0
        self.started = asyncio.Event()
        self.gone = asyncio.Event()
        self._status: int | None = None
        self._received = b""
        self._fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        # A pipe without a writer looks as if its writer had ended: until there is one, we are the writer.
        self._own_writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._fd, self._read_status_pipe)

    @property
    def pane_exit(self) -> PaneExit:
        return PaneExit(status=self._status)

    def _read_status_pipe(self) -> None:
        try:
            data = os.read(self._fd, 4096)
        except BlockingIOError:
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            kind, _, number = line.partition(b" ")
            if kind == b"started":
                self.pid = int(number)
                self._close_own_pipe_writer()
                self.started.set()
            else:
                self._status = _convert_shell_exit_status(int(number))
        if not data:
            self.close()

    def close(self) -> None:
        self._close_own_pipe_writer()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
        self.gone.set()

    def _close_own_pipe_writer(self) -> None:
        fd, self._own_writer = self._own_writer, -1
        if fd >= 0:
            os.close(fd)


class Iterm2PaneManager:
    type: BackendType = "iterm2"

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._env = dict(environ)
        self._clock = clock
        self._opening = asyncio.Lock()
        self._directory: Path | None = None
        self._panes: dict[str, _Iterm2PaneState] = {}

    @property
    def attach_command(self) -> tuple[str, ...]:
        """Empty: the panes are next to the lead's."""
        return ()

    async def explain_unavailable(self) -> str:
        if self._env.get("TERM_PROGRAM") != "iTerm.app" and not self._env.get("ITERM_SESSION_ID"):
            return "This terminal is not iTerm2. Start shoal in iTerm2, or set teammate_mode: tmux."
        if shutil.which("it2", path=self._env.get("PATH")) is None:
            return (
                "Shoal controls iTerm2 with the it2 program, which is not installed. Install it (pip "
                "install it2) and turn on the Python API in iTerm2's settings."
            )
        return ""

    async def open_pane(self, pane: PaneSpec) -> str:
        async with self._opening:
            session = await self._open_session_for_pane(pane)
            try:
                script, pipe = self._write_pane_script(pane, session)
                state = self._panes[session] = _Iterm2PaneState(pipe)
            except OSError as error:
                await self._close_session(session)
                raise ProcessError(
                    format_backend_notice("no_start_script", name=pane.title, error=error)
                ) from error
        try:
            await self._run_it2("session", "set-name", "--session", session, pane.title)
            await self._run_it2(
                "session", "run", "--session", session, f" exec sh {shlex.quote(str(script))}"
            )
            async with self._clock.deadline(START_TIMEOUT):
                await state.started.wait()
        except TimeoutError:
            await self.close_pane(session)
            raise ProcessError(format_backend_notice("pane_silent", seconds=f"{START_TIMEOUT:.0f}")) from None
        except BaseException:
            await self.close_pane(session)
            raise
        return session

    def _write_pane_script(self, pane: PaneSpec, session: str) -> tuple[Path, Path]:
        """Write the script to a file: typed text would show on the screen and in the shell's history."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="shoal-iterm2-"))
        script, pipe = (self._directory / f"{session}.{kind}" for kind in ("sh", "pipe"))
        os.mkfifo(pipe, 0o600)
        script.touch(mode=0o600)
        script.write_text(_build_pane_script(pane, pipe))
        return script, pipe

    async def close_pane(self, pane: str) -> None:
        state = self._panes.get(pane)
        if state is None or state.gone.is_set():
            return
        await self._close_session(pane)
        state.close()

    async def _close_session(self, session: str) -> None:
        # A session that the user has closed meanwhile is refused, which is fine.
        await self._run_it2("session", "close", "--session", session, "--force", checked=False)

    async def is_pane_alive(self, pane: str) -> bool:
        state = self._panes.get(pane)
        return state is not None and not state.gone.is_set()

    def find_pane_pid(self, pane: str) -> int:
        return self._panes[pane].pid

    def find_pane_terminal(self, pane: str) -> PaneTerminal | None:
        return None  # it2 does not print it

    async def wait_for_pane_exit(self, pane: str) -> PaneExit:
        await self._panes[pane].gone.wait()
        return self._panes[pane].pane_exit

    async def aclose(self) -> None:
        for pane in list(self._panes):
            with suppress(ProcessError):
                await self.close_pane(pane)
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
            self._directory = None

    async def _open_session_for_pane(self, pane: PaneSpec) -> str:
        """Open the first pane next to the lead and the others below each other, or in a tab."""
        last = next((each for each, shown in reversed(self._panes.items()) if not shown.gone.is_set()), "")
        lead = self._env.get("ITERM_SESSION_ID", "").rpartition(":")[2]
        if not pane.split:
            result = await self._run_it2("tab", "new")
        elif last:
            result = await self._run_it2("session", "split", "--session", last)
        else:
            result = await self._run_it2(
                "session", "split", "--vertical", *(("--session", lead) if lead else ())
            )
        found = _SESSION.findall(result.out)
        if not found:
            raise ProcessError(format_backend_notice("no_pane_id", output=result.out.strip() or "nothing"))
        return str(found[-1])

    async def _run_it2(self, *arguments: str, checked: bool = True) -> ProgramRunResult:
        program = shutil.which("it2", path=self._env.get("PATH")) or "it2"
        result = await run_program((program, *arguments), self._env, self._clock, seconds=START_TIMEOUT)
        if checked and result.status != 0:
            message = (result.err.strip() or result.out.strip() or f"status {result.status}").splitlines()[-1]
            raise ProcessError(f"it2 {' '.join(arguments[:2])} failed: {message}")
        return result


def _build_pane_script(pane: PaneSpec, pipe: Path) -> str:
    """Build the script that sh runs in place of the pane's shell, so that the pane ends with it."""
    env = {name: shlex.quote(value) for name, value in pane.env.items() if _is_shell_variable_name(name)}
    exports = "".join(f"export {name}={value}\n" for name, value in env.items())
    return f"""exec 9>{shlex.quote(str(pipe))}
echo "started $$" >&9
rm -f "$0"
trap : TERM INT
{_build_tab_color_command(pane.color)}{exports}cd {shlex.quote(str(pane.cwd))} || exit
{shlex.join(pane.argv)} 9>&-
echo "ended $?" >&9
"""


def _is_shell_variable_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def _build_tab_color_command(color: str | None) -> str:
    rgb = _COLORS.get(color or "")
    if rgb is None:
        return ""
    parts = zip(("red", "green", "blue"), rgb, strict=True)
    codes = "".join(f"\\033]6;1;bg;{part};brightness;{shade}\\007" for part, shade in parts)
    return f"printf '{codes}'\n"


def _convert_shell_exit_status(shell_status: int) -> int:
    """Convert the status of a shell, in which a signal is 128 plus its number."""
    return -(shell_status - 128) if shell_status > 128 else shell_status
