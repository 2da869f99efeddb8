"""Runs the examples of a documentation page: writes files, types commands and compares outputs.

These blocks of a page are run, marked by the words after the language of the fence:

    console run        lines after `$ ` are typed, `> ` continues a line; the lines below are the output
      terminal=2       in another terminal, which is opened when it is first named
      stays            the command keeps running while the page goes on; its output is compared when it ends
      eventually       the command is typed again until its output matches
      unordered        the lines of its output may come in any order
      exit=3           exit code of the last command; all others are 0
    LANGUAGE file=PATH its text is written to that file first

In an output `…` matches any text, and a line with `…` alone matches any lines. Ids, times, dollars and token
counts match any value of their kind. Where the page repeats an id, the real id is typed. With PAGES=write
the outputs of the page are replaced by the real ones.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, structs

PATIENCE = 40.0 if os.environ.get("PAGES") == "write" else 90.0
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = rf"{_UUID}|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{{4,40}}"
_CAME = rf"{_UUID}|[0-9a-f]{{4,40}}"
"""Some ids have no letter at all, and count as ids only where the page shows one."""
_ids = re.compile(rf"(?<![\w-])(?:{_ID})(?![\w])|(?<=agent-)(?:{_ID})(?!\w)")
_VOLATILE = (
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?",
    r"\d\d:\d\d(?::\d\d)?",
    r"\$\d+(?:\.\d+)?",
    r"\d[\d.,]*k?(?= (?:tokens|requests?|out)\b)",
    r"\d+(?:\.\d+)? ?(?:ms|min|s|m|h|KB|MB|GB|bytes)(?!\w)",
    r"\d+(?:\.\d+)?k(?!\w)",
)
_groups = (rf"(?P<id>{_ids.pattern})", *(rf"(?P<v{n}>{each})" for n, each in enumerate(_VOLATILE)))
_tokens = re.compile("|".join(_groups))


class Command(Struct, frozen=True, kw_only=True):
    text: str
    expected: tuple[str, ...]
    start: int
    """Line of the page where its output begins."""
    unordered: bool = False

    def fits(self, said: list[str], ids: Ids) -> bool:
        return fits_in_any_order(self.expected, said) if self.unordered else fits(self.expected, said, ids)


class Block(Struct, frozen=True, kw_only=True):
    line: int
    words: Mapping[str, str]
    text: str

    @property
    def commands(self) -> list[Command]:
        found: list[Command] = []
        for number, line in enumerate(self.text.splitlines(), start=self.line + 1):
            if line.startswith("$ "):
                found.append(Command(text=line[2:], expected=(), start=number + 1))
            elif found and line.startswith("> ") and not found[-1].expected:
                last = found[-1]
                found[-1] = Command(text=f"{last.text}\n{line[2:]}", expected=(), start=number + 1)
            elif found:
                last = found[-1]
                found[-1] = Command(text=last.text, expected=(*last.expected, line), start=last.start)
        return [structs.replace(each, unordered="unordered" in self.words) for each in found]


def blocks_of(page: str) -> Iterator[Block]:
    for match in _FENCE.finditer(page):
        words = dict(word.partition("=")[::2] for word in match[2].split())
        if words:
            yield Block(line=page[: match.start()].count("\n") + 1, words=words, text=match[3])


class Terminal:
    """A shell that commands are typed into, and that reports when a command has ended."""

    def __init__(self, cwd: Path, env: Mapping[str, str]) -> None:
        self._mark = f"-- ended {os.getpid()} {id(self)} --"
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._typed = ""

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line.removesuffix("\n"))
        self._lines.put(None)

    def type(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._typed = command
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{self._mark}' $?\n")
        self._shell.stdin.flush()

    def ended(self) -> tuple[list[str], int]:
        """Wait for the end of the command and return its output and exit code."""
        said: list[str] = []
        until = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._lines.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError("\n".join([f"{self._typed}: did not end; so far:", *said])) from None
            assert line is not None, "the shell ended: " + "\n".join(said)
            if line.startswith(self._mark):
                while said and not said[-1]:
                    said.pop()
                return said, int(line.removeprefix(self._mark))
            said.append(line)

    def close(self) -> None:
        assert self._shell.stdin is not None
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._shell.wait(5)
        # Processes the page left running are in the process group of its shell.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        self._reader.join(10)
        assert self._shell.stdout is not None
        self._shell.stdout.close()


class Ids:
    """Maps ids shown on the page to real ids."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, text: str) -> str:
        return _ids.sub(lambda found: self.of(found[0]) or found[0], text)

    def of(self, shown: str) -> str | None:
        for known, real in self._real.items():
            if known.startswith(shown):
                return real[: len(shown)]
        return None

    def paged(self, lines: list[str]) -> list[str]:
        """Replace real ids by the ids of the page."""
        text = "\n".join(lines)
        for shown, real in self._real.items():
            text = text.replace(real, shown)
        return text.split("\n")

    def agrees(self, shown: str, real: str) -> bool:
        """Return True if ids of the page and real ids map one to one, as far as each is shown."""
        return all(_same(shown, known) == _same(real, theirs) for known, theirs in self._real.items())

    def learn(self, shown: str, real: str) -> None:
        self._real[shown] = real


def _same(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def fits(expected: tuple[str, ...], said: list[str], ids: Ids) -> bool:
    """Return True if the output matches; record which real ids the ids of the page stand for."""
    named: dict[str, str] = {}
    pattern = "".join(_line(line, named, ids) for line in expected)
    found = re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in said))
    if found is None or not all(ids.agrees(shown, found[group]) for group, shown in named.items()):
        return False
    for group, shown in named.items():
        ids.learn(shown, found[group])
    return True


def fits_in_any_order(expected: tuple[str, ...], said: list[str]) -> bool:
    left = list(said)
    for line in expected:
        pattern = re.compile(_line(line, {}, Ids()))
        found = next((each for each in left if pattern.fullmatch(f"{each}\n")), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _line(line: str, named: dict[str, str], ids: Ids) -> str:
    if line.strip() == "…":
        return r"(?:[^\n]*\n)*?"
    parts: list[str] = []
    at = 0
    for token in _tokens.finditer(line):
        parts.append(_plain(line[at : token.start()]))
        if token.lastgroup == "id":
            parts.append(_id(token[0], named, ids))
        else:
            parts.append(rf"(?:{_VOLATILE[int((token.lastgroup or 'v0')[1:])]})")
        at = token.end()
    return "".join((*parts, _plain(line[at:]).rstrip(), r"[ \t]*\n"))


def _id(shown: str, named: dict[str, str], ids: Ids) -> str:
    if known := ids.of(shown):
        return re.escape(known)
    for group, earlier in named.items():
        if earlier == shown:
            return f"(?P={group})"
    group = f"id{len(named)}"
    named[group] = shown
    return f"(?P<{group}>{_CAME})"


def _plain(text: str) -> str:
    escaped = re.escape(text).replace("…", r"[^\n]*")
    return re.sub(r"(?:\\ |\\\t)+", r"[ \\t]+", escaped)


class Page:
    """Runs one page from top to bottom in a directory of its own."""

    def __init__(
        self, path: Path, person: Path, env: Mapping[str, str], stand_ins: Mapping[str, str] | None = None
    ) -> None:
        """`replacements` maps text shown on the page, such as an address, to the text that is really used."""
        self._path = path
        self._person = person
        self._project = person / "project"
        self._project.mkdir()
        self._homes = dict.fromkeys((person.resolve(), person))
        self._env = env
        self._stand_ins = dict(stand_ins or {})
        self._ids = Ids()
        self._terminals: dict[str, Terminal] = {}
        self._waiting: list[tuple[str, Command]] = []
        self._written: list[tuple[Command, list[str]]] = []
        self._rewrites = os.environ.get("PAGES") == "write"

    def run(self) -> int:
        """Run the page and return the number of commands typed."""
        typed = 0
        try:
            for block in blocks_of(self._path.read_text()):
                if "file" in block.words:
                    self._write(block)
                elif "run" in block.words:
                    typed += len(block.commands)
                    self._play(block)
            self._settle()
        finally:
            for terminal in self._terminals.values():
                terminal.close()
            if self._rewrites:
                self._rewrite()
        return typed

    def _write(self, block: Block) -> None:
        name = block.words["file"]
        path = Path(name.replace("~", str(self._person), 1)) if name[0] == "~" else self._project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._real(block.text))
        if block.text.startswith("#!"):
            path.chmod(0o755)

    def _real(self, text: str) -> str:
        for shown, real in self._stand_ins.items():
            text = text.replace(shown, real)
        return self._ids.real(text)

    def _play(self, block: Block) -> None:
        name = block.words.get("terminal", "1")
        self._settle(name)
        terminal = self._terminals.get(name)
        if terminal is None:
            terminal = self._terminals[name] = Terminal(self._project, self._env)
        for command in block.commands:
            wanted = int(block.words.get("exit", 0)) if command.start == block.commands[-1].start else 0
            if "stays" in block.words:
                terminal.type(self._real(command.text))
                self._waiting.append((name, command))
            elif "eventually" in block.words:
                self._until(terminal, command)
            else:
                terminal.type(self._real(command.text))
                self._compare(command, *terminal.ended(), wanted)

    def _until(self, terminal: Terminal, command: Command) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            terminal.type(self._real(command.text))
            said, code = terminal.ended()
            if code == 0 and command.fits(self._shown(said), self._ids):
                return
            if time.monotonic() > until:
                self._compare(command, said, code, 0)
                return

    def _settle(self, name: str | None = None) -> None:
        for waiting in [each for each in self._waiting if name in (None, each[0])]:
            self._waiting.remove(waiting)
            self._compare(waiting[1], *self._terminals[waiting[0]].ended(), 0)

    def _compare(self, command: Command, said: list[str], code: int, wanted: int) -> None:
        shown = self._shown(said)
        place = f"{self._path.name}:{command.start - 1}: {command.text}"
        if self._rewrites:
            if command.expected and not command.fits(shown, self._ids):
                self._written.append((command, self._ids.paged(shown)))
                fits(tuple(self._ids.paged(shown)), shown, self._ids)
            if code != wanted:
                sys.stderr.write(f"{place}\nexit code {code}\n" + "\n".join(shown) + "\n")
            return
        came = "\n".join(shown)
        assert code == wanted, f"{place}\nexit code {code}, not {wanted}:\n{came}"
        if command.expected:
            assert command.fits(shown, self._ids), f"{place}\ncame:\n{came}"

    def _shown(self, said: list[str]) -> list[str]:
        """Normalize output to what a reader would see: in their own home, without colours."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(said))
        for shown, real in (*self._stand_ins.items(), *(("/home/you", str(each)) for each in self._homes)):
            text = text.replace(real, shown)
        return text.splitlines()

    def _rewrite(self) -> None:
        lines = self._path.read_text().splitlines()
        for command, shown in sorted(self._written, key=lambda each: -each[0].start):
            at = command.start - 1
            lines[at : at + len(command.expected)] = shown
        self._path.write_text("\n".join(lines) + "\n")
