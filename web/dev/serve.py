"""Serves the web view with fake runs during development: `python web/dev/serve.py`."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from fake_runs import build_crowd_run, build_harbour_run, build_past_runs  # noqa: E402
from fake_web_server import FakeWebServer  # noqa: E402


def main() -> None:
    now = time.time_ns() // 1_000_000
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8787
    fake_runs = [
        build_harbour_run(began=now - 220_000),
        build_harbour_run(ended=True, began=now - 90_000_000),
        build_crowd_run(began=now - 6_000_000),
        *build_past_runs(40),
    ]
    with FakeWebServer(fake_runs, port) as server:
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
