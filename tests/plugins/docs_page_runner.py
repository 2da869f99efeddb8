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

TIMEOUT = 40.0 if os.environ.get("PAGES") == "write" else 90.0
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = rf"{_UUID}|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{{4,40}}"
_ANY_ID = rf"{_UUID}|[0-9a-f]{{4,40}}"
"""Some ids have no letter at all, and count as ids only where the page shows one."""
_ids = re.compile(rf"(?<![\w-])(?:{_ID})(?![\w])|(?<=agent-)(?:{_ID})(?!\w)")
_VOLATILE_PATTERNS = (
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?",
    r"\d\d-\d\d \d\d:\d\d",
    r"\d\d:\d\d(?::\d\d)?",
    r"\$\d+(?:\.\d+)?",
    r"\d[\d.,]*k?(?= (?:tokens|requests?|out)\b)",
    r"\d+(?:\.\d+)? ?(?:ms|min|s|m|h|KB|MB|GB|bytes)(?!\w)",
    r"\d+(?:\.\d+)?k(?!\w)",
)
_groups = (rf"(?P<id>{_ids.pattern})", *(rf"(?P<v{n}>{each})" for n, each in enumerate(_VOLATILE_PATTERNS)))
_tokens = re.compile("|".join(_groups))


class PageCommand(Struct, frozen=True, kw_only=True):
    text: str
    expected: tuple[str, ...]
    start: int
    """Line of the page where its output begins."""
    unordered: bool = False

    def matches_output(self, output: list[str], ids: PageIdMap) -> bool:
        return (
            matches_in_any_order(self.expected, output)
            if self.unordered
            else matches_output(self.expected, output, ids)
        )


class PageBlock(Struct, frozen=True, kw_only=True):
    line: int
    options: Mapping[str, str]
    text: str

    @property
    def commands(self) -> list[PageCommand]:
        found: list[PageCommand] = []
        for number, line in enumerate(self.text.splitlines(), start=self.line + 1):
            if line.startswith("$ "):
                found.append(PageCommand(text=line[2:], expected=(), start=number + 1))
            elif found and line.startswith("> ") and not found[-1].expected:
                last = found[-1]
                found[-1] = PageCommand(text=f"{last.text}\n{line[2:]}", expected=(), start=number + 1)
            elif found:
                last = found[-1]
                found[-1] = PageCommand(text=last.text, expected=(*last.expected, line), start=last.start)
        return [structs.replace(each, unordered="unordered" in self.options) for each in found]


def find_blocks(page: str) -> Iterator[PageBlock]:
    for match in _FENCE.finditer(page):
        words = dict(word.partition("=")[::2] for word in match[2].split())
        if words:
            yield PageBlock(line=page[: match.start()].count("\n") + 1, options=words, text=match[3])


class ShellTerminal:
    """A shell that commands are typed into, and that reports when a command has ended."""

    def __init__(self, cwd: Path, env: Mapping[str, str]) -> None:
        self._end_marker = f"-- ended {os.getpid()} {id(self)} --"
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
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        self._last_command = ""

    def _read_output(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line.removesuffix("\n"))
        self._lines.put(None)

    def type_command(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._last_command = command
        self._shell.stdin.write(
            f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{self._end_marker}' $?\n"
        )
        self._shell.stdin.flush()

    def wait_for_end(self) -> tuple[list[str], int]:
        """Wait for the end of the command and return its output and exit code."""
        said: list[str] = []
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                line = self._lines.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(
                    "\n".join([f"{self._last_command}: did not end; so far:", *said])
                ) from None
            assert line is not None, "the shell ended: " + "\n".join(said)
            if line.startswith(self._end_marker):
                while said and not said[-1]:
                    said.pop()
                return said, int(line.removeprefix(self._end_marker))
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


class PageIdMap:
    """Maps ids shown on the page to real ids."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def replace_page_ids(self, text: str) -> str:
        return _ids.sub(lambda found: self.find_real_id(found[0]) or found[0], text)

    def find_real_id(self, shown: str) -> str | None:
        for known, real in self._real.items():
            if known.startswith(shown):
                return real[: len(shown)]
        return None

    def replace_real_ids(self, lines: list[str]) -> list[str]:
        """Replace real ids by the ids of the page."""
        text = "\n".join(lines)
        for shown, real in self._real.items():
            text = text.replace(real, shown)
        return text.split("\n")

    def is_consistent(self, shown: str, real: str) -> bool:
        """Return True if ids of the page and real ids map one to one, as far as each is shown."""
        return all(
            _is_same_id(shown, known) == _is_same_id(real, theirs) for known, theirs in self._real.items()
        )

    def add_id(self, shown: str, real: str) -> None:
        self._real[shown] = real


def _is_same_id(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def matches_output(expected: tuple[str, ...], output: list[str], ids: PageIdMap) -> bool:
    """Return True if the output matches; record which real ids the ids of the page stand for."""
    named: dict[str, str] = {}
    pattern = "".join(_build_line_pattern(line, named, ids) for line in expected)
    found = re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in output))
    if found is None or not all(ids.is_consistent(shown, found[group]) for group, shown in named.items()):
        return False
    for group, shown in named.items():
        ids.add_id(shown, found[group])
    return True


def matches_in_any_order(expected: tuple[str, ...], output: list[str]) -> bool:
    left = list(output)
    for line in expected:
        pattern = re.compile(_build_line_pattern(line, {}, PageIdMap()))
        found = next((each for each in left if pattern.fullmatch(f"{each}\n")), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _build_line_pattern(line: str, named: dict[str, str], ids: PageIdMap) -> str:
    if line.strip() == "…":
        return r"(?:[^\n]*\n)*?"
    parts: list[str] = []
    at = 0
    for token in _tokens.finditer(line):
        parts.append(_build_text_pattern(line[at : token.start()]))
        if token.lastgroup == "id":
            parts.append(_build_id_pattern(token[0], named, ids))
        else:
            parts.append(rf"(?:{_VOLATILE_PATTERNS[int((token.lastgroup or 'v0')[1:])]})")
        at = token.end()
    return "".join((*parts, _build_text_pattern(line[at:]).rstrip(), r"[ \t]*\n"))


def _build_id_pattern(shown: str, named: dict[str, str], ids: PageIdMap) -> str:
    if known := ids.find_real_id(shown):
        return re.escape(known)
    for group, earlier in named.items():
        if earlier == shown:
            return f"(?P={group})"
    group = f"id{len(named)}"
    named[group] = shown
    return f"(?P<{group}>{_ANY_ID})"


def _build_text_pattern(text: str) -> str:
    escaped = re.escape(text).replace("…", r"[^\n]*")
    return re.sub(r"(?:\\ |\\\t)+", r"[ \\t]+", escaped)


class DocsPageRunner:
    """Runs one page from top to bottom in a directory of its own."""

    def __init__(
        self,
        path: Path,
        user_home: Path,
        env: Mapping[str, str],
        replacements: Mapping[str, str] | None = None,
    ) -> None:
        """`replacements` maps text shown on the page, such as an address, to the text that is really used."""
        self._path = path
        self._user_home = user_home
        self._project = user_home / "project"
        self._project.mkdir()
        self._home_paths = dict.fromkeys((user_home.resolve(), user_home))
        self._env = env
        self._replacements = dict(replacements or {})
        self._ids = PageIdMap()
        self._terminals: dict[str, ShellTerminal] = {}
        self._pending_commands: list[tuple[str, PageCommand]] = []
        self._new_outputs: list[tuple[PageCommand, list[str]]] = []
        self._rewrites_page = os.environ.get("PAGES") == "write"

    def run_page(self) -> int:
        """Run the page and return the number of commands typed."""
        typed = 0
        try:
            for block in find_blocks(self._path.read_text()):
                if "file" in block.options:
                    self._write_file(block)
                elif "run" in block.options:
                    typed += len(block.commands)
                    self._run_block(block)
            self._finish_pending()
        finally:
            for terminal in self._terminals.values():
                terminal.close()
            if self._rewrites_page:
                self._rewrite_page()
        return typed

    def _write_file(self, block: PageBlock) -> None:
        name = block.options["file"]
        path = Path(name.replace("~", str(self._user_home), 1)) if name[0] == "~" else self._project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._replace_placeholders(block.text))
        if block.text.startswith("#!"):
            path.chmod(0o755)

    def _replace_placeholders(self, text: str) -> str:
        for shown, real in self._replacements.items():
            text = text.replace(shown, real)
        return self._ids.replace_page_ids(text)

    def _run_block(self, block: PageBlock) -> None:
        name = block.options.get("terminal", "1")
        self._finish_pending(name)
        terminal = self._terminals.get(name)
        if terminal is None:
            terminal = self._terminals[name] = ShellTerminal(self._project, self._env)
        for command in block.commands:
            wanted = int(block.options.get("exit", 0)) if command.start == block.commands[-1].start else 0
            if "stays" in block.options:
                terminal.type_command(self._replace_placeholders(command.text))
                self._pending_commands.append((name, command))
            elif "eventually" in block.options:
                self._retry_until_match(terminal, command)
            else:
                terminal.type_command(self._replace_placeholders(command.text))
                self._compare_output(command, *terminal.wait_for_end(), wanted)

    def _retry_until_match(self, terminal: ShellTerminal, command: PageCommand) -> None:
        until = time.monotonic() + TIMEOUT
        while True:
            terminal.type_command(self._replace_placeholders(command.text))
            said, code = terminal.wait_for_end()
            if code == 0 and command.matches_output(self._normalize_output(said), self._ids):
                return
            if time.monotonic() > until:
                self._compare_output(command, said, code, 0)
                return

    def _finish_pending(self, name: str | None = None) -> None:
        for waiting in [each for each in self._pending_commands if name in (None, each[0])]:
            self._pending_commands.remove(waiting)
            self._compare_output(waiting[1], *self._terminals[waiting[0]].wait_for_end(), 0)

    def _compare_output(self, command: PageCommand, output: list[str], code: int, expected_code: int) -> None:
        shown = self._normalize_output(output)
        place = f"{self._path.name}:{command.start - 1}: {command.text}"
        if self._rewrites_page:
            if command.expected and not command.matches_output(shown, self._ids):
                self._new_outputs.append((command, self._ids.replace_real_ids(shown)))
                matches_output(tuple(self._ids.replace_real_ids(shown)), shown, self._ids)
            if code != expected_code:
                sys.stderr.write(f"{place}\nexit code {code}\n" + "\n".join(shown) + "\n")
            return
        came = "\n".join(shown)
        assert code == expected_code, f"{place}\nexit code {code}, not {expected_code}:\n{came}"
        if command.expected:
            assert command.matches_output(shown, self._ids), f"{place}\ncame:\n{came}"

    def _normalize_output(self, output: list[str]) -> list[str]:
        """Normalize output to what a reader would see: in their own home, without colours."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output))
        for shown, real in (
            *self._replacements.items(),
            *(("/home/you", str(each)) for each in self._home_paths),
        ):
            text = text.replace(real, shown)
        return text.splitlines()

    def _rewrite_page(self) -> None:
        lines = self._path.read_text().splitlines()
        for command, shown in sorted(self._new_outputs, key=lambda each: -each[0].start):
            at = command.start - 1
            lines[at : at + len(command.expected)] = shown
        self._path.write_text("\n".join(lines) + "\n")
