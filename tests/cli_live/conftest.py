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

from cli_live.terminal import Terminal, environment

TALKER = Path(__file__).with_name("talker.py")
SHOAL = (sys.executable, "-c", "from shoal.surfaces.cli.main import main; main()")


class Place:
    """A project directory and a home."""

    def __init__(self, root: Path, exits: ExitStack) -> None:
        self.project = root / "project"
        self.home = root / "home"
        self.project.mkdir()
        self.home.mkdir()
        self._exits = exits

    def talk(
        self,
        *steps: dict[str, Any],
        prompt: str | None = None,
        mode: str = "default",
        pace: float = 0.0,
        resume: str = "",
        **env: str,
    ) -> Terminal:
        """Start `shoal` at a terminal, with a model that plays these steps."""
        script = self.home / f"script-{len(list(self.home.iterdir()))}.json"
        script.write_text(json.dumps(steps))
        argv = [sys.executable, str(TALKER), str(script), mode, str(pace), resume]
        terminal = Terminal(
            [*argv, prompt] if prompt else argv, cwd=self.project, env=environment(self.home, **env)
        )
        return self._exits.enter_context(terminal)

    def shoal(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run `shoal` with these arguments and no terminal."""
        return subprocess.run(
            [*SHOAL, *arguments],
            cwd=self.project,
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            **more,
        )

    def shoal_at_terminal(self, *arguments: str, **env: str) -> Terminal:
        return self.program([*SHOAL, *arguments], **env)

    def program(self, argv: list[str], **env: str) -> Terminal:
        terminal = Terminal(argv, cwd=self.project, env=environment(self.home, **env))
        return self._exits.enter_context(terminal)

    def argv(self, *arguments: str) -> list[str]:
        return [*SHOAL, *arguments]

    def gate(self) -> Gate:
        return Gate(self.project / "gate")


class Gate:
    """Holds a tool call: `command` ends when the gate is opened."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.command = f"echo waiting; cat {path}"

    def open(self, text: str = "gate opened") -> None:
        # Opening waits for the command to read, so both have met when it returns.
        self._path.write_text(f"{text}\n")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as exits:
        yield Place(tmp_path, exits)
