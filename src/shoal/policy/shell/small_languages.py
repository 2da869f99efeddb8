"""Effects of sed and awk scripts: whether they run programs, and which files they write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
AWK_RUNS = re.compile(r"system|\||getline|@\s*(?:load|[A-Za-z_]\w*\s*\()")
"""Signs of a program of awk that runs commands, perhaps through the name of a function in a variable."""
SED_COMMAND = re.compile(r"(?:^|[;{}\n/$!0-9])[ \t]*e[ \t]+([^\n]+)")
"""The command of sed that runs the rest of its line."""
_SED_FILE_COMMANDS = frozenset("rRwW")
_SED_ADDRESS = re.compile(r"[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+")
_SED_BLANK = re.compile(r"[ \t]*")
_SED_SPACE = re.compile(r"[ \t\n;]*")
_LINE = re.compile(r"(?:\\.|[^\\\n])*", re.DOTALL)
_FILE_NAME = re.compile(r"[^\n]*")
_SED_COMMANDS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys("{=dDgGhHnNpPxzF", re.compile("")),
    **dict.fromkeys("aic", _LINE),
    **dict.fromkeys(":btT", re.compile(r"[^;\n}]*")),
    **dict.fromkeys("qQlL", re.compile(r"[ \t]*[0-9]*")),
    "v": _FILE_NAME,
}
"""Commands that run nothing and use no other file, with what may follow each."""
_FLAGS = re.compile(r"[gpiImMe0-9]*")
_SED_SCRIPT_FLAG = re.compile(r"-[nErsuz]*e(.*)|--expression=(.*)", re.DOTALL)
_SED_ATTACHED_SCRIPT = re.compile(r"(?:-[nErsuz]*e|--ex[a-z]*=)(.*)", re.DOTALL)
_SED_POSSIBLE_FILE = re.compile(r"(?=[rRwW][ \t]*([^\s;}]+))")
_SED_FILE_FLAG = re.compile(r"-[nErsuz]*f.*|--file.*", re.DOTALL)
_AWK_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\n|#[^\n]*)|(?P<text>\"(?:\\.|[^\"\\\n])*\")|(?P<name>[A-Za-z_]\w*|[0-9.]+)"
    r"|(?P<sign>\|\||&&|>>|\|&|[=!<>+*%^-]=|\+\+|--|.|\n)",
    re.DOTALL,
)
_AWK_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|\^?\]?[^\]\n])*\]|[^/\\\n\[])*/", re.DOTALL)
_AWK_RUNNING_NAMES = frozenset({"system", "SYMTAB", "FUNCTAB"})
_AWK_VALUE_FLAG = re.compile(r"-[vF]|--assign|--field-separator")
_AWK_FILE_FLAG = re.compile(r"-[fE].*|--file.*|--exec.*", re.DOTALL)
_AWK_CODE_FLAG = re.compile(r"-e(.*)|--source(?:=(.*))?", re.DOTALL)
_STANDARD_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


class ScriptEffects(Struct, frozen=True):
    """`runs` is True if a script runs programs or computes the name of a file that it writes."""

    runs: bool = False
    files: tuple[str, ...] = ()


_UNKNOWN = ScriptEffects(runs=True)


def find_sed_effects(words: Sequence[str]) -> ScriptEffects:
    """Return what the scripts in the words after `sed` do, apart from its operands."""
    scripts, operands, index = [], [], 0
    reads_file = False
    while index < len(words):
        word = words[index]
        index += 1
        if (match := _SED_SCRIPT_FLAG.fullmatch(word)) or word == "--expression":
            attached = (match[1] or match[2]) if match else None
            scripts.append(attached or (words[index] if index < len(words) else ""))
            index += not attached
        elif _SED_FILE_FLAG.fullmatch(word):
            reads_file = True
            if not _STANDARD_INPUT.isdisjoint((words[index : index + 1] or ("",))[0:1]) or word.endswith("-"):
                return _UNKNOWN
            index += word in ("-f", "--file") or (word[1:2] != "-" and word.endswith("f"))
        elif word[:1] != "-" or word == "-":
            operands.append(word)
    if not scripts and not reads_file:
        scripts = operands[:1]
    return _join_effects(map(parse_sed_script, scripts))


def get_sed_script(word: str) -> str:
    """Return the script that a word after `sed` may be, or that its flag contains; empty if there is none."""
    if word[:1] != "-":
        return word
    match = _SED_ATTACHED_SCRIPT.fullmatch(word)
    return "" if match is None else match[1]


def list_sed_files(word: str) -> tuple[str, ...]:
    """Return the files that a word after `sed` may name in a script; of an odd one, all that might be."""
    script = get_sed_script(word)
    effects = parse_sed_script(script)
    if not effects.runs:
        return effects.files
    return tuple(match[1] for match in _SED_POSSIBLE_FILE.finditer(script))


def find_awk_effects(words: Sequence[str]) -> ScriptEffects:
    """Return what the programs in the words after `awk` do, apart from its operands."""
    programs: list[str] = []
    index = 0
    reads_file = False
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--" or word[:1] != "-" or word == "-":
            if not programs and not reads_file:
                programs += words[index : index + 1] if word == "--" else [word]
            break
        if match := _AWK_CODE_FLAG.fullmatch(word):
            programs += [match[1] or match[2] or (words[index] if index < len(words) else "")]
            index += not (match[1] or match[2])
        elif _AWK_FILE_FLAG.fullmatch(word):
            reads_file = True
            if not _STANDARD_INPUT.isdisjoint(words[index : index + 1]) or word.endswith("-"):
                return _UNKNOWN
            index += word in ("-f", "-E", "--file", "--exec")
        elif word.startswith(("-l", "--lo")):
            # A library that is loaded.
            return _UNKNOWN
        elif _AWK_VALUE_FLAG.fullmatch(word):
            index += 1
    return _join_effects(map(parse_awk_program, programs))


def _join_effects(found: Iterator[ScriptEffects]) -> ScriptEffects:
    effects = tuple(found)
    return ScriptEffects(
        runs=any(each.runs for each in effects), files=tuple(file for each in effects for file in each.files)
    )


@lru_cache(maxsize=256)
def parse_sed_script(script: str) -> ScriptEffects:
    """Return the effects of a script of sed; one that cannot be parsed may run anything."""
    files: list[str] = []
    position = 0
    while True:
        position = _skip(_SED_SPACE, script, position)
        if position >= len(script):
            return ScriptEffects(files=tuple(files))
        if script[position] in "{}":
            position += 1
            continue
        if script[position] == "#":
            position = _skip(_FILE_NAME, script, position)
            continue
        after = _skip_sed_addresses(script, position)
        end = None if after is None else _parse_sed_command(script, after, files)
        if end is None:
            return _UNKNOWN
        position = end


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


def _skip_sed_addresses(script: str, position: int) -> int | None:
    """Return the position of the command after its addresses; None if they are not understood."""
    for _ in range(2):
        position = _skip(_SED_BLANK, script, position)
        match script[position : position + 1]:
            case "/":
                end = _find_sed_delimiter(script, position + 1, "/")
            case "\\":
                end = _find_sed_delimiter(script, position + 2, script[position + 1 : position + 2])
            case _:
                end = _skip(_SED_ADDRESS, script, position)
        if end is None:
            return None
        while script[end : end + 1] in ("I", "M") and end > position:
            end += 1
        position = _skip(_SED_BLANK, script, end)
        if script[position : position + 1] != ",":
            break
        position += 1
    while script[position : position + 1] in ("!", " ", "\t"):
        position += 1
    return position


def _find_sed_delimiter(script: str, position: int, delimiter: str) -> int | None:
    """Return the position after the next delimiter; None if it is missing, or in brackets as well."""
    if not delimiter or delimiter in "\\\n":
        return None
    in_brackets = False
    while position < len(script):
        sign = script[position]
        if sign == "\\" and not in_brackets:
            position += 2
            continue
        if sign == delimiter:
            # In brackets, some programs take it as a plain character.
            return None if in_brackets else position + 1
        if sign == "[" and not in_brackets:
            in_brackets = True
            position += script[position + 1 : position + 2] == "^"
            position += script[position + 1 : position + 2] == "]"
        elif sign == "]":
            in_brackets = False
        position += 1
    return None


def _parse_sed_command(script: str, position: int, files: list[str]) -> int | None:
    """Return the position after a command; None for one that runs programs or is not understood."""
    command = script[position : position + 1]
    position += 1
    if command in _SED_FILE_COMMANDS:
        return _take_file(script, position, files)
    if command in ("s", "y"):
        return _parse_sed_replacement(script, position, files, has_flags=command == "s")
    rest = _SED_COMMANDS.get(command)
    return None if rest is None else _skip(rest, script, position)


def _parse_sed_replacement(script: str, position: int, files: list[str], *, has_flags: bool) -> int | None:
    delimiter = script[position : position + 1]
    middle = _find_sed_delimiter(script, position + 1, delimiter)
    end = None if middle is None else _find_sed_end(script, middle, delimiter)
    if end is None or not has_flags:
        return end
    flags = _FLAGS.match(script, end)
    if flags is None or "e" in flags[0]:
        return None
    if script[flags.end() : flags.end() + 1] == "w":
        return _take_file(script, flags.end() + 1, files)
    return flags.end()


def _find_sed_end(script: str, position: int, delimiter: str) -> int | None:
    """Return the position after a replacement, in which brackets are plain characters."""
    while position < len(script):
        if script[position] == "\\":
            position += 2
            continue
        if script[position] == delimiter:
            return position + 1
        position += 1
    return None


def _take_file(script: str, position: int, files: list[str]) -> int:
    start = _skip(_SED_BLANK, script, position)
    end = _skip(_FILE_NAME, script, start)
    files.append(script[start:end])
    return end


@lru_cache(maxsize=256)
def parse_awk_program(program: str) -> ScriptEffects:
    """Return the effects of a program of awk; one that cannot be parsed may run anything."""
    tokens = _split_awk_tokens(program)
    if tokens is None:
        return _UNKNOWN
    files: list[str] = []
    depth, prints = 0, False
    for index, token in enumerate(tokens):
        if token in _AWK_RUNNING_NAMES or token in ("|", "|&", "@"):
            return _UNKNOWN
        if token in ("print", "printf"):
            depth, prints = 0, True
        elif token in (";", "\n", "}", "{"):
            prints = False
        elif token in ("(", "["):
            depth += 1
        elif token in (")", "]"):
            depth -= 1
        elif (token in (">", ">>") and prints and depth <= 0) or (
            token.startswith("<") and "getline" in tokens[max(0, index - 4) : index]
        ):
            target = tokens[index + 1] if index + 1 < len(tokens) else ""
            ends = (tokens[index + 2] if index + 2 < len(tokens) else ";") in (";", "\n", "}", ")")
            if target[:1] != '"' or not ends or "\\" in target:
                return _UNKNOWN
            files.append(target[1:-1])
    return ScriptEffects(files=tuple(files))


def _split_awk_tokens(program: str) -> list[str] | None:
    """Return the tokens of a program without blanks, comments and regular expressions, or None."""
    tokens: list[str] = []
    position = 0
    while position < len(program):
        if program[position] == "/" and _may_regex_follow(tokens):
            if (regex := _AWK_REGEX.match(program, position)) is None:
                return None
            tokens.append("1")
            position = regex.end()
            continue
        match = _AWK_TOKEN.match(program, position)
        if match is None:
            return None
        if match.lastgroup == "sign" and match[0] == '"':
            return None
        if match.lastgroup != "blank":
            tokens.append(match[0])
        position = match.end()
    return tokens


def _may_regex_follow(tokens: list[str]) -> bool:
    """Return True if a slash begins a regular expression here: no value precedes it."""
    if not tokens:
        return True
    last = tokens[-1]
    is_value = last[:1] == '"' or last[-1].isalnum() or last[-1] == "_" or last in (")", "]", "$", "++", "--")
    return not is_value or last in ("print", "return", "in", "case", "else", "do", "printf")
