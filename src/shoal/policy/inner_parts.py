"""Commands that a program runs from its words, for rules about files and for protected files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.changed_files import OPERAND_CHANGERS
from shoal.policy.shell.command_analysis import UNKNOWN_PATH, SimpleShellCommand, analyze_shell_command
from shoal.policy.shell.known_commands import (
    COMMAND_RUNNERS,
    COPYING_COMMANDS,
    INTERPRETERS,
    RUNNING_SUBCOMMANDS,
    WRITING_COMMANDS,
)
from shoal.policy.shell.readonly_table import load_readonly_command_table
from shoal.policy.shell.small_languages import AWK_RUNS, AWKS, SED_COMMAND
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS
from shoal.policy.unreadable_files import CONTAINER_PROGRAMS, get_program_name, join_places, list_places

_MAX_DEPTH = 5
_MAX_TEXTS = 64
"""Texts that are looked at in one command; of a command with more, nothing is known."""
_REMOTE_RUNNERS = frozenset({"ssh", "mosh", "sshpass", "autossh", "kubectl", "oc", "vagrant"})
"""Programs whose operands run on another machine."""
_CODE_RUNNERS = frozenset({"gdb", "lldb", "expect", "osascript", "pwsh", "powershell.exe", "cmd.exe"})
"""Runners whose words may be code of another language."""
_SEDS = frozenset({"sed", "gsed"})
_MAKES = frozenset({"make", "gmake"})
_MAKE_SHELL = re.compile(r"\$[({]shell ([^()]*)")
_INPUT_RUNNERS = frozenset({"at", "batch", "crontab"})
"""Programs that run what they read."""
PACKAGE_MANAGERS = (("npm",), ("pnpm",), ("yarn",))
_SCRIPT_WORDS = frozenset({"env", "pkg"})
_COPIERS = COPYING_COMMANDS | {"install", "rsync"}
_OTHER_PROGRAMS = frozenset({"git", "tar", "dd", "rsync", "install", "scp", "truncate"})
_SETTING = re.compile(r"[A-Za-z][\w.-]*=|--?[\w-]+=|ext::|(?:EXEC|SYSTEM|SHELL):|[!|&:+-]+", re.IGNORECASE)
"""Text in front of a command in one word, as in `core.pager=…`, `!…` and `EXEC:…`."""
_SHELL_SIGN = re.compile(r"[\s<>|;&$`*?]")
_COMMAND_FLAG = re.compile(r"-[a-zA-Z]*c|--(?:command|call|session-command|sh-exec|exec|filter)")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|`([^`]*)`")
_ESCAPE = re.compile(r"(?:!|^\s*\.(?:shell|system)\s|\bshell\s|\\!)\s*([^\n'\"]+)", re.MULTILINE)
"""The rest of a line that an editor, debugger or database client gives to the shell."""
_UNSAFE_IN_GLOB = re.compile(r"([^\w*?\[\]!^./~@%+:,=-])")
_PATH_PART = re.compile(r"[\w./~@%+-]+")
_CMAKE_COMMANDS = {
    **dict.fromkeys(("copy", "copy_if_different", "copy_directory", "copy_directory_if_different"), "cp"),
    **dict.fromkeys(("remove", "rm", "remove_directory"), "rm"),
    **dict.fromkeys(("create_symlink", "create_hardlink"), "ln"),
    "rename": "mv",
    "make_directory": "mkdir",
    "touch_nocreate": "touch",
}
"""Commands of `cmake -E` that do the same as a program with another name."""


class _InnerText(Struct, frozen=True):
    """`is_command` means that the text is run by a shell, not only that it might be."""

    text: str
    is_command: bool


def list_inner_parts(part: SimpleShellCommand, home: str) -> tuple[SimpleShellCommand, ...]:
    """Return the commands that a command may run from its words, and those that they run."""
    # Only a command with text that it may run has others inside; one without words sets variables.
    if (part.code and not (part.read_only and part.words)) or _runs_package_script(part):
        return _list_inner_parts(part, home, _MAX_DEPTH)
    return ()


def _runs_package_script(part: SimpleShellCommand) -> bool:
    """Return True for `npm run env`, which runs any command, and `npm pkg set`, which makes one for later."""
    return part.words[:1] in PACKAGE_MANAGERS and not _SCRIPT_WORDS.isdisjoint(part.words[1:])


@lru_cache(maxsize=128)
def _list_inner_parts(part: SimpleShellCommand, home: str, depth: int) -> tuple[SimpleShellCommand, ...]:
    texts = dict.fromkeys(_iter_inner_texts(part))
    if not texts:
        return ()
    if depth == 0 or len(texts) > _MAX_TEXTS:
        return (_make_unknown_part(part, part.text),)
    found: list[SimpleShellCommand] = []
    places = tuple(dict.fromkeys((*part.places, *list_places(part))))
    for inner in texts:
        analysis = analyze_shell_command(inner.text, home)
        if not (analysis.is_complete and analysis.are_paths_known):
            if inner.is_command:
                found.append(_make_unknown_part(part, inner.text))
            continue
        for each in analysis.parts:
            if not inner.is_command and not _begins_with_program(each.words or each.argv or ()):
                continue
            found.append(_move_to_places(each, places))
            if each.code and not each.read_only:
                found += (
                    _move_to_places(deeper, places) for deeper in _list_inner_parts(each, home, depth - 1)
                )
    return tuple(found)


def _make_unknown_part(part: SimpleShellCommand, text: str) -> SimpleShellCommand:
    """Return a command that may use any file, and that names the paths in the text as written."""
    named = tuple(token for token in _PATH_PART.findall(text) if "." in token or "~" in token)
    return SimpleShellCommand(
        text=part.text, argv=None, reads=(UNKNOWN_PATH,), writes=(UNKNOWN_PATH, *named), places=part.places
    )


def _move_to_places(inner: SimpleShellCommand, places: tuple[str, ...]) -> SimpleShellCommand:
    """Return a command as it runs in the directories of the command that runs it."""
    if places == ("",):
        return inner
    return replace(
        inner,
        reads=tuple(join_places(inner.reads, places)),
        writes=tuple(join_places(inner.writes, places)),
        places=tuple(dict.fromkeys(join_places(inner.places, places))),
    )


def _begins_with_program(words: Sequence[str | None]) -> bool:
    return bool(words) and words[0] is not None and _is_known_program(get_program_name(words))


def _is_known_program(name: str) -> bool:
    """Return True for programs of which something is known about the files that they use."""
    return (
        name in WRITING_COMMANDS
        or name in OPERAND_CHANGERS
        or name in SHELLS
        or name in WRAPPERS
        or name in COMMAND_RUNNERS
        or name in INTERPRETERS
        or name in _OTHER_PROGRAMS
        or name.startswith("python")
        or name in load_readonly_command_table()
    )


def _iter_inner_texts(part: SimpleShellCommand) -> Iterator[_InnerText]:
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if not words:
        for code in filter(None, part.code):
            yield from _iter_texts_in_word(code, is_command=False)
    if not name or name in CONTAINER_PROGRAMS or (name in _COPIERS and part.argv is not None):
        return
    if name in _INPUT_RUNNERS and None in part.code:
        # The command comes from the input, and this text stands for one that cannot be read.
        yield _InnerText("( " + " ".join(filter(None, part.code)), is_command=True)
    if name in INTERPRETERS or name.startswith("python"):
        yield from _iter_texts_in_code(name, part)
        if part.argv is not None:
            return
    if name not in _REMOTE_RUNNERS and name not in _COPIERS and (name not in INTERPRETERS or name == "bun"):
        yield from _iter_tails(name, part)
    yield from _iter_texts_in_words(name, words)


def _iter_texts_in_words(name: str, words: Sequence[str | None]) -> Iterator[_InnerText]:
    is_remote = name in _REMOTE_RUNNERS
    runs_words = name in COMMAND_RUNNERS and name not in _CODE_RUNNERS and not is_remote
    is_code = False
    for index, word in enumerate(words[1:], 1):
        previous = words[index - 1] or ""
        if word is None:
            continue
        base = word[word.rfind("/") + 1 :]
        # The words of an interpreter are code, which is looked at as that of the interpreter.
        is_code = is_code or base in INTERPRETERS or base.startswith("python")
        if is_remote and word[:1] != "-" and previous != "-o":
            continue
        is_command = (runs_words or _COMMAND_FLAG.fullmatch(previous) is not None) and not is_code
        yield from _iter_texts_in_word(word, is_command=is_command)
        if name in _CODE_RUNNERS:
            yield from (_InnerText(text, is_command=False) for text in _ESCAPE.findall(word))


def _iter_texts_in_word(word: str, *, is_command: bool) -> Iterator[_InnerText]:
    if not _SHELL_SIGN.search(word):
        return
    is_command = is_command and word[:1] != "-"
    text = word
    yield _InnerText(text, is_command)
    while (match := _SETTING.match(text)) is not None:
        # The value of an alias of git is a command of the shell if it begins like this.
        is_command = is_command or "!" in match[0]
        text = text[match.end() :]
        yield _InnerText(text, is_command)
    if word[:1] == "-" and word[1:2] != "-":
        yield _InnerText(word[2:], is_command=False)


def _iter_tails(name: str, part: SimpleShellCommand) -> Iterator[_InnerText]:
    """Yield the commands that begin at a word which is a program."""
    words = part.words or part.argv or ()
    is_runner = name in COMMAND_RUNNERS or not RUNNING_SUBCOMMANDS.get(name, frozenset()).isdisjoint(words)
    for index, word in enumerate(words[1:], 1):
        if word is None or word[:1] == "-" or index in part.globs:
            continue
        program = _CMAKE_COMMANDS.get(word, word) if name == "cmake" else word
        if not _is_known_program(program[program.rfind("/") + 1 :]):
            continue
        rest = [_quote_word(words[at], is_glob=at in part.globs) for at in range(index + 1, len(words))]
        before = f"cd {shlex.quote(words[index - 1] or '')}; " if words[index - 2] == "chdir" else ""
        yield _InnerText(before + " ".join((shlex.quote(program), *rest)), is_command=is_runner)


def _quote_word(word: str | None, *, is_glob: bool) -> str:
    if word is None:
        return '"$(unknown)"'
    return _UNSAFE_IN_GLOB.sub(r"\\\1", word) if is_glob else shlex.quote(word)


def _iter_texts_in_code(name: str, part: SimpleShellCommand) -> Iterator[_InnerText]:
    """Yield the text in code of an interpreter that it may give to the shell."""
    words = part.words or part.argv or ()
    codes = [word for word in dict.fromkeys((*words[1:], *part.code)) if word is not None]
    for code in codes:
        if name in _SEDS:
            yield from (_InnerText(text, is_command=True) for text in SED_COMMAND.findall(code))
            continue
        if name in AWKS and not AWK_RUNS.search(code):
            continue
        for match in _QUOTED.finditer(code):
            text = match[1] or match[2] or match[3] or ""
            if _SHELL_SIGN.search(text):
                yield _InnerText(text.replace('\\"', '"'), is_command=False)
        if name in _MAKES:
            lines = code.replace("\\n", "\n").replace("\\t", "\t").splitlines()
            yield from (_InnerText(line.strip("\t '\"@+-"), is_command=False) for line in lines[:_MAX_TEXTS])
            yield from (_InnerText(text, is_command=False) for text in _MAKE_SHELL.findall(code))
        if name not in AWKS:
            yield from (_InnerText(text, is_command=False) for text in _ESCAPE.findall(code))
