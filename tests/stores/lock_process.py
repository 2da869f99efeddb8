"""A process that takes a shared file lock: `python lock_process.py HOME WHAT`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks.shared_file_lock import SharedFileLock


def write_line(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(home: Path, what: str) -> None:
    root = DirectoryHandle.open_root(home)
    lock = SharedFileLock(
        root.open_or_create("shoal", "locks"), "box", directory=root.open_or_create("boxes"), file="box.json"
    )
    if what.startswith("count"):
        boxes = root.open_or_create("boxes")
        for _ in range(int(what.removeprefix("count"))):
            async with lock:
                boxes.replace_file("box.json", b"%d" % (int(boxes.read_file("box.json") or b"0") + 1))
        return
    async with lock:
        write_line("held")
        sys.stdin.readline()
        if what == "die":
            os.kill(os.getpid(), 9)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
