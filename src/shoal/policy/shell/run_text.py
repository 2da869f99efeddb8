"""Text in the arguments of a command that the command may run, for rules that forbid commands."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from itertools import pairwise

from shoal.policy.shell.inner_commands import LANGUAGES, expand_inner_text, expand_inner_words
from shoal.policy.shell.interpreter_code import EXPRESSION_RUNNERS, is_plain_perl_module, may_run_programs
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
from shoal.policy.shell.small_languages import AWK_RUNS, AWKS, SED_COMMAND, get_sed_script
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

_CODE_FLAG = re.compile(r"-[a-zA-Z0-9]*[ceErpBR]|eval|--(?:eval|execute|command|expression|cmd|print)")
_PERL_MODULE_FLAG = re.compile(r"-[acdlnpstuwTW0-9]*[mM]-?([\w:]*)")
_MAKES = frozenset({"make", "gmake"})
_COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "cpp", "gfortran"})
_SEDS = frozenset({"sed", "gsed"})
_SED_FILE_FLAG = re.compile(r"(?:-[nErsuziEl]*f|--fi[a-z]*=?)(.*)", re.DOTALL)
_AWK_PLAIN_COMMAND = re.compile(
    r"system\(\s*\"[^\"\\]*\"\s*\)|(?:[{;(]|(?<!\\)\n)\s*\"[^\"\\]*\"\s*\|\s*getline"
    r"|\|\s*\"[^\"\\]*\"\s*(?=[;}\n]|$)"
)
"""Commands in a program of awk that are one plain string; after another word, a string is the end of one."""
_SED_RUNS_LINES = re.compile(r"(?:^|[^A-Za-z\s\\])\s*[gpiImM0-9]*e[gpiImM0-9]*\s*(?:$|[;}\n])", re.MULTILINE)
"""The command `e` of sed without a text, or the flag `e` of a replacement: both run lines of the input."""
_PROGRAM_NAME = re.compile(r"[a-z][a-z0-9_+-]*")
_BEFORE_COMMAND = re.compile(r"--|-c|-e|-x|-a|--(?:command|exec|execute|cmd|run)|/[cC]")
"""Words that precede the command in a wrapper's arguments."""
_OPERAND = re.compile(r"[^-0-9]")
_INPUT_EDITORS = frozenset(
    """
    ed ex sqlite3 psql mysql bc dc ftp tnftp lftp sftp telnet ghci jshell sbcl clisp ecl ccl octave gforth irb
    pry iex erl groovysh spark-shell pyspark mongosh mongo redis-cli ipython ptpython bpython utop maxima sage
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Programs that take commands from their input although they have a file."""
_DEBUGGERS = frozenset({"gdb", "lldb"})
_AWK_SHELL = re.compile(r"\|&?\s*\"[^\"]*\b(?:sh|ash|bash|dash|ksh|zsh|xargs|env|make)\b")
"""A pipe in a program of awk to a program that runs its input."""
_AWK_STRING = re.compile(r"\"([^\"\\]*)\"")
_ATTACHED_CODE = re.compile(
    r"(?:-[a-zA-Z0-9]*?[ceErpm](?!$)|--(?:eval|execute|command|expression|cmd|print)=)(.+)", re.DOTALL
)
"""Code in the same word as its flag, as in `-cprint(1)` and `--eval=print(1)`."""
_HERE_DOCUMENT = re.compile(
    r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[^\n]*\n"
    r"(?P<body>.*?)(?:^|\n)[ \t]*(?P=end)[ \t]*(?=[\n)]|$)",
    re.DOTALL,
)
_COMPUTED_COMMAND = re.compile(r"[$`]")
_CALLING_TEXT = re.compile(
    r"(?:system|popen|spawn|shell|exec|run|call|command|subprocess)\w*\s*[(\"'\[]", re.IGNORECASE
)
"""Text in the small language of a program that may run other programs."""
_PLAIN_GIT_SETTING = re.compile(
    r"(?:user|init|branch|push|pull|color|author|committer)\..*|remote\..*\.(?:url|fetch)"
)
"""Settings of git that hold no command."""
_GIT_HELPER_SETTING = re.compile(r"-?-?c?remote\..*\.vcs=.*|--config-env=(?!(?:user|http)\.).*", re.DOTALL)
"""Settings of git that choose a program by another name, or whose value is in a variable."""
_CODE_RUNNERS = frozenset({"expect", "osascript", "pwsh", "powershell", "powershell.exe", "cmd.exe"})
"""Runners whose words are code in a language that is not read."""
_OPERANDS_BEFORE_COMMAND = {
    **dict.fromkeys("script unshare nsenter newgrp fish csh tcsh rbash ash mksh yash parallel".split(), 0),  # noqa: SIM905
    **dict.fromkeys(("ssh", "chroot", "su", "runuser", "sg", "busybox", "toybox", "mosh"), 1),
}
"""Runners that start a shell, or run each line of their input, if no more operands follow."""
_SSH_FLAG = re.compile(r"-[a-zA-Z]*[bcDEeFIiJLlmOopQRSWw]")
_CODE_MODULES = frozenset(
    {
        "asyncio",
        "ptpython",
        "timeit",
        "pdb",
        "code",
        "IPython",
        "cProfile",
        "profile",
        "trace",
        "doctest",
        "bpython",
    }
)
"""Modules of Python that run code in their arguments."""
_INTERACTIVE_WORD = re.compile(
    r"-[A-Za-z0-9]*[iad][A-Za-z0-9:]*|--(?:inter\w*|repl|debug|shell|persist|load|init)|(?:-m)?i?pdb|-mcode|code"
    r"|repl|inspect|debug|console"
)
"""Words with which interpreters read code from their input in addition to what they were given."""
_DEBUGGING_WORD = re.compile(r"-[A-Za-z0-9]*d[A-Za-z0-9:]*|-r(?:debug|irb|pry|byebug)")
"""The same for languages whose flag -i changes files."""
_INPUT_FILE = re.compile(r"/dev/(?:stdin|fd/)|/proc/[^/]+/fd/")
_PLAIN_FILE = re.compile(r"-?-?[\w./-]+")
_PIPING = frozenset({"pipe-pane", "pipep"})
_LOADERS = ("ld-linux", "ld-musl", "ld.so")
_COPIERS = COPYING_COMMANDS | {"install", "rsync"}
_MAX_OPERANDS = 12
_PROGRAM_FILE = re.compile(r"/(?:\S*/)?s?bin/[^/\s]+")
_COMMAND_FLAG = re.compile(
    r"--?[\w.-]*(?:cmd|command|exec|editor|pager|program|shell|tool|viewer|browser|wrapper|hook|config|option"
    r"|python|interpreter|compiler|linker|binary|runner|launcher|helper|askpass|plugin|driver|\bbin\b|\bgit\b|\bnode\b)"
    r"[\w.-]*(?:=(.*))?",
    re.DOTALL | re.IGNORECASE,
)
"""Flags whose value may be a command, or a setting that holds one, of programs that otherwise run none."""
_RUNNING_FLAG = re.compile(r"--?[\w.-]*(?:cmd|command|exec|editor|pager|program|shell|wrapper|hook)[\w.-]*")
"""Flags whose value is a command, so one that is known only at run time may be any."""
_CLIENTS = frozenset(
    """
    docker podman nerdctl kubectl helm gh glab aws gcloud az terraform cargo npm pnpm yarn bun uv poetry conda
    mamba snap systemctl go pip pip3
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs of services and packages, some of whose options pass a command on."""
_PROSE_FLAG = re.compile(
    r"-[mbtFndlHqf]|--(?:message|body|title|notes|description|label|annotations?|subject|comment|reason|summary|jq"
    r"|filter|query|format|template|header|search|author|name|tags?|output|file|set)[\w-]*"
)
"""Flags whose value is prose or a filter, not a command."""
_SCRIPT_RUNNERS = frozenset({"npm", "pnpm", "yarn", "bun"})
"""Package managers that run a word which is neither a subcommand nor a script as a program."""
_PACKAGE_SUBCOMMANDS = frozenset(
    """
    add audit cache ci config create dedupe i info init install link list login logout ls outdated pack
    publish remove rm search test tst uninstall unlink up update upgrade version view whoami why
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Subcommands of all of them that run no program named by their operands."""
_MAX_SCRIPT_START = 4
"""Operands before that program, as in `yarn workspaces foreach run PROGRAM`."""
_CLIENT_TEXT = re.compile(r"[=,\[\]{}\"']+")
_RECIPE_SUBCOMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), frozenset({"build", "buildx", "bake", "compose", "stack"})
    ),
    "kubectl": frozenset({"apply", "create", "replace", "patch"}),
}
"""Subcommands that read from their input what a container runs."""
_SETTING_SUBCOMMANDS = frozenset({"config", "conf", "alias", "set", "env", "c"})
"""Subcommands that change settings; a later call may run the value."""


def find_run_text(
    name: str, words: Sequence[ShellWord], script: str, *, is_runner: bool
) -> tuple[str | None, ...]:
    """Return text that a command may run; None in it is known only at run time.

    `script` is the whole command line, which may hold the input of the command; `is_runner` means that its
    flags are known to run something.
    """
    base_name = name[name.rfind("/") + 1 :]
    if is_runner:
        return _find_flag_commands(base_name, words, script)
    if (
        base_name in COMMAND_RUNNERS
        or (name != base_name and (base_name in WRAPPERS or base_name in SHELLS))
        or base_name.startswith(_LOADERS)
        or any(word.value in RUNNING_SUBCOMMANDS.get(base_name, ()) for word in words)
    ):
        return _find_runner_commands(base_name, words, script)
    if base_name in _COPIERS:
        # A program that is only known at run time may be named elsewhere in the line.
        return tuple(script.strip() if word.value is None else word.value for word in words)
    if base_name in INTERPRETERS or base_name.startswith("python"):
        return _find_interpreter_code(base_name, words, script)
    if base_name in WRITING_COMMANDS:
        return ()
    if base_name in NOT_RUNNING_COMMANDS:
        given = _find_setting_commands(base_name, [word.value for word in words], script)
        return (*given, script.strip()) if may_read_settings(words, script) else given
    # Any other program may be a wrapper of its first operand, of words after `--`, or of text after a flag.
    values = [word.value or "" for word in words]
    operands = [value for value in values if _OPERAND.match(value)]
    after = [values[index] for index in range(1, len(values)) if _BEFORE_COMMAND.fullmatch(values[index - 1])]
    if operands and _is_running_program(operands[0]):
        inner = expand_inner_words(values, has_input=_has_input(script))
        return (*(word.value for word in words), script.strip(), *inner)
    attached = [value.partition("=")[2] for value in values if value.startswith("-") and "=" in value]
    texts = [value for value in values if " " in value.strip()]
    streams = (script.strip() for _ in (1,) if _may_get_text(base_name, words, script))
    names = (
        *filter(_PROGRAM_NAME.fullmatch, operands[1:_MAX_OPERANDS]),
        *filter(_PROGRAM_FILE.fullmatch, operands[1:]),
    )
    unknown = (
        None
        for flag, word in pairwise(words)
        if word.value is None and not word.stream and _CODE_FLAG.fullmatch(flag.value or "")
    )
    computed = (text for text in dict.fromkeys((*after, *attached, *texts)) if _COMPUTED_COMMAND.search(text))
    inner = tuple(each for text in computed for each in expand_inner_text(text))
    first_words = (text.split()[0] for text in texts)
    calls = filter(_CALLING_TEXT.search, values)
    return (*operands[:1], *names, *after, *attached, *first_words, *streams, *inner, *calls, *unknown)


def _may_get_text(name: str, words: Sequence[ShellWord], script: str) -> bool:
    """Return True if a program may read text of the command line: nobody knows what it does with it."""
    start = script.find(name)
    return any(word.stream for word in words) or "<" in script or "|" in script[: max(start, 0) or None]


def may_read_settings(words: Sequence[ShellWord], script: str) -> bool:
    """Return True if text of the command line may be a file of settings, which may name programs."""
    is_named = any(word.stream for word in words) or "<(" in script or _INPUT_FILE.search(script) is not None
    return is_named and _has_input(script)


def _find_setting_commands(name: str, values: Sequence[str | None], script: str) -> tuple[str | None, ...]:
    """Return the values of flags and settings with which a program runs a command now or later."""
    if name == "git":
        return ()
    found: list[str | None] = []
    for index, value in enumerate(values):
        match = _COMMAND_FLAG.fullmatch(value or "")
        if match is not None:
            found += (match[1],) if match[1] is not None else values[index + 1 : index + 2]
    if not _SETTING_SUBCOMMANDS.isdisjoint(values[:2]):
        found += values[1:]
    if name in _CLIENTS:
        found += _list_client_texts(name, values, script)
    pieces = [each for value in values for each in (value or "").split("=")]
    found += [each for each in pieces if _PROGRAM_FILE.fullmatch(each)]
    texts = [each.partition("=")[2].lstrip("!") for each in found if each]
    is_computed = any(
        value is None and _RUNNING_FLAG.fullmatch(flag or "") for flag, value in pairwise(values)
    )
    return tuple(dict.fromkeys((*filter(None, (*found, *texts)), *((None,) if is_computed else ()))))


def _list_client_texts(name: str, values: Sequence[str | None], script: str) -> list[str]:
    """Return the words of a client that a service or a container may run, and its input if it is a recipe."""
    found: list[str] = []
    previous = ""
    for index, value in enumerate(values):
        if value == "--":
            found += filter(None, values[index + 1 :])
            break
        is_prose = _PROSE_FLAG.fullmatch(previous) or _PROSE_FLAG.fullmatch((value or "").partition("=")[0])
        if value and not is_prose and (" " in value or "=" in value or "," in value):
            found += (value, *_CLIENT_TEXT.split(value))
        previous = value or ""
    if name in _SCRIPT_RUNNERS:
        operands = [value for value in values if value and not value.startswith("-")]
        if operands and operands[0] not in _PACKAGE_SUBCOMMANDS:
            found += (shlex.join(operands[start:]) for start in range(min(len(operands), _MAX_SCRIPT_START)))
    has_recipe = not _RECIPE_SUBCOMMANDS.get(name, frozenset()).isdisjoint(values)
    if has_recipe and any((value or "").endswith("-") for value in values):
        found.append(script.strip())
    return found


def _find_flag_commands(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    """Return the text that a program runs because of its flags."""
    values = [word.value for word in words]
    attached_values = (value[2:] for value in values if value and value[0] == "-")
    given: tuple[str | None, ...] = ()
    if name in INTERPRETERS or name.startswith("python"):
        given = _find_interpreter_code(name, words, script)
    if not (name == "git" and any(_PLAIN_GIT_SETTING.fullmatch(value or "") for value in values)):
        given += expand_inner_words(values, has_input=True, are_flags_commands=True)
    if name == "git" and any(
        _GIT_HELPER_SETTING.fullmatch(value or "") or value == "--config-env" for value in values
    ):
        given += (None,)
    parts = (each for value in values for each in (value or "").split(",")) if name in _COMPILERS else ()
    streams = (script.strip(),) if may_read_settings(words, script) else ()
    return (*values, *attached_values, *given, *parts, *streams)


def _find_runner_commands(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    """Return the text that a program which runs other programs may run."""
    values = [word.value for word in words]
    has_input = _has_input(script) or name == "socat" or not _PIPING.isdisjoint(values)
    found: list[str | None] = [*values, script.strip(), *expand_inner_words(values, has_input=has_input)]
    if has_input and _runs_its_input(name, values):
        found.append(None)
    if name in _DEBUGGERS and any(value and may_run_programs(name, value) for value in values):
        found.append(None)
    if name in _CODE_RUNNERS and any(value and value[:1] != "-" for value in values):
        found.append(None)
    if name == "cmake" and any((value or "").startswith("remove") for value in values):
        found.append("rm")
    if name == "parallel" and any(value and "{=" in value for value in values):
        found.append(None)
    return tuple(found)


def _has_input(script: str) -> bool:
    return "|" in script or "<" in script


def _runs_its_input(name: str, values: Sequence[str | None]) -> bool:
    """Return True if a program that got no command runs what it reads."""
    if name in ("at", "batch"):
        return not any(value and value.startswith(("-f", "--f")) for value in values)
    if name == "crontab":
        return not any(value and value[:1] != "-" for value in values)
    limit = _OPERANDS_BEFORE_COMMAND.get(name)
    if limit is None:
        return False
    operands, rest = 0, iter(values)
    for value in rest:
        if name == "ssh" and value and _SSH_FLAG.fullmatch(value):
            next(rest, None)
        elif name == "parallel" and value is not None and (value.startswith(":::") or "{" in value):
            # A command that begins with a value of the list.
            return operands == 0
        elif value is None or value == "-" or value[:1] != "-":
            operands += 1
    return operands <= limit


def _is_running_program(name: str) -> bool:
    base_name = name[name.rfind("/") + 1 :]
    return base_name in SHELLS or base_name in WRAPPERS or base_name in INTERPRETERS


def _list_input_code(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    """Return the whole command line if the program reads code from its input."""
    if name in _MAKES:
        is_input = any(word.stream or word.value in ("-", "-f-", "/dev/stdin") for word in words)
        has_code = is_input or any((word.value or "").startswith(("--ev", "-E")) for word in words)
        # A variable of make may be any part of a command.
        computed = (None,) if has_code and "$" in script else ()
        return (script.strip(), *computed) if has_code else ()
    if name in _SEDS and _reads_sed_input(words):
        return (script.strip(), None)
    has_file = any(
        (not word.may_be_flag and not word.stream and word.value not in ("-", "/dev/stdin"))
        or (_ATTACHED_CODE.match(word.value or "") and (name in LANGUAGES or name.startswith("python")))
        for word in words
    )
    is_input_named = any(_INPUT_FILE.search(word.value or "") for word in words)
    if name not in AWKS and name not in _SEDS:
        # Text in the command line itself is there to be read, whatever else is given.
        interactive = _DEBUGGING_WORD if name.startswith(("perl", "ruby")) else _INTERACTIVE_WORD
        is_input_named = (
            is_input_named
            or "<<" in script
            or "PYTHONINSPECT" in script
            or any(interactive.fullmatch(word.value or "") for word in words)
        )
    return () if has_file and not is_input_named and name not in _INPUT_EDITORS else (script.strip(),)


def _reads_sed_input(words: Sequence[ShellWord]) -> bool:
    """Return True if sed reads a script that is no file."""
    for index, word in enumerate(words):
        match = _SED_FILE_FLAG.fullmatch(word.value or word.prefix)
        if match is None:
            continue
        file = words[index + 1] if not match[1] and index + 1 < len(words) else None
        value = match[1] or (file.value if file is not None else None)
        if value is None or value == "-" or value.startswith(("/dev/", "/proc/")) or (file and file.stream):
            return True
    return False


def _may_module_run(name: str, words: Sequence[ShellWord], script: str) -> bool:
    """Return True if a module that a flag names may run programs."""
    if name.startswith("perl"):
        modules = (_PERL_MODULE_FLAG.match(word.value or "") for word in words)
        return any(match is not None and not is_plain_perl_module(match[1]) for match in modules)
    return name.startswith("python") and _may_python_module_run(words, script)


def _may_python_module_run(words: Sequence[ShellWord], script: str) -> bool:
    """Return True if Python runs a module that takes code as an argument or from its input."""
    values = [word.value or "" for word in words]
    for index, value in enumerate(values):
        if value.startswith("-m"):
            module, rest = (
                (value[2:], values[index + 1 :]) if value != "-m" else (*values[index + 1 : index + 2], [])
            )
            rest = rest or values[index + 2 :]
            if module not in _CODE_MODULES:
                return False
            codes = [each for each in rest if not _PLAIN_FILE.fullmatch(each)]
            return any(may_run_programs("python", each) for each in codes) or (
                not rest and _has_input(script)
            )
    return False


def _may_input_run(name: str, script: str) -> bool:
    """Return True if code that an interpreter reads may run a program whose name it computes."""
    bodies = [match["body"] for match in _HERE_DOCUMENT.finditer(script)]
    if bodies:
        return any(may_run_programs(name, textwrap.dedent(body)) for body in bodies)
    return _has_input(script) and (name in LANGUAGES or may_run_programs(name, script))


def _is_unknown_code(name: str, word: ShellWord, *, is_code: bool) -> bool:
    """Return True if a word that is known only at run time is code that may run a command."""
    if not is_code or not word.prefix:
        return is_code
    if name in _SEDS:
        return False
    return name not in AWKS or AWK_RUNS.search(word.prefix) is not None


def _find_interpreter_code(name: str, words: Sequence[ShellWord], script: str) -> tuple[str | None, ...]:
    code: list[str | None] = list(_list_input_code(name, words, script))
    is_program = name in AWKS or name in _SEDS
    if code and not is_program and name not in _MAKES and _may_input_run(name, script):
        code.append(None)
    for index, word in enumerate(words):
        is_code = index > 0 and _CODE_FLAG.fullmatch(words[index - 1].value or "") is not None
        if word.value is None:
            if _is_unknown_code(name, word, is_code=is_code or (is_program and index == 0)):
                code.append(None)
            elif index == 0:
                # A script that is found by its name, as in `node $(which npm)`.
                code.append(script.strip())
        elif name in AWKS:
            code.extend(_list_awk_commands(word.value))
        elif name in _SEDS:
            script_text = get_sed_script(word.value)
            if script_text and not is_harmless_sed_script(script_text):
                code.extend(_list_sed_commands(script_text))
        else:
            code.append(word.value)
            code.extend(_list_word_code(name, word.value, is_code=is_code))
    if _may_module_run(name, words, script):
        code.append(None)
    return tuple(code)


def _list_awk_commands(program: str) -> list[str | None]:
    code: list[str | None] = [program] if AWK_RUNS.search(program) else []
    for match in _AWK_PLAIN_COMMAND.finditer(program):
        code.extend(expand_inner_text(_AWK_STRING.findall(match[0])[0]))
    is_computed = AWK_RUNS.search(_AWK_PLAIN_COMMAND.sub("", program)) is not None
    return [*code, None] if is_computed or _AWK_SHELL.search(program) else code


def _list_sed_commands(script: str) -> list[str | None]:
    code: list[str | None] = [script, None] if _SED_RUNS_LINES.search(script) else [script]
    return [*code, *(each for text in SED_COMMAND.findall(script) for each in expand_inner_text(text))]


def _list_word_code(name: str, value: str, *, is_code: bool) -> tuple[str | None, ...]:
    """Return what a word of an interpreter may run beyond its own text."""
    if name in _MAKES:
        return (None,) if "$" in value else ()
    attached = None if is_code else _ATTACHED_CODE.fullmatch(value)
    given = value if is_code or name in EXPRESSION_RUNNERS else attached[1] if attached else ""
    inner = expand_inner_words([value], has_input=True) if value[:1] == "+" else ()
    return (*inner, None) if given and may_run_programs(name, given) else inner
