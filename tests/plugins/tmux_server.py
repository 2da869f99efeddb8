"""A private tmux server for a test, always reaped, and what a person sees and does in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.tmux_panes import TmuxPaneManager
from shoal.core.clock import SystemClock
from shoal.core.teams.member_backends import PaneSpec

TIMEOUT = 60.0
WAITING_PROGRAM = (
    sys.executable,
    "-S",
    "-c",
    "import signal, sys; print(*sys.argv[1:], flush=True); signal.pause()",
)
"""Command of a program that prints its arguments and waits."""


class TmuxServer:
    """One server; `inside_env` is the environment of a program that runs in the user's pane."""

    def __init__(self, root: Path, config: str = "") -> None:
        # A socket path must be short, and the directory of a test is long.
        # Not in TMPDIR, which may be too long for the path of a socket.
        self._directory = Path(mkdtemp(prefix="tmux-", dir="/tmp"))
        self.name = "test"
        self._config = root / "tmux.conf"
        self._config.write_text(config)
        self._env = {**os.environ, "TMUX_TMPDIR": str(self._directory), "TERM": "xterm-256color"}
        for name in ("TMUX", "TMUX_PANE"):
            self._env.pop(name, None)

    @property
    def outside_env(self) -> dict[str, str]:
        return dict(self._env)

    @property
    def inside_env(self) -> dict[str, str]:
        told = self("display-message", "-p", "-t", "person:0.0", "#{socket_path},#{pid},0 #{pane_id}")
        tmux, pane = told.rsplit(" ", 1)
        return {**self._env, "TMUX": tmux, "TMUX_PANE": pane}

    def start_user_session(self, *, columns: int = 200, rows: int = 60) -> TmuxServer:
        """Start a session with one pane for the user."""
        self("new-session", "-d", "-s", "person", "-x", str(columns), "-y", str(rows), "cat", "-")
        return self

    def __call__(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.name, "-f", str(self._config), "-u", *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert not check or done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout.removesuffix("\n")

    def list_panes(self, pane_format: str, *, window: str = "") -> list[str]:
        """Return the expanded format for each pane, or for the panes of one window."""
        return self("list-panes", *(("-t", window) if window else ("-a",)), "-F", pane_format).splitlines()

    def capture_pane(self, pane: str) -> str:
        return self("capture-pane", "-p", "-J", "-t", pane, check=False)

    async def wait_until(
        self, condition: Callable[[], bool], description: str = "what was waited for"
    ) -> None:
        """Poll until the condition is true: tmux does not announce what a pane shows."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not await asyncio.to_thread(condition):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            screens = "\n".join(self.capture_pane(pane).strip() for pane in self.list_panes("#{pane_id}"))
            raise AssertionError(f"{description} did not come. The screens:\n{screens}") from None

    async def wait_for_text(self, pane: str, text: str) -> None:
        await self.wait_until(lambda: text in self.capture_pane(pane), repr(text))

    async def kill_and_wait(self) -> None:
        """Kill the server and wait until another one can start in its place."""
        pid = int(self("display-message", "-p", "#{pid}"))
        self("kill-server")
        await self.wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the server")

    def clean_up(self) -> None:
        self("kill-server", check=False)
        shutil.rmtree(self._directory)


@asynccontextmanager
async def open_panes(
    environ: dict[str, str], *, session_name: str = "shoal-12345678", socket: str | None = None
) -> AsyncIterator[TmuxPaneManager]:
    clock = SystemClock()
    processes = GuardedProcessLauncher(clock)
    panes = TmuxPaneManager(environ, processes, clock, session_name=session_name, socket=socket)
    try:
        yield panes
    finally:
        await panes.aclose()
        await processes.aclose()


def make_pane_spec(
    title: str, cwd: Path, *, color: str | None = None, argv: tuple[str, ...] = (), split: bool = True
) -> PaneSpec:
    return PaneSpec(
        title=title, color=color, argv=argv or (*WAITING_PROGRAM, title), cwd=cwd, env={}, split=split
    )


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[TmuxServer]:
    server = TmuxServer(tmp_path)
    try:
        yield server
    finally:
        server.clean_up()
