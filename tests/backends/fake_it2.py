"""A fake `it2`: records each call in a file, and runs each pane as a shell under its own terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(os.environ["IT2_ROOT"])


def main(arguments: list[str]) -> int:
    with (ROOT / "calls").open("a") as file:
        file.write(json.dumps(arguments) + "\n")
    session = arguments[arguments.index("--session") + 1] if "--session" in arguments else ""
    match arguments[:2]:
        case ["session", "split"] | ["tab", "new"]:
            made = str(uuid.uuid4()).upper()
            own = [sys.executable, __file__, "--pane", made]
            none = subprocess.DEVNULL
            pane = subprocess.Popen(
                own, start_new_session=True, stdin=none, stdout=subprocess.PIPE, stderr=none
            )
            assert pane.stdout is not None
            pane.stdout.readline()
            os.write(1, f"Created new pane: {made}\n".encode())
            os._exit(0)
        case ["session", "run"]:
            with (ROOT / f"{session}.keys").open("w") as keys:
                keys.write(arguments[-1] + "\n")
        case ["session", "close"]:
            try:
                os.kill(int((ROOT / f"{session}.pid").read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                os.write(2, b"Error: session not found\n")
                return 3
        case ["session", "set-name"]:
            return 0
        case _:
            return 2
    return 0


def run_pane(session: str) -> None:
    """Run a shell that starts slowly under a terminal; typed keys arrive through a pipe."""
    keys = ROOT / f"{session}.keys"
    os.mkfifo(keys)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execlp("bash", "bash", "--rcfile", str(ROOT / "rc"), "-i")
    (ROOT / f"{session}.pid").write_text(str(os.getpid()))
    # With whoever waits to type: the terminal is gone then, and its programs hear it.
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    os.write(1, b"up\n")
    os.close(1)
    if os.fork() == 0:
        os.write(terminal, keys.read_bytes())
        os._exit(0)
    with (ROOT / f"{session}.screen").open("wb", buffering=0) as screen:
        while True:
            try:
                screen.write(os.read(terminal, 4096))
            except OSError:
                break
    (ROOT / f"{session}.pid").unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pane"]:
        run_pane(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
