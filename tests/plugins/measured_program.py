"""Programs in processes of their own that report what they cost: processor time, bytes read, peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

_REPORT = """
import atexit, os
def _report():
    with open("/proc/self/io") as counters, open(os.environ["MEASURED_REPORT"], "w") as report:
        report.write(counters.read())
atexit.register(_report)
"""
COMMAND = "from shoal.surfaces.cli.main import main; main()"
"""Runs `shoal` with the arguments of the process."""
RESUME = """
import asyncio, sys, shoal
from shoal.models.scripted_model import ScriptedModel
async def resume():
    model = ScriptedModel(lambda request: "Done.")
    async with shoal.open(cwd=".", model=model, resume=sys.argv[1]) as session:
        async for event in session.run("Go on."):
            pass
        print(session.turn)
asyncio.run(resume())
"""
WEB = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from web_client import serve_home
async def read_run():
    async with serve_home(Path(sys.argv[2])) as web:
        runs = await web.get_json("/runs")
        async with web.open_stream(f"/runs/{runs[0]['session']}/frames") as stream:
            _, _, frame = await stream.read_event()
            print(len(frame["tasks"]))
asyncio.run(read_run())
"""


class ProgramCost(Struct, frozen=True, kw_only=True):
    out: str
    err: str
    cpu_seconds: float
    bytes_read: int
    peak_bytes: int


def run_measured(code: str, *arguments: str, cwd: Path, home: Path) -> ProgramCost:
    """Run Python code in a project, and return what it printed and what it cost."""
    report = cwd.parent / "measured-report"
    with (cwd.parent / "measured-out").open("w+") as out, (cwd.parent / "measured-err").open("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", _REPORT + code, *arguments],
            cwd=cwd,
            env={**os.environ, "SHOAL_HOME": str(home), "MEASURED_REPORT": str(report)},
            stdout=out,
            stderr=err,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        printed, reported = out.read(), err.read()
    assert process.returncode == 0, reported
    return ProgramCost(
        out=printed,
        err=reported,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        bytes_read=int(report.read_text().split()[1]),
        peak_bytes=usage.ru_maxrss * 1024,
    )
