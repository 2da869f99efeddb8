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
    with open("/proc/self/status") as status:
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
    with open("/proc/self/io") as counters, open(os.environ["MEASURED_REPORT"], "w") as report:
        report.write(f"{peak} {counters.read()}")
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
import asyncio, http.client, sys
from pathlib import Path
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.surfaces.web.web_server import WebServerAddress, serve_web_view
def read_run(address, session):
    # The frame is not kept: only the memory of the server counts.
    connection = http.client.HTTPConnection(address.partition("//")[2].partition("/")[0])
    bearer = {"Authorization": "Bearer token"}
    connection.request("GET", "/api/runs", headers=bearer)
    assert session.encode() in connection.getresponse().read()
    connection.request("GET", f"/api/runs/{session}/frames", headers=bearer)
    reply, size, tail = connection.getresponse(), 0, b""
    while size < 100 or not tail.endswith(b"\\n\\n"):
        part = reply.read1(65536)
        size, tail = size + len(part), (tail + part)[-2:]
    connection.close()
    return size
async def serve(home, session):
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    place = WebServerAddress(host="127.0.0.1", port=0, token="token")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve_web_view(StoredRuns(home=home), place, on_ready=ready.set_result, ended=stop))
        print(await asyncio.to_thread(read_run, await ready, session))
        stop.set()
asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
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
    # Not from the usage, whose peak includes the memory of this process before the program replaced it.
    peak, _, bytes_read, *_ = report.read_text().split()
    return ProgramCost(
        out=printed,
        err=reported,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        bytes_read=int(bytes_read),
        peak_bytes=int(peak) * 1024,
    )
