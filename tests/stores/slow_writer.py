"""Another program that writes a file in place and stops in between. It takes no lock.

`python slow_writer.py PATH TEXT` truncates the file and says so. It writes half of the text when it reads a
line, and the rest when it reads another one.
"""

from __future__ import annotations

import sys
from pathlib import Path

path, text = Path(sys.argv[1]), sys.argv[2]
half = len(text) // 2


def report(stage: str) -> None:
    sys.stdout.write(f"{stage}\n")
    sys.stdout.flush()
    sys.stdin.readline()


with path.open("w") as file:
    report("truncated")
    file.write(text[:half])
    file.flush()
    report("half")
    file.write(text[half:])
