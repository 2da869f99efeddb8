"""A process that takes a shared file lock: `python lock_process.py HOME WHAT`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from shoal.stores.files.handles import Directory
from shoal.stores.files.record_locks import RecordLock


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(home: Path, what: str) -> None:
    root = Directory.root(home)
    lock = RecordLock(root.within("shoal", "locks"), "box", beside=root.within("boxes"), file="box.json")
    if what.startswith("count"):
        boxes = root.within("boxes")
        for _ in range(int(what.removeprefix("count"))):
            async with lock:
                boxes.replace("box.json", b"%d" % (int(boxes.read("box.json") or b"0") + 1))
        return
    async with lock:
        say("held")
        sys.stdin.readline()
        if what == "die":
            os.kill(os.getpid(), 9)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
