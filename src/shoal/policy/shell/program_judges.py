"""Judges commands whose flags do not tell everything: small languages, actions of find, some builtins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from shoal.policy.shell.readonly_table import load_readonly_command_table
from shoal.policy.shell.readonly_usage import (
    ParsedCommandOptions,
    ReadOnlyCommandUsageSpec,
    ReadOnlyCommandVerdict,
    build_not_proven_readonly_verdict,
    build_readonly_verdict,
    judge_readonly_usage,
    parse_command_options,
)
from shoal.policy.shell.shell_words import ShellWord, list_globbed_directories
from shoal.policy.shell.wrapper_commands import FIND_EXEC_FLAGS, find_exec_command_end

ProgramJudge = Callable[[Sequence[ShellWord]], ReadOnlyCommandVerdict]

_NUMBER = re.compile(r"-?(?:[0-9]+|0x[0-9a-fA-F]+)")
_PRINTS_NUMBERS = re.compile(r"%[^%sbqc]*[diouxXeEfFgGaA]|%[^%a-zA-Z]*[*(]")
_PS_FLAGS = "-e -f -A -a -x -l -w -L -H -j -F -u: -p: -o: -O: -C: -t: --sort: --ppid: --no-headers --forest"
_PS_COLUMNS = re.compile(r"(?!.*envir)[\w%:,=+ -]+", re.DOTALL | re.IGNORECASE)
_READ_FLAGS = "-r -s -e -p: -n: -N: -t: -d: -u:"
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
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
_AWK_FORBIDDEN = re.compile(r"system|getline|@|\bclose\b|\bfflush\b|ENVIRON|ARGV|ARGC|SYMTAB")
_AWK_FLAGS = "-F: -v: --field-separator: --assign:"
_YQ_FORBIDDEN = re.compile(
    r"load|env|eval-all|system|input|import|include|\$__|\bfile|split_doc|@sh|exec|open|with_entries_from"
)
_JQ_MODULE = re.compile(r"\b(?:import|include)\b\s*[\"#]")
_JQ_ENVIRONMENT = re.compile(r"\$ENV|(?<![.\w\"-])env\b(?![\":])")
_JQ_PROGRAM_FLAG = re.compile(r"-(?!-).*[fL]|--from|--lib|--run")
_FILE_TESTS = frozenset(f"-{letter}" for letter in "bcdefghkprsuwxGLNOS")
_FILE_COMPARISONS = frozenset({"-nt", "-ot", "-ef"})
_COMPARES_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_SED_FLAGS = (
    "-n -E -r -u -z -s -e: --quiet --silent --regexp-extended --expression: --null-data --separate --posix"
)
_FIND_TESTS = frozenset(
    """
    -amin -anewer -atime -cmin -cnewer -ctime -empty -executable -false -fstype -gid -group -ilname -iname
    -inum -ipath -iregex -iwholename -links -lname -mmin -mtime -name -newer -nogroup -nouser -path -perm
    -readable -regex -samefile -size -true -type -uid -used -user -wholename -writable -xtype -a -o -not -and
    -or ! ( ) , -daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -maxdepth -mindepth
    -mount -noleaf -regextype -warn -nowarn -xdev -print -print0 -printf -ls -prune -quit -H -L -P -newermt
    -newerat -newerct -newermm
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)


def judge_awk(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    options = parse_command_options(words, _AWK_FLAGS, leading=True)
    if options.refused:
        return _build_refused_flag_verdict("awk", options)
    if any(word.may_be_flag for word in options.operands[1:]):
        return build_not_proven_readonly_verdict("awk_flag")
    if not options.operands or options.operands[0].value is None:
        return build_not_proven_readonly_verdict("awk_unknown")
    text = options.operands[0].value
    if _AWK_FORBIDDEN.search(text):
        return build_not_proven_readonly_verdict("awk_reads")
    print_index = text.find("print")
    after_print = text[print_index:].replace("||", "") if print_index >= 0 else ""
    if ">" in after_print or "|" in after_print:
        return build_not_proven_readonly_verdict("awk_writes")
    return build_readonly_verdict("awk only prints", reads=options.operands[1:])


def _build_refused_flag_verdict(name: str, options: ParsedCommandOptions) -> ReadOnlyCommandVerdict:
    return build_not_proven_readonly_verdict("flag_changes", name=name, flag=options.refused)


def judge_jq(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge jq: a program may import data from a directory that it names."""
    if any(word.value is None or _JQ_MODULE.search(word.value) for word in words):
        return build_not_proven_readonly_verdict("jq_reads")
    if any(_JQ_ENVIRONMENT.search(word.value or "") for word in words):
        return build_not_proven_readonly_verdict("jq_environment")
    if any(_JQ_PROGRAM_FLAG.match(word.value or "") for word in words):
        return build_not_proven_readonly_verdict("jq_unknown")
    return judge_readonly_usage("jq", words, ReadOnlyCommandUsageSpec(operands="pattern"))


def judge_strings_program(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge strings: a word that begins with @ names a file with more arguments."""
    if any((word.value or word.prefix).startswith("@") for word in words):
        return build_not_proven_readonly_verdict("strings_arguments")
    return judge_readonly_usage("strings", words, ReadOnlyCommandUsageSpec())


def judge_binary_tool(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge nm and similar programs: a word that begins with @ names a file with more arguments."""
    if any((word.value or word.prefix).startswith("@") for word in words):
        return build_not_proven_readonly_verdict("arguments_file")
    flags = "-a -A -C -d -D -e -f -g -h -l -n -p -r -s -S -t -T -u -W -x --headers --syms --demangle --wide"
    return judge_readonly_usage("it", words, ReadOnlyCommandUsageSpec(flags=flags))


def judge_python(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge python: only `-m json.tool` and `-m pip`; the engine checks for modules where they run."""
    values = [word.value for word in words]
    if values[:2] == ["-m", "pip"]:
        verdict = judge_readonly_usage("pip", words[2:], load_readonly_command_table()["pip"])
        return replace(verdict, reads=(ShellWord("."), *verdict.reads)) if verdict.read_only else verdict
    if values[:2] != ["-m", "json.tool"] or len(words) > 3 or any(word.may_be_flag for word in words[2:]):
        return build_not_proven_readonly_verdict("python_program")
    return build_readonly_verdict("json.tool only prints", reads=(ShellWord("."), *words[2:]))


def judge_yq(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge yq: an expression may load files, read variables and run programs."""
    if any(word.value is None or _YQ_FORBIDDEN.search(word.value) for word in words):
        return build_not_proven_readonly_verdict("yq_reads")
    rest = words[1:] if words and words[0].value in ("e", "eval") else words
    return judge_readonly_usage(
        "yq", rest, ReadOnlyCommandUsageSpec(flags="-r -e -P -C -M -N -j -c -o: -p: -I:", operands="pattern")
    )


def judge_sed(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    options = parse_command_options(words, _SED_FLAGS)
    if options.refused:
        return _build_refused_flag_verdict("sed", options)
    scripts = options.get_option_values("-e", "--expression")
    reads = options.operands if scripts else options.operands[1:]
    for script in scripts or options.operands[:1] or (ShellWord(None),):
        if script.value is None:
            return build_not_proven_readonly_verdict("sed_unknown")
        if not is_harmless_sed_script(script.value):
            return build_not_proven_readonly_verdict("sed_changes")
    return build_readonly_verdict("sed only prints", reads=reads)


def is_harmless_sed_script(script: str) -> bool:
    """Return True if the script only prints and replaces; it runs nothing and writes no other file."""
    position = 0
    while position < len(script):
        match = _SED_STEP.match(script, position)
        if match is None or match.end() == position:
            return not script[position:].strip(" \t;\n")
        position = match.end()
        if script[position : position + 1] in (";", "\n"):
            position += 1
    return True


def judge_find(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge find; the commands of -exec are judged separately and skipped here."""
    start_paths: list[ShellWord] = []
    expression = False
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        value = word.value
        if value in FIND_EXEC_FLAGS:
            expression = True
            end = find_exec_command_end(words, index)
            # The word may be the terminator of the command, and the next word an action of find.
            if any(inner.value is None for inner in words[index:end]):
                return build_not_proven_readonly_verdict("find_unknown")
            index = end + 1
            continue
        if value is None:
            is_one_value = not word.many and index >= 2 and _is_find_test_with_value(words[index - 2].value)
            if word.may_be_flag and not is_one_value:
                return build_not_proven_readonly_verdict("find_unknown")
            if not expression:
                start_paths.append(word)
        elif value.startswith("-") or value in ("(", ")", "!", ","):
            if value not in _FIND_TESTS and not _is_find_test_value(words, index - 1):
                return build_not_proven_readonly_verdict("word_changes", name="find", word=value)
            expression = expression or value not in ("-H", "-L", "-P")
        elif not expression:
            start_paths.append(word)
    compared = [after for flag, after in pairwise(words) if (flag.value or "") in _FIND_FILE_TESTS]
    return build_readonly_verdict("find is read-only", reads=(*start_paths, *compared))


_FIND_FILE_TESTS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile", "-newermm"})
"""Tests of find that compare with another file."""
_FIND_TESTS_WITHOUT_VALUE = frozenset(
    """
    -empty -executable -false -nogroup -nouser -readable -true -writable -a -o -not -and -or ! ( ) ,
    -daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -mount -noleaf -warn -nowarn -xdev
    -print -print0 -ls -prune -quit -H -L -P
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)


_FIND_ACTIONS = FIND_EXEC_FLAGS | {"-print", "-print0", "-printf", "-ls"}
_FIND_ALTERNATIVES = frozenset({"-o", "-or", ",", "(", ")", "-L", "-follow", "-H"})
"""Words of find that give tests another scope, or with which `-type f` also holds for links."""


def _is_find_test_with_value(value: str | None) -> bool:
    return value is not None and value in _FIND_TESTS and value not in _FIND_TESTS_WITHOUT_VALUE


def get_found_name_pattern(words: Sequence[ShellWord]) -> str:
    """Return a pattern for the names of links that find passes to its commands; empty if it passes none."""
    found_name = "*"
    index = 0
    values = [word.value for word in words]
    # With these words, a test need not hold for every file that a command gets, even if they come later.
    if None in values or not _FIND_ALTERNATIVES.isdisjoint(values):
        return found_name
    # Tests that follow the command, or the action that prints, come too late.
    while index < len(values) and (value := values[index]) not in _FIND_ACTIONS:
        operand = values[index + 1] if index + 1 < len(values) else None
        if value in ("!", "-not"):
            # The test that it negates only leaves files out.
            if not _is_find_test_with_value(operand):
                return "*"
            index += 3
            continue
        if value == "-type" and operand == "f":
            return ""
        if value == "-name" and operand:
            found_name = operand
        index += 2 if _is_find_test_with_value(value) else 1
    return found_name


def _is_find_test_value(words: Sequence[ShellWord], index: int) -> bool:
    """Return True for a word like the -7 of `-mtime -7`; numbers only, so an action never counts."""
    value = words[index].value or ""
    return (
        index > 0
        and _is_find_test_with_value(words[index - 1].value)
        and re.fullmatch(r"[-+][0-9]+[a-zA-Z]?", value) is not None
    )


def judge_tar(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    values = [word.value for word in words]
    if len(values) >= 2 and values[0] is not None and re.fullmatch(r"-?t[vzjJ]*f|-[zjJ]*tv?f", values[0]):
        rest = values[1:]
        if all(value is not None and not value.startswith("-") and ":" not in value for value in rest):
            return build_readonly_verdict("tar only lists files", reads=(words[1],))
    return build_not_proven_readonly_verdict("tar_changes")


def judge_printf(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge printf: zsh evaluates what it prints as a number, so the numbers must be known."""
    if not words or words[0].value is None or words[0].value.startswith("-"):
        return build_not_proven_readonly_verdict("printf_variable")
    if _PRINTS_NUMBERS.search(words[0].value) and not all(map(_is_number_word, words[1:])):
        return build_not_proven_readonly_verdict("printf_evaluates")
    return build_readonly_verdict("printf only prints", reads=list_globbed_directories(words[1:]))


def _is_number_word(word: ShellWord) -> bool:
    return word.value is not None and _NUMBER.fullmatch(word.value) is not None


def judge_numeric_builtin(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge exit and similar builtins: zsh evaluates their operand."""
    if all(map(_is_number_word, words)):
        return build_readonly_verdict("it only exits")
    return build_not_proven_readonly_verdict("operand_evaluated")


def judge_ps(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge ps: an `e` among the letters without a dash shows the environment, including keys, and so does
    the column `environ`."""
    options = parse_command_options(words, _PS_FLAGS)
    columns = options.get_option_values("-o", "-O", "--sort")
    if not all(_PS_COLUMNS.fullmatch(column.value or "") for column in columns):
        return build_not_proven_readonly_verdict("ps_environment")
    if options.refused:
        return _build_refused_flag_verdict("ps", options)
    if not all(re.fullmatch(r"[auxwfhjlv]+|[0-9,]+", word.value or "") for word in options.operands):
        return build_not_proven_readonly_verdict("ps_environment")
    return build_readonly_verdict("ps is read-only")


def judge_read_builtin(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge read: names must be plain lower case, since subscripts are evaluated and PATH has an effect."""
    options = parse_command_options(words, _READ_FLAGS)
    if options.refused:
        return _build_refused_flag_verdict("read", options)
    if all(word.value is not None and is_harmless_shell_variable(word.value) for word in options.operands):
        return build_readonly_verdict("read sets a variable")
    return build_not_proven_readonly_verdict("read_variable")


def is_harmless_shell_variable(name: str) -> bool:
    """Return True if the command line made up this variable, so no program depends on it."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _OBEYED_BY_ZSH
        and "proxy" not in name
        and not name.startswith("npm_")
    )


def judge_set_builtin(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    values = [word.value for word in words]
    if values and all(v is not None and re.fullmatch(r"[-+][eux]*o?|pipefail", v) for v in values):
        return build_readonly_verdict("set changes how errors are handled")
    return build_not_proven_readonly_verdict("set_changes")


def judge_test_builtin(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge test: -v evaluates the subscript in its operand, so every operator must be known."""
    values = [word.value for word in words if not word.many]
    if len(values) != len(words) or any(value in ("-v", "-R", "-o", "-a", "-t") for value in values):
        return build_not_proven_readonly_verdict("test_evaluates")
    if _COMPARES_NUMBERS.intersection(value for value in values if value is not None):
        numbers = [word for word in words if word.value not in _COMPARES_NUMBERS and word.value != "!"]
        if not all(map(_is_number_word, numbers)):
            return build_not_proven_readonly_verdict("test_evaluates")
    if not _has_known_test_operator(values):
        return build_not_proven_readonly_verdict("test_evaluates")
    return build_readonly_verdict("it only compares values", reads=list_tested_files(words))


def list_tested_files(words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the files whose existence, kind or age the words of `test` or `[[` ask for."""
    found: list[ShellWord] = []
    for index, word in enumerate(words):
        if word.value in _FILE_COMPARISONS:
            found += (*words[max(0, index - 1) : index], *words[index + 1 : index + 2])
        elif word.value in _FILE_TESTS and index + 1 < len(words):
            found.append(words[index + 1])
    return tuple(found)


def _has_known_test_operator(values: Sequence[str | None]) -> bool:
    """Return True if the operator is known; its position depends on the number of words."""
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


def judge_pager(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    if any(word.may_be_flag or (word.value or word.prefix).startswith("+") for word in words):
        flags = "-N -R -S -F -X -r -i -M -E -e -n -s"
        if any((word.value or word.prefix or "+").startswith("+") for word in words):
            return build_not_proven_readonly_verdict("pager_commands")
        return judge_readonly_usage("less", words, ReadOnlyCommandUsageSpec(flags=flags))
    return build_readonly_verdict("it only displays text", reads=tuple(words))


def judge_man(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge man: only pages by name, because a page given as a file is a program for the formatter."""
    if any(word.value is None or "/" in word.value for word in words):
        return build_not_proven_readonly_verdict("man_file")
    return judge_readonly_usage(
        "man", words, ReadOnlyCommandUsageSpec(flags="-k -f -w -a -S:", operands="text")
    )


def judge_getent(words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge getent: a host name with a dot is looked up at a server that its owner chooses.

    The other databases are files outside the project, such as the list of users.
    """
    values = [word.value for word in words]
    is_lookup = values[0] in ("hosts", "ahosts") if values else False
    if is_lookup and not all(value is not None and value.isalnum() for value in values):
        return build_not_proven_readonly_verdict("getent_server")
    if not values or values[0] not in ("hosts", "ahosts", "services"):
        return build_not_proven_readonly_verdict("getent_changes")
    return judge_readonly_usage("getent", words, ReadOnlyCommandUsageSpec(flags="", operands="text"))


def judge_netstat(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    """Judge netstat: without -n, it looks up the names of the machines it lists."""
    if not any(re.fullmatch(r"-\w*n\w*", word.value or "") for word in words):
        return build_not_proven_readonly_verdict("name_lookup")
    return judge_readonly_usage("netstat", words, usage)


def judge_lsof(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    """Judge lsof: without -n, it looks up the names of the machines it lists, unless it lists files alone."""
    has_flags = any(word.may_be_flag for word in words)
    if not any(re.fullmatch(r"-[a-zA-Z]*n[a-zA-Z]*", word.value or "") for word in words) and (
        has_flags or not words
    ):
        return build_not_proven_readonly_verdict("name_lookup")
    return judge_readonly_usage("lsof", words, usage)


_SERVICE_SECRETS = re.compile(r"environ|exec|credential", re.IGNORECASE)


def judge_systemctl(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    """Judge systemctl: the properties and the file of a service hold its environment, including keys."""
    options = parse_command_options(words[1:], "-p: --property: --value --no-pager --user")
    shown = [word.value or "Environment" for word in options.get_option_values("-p", "--property")]
    if words[:1] and words[0].value == "show" and (not shown or any(map(_SERVICE_SECRETS.search, shown))):
        return build_not_proven_readonly_verdict("service_environment")
    return judge_readonly_usage("systemctl", words, usage)


_OTHER_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?/[^/]+/")
"""A repository with the name of its server."""


def judge_gh(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    """Judge gh: the filter after --jq can print the environment, like a filter of jq."""
    programs = [after for flag, after in pairwise(words) if flag.value in ("-q", "--jq")]
    programs += [word for word in words if (word.value or word.prefix).startswith(("-q", "--j"))]
    if any(word.value is None or _JQ_ENVIRONMENT.search(word.value) for word in programs):
        return build_not_proven_readonly_verdict("jq_environment")
    repositories = [after for flag, after in pairwise(words) if flag.value in ("-R", "--repo")]
    if (
        any("://" in (word.value or word.prefix) for word in words)
        or any(word.value is None or word.value.count("/") > 1 for word in repositories)
        or (words[0].value == "repo" and any(_OTHER_HOST.match(word.value or "") for word in words[2:]))
    ):
        return build_not_proven_readonly_verdict("gh_host")
    return judge_readonly_usage("gh", words, usage)


def judge_date(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    """Judge date: it shows when the file after -r was changed."""
    verdict = judge_readonly_usage("date", words, usage)
    files = parse_command_options(words, usage.flags or "").get_option_values("-r", "--reference")
    return replace(verdict, reads=(*verdict.reads, *files)) if files else verdict


def judge_kubectl(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> ReadOnlyCommandVerdict:
    if any(word.value is None or "secret" in word.value.lower() or "file" in word.value for word in words):
        return build_not_proven_readonly_verdict("kubectl_secrets")
    return judge_readonly_usage("kubectl", words, usage)


PROGRAM_JUDGES: dict[str, ProgramJudge] = {
    "awk": judge_awk,
    "gawk": judge_awk,
    "mawk": judge_awk,
    "sed": judge_sed,
    "gsed": judge_sed,
    "jq": judge_jq,
    "strings": judge_strings_program,
    **dict.fromkeys(("nm", "objdump", "readelf", "size"), judge_binary_tool),
    "yq": judge_yq,
    **dict.fromkeys(("python", "python3"), judge_python),
    "find": judge_find,
    "tar": judge_tar,
    "printf": judge_printf,
    "read": judge_read_builtin,
    "ps": judge_ps,
    "man": judge_man,
    "getent": judge_getent,
    **dict.fromkeys(("exit", "return", "break", "continue", "shift"), judge_numeric_builtin),
    "set": judge_set_builtin,
    "test": judge_test_builtin,
    "less": judge_pager,
    "more": judge_pager,
}
TABLE_JUDGES: dict[str, Callable[[Sequence[ShellWord], ReadOnlyCommandUsageSpec], ReadOnlyCommandVerdict]] = {
    "gh": judge_gh,
    "date": judge_date,
    "kubectl": judge_kubectl,
    "netstat": judge_netstat,
    "lsof": judge_lsof,
    "systemctl": judge_systemctl,
}
"""Judges of commands that also have an entry in the table."""
