"""A project, a home, and programs started in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cli_live.pty_terminal import PtyTerminal, build_environment
from program_forks import fork_program

TERMINAL_PROGRAM = Path(__file__).with_name("scripted_terminal.py")
SHOAL_COMMAND = (sys.executable, "-c", "from shoal.surfaces.cli.main import main; main()")
fork_program(str(TERMINAL_PROGRAM))
fork_program(*SHOAL_COMMAND[1:])


class CliProject:
    """A project directory and a home."""

    def __init__(self, root: Path, exit_stack: ExitStack) -> None:
        self.project = root / "project"
        self.home = root / "home"
        self.project.mkdir()
        self.home.mkdir()
        self._exit_stack = exit_stack

    def start_scripted_terminal(
        self,
        *steps: dict[str, Any],
        prompt: str | None = None,
        mode: str = "default",
        pace: float = 0.0,
        resume: str = "",
        **env: str,
    ) -> PtyTerminal:
        """Start `shoal` at a terminal, with a model that plays these steps."""
        script = self.home / f"script-{len(list(self.home.iterdir()))}.json"
        script.write_text(json.dumps(steps))
        argv = [sys.executable, str(TERMINAL_PROGRAM), str(script), mode, str(pace), resume]
        terminal = PtyTerminal(
            [*argv, prompt] if prompt else argv, cwd=self.project, env=build_environment(self.home, **env)
        )
        return self._exit_stack.enter_context(terminal)

    def run_shoal(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run `shoal` with these arguments and no terminal."""
        return subprocess.run(
            [*SHOAL_COMMAND, *arguments],
            cwd=self.project,
            env=build_environment(self.home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            **more,
        )

    def start_shoal_terminal(self, *arguments: str, **env: str) -> PtyTerminal:
        return self.start_program([*SHOAL_COMMAND, *arguments], **env)

    def start_program(self, argv: list[str], **env: str) -> PtyTerminal:
        terminal = PtyTerminal(argv, cwd=self.project, env=build_environment(self.home, **env))
        return self._exit_stack.enter_context(terminal)

    def build_argv(self, *arguments: str) -> list[str]:
        return [*SHOAL_COMMAND, *arguments]

    def create_gate(self) -> FifoGate:
        return FifoGate(self.project / "gate")


class FifoGate:
    """Holds a tool call: `command` ends when the gate is opened."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.command = f"echo waiting; cat {path}"

    def open(self, text: str = "gate opened") -> None:
        # Opening waits for the command to read, so both have met when it returns.
        self._path.write_text(f"{text}\n")


@pytest.fixture
def cli_project(tmp_path: Path) -> Iterator[CliProject]:
    with ExitStack() as exit_stack:
        yield CliProject(tmp_path, exit_stack)
