"""Words that are known although they are written as variables or substitutions.

A variable is known while nothing else in the script can set it. The output of some commands is known by kind:
paths under the working directory, or a revision of git.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.policy.shell.known_commands import HARMLESS_VARIABLES
from shoal.policy.shell.plain_lines import parse_plain_command_line
from shoal.policy.shell.program_judges import is_harmless_shell_variable
from shoal.policy.shell.shell_words import FOUND_PATHS, ShellWord

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_VALUES = 8
"""Maximum number of values of a loop variable; the body is judged once for each."""
_SETTERS = re.compile(
    r"\b(?:eval|source|trap|mapfile|readarray|getopts|declare|typeset|local|readonly|export|let|unset|wait|coproc"
    r"|function|select|bind|enable|alias|shopt|IFS)\b|-v|\(\)|\(\(|(?:^|[;&|({!\n]|\bdo|\bthen|\belse)\s*\.\s|\bread\b[^;&|\n]*[$`\\]"
)
"""Constructs that can set a variable without naming it."""
COUNTING_COMMAND = re.compile(
    r"wc -[lcwm]+(?: *< *[A-Za-z0-9_./-]+)?|nproc|date (?:-u )?\+%[A-Za-z%]+|id -[ug]|seq [0-9 ]+"
    r"|grep -[ivwxEFPhs]*c[ivwxEFPhs]* (?:'[^'\n]*'|\"[^\"$`\n]*\"|[A-Za-z0-9_.-]+)"
    r"(?: [A-Za-z0-9_./][A-Za-z0-9_./-]*)?"
)
"""Commands whose output is a number, so that it is harmless in an expression."""
_REVISION = re.compile(
    r"git (?:merge-base|rev-list|describe|rev-parse|symbolic-ref|branch|tag|log)(?: (?:-1|-n 1|--short"
    r"|--verify|--abbrev-ref|--tags|--abbrev=0|--always|--show-current|--format=%H|--format=%h|--pretty=%H"
    r"|--all|--list|--format=(?:'%\(refname:short\)'|\"%\(refname:short\)\")|[A-Za-z0-9_./~^@{}]+))*"
)
"""Commands of git that print revisions, which never begin with a dash."""
_PART_OF_PATH = re.compile(r"(?:dirname|basename) [A-Za-z0-9_][A-Za-z0-9_./-]*")
_PROGRAM_PATH = re.compile(r"(?:which|command -v) [A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PROGRAM_FILE = ShellWord(None, "/", stream=True)
_FOUND = ShellWord(None, "./", many=True, pattern=FOUND_PATHS)
_FOUND_NAMES = ShellWord(None, many=True, pattern=FOUND_PATHS)
"""Paths that may begin with a dash, judging by the words."""
_REVISIONS = ShellWord(None, "@", stream=True)
_FINDERS: dict[str, re.Pattern[str]] = {
    "find": re.compile(
        r"-(?:name|iname|type|maxdepth|mindepth|path|not|o|size|mtime|newer|print|print0|prune|empty)"
    ),
    "git ls-files": re.compile(r"-[mocdz]|--(?:others|modified|cached|exclude-standard|deleted)"),
    "git diff": re.compile(r"--(?:name-only|cached|staged|relative|diff-filter=\w+)"),
    "git grep": re.compile(r"-[liwEFz]+|--(?:name-only|files-with-matches)"),
    "rg": re.compile(r"-[lLiwFSu0]+|-[tg]|--(?:files|files-with-matches|hidden|glob|type|glob=\S+)"),
    "grep": re.compile(r"-[rliwEFZL]+|--(?:include|exclude|exclude-dir)(?:=\S+)?|--null"),
    "ls": re.compile(r"-[1tSrX]+"),
    "fd": re.compile(r"-[etHI0]|--(?:extension|type|hidden)"),
}
"""Commands that, with these flags, print paths under the given directories, one per line."""
_NEEDED_FLAGS: dict[str, re.Pattern[str]] = {
    "git diff": re.compile(r"--name-only"),
    "git grep": re.compile(r"-\w*l\w*|--name-only|--files-with-matches"),
    "rg": re.compile(r"-\w*l\w*|--files(?:-with-matches)?"),
    "grep": re.compile(r"-\w*l\w*"),
}
_LINE_FILTER = re.compile(
    r"(?:head|tail|sort|uniq)(?: -(?:[0-9]+|n|r|u|rn))*(?: [0-9]+)?|grep(?: -[vEFiw]+)* \S+"
)
"""Commands that pass some of their lines unchanged."""


def can_know_variable(name: str, script: str) -> bool:
    """Return True if one place alone in a script sets the variable, in plain sight."""
    if not (is_harmless_shell_variable(name) or name in HARMLESS_VARIABLES) or _SETTERS.search(script):
        return False
    return len(re.findall(rf"(?:^|[\s;&|(){{}}\"'`\\=,]){name}(?!\w)", script)) == 1


def classify_output(commands: str) -> ShellWord | None:
    """Return the kind of words that a pipeline prints, or None if it is not known."""
    if _REVISION.fullmatch(commands):
        return _REVISIONS
    if _PROGRAM_PATH.fullmatch(commands):
        return _PROGRAM_FILE
    if _PART_OF_PATH.fullmatch(commands) and ".." not in commands:
        return _FOUND
    return _classify_finder_output(commands)


def _classify_finder_output(commands: str) -> ShellWord | None:
    # Wildcards are expanded to paths; what matters here is where the words are.
    line = parse_plain_command_line(commands.replace("*", "x").replace("?", "x"))
    if line is None or line.sign is not None or "&&" in commands or ";" in commands or "||" in commands:
        return None
    (_, words), *filters = line.commands
    name = " ".join(words[:2]) if words[0] == "git" else words[0]
    flags = _FINDERS.get(name)
    rest = words[2:] if words[0] == "git" else words[1:]
    if flags is None or any(word.startswith(("/", "~")) or ".." in word for word in rest):
        return None
    if any(word.startswith("-") and word != "--" and not flags.fullmatch(word) for word in rest):
        return None
    if name in _NEEDED_FLAGS and not any(map(_NEEDED_FLAGS[name].fullmatch, rest)):
        return None
    if not all(_LINE_FILTER.fullmatch(text) for text, _ in filters):
        return None
    return _FOUND_NAMES if name == "ls" else _FOUND


def is_certain_statement(node: Node) -> bool:
    """Return True if a statement certainly runs before what follows it in the script."""
    top = node
    while top.parent is not None and top.parent.type == "list":
        if top.parent.children[0] != top:
            return False
        top = top.parent
    return top.parent is not None and top.parent.type == "program"


def get_read_variable(words: Sequence[ShellWord]) -> str | None:
    """Return the variable that `read` sets to a whole line, or None."""
    match [word.value for word in words[1:]]:
        case ["-r", str(name)] | [str(name)]:
            return name
        case _:
            return None
