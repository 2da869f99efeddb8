"""What the analysis calls harmless is harmless: programs of the read-only table, traced with every option."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.shell.readonly_table import load_readonly_command_table

SAMPLE = (
    "cat",
    "head",
    "wc",
    "sort",
    "uniq",
    "xxd",
    "cut",
    "tac",
    "od",
    "cmp",
    "comm",
    "date",
    "grep",
    "file",
)
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
_CALLS = "trace=execve,openat,open,creat,unlink,unlinkat,rename,renameat2,mkdir,mkdirat,truncate,link,symlink"
_HARMLESS_FILES = ("/dev/null", "/dev/tty", "/proc/self/")
_RUNNER = Path(__file__).with_name("traced_batch.py")
_MARK = re.compile(r'"/mark/([0-9]+)"')
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_BATCH = 500
"""Commands per trace: starting strace and the runner costs as much as fifty of them."""
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_INSIDE = ("in.txt", "in.txt canary.txt")
_OUTSIDE = (".", "in.txt .", "link.txt", "in.txt link.txt", "links", "in.txt links", "list.txt", "list0")
"""Operands that are, contain or name a file outside the project, through a link or a list of names."""
_LISTS = ("link.txt", "links", "list.txt", "list0")
_DIGEST_LENGTHS = (32, 40, 56, 64, 96, 128)


_GREP = re.compile(r"/usr/bin/(?:e|f)?grep|/bin/grep")
_HELPERS = {
    "egrep": _GREP,
    "fgrep": _GREP,
    "zgrep": re.compile(r"/usr/bin/(?:grep|gzip|sed|cat|expr|bzip2|xz|zstd)"),
    "dpkg": re.compile(r"/usr/bin/dpkg-query"),
    "lsb_release": re.compile(r"/usr/bin/(?:getopt|cut|sed|head|tr|basename|cat|dirname)"),
    **dict.fromkeys(("zcat", "bzcat", "xzcat"), re.compile(r"/usr/bin/(?:gzip|bzip2|xz)")),
}
"""Programs of the system that a program, a script itself, runs whatever its arguments are."""
_STARTED = re.compile(r'execve\("([^"]*)"')


def list_programs() -> list[str]:
    table = load_readonly_command_table()
    return [name for name, usage in table.items() if usage.alone and not usage.subs and shutil.which(name)]


def iter_commands(program: str) -> Iterator[str]:
    """Yield the program with each option of its help, alone and in bundled pairs, with files and links."""
    shown = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL
    )
    options = list(dict.fromkeys(_OPTION.findall(shown.stdout + shown.stderr)))
    letters = [option[1] for option in options if len(option) == 2]
    bundles = [f"-{first}{second}" for first, second in permutations(letters, 2)]
    for option in ("", *options):
        for files in (*_INSIDE, *_OUTSIDE):
            yield " ".join(filter(None, (program, option, files)))
        for name in _LISTS if option else ():
            attached = f"{option}={name}" if option.startswith("--") else f"{option}{name}"
            yield f"{program} {attached} in.txt"
    for option in bundles:
        for files in (*_INSIDE, "in.txt ."):
            yield f"{program} {option} {files}"


def trace_commands(commands: list[str], directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Run the commands under one strace; yield each with the lines of the trace that belong to it."""
    log, number = directory.parent / "trace.log", -1
    words = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-e", _CALLS, "-o", str(log)]
    subprocess.run(
        [*words, sys.executable, "-I", "-S", str(_RUNNER)],
        cwd=directory,
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=60 + 4 * len(commands),
        check=True,
    )
    lines: list[list[str]] = [[] for _ in commands]
    for line in join_interrupted_calls(log.read_text(errors="replace").splitlines()):
        if (mark := _MARK.search(line)) is not None:
            number = int(mark[1])
        elif number >= 0:
            lines[number].append(line)
    assert number == len(commands) - 1
    yield from zip(commands, lines, strict=True)


def join_interrupted_calls(lines: list[str]) -> Iterator[str]:
    """Yield each system call as one line; a process that was killed leaves the start of its last one."""
    starts: dict[str, str] = {}
    for line in lines:
        process = line.split(maxsplit=1)[0]
        if line.endswith(_UNFINISHED):
            starts[process] = line.removesuffix(_UNFINISHED)
        elif (rest := _RESUMED.search(line)) is not None:
            yield starts.pop(process, f"{process} ") + line[rest.end() :]
        else:
            yield line


def find_harm(command: str, lines: list[str], directory: Path) -> str | None:
    """Return the first system call of a command that writes, runs or reads what it must not, or None."""
    outside = f"<{directory.parent / 'outside'}"
    started, helpers = 0, _HELPERS.get(command.split(maxsplit=1)[0])
    for line in lines:
        if " = -1 " in line or any(file in line for file in _HARMLESS_FILES):
            continue
        path = _STARTED.search(line)
        if path is not None and started and helpers is not None and helpers.fullmatch(path[1]):
            continue
        started += path is not None
        is_open = "open(" in line or "openat(" in line
        if started > 1 or (_WRITES.search(line) if is_open else "execve(" not in line and "(" in line):
            return line
        if (is_open or "open" in line) and outside in line.rpartition(" = ")[2]:
            return line
    assert started, f"{command} was not traced"
    return None


def check_program(program: str, engine: PermissionEngine, directory: Path, step: int) -> list[str]:
    wrong: list[str] = []
    commands = [
        command
        for number, command in enumerate(iter_commands(program))
        if number % step == 0 and decide_command(engine, command) == "allow"
    ]
    canary = directory / "canary.txt"
    for start in range(0, len(commands), _BATCH):
        canary.write_text("canary\n")
        batch = commands[start : start + _BATCH]
        for command, lines in trace_commands(batch, directory):
            if (harm := find_harm(command, lines, directory)) is not None:
                wrong.append(f"{command}: {harm}")
        if canary.read_text() != "canary\n":
            wrong.append(f"one of {batch[0]} to {batch[-1]} changed the canary")
    return wrong


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a project with links to files outside it, and with lists that name one of those."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    (outside / "below").mkdir(parents=True)
    for path in (outside / "secret.txt", outside / "below/secret.txt"):
        path.write_text("the secret\n")
    (project / "in.txt").write_text("2\n1\n")
    (project / "link.txt").symlink_to("../outside/secret.txt")
    (project / "links").symlink_to("../outside")
    named = "../outside/secret.txt"
    digests = "".join(f"{'0' * length}  {named}\n" for length in _DIGEST_LENGTHS)
    (project / "list.txt").write_text(f"{named}\n{digests}")
    (project / "list0").write_text(f"{named}\0")
    return project


@pytest.mark.spec("PRM-05")
@pytest.mark.needs("strace")
@pytest.mark.parametrize("program", SAMPLE)
def test_a_sample_of_harmless_options_stays_inside_and_writes_and_runs_nothing(
    program: str, directory: Path
) -> None:
    assert check_program(program, create_engine(directory), directory, step=97) == []


@pytest.mark.exhaustive
@pytest.mark.needs("strace")
@pytest.mark.skipif(not os.environ.get("TEST_ALL"), reason="it takes long; TEST_ALL=1 runs it")
@pytest.mark.parametrize("program", list_programs())
def test_every_harmless_option_stays_inside_and_writes_and_runs_nothing(
    program: str, directory: Path
) -> None:
    assert check_program(program, create_engine(directory), directory, step=1) == []
