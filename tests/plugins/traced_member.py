"""Entry point of a teammate's process that records in its directory which functions it has entered."""

from __future__ import annotations

import json
from pathlib import Path

from call_trace import CallTrace
from shoal.app.session import member_main

RECORD = "member_trace.json"


def main(fd: int) -> None:
    trace = CallTrace()
    try:
        with trace.record():
            member_main.main(fd)
    finally:
        Path(RECORD).write_text(json.dumps(trace.steps))
