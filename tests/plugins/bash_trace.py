"""Traces what real bash runs for a command line: it finds no program, and logs the words of each command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

# Each record is one line, written in one piece although others write too, and names its command line,
# because background commands report late.
_HARNESS = r"""
set -f
command_not_found_handle() {
  local told=$shoal_line word
  for word; do told+=$'\x1f'${word//$'\n'/$'\x1e'}; done
  builtin printf '%s\n' "$told" >> "$SHOAL_LOG"
}
shoal_line=0
while IFS= read -r -d '' text; do
  ( eval "$text"; wait ) < /dev/null > /dev/null 2>&1
  shoal_line=$((shoal_line + 1))
done
"""


class BashTrace(NamedTuple):
    commands: list[list[tuple[str, ...]]]
    """For each command line, the programs bash tried to start, with their words."""
    files: set[str]
    """Names of the files that existed afterwards."""


def trace_commands(commands: list[str], directory: Path) -> BashTrace:
    log = Path(tempfile.mkdtemp(dir=directory)) / "log"
    log.write_bytes(b"")
    work = log.with_name("work")
    work.mkdir()
    _run_harness(
        "".join(f"{command}\0" for command in commands).encode(),
        {"PATH": "/nonexistent", "SHOAL_LOG": str(log), "HOME": str(Path.home()), "FUNCNEST": "50"},
        work,
    )
    ran: list[list[tuple[str, ...]]] = [[] for _ in commands]
    for record in log.read_bytes().decode().split("\n")[:-1]:
        line, *words = record.replace("\x1e", "\n").split("\x1f")
        ran[int(line)].append(tuple(words))
    return BashTrace(ran, {path.name for path in work.iterdir()})


def _run_harness(lines: bytes, env: Mapping[str, str], work: Path) -> None:
    """Run the harness, and end every process that its command lines have left."""
    process = subprocess.Popen(
        ["/bin/bash", "--norc", "--noprofile", "-c", _HARNESS],
        stdin=subprocess.PIPE,
        env=env,
        cwd=work,
        start_new_session=True,
    )
    try:
        process.communicate(lines, timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0


def find_unanalyzed(analysis: ShellCommandAnalysis, ran: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """List commands that bash ran and the analysis did not find."""
    return [argv for argv in ran if not any(_is_same_command(part, argv) for part in analysis.parts)]


def _is_same_command(part: SimpleShellCommand, argv: tuple[str, ...]) -> bool:
    if argv[0] in part.via and (argv[0] in WRAPPERS or argv[0] in SHELLS):
        return True
    if part.argv is None and part.words and part.words[0] in (*WRAPPERS, *SHELLS, "eval", "trap"):
        return True
    if not part.words or part.words[0] not in (argv[0], None):
        return False
    return None in part.words or part.words == argv
