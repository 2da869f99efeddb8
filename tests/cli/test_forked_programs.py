"""Programs that tests fork behave like programs that they start."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import program_fork_server
import program_forks
from cli_live.pty_terminal import PtyTerminal, build_environment

pytestmark = pytest.mark.skipif(not program_forks.can_fork(), reason="programs are forked on Linux only")

DESCRIBE = """
import gc, json, os, resource, signal, sys, tempfile, threading, time

def describe_stream(stream):
    names = ("encoding", "errors", "line_buffering", "write_through", "name", "mode")
    return [str(getattr(stream, name)) for name in names] + [stream.isatty(), stream.fileno()]

seen = {
    "argv": sys.argv, "path": sys.path, "orig_argv": sys.orig_argv, "executable": sys.executable,
    "flags": str(sys.flags), "main": sys.modules["__main__"].__dict__ is globals(), "name": __name__,
    "package": __package__, "spec": __spec__ and __spec__.name, "cwd": os.getcwd(), "env": dict(os.environ),
    "umask": os.umask(0), "zone": time.tzname, "temporary": tempfile.gettempdir(), "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid(),
    "group": [os.getpgid(0) == os.getpid(), os.getpgid(0) == os.getpgid(os.getppid())],
    "files": [fd for fd in range(200) if os.path.exists(f"/proc/self/fd/{fd}")],
    "inheritable": [os.get_inheritable(fd) for fd in range(3)],
    "signals": [str(signal.getsignal(each)) for each in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "streams": [describe_stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "threads": [threading.active_count(), threading.current_thread() is threading.main_thread()],
    "gc": [gc.isenabled(), gc.get_threshold()], "input": sys.stdin.read() if not sys.stdin.isatty() else "",
}
"""
ENDINGS = {
    "end": "print('text', end='')",
    "code": "import sys; sys.exit(7)",
    "large code": "import sys; sys.exit(300)",
    "negative code": "import sys; sys.exit(-1)",
    "text": "import sys; sys.exit('a sentence')",
    "none": "import sys; sys.exit(None)",
    "error": "def fail():\n    raise ValueError('wrong')\nfail()",
    "interrupt": "raise KeyboardInterrupt",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "abort": "import os; os.abort()",
    "exit functions": "import atexit; atexit.register(print, 'at exit'); print('first')",
    "thread": "import threading; threading.Timer(0.05, print, ['thread']).start()",
    "open file": "file = open('written', 'w'); file.write('text'); print('done')",
    "syntax": "if",
}


@pytest.fixture(autouse=True)
def _fork_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_forks, "FIRST_FORKED", 1)
    for words in (("-c",), ("-m", "described")):
        monkeypatch.setattr(program_forks, "_programs", {*program_forks._programs, words})
    program_forks.wait_for_fork_server(os.environ)


def run_started_and_forked(*arguments: str, **options: Any) -> list[subprocess.CompletedProcess[bytes]]:
    options = {"capture_output": True, "timeout": 60} | options
    command = [sys.executable, *arguments]
    # A program that is given apart from its arguments is always started.
    started = subprocess.run(command, executable=sys.executable, check=False, **options)
    return [started, subprocess.run(command, check=False, **options)]


def find_differences(started: dict[str, Any], forked: dict[str, Any]) -> dict[str, Any]:
    return {name: (started[name], forked[name]) for name in started if started[name] != forked[name]}


def test_a_program_is_forked() -> None:
    commands = [
        done.stdout.replace(b"\0", b" ").decode()
        for done in run_started_and_forked("-c", "print(open('/proc/self/cmdline').read(), end='')")
    ]
    assert [program_forks.SERVER_PROGRAM.name in command for command in commands] == [False, True]


@pytest.mark.fresh_interpreter
def test_the_mark_starts_every_program() -> None:
    started, other = run_started_and_forked("-c", "print(open('/proc/self/cmdline').read(), end='')")
    assert started.stdout == other.stdout


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_forked_program_ends_like_a_started_one(ending: str, tmp_path: Path) -> None:
    started, forked = run_started_and_forked("-c", ENDINGS[ending], cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


@pytest.mark.parametrize("start", ["-c", "-m"])
@pytest.mark.parametrize(
    "options",
    [{}, {"start_new_session": True}, {"process_group": 0}, {"umask": 0o77}, {"stderr": subprocess.STDOUT}],
    ids=["plain", "session", "group", "umask", "one stream"],
)
def test_a_forked_program_sees_what_a_started_one_sees(
    tmp_path: Path, start: str, options: dict[str, Any]
) -> None:
    code = f"{DESCRIBE}\njson.dump(seen, sys.stdout)"
    (tmp_path / "described.py").write_text(code)
    env = {**os.environ, "TZ": "Asia/Tokyo", "TMPDIR": str(tmp_path), "ODD": "\udcff", "EMPTY": ""}
    read_end, write_end = os.pipe()
    seen = [
        json.loads(done.stdout)
        for done in run_started_and_forked(
            *(start, code if start == "-c" else "described", "two words", ""),
            **{"capture_output": False, "stdout": subprocess.PIPE, "pass_fds": [write_end], **options},
            cwd=tmp_path,
            env=env,
            input="é\r\nb".encode(),
        )
    ]
    os.close(read_end)
    os.close(write_end)
    assert find_differences(*seen) == {}
    assert seen[0]["input"] == "é\r\nb"


@pytest.mark.slow
def test_a_forked_program_has_its_terminal(tmp_path: Path) -> None:
    code = f"{DESCRIBE}\nseen['terminal'] = os.isatty(os.open('/dev/tty', os.O_RDWR))\n"
    code += "seen['foreground'] = os.tcgetpgrp(0) == os.getpid()\njson.dump(seen, open(sys.argv[1], 'w'))"
    env = build_environment(tmp_path)
    program_forks.wait_for_fork_server(env)
    seen = []
    for command in (["env", sys.executable, "-c", code], [sys.executable, "-c", code]):
        with PtyTerminal([*command, str(tmp_path / "seen")], cwd=tmp_path, env=env) as terminal:
            assert terminal.wait_for_end() == 0, terminal.screen.text
        seen.append(json.loads((tmp_path / "seen").read_text()))
    assert find_differences(*seen) == {}
    assert seen[0]["terminal"]
    assert seen[0]["foreground"]


def test_a_forked_program_gets_descriptors_with_any_number() -> None:
    """The server moves what it needs itself out of their way."""
    code = "import os, sys; print([os.read(int(each), 1) for each in sys.argv[1:]])"
    ends = [os.pipe() for _ in range(3)]
    numbers = [program_fork_server.FIRST_FREE + number for number in range(6)]
    for number, (read_end, write_end) in zip(numbers, [*ends, *ends], strict=True):
        os.dup2(read_end, number)
        os.write(write_end, b"xx")
    try:
        started, forked = run_started_and_forked("-c", code, *map(str, numbers), pass_fds=numbers)
    finally:
        for fd in [*numbers, *chain(*ends)]:
            os.close(fd)
    assert started.stdout == forked.stdout == b"%r\n" % ([b"x"] * 6)


def test_a_missing_directory_is_reported_like_by_a_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        subprocess.run([sys.executable, "-c", ""], cwd=tmp_path / "none", check=True)
    assert str(error.value.filename) == str(tmp_path / "none")


async def test_a_forked_program_is_awaited_and_signalled_like_a_started_one() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"ready\n"
        process.kill()
        assert await process.wait() == -9
