"""Entry point of the children of the tests' fork server; the first message on their channel is the order."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from shoal.backends.socket_channel import SocketChannel


def main(fd: int) -> None:
    listed = list(Path("/proc/self/fd").iterdir())
    fds = sorted(int(path.name) for path in listed if path.exists())  # without the one that listed them
    asyncio.run(run_order(fd, fds))


async def run_order(fd: int, fds: list[int]) -> None:
    line = SocketChannel.from_descriptor(fd)
    brief = await line.receive()
    if not brief:
        return
    order: dict[str, Any] = json.loads(brief)
    match order["do"]:
        case "describe":
            line.send(json.dumps(describe_process(fd, fds)).encode())
        case "echo":
            while (message := await line.receive()) is not None:
                line.send(message)
        case "raise":
            raise LookupError("no fish in the net")
        case "exit":
            sys.exit(order["status"])
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            await wait_for_signal(line, order)
    await line.wait_until_sent()


async def wait_for_signal(channel: SocketChannel, order: dict[str, Any]) -> None:
    if order.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for script in order.get("families", []):
        start_shell_family(script)
    channel.send(b"up")
    await asyncio.Event().wait()


def start_shell_family(script: str) -> None:
    """Start a family of processes, and return once each of them has reported that it is up."""
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as family:
        assert family.stdout is not None
        assert family.stdout.readline() == b"up\n"
        family.returncode = 0  # not waited for


def describe_process(fd: int, fds: list[int]) -> dict[str, Any]:
    masks = dict(
        text.split(":\t") for text in Path("/proc/self/status").read_text().splitlines() if ":\t" in text
    )
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
        "line": fd,
        "fds": fds,
        "files": {n: str(Path(f"/proc/self/fd/{n}").readlink()) for n in (0, 1, 2)},
        "chance": random.random(),
        "temporary": tempfile.gettempdir(),
        "name": Path("/proc/self/comm").read_text().strip(),
        "ignored": int(masks["SigIgn"], 16) & 0x7FFF_FFFF,
        "blocked": int(masks["SigBlk"], 16) & 0x7FFF_FFFF,
        "threads": threading.active_count(),
        "collecting": gc.isenabled(),
        "full_collections": gc.get_stats()[2]["collections"],
        "frozen": gc.get_freeze_count(),
        "imported": sorted(name for name in sys.modules if name.startswith("shoal.")),
    }
