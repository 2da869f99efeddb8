"""Scripts that one part of a command line writes and another part runs, for rules that forbid commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from shoal.policy.program_names import get_plain_name
from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand
from shoal.policy.shell.inner_commands import LANGUAGES, expand_inner_text
from shoal.policy.shell.interpreter_code import may_run_programs, may_write_files
from shoal.policy.shell.known_commands import COMMAND_RUNNERS, INTERPRETERS
from shoal.policy.shell.shell_syntax import UnjudgeableCommandError, parse_shell_command
from shoal.policy.shell.simple_commands import UNKNOWN_PATH, shell_home
from shoal.policy.shell.small_languages import AWKS
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

_PRINTERS = frozenset({"echo", "printf", "cat", "tee"})
"""Programs whose output is text of the command line, unless they read a file or convert something."""
_PLAIN_PARTS = _PRINTERS | frozenset(
    """
    cd mkdir touch chmod chown true false : test [ [[ set export unset pwd sleep exit wait trap pushd popd ls
    mkfifo mknod git umask source . sudo
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Commands that write no text into a file which another command writes."""
_BUILDERS = frozenset(
    """
    gcc g++ cc c++ clang clang++ c99 c89 rustc go javac ghc ocamlc ocamlopt swiftc kotlinc nim zig gfortran ld
    as tsc esbuild nasm fpc dmd gdc ldc2 crystal valac
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that build another program; an existing source is as good as an existing script."""
_RUNNERS = (
    SHELLS | LANGUAGES | COMMAND_RUNNERS | frozenset(WRAPPERS) | {"source", ".", "make", "gmake", "exec"}
)
_COMPUTED_TEXT = re.compile(r"%[^%]|\\[^n\\]")
"""Conversions and escapes in the words of `printf` and `echo -e`."""
_DOWNLOADERS = frozenset({"curl", "wget", "aria2c"})
_GIT_FILE = re.compile(r"(?:^|/)\.git/|\.gitconfig$|\.husky/|/hooks/")
_SED_WRITES = re.compile(r"(?:^|[;{}\n/0-9gpI])\s*w\s*\S")
_AWK_WRITES = re.compile(r"print[^;}\n]*>")
_MAKEFILES = frozenset({"Makefile", "makefile", "GNUmakefile"})
_PACKAGE_FILES = frozenset({"package.json", ".npmrc", ".yarnrc", ".yarnrc.yml"})
_PACKAGE_SETTERS = frozenset({"pkg", "config", "c"})
_IMPLICIT_SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("make", "gmake"), _MAKEFILES),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun"), _PACKAGE_FILES),
    **dict.fromkeys(("pytest", "py.test"), frozenset({"conftest.py", "pytest.ini", "tox.ini"})),
    "just": frozenset({"justfile", "Justfile", ".justfile"}),
    "task": frozenset({"Taskfile.yml", "Taskfile.yaml"}),
    "rake": frozenset({"Rakefile"}),
    "tox": frozenset({"tox.ini"}),
    "nox": frozenset({"noxfile.py"}),
    "cargo": frozenset({"build.rs"}),
    "pre-commit": frozenset({".pre-commit-config.yaml"}),
    "direnv": frozenset({".envrc"}),
    "vagrant": frozenset({"Vagrantfile"}),
}
"""Files that programs run without being told."""
_SYSTEM_DIRECTORIES = ("/bin/", "/usr/", "/sbin/", "/opt/")


def add_written_scripts(analysis: ShellCommandAnalysis, command: str, home: str) -> ShellCommandAnalysis:
    """Return the analysis with the text of scripts that one part of the line writes and another one runs."""
    token = shell_home.set(home)
    try:
        return _add_written_scripts(analysis, command)
    finally:
        shell_home.reset(token)


def _add_written_scripts(analysis: ShellCommandAnalysis, command: str) -> ShellCommandAnalysis:
    parts = analysis.parts
    names = {path.rpartition("/")[2] for part in parts for path in part.writes}
    names.update(name for part in parts for name in _iter_downloaded_names(part))
    package_writers = [_sets_package_script(part) for part in parts]
    writes_any = any(map(_may_write_any_file, parts)) or any(
        path.startswith(UNKNOWN_PATH) for part in parts for path in part.writes
    )
    if not names and not writes_any and not any(package_writers):
        return analysis
    printed_texts = _list_printed_texts(parts, command)
    found: list[SimpleShellCommand] = []
    for index, part in enumerate(parts):
        code: tuple[str | None, ...] = ()
        own_names = {path.rpartition("/")[2] for path in part.writes}
        run_names = names - own_names
        if any(package_writers) and not package_writers[index]:
            run_names = run_names | _PACKAGE_FILES
        if _names_file(part, run_names):
            code = (command, *_find_script_code(parts, index, run_names, command))
        elif not part.read_only and _runs_implicitly(part, parts, run_names):
            code = (command, None)
        elif writes_any and _runs_any_file(part) and len(parts) > 1:
            code = (None,)
        elif run_names and not part.read_only and _get_program(part) not in _PLAIN_PARTS:
            # It may read a file that it does not name, such as `sitecustomize.py` or `configure.ac`.
            code = tuple(printed_texts)
        found.append(replace(part, code=(*part.code, *code)) if code else part)
    return replace(analysis, parts=tuple(found))


def _list_printed_texts(parts: Iterable[SimpleShellCommand], command: str) -> list[str]:
    """Return the texts that the line writes into files."""
    if "<<" in command:
        return [command]
    writers = [part for part in parts if part.writes and _get_program(part) in _PRINTERS]
    return [word for part in writers for word in part.words[1:] if word]


def iter_written_texts(
    analysis: ShellCommandAnalysis, command: str
) -> Iterator[tuple[SimpleShellCommand, str]]:
    """Yield each part that names a file which the line writes, with the text that it puts into files."""
    writers = [part for part in analysis.parts if part.writes and _get_program(part) in _PRINTERS]
    if not writers:
        return
    names = {path.rpartition("/")[2] for part in writers for path in part.writes}
    texts = [word for part in writers for word in part.words[1:] if word]
    if "<<" in command or "|" in command:
        texts = [command]
    for part in analysis.parts:
        if part not in writers and _names_file(part, names):
            yield from ((part, text) for text in texts)


def _find_script_code(
    parts: tuple[SimpleShellCommand, ...], index: int, names: set[str], command: str
) -> tuple[str | None, ...]:
    """Return the commands of a script that a part runs; None if its text is not in the command line."""
    runner = parts[index]
    if not _is_runner(runner, names):
        return ()
    others = [part for place, part in enumerate(parts) if place != index]
    used = {word.rpartition("/")[2] for word in runner.words if word}
    writers = [part for part in others if _writes_name(part, used)]
    if any(map(_is_builder, writers)):
        return ()
    if any(
        part.words and (_get_program(part) not in _PRINTERS or _computes_text(part)) for part in writers
    ) or any(part.words and _computes_text(part) and not _is_runner(part, names) for part in others):
        return (None,)
    return tuple(_iter_script_commands(runner, others, command))


def _iter_script_commands(
    runner: SimpleShellCommand, others: list[SimpleShellCommand], command: str
) -> Iterator[str | None]:
    program = get_plain_name(_get_program(runner))
    try:
        heredocs = parse_shell_command(command).heredocs if "<<" in command else ()
    except UnjudgeableCommandError:
        yield None
        return
    texts: list[str | None] = [each.text for each in heredocs]
    for part in others:
        if _get_program(part) in ("echo", "printf"):
            texts += [" ".join(word for word in part.words[1:] if word and word not in ("-e", "-n", "-ne"))]
    for text in texts:
        if text is None:
            yield None
        elif program in LANGUAGES or program.startswith("python") or "import " in text:
            if may_run_programs(program if program in LANGUAGES else "python", text):
                yield None
        else:
            yield from expand_inner_text(text.replace("\\n", "\n"))


def _get_program(part: SimpleShellCommand) -> str:
    program = (part.words[0] if part.words else "") or ""
    return program[program.rfind("/") + 1 :]


def _writes_name(part: SimpleShellCommand, names: set[str]) -> bool:
    written = {path.rpartition("/")[2] for path in part.writes} | set(_iter_downloaded_names(part))
    return not names.isdisjoint(written)


def _iter_downloaded_names(part: SimpleShellCommand) -> Iterator[str]:
    if _get_program(part) in _DOWNLOADERS:
        yield from (word.rstrip("/").rpartition("/")[2] for word in part.words[1:] if word and "/" in word)


def _sets_package_script(part: SimpleShellCommand) -> bool:
    """Return True for `npm pkg set` and similar commands, which write scripts or settings of a package."""
    words = part.words[1:]
    if _get_program(part) not in ("npm", "pnpm", "yarn", "bun"):
        return False
    is_setting = "set" in words and not _PACKAGE_SETTERS.isdisjoint(words)
    return is_setting or "set-script" in words or words[:1] == ("set",) or None in words[:3]


def _is_builder(part: SimpleShellCommand) -> bool:
    return _get_program(part) in _BUILDERS


def _computes_text(part: SimpleShellCommand) -> bool:
    """Return True if a command writes text that is not in its words as it is."""
    if not part.words:
        return False
    name = _get_program(part)
    if name not in _PLAIN_PARTS:
        return not _is_builder(part)
    if name in ("cat", "tee"):
        has_file = name == "cat" and any(not (word or "-x").startswith("-") for word in part.words[1:])
        return has_file or bool(part.reads)
    if name not in _PRINTERS:
        return False
    return None in part.words or any(_COMPUTED_TEXT.search(word or "") for word in part.words[1:])


def _names_file(part: SimpleShellCommand, names: set[str]) -> bool:
    return not part.read_only and any(word.rpartition("/")[2] in names for word in part.words if word)


def _is_runner(part: SimpleShellCommand, names: set[str]) -> bool:
    """Return True if a part runs one of the files as a program or a script."""
    program = _get_program(part)
    return bool(part.via) or program in names or program in _RUNNERS or program.startswith("python")


def _runs_implicitly(
    part: SimpleShellCommand, parts: tuple[SimpleShellCommand, ...], names: set[str]
) -> bool:
    """Return True if a part runs a file of the line that it does not name, such as a Makefile or a hook."""
    program = _get_program(part)
    if program == "git":
        return any(_GIT_FILE.search(path) for each in parts for path in each.writes)
    return not _IMPLICIT_SCRIPTS.get(program, frozenset()).isdisjoint(names)


def _runs_any_file(part: SimpleShellCommand) -> bool:
    """Return True if a part runs a script or a program that is not one of the system."""
    program = (part.words[0] if part.words else "") or ""
    name = _get_program(part)
    if part.read_only or not program:
        return False
    if "/" in program and not program.startswith(_SYSTEM_DIRECTORIES):
        return True
    operands = [word for word in part.words[1:] if word is None or word[:1] != "-"]
    if name in ("make", "gmake"):
        return True
    is_script = name in SHELLS or name in ("source", ".") or name in LANGUAGES or name.startswith("python")
    has_code = any(word in ("-c", "-e", "-m", "-r", "-p") for word in part.words[1:])
    return is_script and bool(operands) and not has_code


def _may_write_any_file(part: SimpleShellCommand) -> bool:
    """Return True if code in the words or the input of a part may write a file that no word names."""
    name = _get_program(part)
    if part.read_only or not (name in INTERPRETERS or name.startswith("python")):
        return False
    texts = [word for word in (*part.words[1:], *part.code) if word]
    if name in ("sed", "gsed"):
        return any(map(_SED_WRITES.search, texts))
    if name in AWKS:
        return any(map(_AWK_WRITES.search, texts))
    if name in LANGUAGES or name.startswith("python"):
        has_code = any(word.startswith(("-c", "-e", "-E", "-r", "-p", "-n", "-")) for word in texts)
        return has_code and any(may_write_files(text) for text in texts)
    return name in ("ed", "ex", "vi", "vim", "nvim", "emacs", "sqlite3")
