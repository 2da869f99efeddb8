"""Text in the arguments of a command that the command may run, for rules that forbid commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.policy.shell.known_commands import (
    COMMAND_RUNNERS,
    COPYING_COMMANDS,
    INTERPRETERS,
    NOT_RUNNING_COMMANDS,
    RUNNING_SUBCOMMANDS,
    WRITING_COMMANDS,
)
from shoal.policy.shell.program_judges import is_harmless_sed_script
from shoal.policy.shell.shell_words import ShellWord
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

_CODE_FLAG = re.compile(r"-[a-zA-Z0-9]*[ceErp]|--(?:eval|execute|command|expression|cmd|print)")
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_MAKES = frozenset({"make", "gmake"})
_COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "cpp", "gfortran"})
_SEDS = frozenset({"sed", "gsed"})
_AWK_RUNS = re.compile(r"system|\||getline")
_AWK_PLAIN_COMMAND = re.compile(
    r"system\(\s*\"[^\"\\]*\"\s*\)|\"[^\"\\]*\"\s*\|\s*getline|\|\s*\"[^\"\\]*\"\s*(?=[;}\n]|$)"
)
"""Commands in a program of awk that are one plain string."""
_SED_RUNS_LINES = re.compile(r"(?:^|[^A-Za-z\s\\])\s*[gpiImM0-9]*e[gpiImM0-9]*\s*(?:$|[;}\n])", re.MULTILINE)
"""The command `e` of sed without a text, or the flag `e` of a replacement: both run lines of the input."""
_CODE_RUNS = re.compile(
    r"\b(?:os|pty|posix|subprocess|multiprocessing|ctypes|importlib|runpy|child_process|IPC|Open3|POSIX)\b"
    r"|\b(?:system|popen|spawn|fork|exec|eval|execfile|compile|proc_open|passthru|shell_exec|__import__|dlopen)\b"
    r"|`|%x|\bqx\b"
)
"""Ways in which an interpreter's code can run a program whose name it computes."""
_PROGRAM_NAME = re.compile(r"[a-z][a-z0-9_+-]*")
_BEFORE_COMMAND = re.compile(r"--|-c|-e|-x|-a|--(?:command|exec|execute|cmd|run)|/[cC]")
"""Words that precede the command in a wrapper's arguments."""
_OPERAND = re.compile(r"[^-0-9]")
_INPUT_EDITORS = frozenset({"ed", "ex", "sqlite3", "psql", "mysql", "bc", "dc"})
"""Programs that take commands from their input although they have a file."""
_DEBUGGERS = frozenset({"gdb", "lldb"})
_AWK_SHELL = re.compile(r"\|&?\s*\"[^\"]*\b(?:sh|ash|bash|dash|ksh|zsh|xargs|env|make)\b")
"""A pipe in a program of awk to a program that runs its input."""
_LOADERS = ("ld-linux", "ld-musl", "ld.so")
_COPIERS = COPYING_COMMANDS | {"install", "rsync"}


def find_run_text(
    name: str, words: Sequence[ShellWord], script: str, *, is_runner: bool
) -> tuple[str | None, ...]:
    """Return text that a command may run; None in it is known only at run time.

    `script` is the whole command line, which may hold the input of the command; `is_runner` means that its
    flags are known to run something.
    """
    base_name = name[name.rfind("/") + 1 :]
    if is_runner:
        attached_values = (word.value[2:] for word in words if word.value and word.value[0] == "-")
        given: tuple[str | None, ...] = ()
        if base_name in INTERPRETERS:
            given = _list_input_code(base_name, words, script)
            given += (None,) if _has_computing_code(words) else ()
        return (*(word.value for word in words), *attached_values, *given)
    if (
        base_name in COMMAND_RUNNERS
        or (name != base_name and (base_name in WRAPPERS or base_name in SHELLS))
        or base_name.startswith(_LOADERS)
        or any(word.value in RUNNING_SUBCOMMANDS.get(base_name, ()) for word in words)
    ):
        computed = (None,) if base_name in _DEBUGGERS and _has_computing_code(words) else ()
        return (*(word.value for word in words), script.strip(), *computed)
    if base_name in _COPIERS:
        # A program that is only known at run time may be named elsewhere in the line.
        return tuple(script.strip() if word.value is None else word.value for word in words)
    if base_name in INTERPRETERS or base_name.startswith("python"):
        return _find_interpreter_code(base_name, words, script)
    if base_name in _COMPILERS and any(word.value == "-wrapper" for word in words):
        return tuple(each for word in words for each in (word.value or "").split(","))
    if base_name in NOT_RUNNING_COMMANDS or base_name in WRITING_COMMANDS:
        return ()
    # Any other program may be a wrapper of its first operand, of words after `--`, or of text after a flag.
    values = [word.value or "" for word in words]
    operands = [value for value in values if _OPERAND.match(value)]
    after = (values[index] for index in range(1, len(values)) if _BEFORE_COMMAND.fullmatch(values[index - 1]))
    if operands and _is_running_program(operands[0]):
        return (*(word.value for word in words), script.strip())
    attached = (value.partition("=")[2] for value in values if value.startswith("--") and "=" in value)
    texts = (value.split()[0] for value in values if " " in value.strip())
    streams = (script.strip() for word in words if word.stream)
    names = filter(_PROGRAM_NAME.fullmatch, operands[1:3])
    return (*operands[:1], *names, *after, *attached, *texts, *streams)


def _is_running_program(name: str) -> bool:
    base_name = name[name.rfind("/") + 1 :]
    return base_name in SHELLS or base_name in WRAPPERS or base_name in INTERPRETERS


def _has_computing_code(words: Sequence[ShellWord]) -> bool:
    """Return True if a word is code that can run a program whose name it computes."""
    return any(word.value is not None and _CODE_RUNS.search(word.value) for word in words)


def _list_input_code(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    """Return the whole command line if the program reads code from its input."""
    if name in _MAKES:
        is_input = any(word.stream or word.value in ("-", "-f-", "/dev/stdin") for word in words)
        has_code = is_input or any((word.value or "").startswith(("--ev", "-E")) for word in words)
        # A variable of make may be any part of a command.
        computed = (None,) if has_code and "$" in script else ()
        return (script.strip(), *computed) if has_code else ()
    has_file = any(
        not word.may_be_flag and not word.stream and word.value not in ("-", "/dev/stdin") for word in words
    )
    return () if has_file and name not in _INPUT_EDITORS else (script.strip(),)


def _is_unknown_code(name: str, word: ShellWord, *, is_code: bool) -> bool:
    """Return True if a word that is known only at run time is code that may run a command."""
    if not is_code or not word.prefix:
        return is_code
    if name in _SEDS:
        return False
    return name not in _AWKS or _AWK_RUNS.search(word.prefix) is not None


def _find_interpreter_code(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    code: list[str | None] = list(_list_input_code(name, words, script))
    if code and name not in _MAKES and name not in _AWKS and name not in _SEDS and _CODE_RUNS.search(script):
        code.append(None)
    is_program = name in _AWKS or name in _SEDS
    for index, word in enumerate(words):
        is_code = index > 0 and _CODE_FLAG.fullmatch(words[index - 1].value or "") is not None
        if word.value is None:
            if _is_unknown_code(name, word, is_code=is_code or (is_program and index == 0)):
                code.append(None)
            elif index == 0:
                # A script that is found by its name, as in `node $(which npm)`.
                code.append(script.strip())
        elif name in _AWKS:
            code.extend([word.value] if _AWK_RUNS.search(word.value) else [])
            is_computed = _AWK_RUNS.search(_AWK_PLAIN_COMMAND.sub("", word.value)) is not None
            code.extend([None] if is_computed or _AWK_SHELL.search(word.value) else [])
        elif name in _SEDS:
            if not word.may_be_flag and not is_harmless_sed_script(word.value):
                code.extend([word.value, None] if _SED_RUNS_LINES.search(word.value) else [word.value])
        else:
            code.append(word.value)
            code.extend([None] if is_code and _CODE_RUNS.search(word.value) else [])
    return tuple(code)
