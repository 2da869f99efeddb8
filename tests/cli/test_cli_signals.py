"""Signals end a headless run cleanly, and a killed run can be continued."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from shoal_process import MODEL, TIMEOUT, ShoalProgram, wait_for_result

from process_search import find_processes_in, wait_for_processes_in
from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_tool_call

pytestmark = pytest.mark.fresh_interpreter


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_the_turn_saves_the_session_and_says_how_to_resume(
    shoal: ShoalProgram, home: Path, number: signal.Signals, code: int
) -> None:
    async with messages_server([["never", DelayedReplyFault(seconds=60)], "went on"]) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "q1", "--model", MODEL, "--output-format", "json") as process:
            assert process.stdin is not None
            process.stdin.close()
            await server.wait_for_requests(1)
            process.send_signal(number)
            ran = await wait_for_result(process)
        assert ran.code == code
        assert ran.result["subtype"] == "error_during_execution"
        session = ran.result["session_id"]
        assert f"shoal --resume {session}" in ran.err
        again = await shoal("-p", "q2", "--model", MODEL, "-r", session)
    assert (again.code, again.text) == (0, "went on\n")
    assert [m["role"] for m in server.requests[1].body["messages"]] == ["user"]


async def test_a_signal_while_a_tool_runs_ends_the_tool_too(shoal: ShoalProgram, project: Path) -> None:
    command = "echo $$ > pid; exec sleep 300"
    async with messages_server([make_tool_call("Bash", command=command)]) as server:
        shoal.use_server(server)
        flags = ("--allowedTools", "Bash", "--output-format", "stream-json")
        async with shoal.start_process("-p", "sleep", "--model", MODEL, *flags) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            while json.loads(await process.stdout.readline())["type"] != "assistant":
                pass
            while not (project / "pid").exists() or not (project / "pid").read_text():
                await assert_still_running(process)
            wait_for_processes_in(project, 2)
            process.send_signal(signal.SIGINT)
            ran = await wait_for_result(process)
    assert ran.code == 130
    async with asyncio.timeout(TIMEOUT):
        while find_processes_in(project):
            await asyncio.sleep(0.01)


async def assert_still_running(process: object) -> None:
    assert process.returncode is None  # type: ignore[attr-defined]
    await asyncio.sleep(0.01)


@pytest.mark.spec("TRN-01", "TRN-02")
async def test_a_run_killed_with_signal_9_can_be_continued(shoal: ShoalProgram, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    replies = [make_tool_call("Read", file_path="a.txt"), ["never", DelayedReplyFault(seconds=60)], "went on"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with shoal.start_process(
            "-p", "q1", "--model", MODEL, "--output-format", "stream-json"
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            session = json.loads(await process.stdout.readline())["session_id"]
            await server.wait_for_requests(2)
            process.kill()
            await process.wait()
        again = await shoal("-p", "q2", "--model", MODEL, "--resume", session)
    assert (again.code, again.text) == (0, "went on\n")
    roles = server.requests[2].body["messages"]
    assert [message["role"] for message in roles] == ["user", "assistant", "user"]
    kinds = [block["type"] for block in roles[2]["content"]]
    assert kinds == ["tool_result", "text"]


def count_unread_bytes(pipe: int) -> int:
    """Count the unread bytes of a pipe, which holds 64 kB."""
    count = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


async def test_a_full_output_pipe_does_not_delay_a_signal(shoal: ShoalProgram) -> None:
    reading, writing = os.pipe()
    try:
        async with messages_server(["word " * 200_000]) as server:
            shoal.use_server(server)
            flags = ("--model", MODEL, "--output-format", "stream-json")
            async with shoal.start_process("-p", "talk", *flags, stdout=writing) as process:
                assert process.stdin is not None
                process.stdin.close()
                while count_unread_bytes(reading) < 60_000:
                    await assert_still_running(process)
                process.send_signal(signal.SIGINT)
                async with asyncio.timeout(TIMEOUT):
                    code = await process.wait()
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 130


def test_a_signal_that_arrives_while_the_program_ends_is_ignored() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from shoal.surfaces.cli.headless.signal_handler import HeadlessSignalHandler\n"
        "async def run():\n"
        "    handler = HeadlessSignalHandler()\n"
        "    handler.install_handlers()\n"
        "    handler.ignore_signals()\n"
        "loop = asyncio.new_event_loop()\n"
        "loop.run_until_complete(run())\n"
        "loop._close_self_pipe()\n"  # the first step of close(), before it removes the handlers
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('ended', flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
