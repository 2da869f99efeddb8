"""Serves the web view with fake runs during development: `python web/dev/serve.py`."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from web_scenes import crowd, harbour, past  # noqa: E402
from web_stage import Stage  # noqa: E402


def main() -> None:
    now = time.time_ns() // 1_000_000
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8787
    scenes = [
        harbour(began=now - 220_000),
        harbour(ended=True, began=now - 90_000_000),
        crowd(began=now - 6_000_000),
        *past(40),
    ]
    with Stage(scenes, port) as stage:
        sys.stdout.write(f"{stage.address}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
