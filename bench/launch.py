"""Runs a program and reports its cost, from a process so small that its own memory does not show.

`python launch.py REPORT PROGRAM…`: a process begins with the peak memory of the process that started it, so a
program started by the bench itself would seem as large as the bench.
"""

import os
import sys
import time


def main() -> None:
    report, *argv = sys.argv[1:]
    started = time.monotonic()
    pid = os.posix_spawnp(argv[0], argv, os.environ)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - started
    with open(report, "w") as file:  # noqa: PTH123 - pathlib is half of this process's memory
        print(
            started,
            usage.ru_utime + usage.ru_stime,
            wall,
            usage.ru_maxrss / 1024,
            os.waitstatus_to_exitcode(status),
            file=file,
        )


main()
