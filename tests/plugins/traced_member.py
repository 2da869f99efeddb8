"""Entry point of a teammate's process that records in its directory how it takes the path of a teammate."""

from __future__ import annotations

from pathlib import Path

from msgspec import json

from call_trace import CallTrace
from draw_walks import load_walks
from shoal.app.session import member_main

RECORD = "member_trace.json"


def main(fd: int) -> None:
    (walk,) = (each for each in load_walks() if each.name == "teammate")
    trace = CallTrace(walk.places)
    try:
        with trace.record():
            member_main.main(fd)
    finally:
        Path(RECORD).write_bytes(json.encode(trace.calls))
