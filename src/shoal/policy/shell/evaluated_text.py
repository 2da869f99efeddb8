"""Text that bash evaluates once more: arithmetic, array subscripts and indirect names.

A subscript may hold a substitution, and a variable in arithmetic stands for its value, which is evaluated in
turn: `x='a[$(rm y)]'; echo $((x))` runs `rm`. An expression is harmless if no variable in it holds such text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.policy.shell.program_judges import is_harmless_shell_variable
from shoal.policy.shell.readonly_usage import parse_command_options
from shoal.policy.shell.shell_words import ShellWord
from shoal.policy.shell.simple_commands import SimpleShellCommand

_EXPRESSION = re.compile(r"[A-Za-z0-9_\s+*/%()<>=!&|^~?:,$#{}\x02.-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_POSITIONAL = re.compile(r"\$\{?(?:[1-9@*!_]|\$\()")
_PLAIN_SUBSCRIPT = re.compile(r"\[([A-Za-z0-9_$@*+-]*)\]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$(?=[A-Za-z_])")
_COUNTING = re.compile(r"[A-Za-z0-9_ \t+*/%()<>=!&|?:,\x02-]*")
"""Signs of an expression that only computes with numbers and variables."""
_COUNTED_NAME = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
_SET_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*(?:[-+*/%&|]|<<|>>)?=(?!=)")
_INTEGERS = frozenset(
    """
    RANDOM SRANDOM SECONDS LINENO OPTIND HISTCMD EPOCHSECONDS BASHPID BASH_SUBSHELL PPID UID EUID
    COMP_CWORD COMP_KEY COMP_POINT COMP_TYPE READLINE_ARGUMENT READLINE_MARK READLINE_POINT
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Variables of bash with the integer attribute: every value that they get is an expression."""
_DIRECTORY_VARIABLES = frozenset({"CDPATH", "HOME", "OLDPWD", "PWD", "DIRSTACK"})
"""Variables that tell the shell what `cd` and `~` mean."""
_DIRECTORY_COMMANDS = (("cd",), ("pushd",), ("popd",))
UNKNOWN_NUMBER = "\x02"
"""Replaces, in an expression, a substitution whose output is a number."""


class ShellVariables:
    """Variables that a command line sets, and the expressions that it evaluates."""

    def __init__(self) -> None:
        self._values: list[tuple[str, str | None]] = []
        self._evaluated: set[str] = set()
        self._is_unknown_evaluated = False
        self._counted: dict[str, str] = {}

    @property
    def unproven_expression(self) -> str | None:
        """Return an expression unless the command line gives all its variables harmless values."""
        pending, seen = list(self._counted.items()), set(self._counted)
        while pending:
            name, text = pending.pop()
            values = [value for each, value in self._values if each == name]
            if not values or any(value is None or not _EXPRESSION.fullmatch(value) for value in values):
                return text
            # Names in a value are evaluated with it.
            new_names = {each for value in values for each in _COUNTED_NAME.findall(value or "")} - seen
            seen |= new_names
            pending.extend((each, text) for each in new_names)
        return None

    @property
    def may_run_text(self) -> bool:
        """True if an evaluated expression may hold a substitution that the analysis has not seen."""
        if self._is_unknown_evaluated or not self._evaluated:
            return self._is_unknown_evaluated
        pending, seen = list(self._evaluated), set(self._evaluated)
        while pending:
            name = pending.pop()
            for value in [value for each, value in self._values if each == name]:
                if value is None or not _EXPRESSION.fullmatch(value) or "$" in value:
                    return True
                # Names in a value are evaluated with it.
                new_names = set(_NAME.findall(value)) - seen
                seen |= new_names
                pending.extend(new_names)
        return False

    def may_move(self, command: str, parts: Sequence[SimpleShellCommand]) -> bool:
        """Return True if a variable changes what a `cd` or `~` of the command line means."""
        # A value that is such a name may be a reference to it.
        moved = {name for each in self._values if each[1] != "" for name in each} & _DIRECTORY_VARIABLES
        if not moved:
            return False
        changes = [part.words for part in parts if part.words[:1] in _DIRECTORY_COMMANDS]
        return "~" in command or any(
            "CDPATH" in moved or words[0] != "cd" or (words[-1] or "-")[0] == "-" or len(words) == 1
            for words in changes
        )

    def add_value(self, name: str, value: str | None) -> None:
        """Record a value that a variable gets; None is known only at run time."""
        self._values.append((name, value))
        if name in _INTEGERS:
            self._evaluated.add(name)

    def add_unknown_value(self, name: str | None) -> None:
        """Record that a variable gets an unknown value; None may be any variable."""
        if name is None or not _NAME.fullmatch(name):
            self._is_unknown_evaluated = True
        else:
            self.add_value(name, None)

    def is_counting(self, expression: str) -> bool:
        """Return True for numbers and made-up variables; `unproven_expression` tells later if their
        values are harmless too."""
        text = _VARIABLE.sub(r"\1", expression)
        names = _COUNTED_NAME.findall(text)
        if not _COUNTING.fullmatch(text) or not all(map(is_harmless_shell_variable, names)):
            return False
        for name in _SET_NAME.findall(text):
            self.add_value(name, "0")
        self._counted.update(dict.fromkeys(names, expression))
        return True

    def add_expression(self, text: str | None) -> None:
        """Record an expression that bash evaluates."""
        text = None if text is None else _PLAIN_SUBSCRIPT.sub(r" \1 ", text)
        if text is None or not _EXPRESSION.fullmatch(text) or _POSITIONAL.search(text):
            self._is_unknown_evaluated = True
            return
        self._evaluated.update(_NAME.findall(text))


def note_evaluated_words(name: str, words: Sequence[ShellWord], variables: ShellVariables) -> None:
    """Record the variables that a builtin sets, and the names and expressions that it evaluates."""
    for word in _list_set_variables(name, words):
        variables.add_unknown_value(word.value)
    for word in _list_evaluated_words(name, words):
        variables.add_expression(word.value)
    if any(word.value is not None and ("$(" in word.value or "`" in word.value) for word in words):
        variables.add_expression(None)


def _list_set_variables(name: str, words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    if name in _SETTING_FLAGS:
        options = parse_command_options(words, _SETTING_FLAGS[name])
        names = (*options.operands, *options.get_option_values("-a" if name == "read" else "-O"))
        return (ShellWord(None),) if options.refused else names
    target = _find_name_operand(words, _NAME_FLAGS[name]) if name in _NAME_FLAGS else None
    return () if target is None else (target,)


def _list_evaluated_words(name: str, words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    if name == "let":
        return words
    if name == "test":
        targets = [_find_name_operand(words, flag) for flag in ("-v", "-R")]
        return [target for target in targets if target is not None]
    if name in _NAMING_BUILTINS:
        return [
            word if word.value is None else ShellWord(word.value.partition("=")[0])
            for word in words
            if word.value is None or not word.may_be_flag
        ]
    return ()


EVALUATING_BUILTINS = frozenset(
    {"let", "unset", "read", "mapfile", "readarray", "getopts", "printf", "wait", "test"}
)
"""Builtins that set a variable by its name, or evaluate their words."""
_NAMING_BUILTINS = frozenset({"unset", "declare", "typeset", "local", "readonly"})
_NAME_FLAGS = {"printf": "-v", "wait": "-p"}
_SETTING_FLAGS = {
    "read": "-r -s -e -p: -n: -N: -t: -d: -u: -a: -i:",
    "mapfile": "-t -d: -n: -O: -s: -u: -c:",
    "readarray": "-t -d: -n: -O: -s: -u: -c:",
    "getopts": "",
}


def _find_name_operand(words: Sequence[ShellWord], flag: str) -> ShellWord | None:
    """Return the word that names a variable after a flag; None if the flag is not there."""
    for index, word in enumerate(words):
        if word.value == flag:
            return words[index + 1] if index + 1 < len(words) else ShellWord(None)
        if flag != "-R" and word.value is not None and word.value.startswith(flag) and index == 0:
            return ShellWord(word.value[len(flag) :])
    return None
