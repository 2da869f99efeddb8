"""Another program that locks a whole directory with the flock of `.lock` in it, and writes files in place.

`python flock_program.py INBOX TASK COUNT SECONDS`: posts to the inbox and updates the task in turn, COUNT
times or until SECONDS have passed, and prints how often. It knows nothing of lock directories.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

inbox, task, count, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


def change_locked(path: Path, change: Callable[[Any], None]) -> None:
    lock = path.parent / ".lock"
    lock.touch(exist_ok=True)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = json.loads(path.read_text())  # under the lock it is whole, or this fails
        change(content)
        text = json.dumps(content, indent=2)
        with path.open("w") as written:
            written.write(text[: len(text) // 2])
            written.flush()  # half a file is visible for a moment
            written.write(text[len(text) // 2 :])


def add_mail(number: int) -> Callable[[list[Any]], None]:
    entry = {"from": "other", "text": f"other {number}", "timestamp": f"t{number}", "read": False}
    return lambda entries: entries.append(entry)


def add_mark(number: int) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.setdefault("metadata", {}).update({f"other {number}": number})


end = time.monotonic() + seconds
done = 0
while done < count and time.monotonic() < end:
    change_locked(inbox, add_mail(done))
    change_locked(task, add_mark(done))
    done += 1
sys.stdout.write(f"{done}\n")
