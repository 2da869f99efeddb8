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

from shoal.backends.processes import GuardedProcesses
from shoal.backends.tmux import TmuxPanes
from shoal.core.backends import Pane
from shoal.core.clock import SystemClock

BOUND = 20.0
WAITING = (sys.executable, "-S", "-c", "import signal, sys; print(*sys.argv[1:], flush=True); signal.pause()")
"""Command of a program that prints its arguments and waits."""


class TmuxServer:
    """One server; `inside_env` is the environment of a program that runs in the person's pane."""

    def __init__(self, root: Path, config: str = "") -> None:
        # A socket path must be short, and the directory of a test is long.
        self._directory = Path(mkdtemp(prefix="tmux-"))
        self.name = "test"
        self._config = root / "tmux.conf"
        self._config.write_text(config)
        self._env = {**os.environ, "TMUX_TMPDIR": str(self._directory), "TERM": "xterm-256color"}
        for name in ("TMUX", "TMUX_PANE"):
            self._env.pop(name, None)

    @property
    def outside(self) -> dict[str, str]:
        return dict(self._env)

    @property
    def inside(self) -> dict[str, str]:
        told = self("display-message", "-p", "-t", "person:0.0", "#{socket_path},#{pid},0 #{pane_id}")
        tmux, pane = told.rsplit(" ", 1)
        return {**self._env, "TMUX": tmux, "TMUX_PANE": pane}

    def begin(self, *, columns: int = 200, rows: int = 60) -> TmuxServer:
        """Start a session with one pane for the person."""
        self("new-session", "-d", "-s", "person", "-x", str(columns), "-y", str(rows), "cat", "-")
        return self

    def __call__(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.name, "-f", str(self._config), "-u", *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
        assert not check or done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout.removesuffix("\n")

    def rows(self, what: str, *, of: str = "") -> list[str]:
        """Return the expanded format for each pane, or for the panes of one window."""
        return self("list-panes", *(("-t", of) if of else ("-a",)), "-F", what).splitlines()

    def screen(self, pane: str) -> str:
        return self("capture-pane", "-p", "-J", "-t", pane, check=False)

    async def until(self, wanted: Callable[[], bool], what: str = "what was waited for") -> None:
        """Poll until the condition is true: tmux does not announce what a pane shows."""
        try:
            async with asyncio.timeout(BOUND):
                while not await asyncio.to_thread(wanted):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            screens = "\n".join(self.screen(pane).strip() for pane in self.rows("#{pane_id}"))
            raise AssertionError(f"{what} did not come. The screens:\n{screens}") from None

    async def shows(self, pane: str, text: str) -> None:
        await self.until(lambda: text in self.screen(pane), repr(text))

    async def ended(self) -> None:
        """Kill the server and wait until another one can start in its place."""
        pid = int(self("display-message", "-p", "#{pid}"))
        self("kill-server")
        await self.until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the server")

    def end(self) -> None:
        self("kill-server", check=False)
        shutil.rmtree(self._directory)


@asynccontextmanager
async def panes_in(
    environ: dict[str, str], *, session_name: str = "shoal-12345678", socket: str | None = None
) -> AsyncIterator[TmuxPanes]:
    clock = SystemClock()
    processes = GuardedProcesses(clock)
    panes = TmuxPanes(environ, processes, clock, session_name=session_name, socket=socket)
    try:
        yield panes
    finally:
        await panes.aclose()
        await processes.aclose()


def showing(
    title: str, cwd: Path, *, color: str | None = None, argv: tuple[str, ...] = (), split: bool = True
) -> Pane:
    return Pane(title=title, color=color, argv=argv or (*WAITING, title), cwd=cwd, env={}, split=split)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[TmuxServer]:
    server = TmuxServer(tmp_path)
    try:
        yield server
    finally:
        server.end()
