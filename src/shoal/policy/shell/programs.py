"""Judges commands whose flags do not tell everything: small languages, actions of find, some builtins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shoal.policy.shell.options import Given, Reader, Verdict, harmless, judged, told_apart, unproven
from shoal.policy.shell.words import Word
from shoal.policy.shell.wrappers import EXECUTING, end_of_command

Judge = Callable[[Sequence[Word]], Verdict]

_NUMBER = re.compile(r"-?[0-9]+")
_PRINTS_NUMBERS = re.compile(r"%[^%sbqc]*[diouxXeEfFgGaA]|%[^%a-zA-Z]*[*(]")
_PS = "-e -f -A -a -x -l -w -L -H -j -F -u: -p: -o: -O: -C: -t: --sort: --ppid: --no-headers --forest"
_READ = "-r -s -e -p: -n: -N: -t: -d: -u:"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
_REPLACE = r"s([/|#,@:!%])(?:\\[^\n]|(?!\1)[^\\\n])*\1(?:\\[^\n]|(?!\1)[^\\\n])*\1[gpiI0-9]*"
_SED_STEP = re.compile(
    rf"[ \t;]*(?:{_ADDRESS}(?:,[ \t]*(?:{_ADDRESS}|\+[0-9]+))?[ \t]*!?[ \t]*)?"
    rf"(?:{_REPLACE}|[pdqQ=hHgGxnNDPl]|q[0-9]+)[ \t]*(?=[;\n]|$)"
)
_OBEYED_BY_ZSH = frozenset(
    """
    path fpath cdpath manpath mailpath module_path fignore psvar prompt argv aliases galiases saliases
    functions commands options parameters dirstack nameddirs userdirs modules histchars signals watch builtins
    """.split()  # noqa: SIM905 - a list to be read and extended
)
_AWK_NEVER = re.compile(r"system|getline|@|\bclose\b|\bfflush\b|ENVIRON|ARGV|ARGC|SYMTAB")
_AWK = "-F: -v: --field-separator: --assign:"
_JQ_MODULE = re.compile(r"\b(?:import|include)\b\s*[\"#]")
_COMPARES_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_SED = "-n -E -r -u -z -s -e: --quiet --silent --regexp-extended --expression: --null-data --separate --posix"
_FIND_TESTS = frozenset(
    """
    -amin -anewer -atime -cmin -cnewer -ctime -empty -executable -false -fstype -gid -group -ilname -iname
    -inum -ipath -iregex -iwholename -links -lname -mmin -mtime -name -newer -nogroup -nouser -path -perm
    -readable -regex -samefile -size -true -type -uid -used -user -wholename -writable -xtype -a -o -not -and
    -or ! ( ) , -daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -maxdepth -mindepth
    -mount -noleaf -regextype -warn -nowarn -xdev -print -print0 -printf -ls -prune -quit -H -L -P -newermt
    -newerat -newerct -newermm
    """.split()  # noqa: SIM905 - a list to be read and extended
)


def awk(words: Sequence[Word]) -> Verdict:
    given = told_apart(words, _AWK)
    if given.refused:
        return _refused("awk", given)
    if not given.operands or given.operands[0].value is None:
        return unproven("the awk program is only known when it runs")
    text = given.operands[0].value
    if _AWK_NEVER.search(text):
        return unproven("the awk program may run commands or read files")
    printed = text.find("print")
    after = text[printed:].replace("||", "") if printed >= 0 else ""
    if ">" in after or "|" in after:
        return unproven("the awk program may write files or run commands")
    return harmless("awk only prints", reads=given.operands[1:])


def _refused(name: str, given: Given) -> Verdict:
    return unproven(f"{name} with {given.refused} is not known to only read")


def jq(words: Sequence[Word]) -> Verdict:
    """Judge jq: a program may import data from a directory that it names."""
    if any(word.value is None or _JQ_MODULE.search(word.value) for word in words):
        return unproven("the jq program may read other files")
    return judged("jq", words, Reader(operands="pattern"))


def strings(words: Sequence[Word]) -> Verdict:
    """Judge strings: a word that begins with @ names a file with more arguments."""
    if any((word.value or word.prefix).startswith("@") for word in words):
        return unproven("strings reads its arguments from a file here")
    return judged("strings", words, Reader())


def sed(words: Sequence[Word]) -> Verdict:
    given = told_apart(words, _SED)
    if given.refused:
        return _refused("sed", given)
    scripts = given.values("-e", "--expression")
    reads = given.operands if scripts else given.operands[1:]
    for script in scripts or given.operands[:1] or (Word(None),):
        if script.value is None:
            return unproven("the sed script is only known when it runs")
        if not _is_plain_sed(script.value):
            return unproven("the sed script is not known to only print")
    return harmless("sed only prints", reads=reads)


def _is_plain_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        match = _SED_STEP.match(script, at)
        if match is None or match.end() == at:
            return not script[at:].strip(" \t;\n")
        at = match.end()
        if script[at : at + 1] in (";", "\n"):
            at += 1
    return True


def find(words: Sequence[Word]) -> Verdict:
    """Judge find; the commands of -exec are judged separately and skipped here."""
    places: list[Word] = []
    expression = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        value = word.value
        if value in EXECUTING:
            expression = True
            end = end_of_command(words, at)
            # The word may be the terminator of the command, and the next word an action of find.
            if any(inner.value is None for inner in words[at:end]):
                return unproven("find with a word that is only known when it runs")
            at = end + 1
            continue
        if value is None:
            is_one_value = not word.many and at >= 2 and _takes_value(words[at - 2].value)
            if word.may_be_flag and not is_one_value:
                return unproven("find with a word that is only known when it runs")
            if not expression:
                places.append(word)
        elif value.startswith("-") or value in ("(", ")", "!", ","):
            if value not in _FIND_TESTS and not _is_value(words, at - 1):
                return unproven(f"find with {value} is not known to only read")
            expression = expression or value not in ("-H", "-L", "-P")
        elif not expression:
            places.append(word)
    return harmless("find only looks", reads=tuple(places))


_NO_VALUE = frozenset(
    """
    -empty -executable -false -nogroup -nouser -readable -true -writable -a -o -not -and -or ! ( ) ,
    -daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -mount -noleaf -warn -nowarn -xdev
    -print -print0 -ls -prune -quit -H -L -P
    """.split()  # noqa: SIM905 - a list to be read and extended
)


def _takes_value(value: str | None) -> bool:
    return value is not None and value in _FIND_TESTS and value not in _NO_VALUE


def _is_value(words: Sequence[Word], at: int) -> bool:
    """Return True for a word like the -7 of `-mtime -7`; numbers only, so an action never counts."""
    value = words[at].value or ""
    return (
        at > 0
        and _takes_value(words[at - 1].value)
        and re.fullmatch(r"[-+][0-9]+[a-zA-Z]?", value) is not None
    )


def tar(words: Sequence[Word]) -> Verdict:
    values = [word.value for word in words]
    if len(values) >= 2 and values[0] is not None and re.fullmatch(r"-?t[vzjJ]*f|-[zjJ]*tv?f", values[0]):
        rest = values[1:]
        if all(value is not None and not value.startswith("-") and ":" not in value for value in rest):
            return harmless("tar only lists", reads=(words[1],))
    return unproven("tar is not known to only list here")


def printf(words: Sequence[Word]) -> Verdict:
    """Judge printf: zsh evaluates what it prints as a number, so the numbers must be known."""
    if not words or words[0].value is None or words[0].value.startswith("-"):
        return unproven("printf may set a variable here")
    if _PRINTS_NUMBERS.search(words[0].value) and not all(map(_is_number, words[1:])):
        return unproven("printf may evaluate what it prints")
    return harmless("printf only prints")


def _is_number(word: Word) -> bool:
    return word.value is not None and _NUMBER.fullmatch(word.value) is not None


def numbered(words: Sequence[Word]) -> Verdict:
    """Judge exit and similar builtins: zsh evaluates their operand."""
    if all(map(_is_number, words)):
        return harmless("it only ends something")
    return unproven("it may evaluate its operand")


def ps(words: Sequence[Word]) -> Verdict:
    """Judge ps: an `e` among the letters without a dash shows the environment, including keys."""
    given = told_apart(words, _PS)
    if given.refused:
        return _refused("ps", given)
    if not all(re.fullmatch(r"[auxwfhjlv]+|[0-9,]+", word.value or "") for word in given.operands):
        return unproven("ps may show the environment here")
    return harmless("ps only reads")


def read(words: Sequence[Word]) -> Verdict:
    """Judge read: names must be plain lower case, since subscripts are evaluated and PATH has an effect."""
    given = told_apart(words, _READ)
    if given.refused:
        return _refused("read", given)
    if all(word.value is not None and is_own_variable(word.value) for word in given.operands):
        return harmless("read sets a variable of its own")
    return unproven("read sets a variable that others may obey")


def is_own_variable(name: str) -> bool:
    """Return True if the command line made up this variable, so no program depends on it."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _OBEYED_BY_ZSH
        and "proxy" not in name
        and not name.startswith("npm_")
    )


def set_(words: Sequence[Word]) -> Verdict:
    values = [word.value for word in words]
    if values and all(v is not None and re.fullmatch(r"[-+][eux]*o?|pipefail", v) for v in values):
        return harmless("set changes how errors are handled")
    return unproven("set may change how later words are read")


def test(words: Sequence[Word]) -> Verdict:
    """Judge test: -v evaluates the subscript in its operand, so every operator must be known."""
    values = [word.value for word in words if not word.many]
    if len(values) != len(words) or any(value in ("-v", "-R", "-o", "-a", "-t") for value in values):
        return unproven("the test may evaluate its operands")
    if _COMPARES_NUMBERS.intersection(value for value in values if value is not None):
        numbers = [word for word in words if word.value not in _COMPARES_NUMBERS and word.value != "!"]
        if not all(map(_is_number, numbers)):
            return unproven("the test may evaluate its operands")
    if not _has_known_operator(values):
        return unproven("the test may evaluate its operands")
    return harmless("it only compares")


def _has_known_operator(values: Sequence[str | None]) -> bool:
    """Return True if the operator is known; the number of words tells its position."""
    match values:
        case [] | [_]:
            return True
        case [operator, _] | [_, operator, _]:
            return operator is not None
        case ["!", _, operator, _]:
            return operator is not None
        case ["(", operator, _, ")"]:
            return operator is not None
        case _:
            return False


def pager(words: Sequence[Word]) -> Verdict:
    if any(word.may_be_flag or (word.value or word.prefix).startswith("+") for word in words):
        flags = "-N -R -S -F -X -r -i -M -E -e -n -s"
        if any((word.value or word.prefix or "+").startswith("+") for word in words):
            return unproven("a pager with + runs commands of its own")
        return judged("less", words, Reader(flags=flags))
    return harmless("it only shows", reads=tuple(words))


def man(words: Sequence[Word]) -> Verdict:
    """Judge man: only pages by name, because a page given as a file is a program for the formatter."""
    if any(word.value is None or "/" in word.value for word in words):
        return unproven("man may format a file here")
    return judged("man", words, Reader(flags="-k -f -w -a -S:", operands="text"))


def kubectl(words: Sequence[Word], reader: Reader) -> Verdict:
    if any(word.value is None or "secret" in word.value.lower() or "file" in word.value for word in words):
        return unproven("kubectl may show secrets or files here")
    return judged("kubectl", words, reader)


JUDGES: dict[str, Judge] = {
    "awk": awk,
    "gawk": awk,
    "mawk": awk,
    "sed": sed,
    "gsed": sed,
    "jq": jq,
    "strings": strings,
    "find": find,
    "tar": tar,
    "printf": printf,
    "read": read,
    "ps": ps,
    "man": man,
    **dict.fromkeys(("exit", "return", "break", "continue", "shift"), numbered),
    "set": set_,
    "test": test,
    "less": pager,
    "more": pager,
}
