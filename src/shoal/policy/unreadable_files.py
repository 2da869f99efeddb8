"""Files that rules make unreadable, for tools and commands that search whole directories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from shoal.policy.case_insensitive_paths import ForbiddingPathPattern, is_same_or_below
from shoal.policy.path_patterns import (
    convert_path_pattern_to_regex,
    deepen_forbidding_pattern,
    find_path_pattern_anchor,
)
from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.shell.known_commands import COMMAND_RUNNERS, INTERPRETERS, WRITING_COMMANDS
from shoal.policy.shell.shell_words import FOUND_PATHS
from shoal.policy.shell.simple_commands import UNKNOWN_PATH, SimpleShellCommand
from shoal.policy.shell.small_languages import AWKS, list_sed_files
from shoal.policy.wildcards import GLOB, MAX_ENTRIES, TooManyDirectoryEntriesError

WORKING_DIRECTORY = ""
"""The directory that a command runs in, which a preceding `cd` may have changed."""
_MAX_HIDDEN = 5_000
_RECURSIVE = re.compile(r"-[A-Za-z0-9]*[rR].*|--r.*|--de.*|--di.*|-[A-Za-z0-9]*d.*")
_SEARCHERS = frozenset(
    {"ag", "ack", "ugrep", "ug", "sift", "pt", "tig", "gitk", "lazygit", "gitui", "qgit", "gitg", "magit"}
)
"""Programs that search directories unless told otherwise."""
_DIRECTORY_COPIERS = frozenset({"cp", "mv", "install", "rsync", "scp", "ln"})
"""Programs that copy their operands to the last one."""
_TARGET_FLAG_PROGRAMS = frozenset({"cp", "mv", "install", "ln"})
"""Those that copy all of them with -t, which names the directory; elsewhere it means something else."""
_ARCHIVERS = frozenset(
    """
    tar bsdtar gtar star zip 7z 7za 7zr 7zz rar cpio pax ar jar dar borg restic rclone duplicity gzip pigz
    bzip2 xz zstd lz4 split sftp lftp
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that put the files below their operands into another file."""
_LISTED_FILES = re.compile(r"-[A-Za-z]*[T@].*|--files-from.*|--include-from.*|@.*|--null")
"""Flags with which an archiver takes the names of files from a list."""
_WHOLE_DIRECTORY_ARCHIVERS = frozenset({"7z", "7za", "7zr", "7zz", "rar", "sftp", "lftp"})
DIRECTORY_TOOLS = frozenset(
    """
    git hg svn pytest ruff black isort flake8 mypy pyright pylint bandit pyflakes autopep8 yapf vulture radon
    eslint prettier tsc jest vitest mocha biome oxlint stylelint tslint standard rome nyc c8 ava playwright
    cargo rustfmt go gofmt golangci-lint staticcheck gopls make gmake cmake ctest ninja meson gradle gradlew
    mvn mvnw bazel buck sbt npm pnpm yarn bun pip pip3 uv poetry pdm hatch tox nox pre-commit unittest venv
    virtualenv compileall coverage doctest django manage.py sphinx-build mkdocs hugo jekyll swift dotnet mix
    bundle rake rspec rubocop composer phpunit phpstan phpcs shellcheck hadolint yamllint markdownlint
    clang-format clang-tidy cppcheck vite webpack rollup esbuild next nuxt astro svelte-kit ng nx turbo lerna
    terraform tofu tflint helm ansible-lint find fd fdfind ls du stat tree chmod chown chgrp mkdir rmdir code
    cursor idea subl cd pushd test [ [[ file realpath basename dirname df sync watchman lsof fuser
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that work with a directory and do not show or copy the files in it."""
_DIRECTORY_LISTERS = frozenset(
    {"echo", "printf", "export", "set", "kill", "sleep", "which", "type", "true", "exit"}
)
_REMOTE_RUNNERS = frozenset({"ssh", "mosh", "sshpass", "autossh"})
_DIRECTORY_WORD = re.compile(r"[^\s'\"`;|&<>(){}$*?\[]+")
CONTAINER_PROGRAMS = frozenset({"docker", "podman", "buildah", "nerdctl"})
_CONTEXT_SUBCOMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(CONTAINER_PROGRAMS, frozenset({"build", "buildx", "cp", "compose"})),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "cargo"), frozenset({"pack", "package", "publish"})),
    **dict.fromkeys(
        (
            "fly",
            "flyctl",
            "vercel",
            "netlify",
            "firebase",
            "eb",
            "sam",
            "serverless",
            "sls",
            "wrangler",
            "vsce",
        ),
        frozenset({"deploy", "package", "publish", "push", "build", "--prod"}),
    ),
    **dict.fromkeys(("railway", "cf", "kamal", "cdk", "surge"), frozenset({"deploy", "up", "push"})),
    "heroku": frozenset({"container:push", "builds:create"}),
    "busybox": frozenset({"tar", "cpio", "gzip", "bzip2", "cp", "mv", "ar"}),
    "toybox": frozenset({"tar", "cpio", "gzip", "cp", "mv"}),
    **dict.fromkeys(
        ("aws", "gsutil", "gcloud", "az", "s3cmd", "mc"),
        frozenset({"sync", "cp", "mv", "rsync", "put", "mirror", "deploy", "submit"}),
    ),
}
"""Subcommands that read a whole directory: that of an operand, or the one they run in."""
_FILE_SERVERS: dict[str, frozenset[str]] = {
    "php": frozenset({"-S"}),
    "ruby": frozenset({"-run", "-rwebrick"}),
    "busybox": frozenset({"httpd", "ftpd", "tftpd"}),
    "caddy": frozenset({"file-server"}),
    **dict.fromkeys(("npx", "pnpx", "bunx"), frozenset({"serve", "http-server", "live-server"})),
}
"""Words with which programs serve the files of a directory."""
_IMPLICIT_FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dotenv", "foreman", "honcho", "overmind", "docker-compose"), (".env",)),
    "dotenv-cli": (".env",),
    "direnv": (".envrc", ".env"),
}
"""Files that programs read without being told."""
_LOADING_RUNNERS: dict[str, frozenset[str]] = {
    "pipenv": frozenset({"run", "shell"}),
    "heroku": frozenset({"local", "local:run", "local:start"}),
    "vercel": frozenset({"dev", "env"}),
    "netlify": frozenset({"dev", "dev:exec", "env:list"}),
}
"""Programs that load `.env` into the variables of a command that they run."""
_VARIABLE_PRINTERS = frozenset(
    {"env", "printenv", "set", "export", "declare", "local", "env:list", "sh", "bash"}
)
_MOUNT = re.compile(r"(?:-[a-zA-Z]*v|--volume|--mount)=?(.*)", re.DOTALL)
"""Flags of container programs that let the container read a directory."""
_UNKNOWN_MOUNT = re.compile(r"\s(?:-[a-zA-Z]*v|--volume|--mount)[=\s]*\S*[$`]")
_READ_ONLY_MOUNT = re.compile(r"[:,](?:ro|readonly)(?:[,=]|$)")
_MOUNT_SIGN = re.compile(r"[:,=]")
_LISTED_FILE_READERS = {
    **dict.fromkeys(("sort", "wc", "du"), re.compile(r"--files0")),
    "file": re.compile(r"-[A-Za-z0-9]*f|--fi"),
}
"""Readers that take the names of files from a list, with the flag for it."""
COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "javac"})
"""Programs that take arguments from a file after `@`."""
_DOWNLOAD_SETTINGS = re.compile(r"-[A-Za-z]*K|--config|-i|--input-file")
"""Flags with which a program takes arguments or addresses from a file."""
_LIST_READERS = _ARCHIVERS | _DIRECTORY_COPIERS | {"curl", "wget", "busybox", "toybox"}
_VERSION_CONTROLS = frozenset({"hg", "chg", "svn", "jj", "sl", "bzr", "fossil", "darcs", "cvs", "p4"})
_CONTENT_WORDS = frozenset(
    {"diff", "export", "show", "cat", "annotate", "blame", "praise", "grep", "qdiff", "interdiff", "print"}
    | {"bundle", "archive", "-p", "--patch", "--diff"}
)
"""Words with which other version control systems show or copy what is in files."""
_SEARCHING_PROGRAMS = (
    _LIST_READERS
    | set(_LISTED_FILE_READERS)
    | _SEARCHERS
    | set(_CONTEXT_SUBCOMMANDS)
    | {"grep", "egrep", "fgrep", "zgrep", "rg", "git", "diff"}
)
_FLAG_LETTERS = re.compile(r"-[A-Za-z0-9]*")
_DIRECTORY_FLAG = re.compile(r"-C(.*)|--(?:directory|chdir|cwd|dir|work-tree|prefix)(?:=(.*))?", re.DOTALL)
"""Flags that name a directory to which other words are relative."""
_PATH_SEPARATOR = re.compile(r"[=@:,;]")
_VIEWERS = frozenset({"less", "more", "most", "view", "vi", "vim", "nvim", "ed", "ex", "emacs"})
_UNKNOWN_FILE_READERS = frozenset({"jq", "gojq", "man", "openssl", "pandoc", "nano", "bat", "gpg"})
"""Programs that show the files that they are given."""
_CODE_FLAG = re.compile(r"-[a-zA-Z0-9]*[ceEpr]|--(?:eval|print|execute)")
_SEDS = frozenset({"sed", "gsed"})
_COMPUTED_FILE = re.compile(
    r"\b(?:open|readFile|readFileSync|createReadStream|file_get_contents|readfile|Path|File\.read|File\.open|IO\.read)"
    r"\s*\(\s*(?!\)|[rbf]?(['\"])[^'\"+%{$]*\1\s*[,)])|\bfileinput\b"
    r"|make_archive|copytree|\bcp(?:Sync)?\s*\(|dircopy|rcopy|\bcp_r\b|os\.walk|\br?glob\b|iterdir|scandir|listdir"
    r"|\bPath\.(?:home|cwd)\b|read[dD]ir|File::Find|\bDir\b|\bopendir\b|\btarfile\b|\bzipfile\b|\bzipapp\b|RecursiveDirectory"
)
"""Code that opens a file without naming it as one plain text, or all files of a directory."""
_PLAIN_TEXT = r"[rbf]?(?:'[^'+%{$]*'|\"[^\"+%{$]*\")"
COMPUTED_COPY = re.compile(
    r"\b(?:copy|copy2|copyfile|copytree|move|renames?|symlink|link|os\.replace|(?:copyFile|rename|link|symlink)Sync)"
    rf"\s*\(\s*(?!\)|{_PLAIN_TEXT}\s*,\s*{_PLAIN_TEXT}\s*[,)])"
)
"""Code that copies or moves a file without naming both paths as plain texts."""
_PERL_COMPUTED_FILE = re.compile(r"\b(?:sys)?open\b[^;]*(?:\.\s*['\"]|['\"]\s*\.|\$)|@ARGV\s*=")
_LINE_CACHE = re.compile(r"\blinecache\b")
_AWK_COMPUTED_INPUT = re.compile(
    r"getline\b[^<;}\n]*<(?!\s*\"[^\"\\]*\"\s*(?:[;})>&|\n]|$))|\bARG[VC]\b|@include|@load"
)
"""awk code that reads a file whose name is not one plain string."""
_INPUT_TOKEN = re.compile(r"[^\\\s'\"`;|&<>(){}\[\],=@:$]+")
_CODE_SIGN = re.compile(r"[\s{(\['\"]")
"""Characters of a word that may be more than a name: an expression, a query, a template."""
_STREAM_SIGN = re.compile(r"[<|]")
_PATH_END = re.compile(r"[\w})`]\"?/([^\s'\"`;|&<>(){}$*?\[]+)")
_CODE_TOKEN = re.compile(r"[^\s'\"`;|&<>(){}\[\],=@:$]+")


class _UnreadablePathPattern(Struct, frozen=True):
    anchor: str
    exact: bool
    expression: ForbiddingPathPattern
    rule: ToolPermissionRule


class UnreadableFileRules:
    """`rules` have patterns, which are relative to `roots`; in them, `~` means `home`."""

    def __init__(self, rules: Iterable[ToolPermissionRule], roots: Sequence[str], home: str) -> None:
        self._patterns: list[_UnreadablePathPattern] = []
        for rule in rules:
            text = deepen_forbidding_pattern(rule.pattern or "")
            for root in roots:
                anchor, exact = find_path_pattern_anchor(text, root, home)
                expression = ForbiddingPathPattern(convert_path_pattern_to_regex(text, root, home))
                self._patterns.append(_UnreadablePathPattern(anchor, exact, expression, rule))

    def find_rule_below(self, directory: str) -> ToolPermissionRule | None:
        """Return the first rule that matches, or may match, something below the directory."""
        for pattern in self._patterns:
            start = _get_inner_path(directory, pattern.anchor)
            if start is None:
                continue
            try:
                if next(_iter_matching_paths(start, pattern.expression, MAX_ENTRIES), None) is not None:
                    return pattern.rule
            except TooManyDirectoryEntriesError:
                return pattern.rule
        return None

    def find_possible_rule_below(self, directories: Iterable[str]) -> ToolPermissionRule | None:
        """Return the first rule that could match a file under a directory, whether it exists now or not."""
        for directory in directories:
            for pattern in self._patterns:
                if _get_inner_path(directory, pattern.anchor) is not None:
                    return pattern.rule
        return None

    def find_outer_rule(self, directories: Iterable[str]) -> ToolPermissionRule | None:
        """Return the first rule that could match a file outside all of the directories."""
        inside = tuple(f"{each.rstrip('/')}/" for each in directories)
        return next((each.rule for each in self._patterns if not f"{each.anchor}/".startswith(inside)), None)

    def find_rule_for_files(self, paths: Iterable[str]) -> ToolPermissionRule | None:
        """Return the first rule that matches one of the paths."""
        for path in paths:
            for pattern in self._patterns:
                if pattern.expression.fullmatch(path):
                    return pattern.rule
        return None

    def find_rule_for_kind(self, directory: str, endings: tuple[str, ...]) -> ToolPermissionRule | None:
        """Return the first rule that matches a directory below this one, or a file with such an ending."""
        for pattern in self._patterns:
            start = _get_inner_path(directory, pattern.anchor)
            if start is None:
                continue
            try:
                for path in _iter_matching_paths(start, pattern.expression, MAX_ENTRIES):
                    if not endings or path.endswith(endings) or os.path.isdir(path):  # noqa: PTH112 - as below
                        return pattern.rule
            except TooManyDirectoryEntriesError:
                return pattern.rule
        return None

    def iter_unreadable_paths(self) -> Iterator[str]:
        """Yield the topmost existing matches; for an expensive pattern, only those found within the limit."""
        for pattern in self._patterns:
            if pattern.exact:
                yield pattern.anchor
                continue
            try:
                yield from _iter_matching_paths(pattern.anchor, pattern.expression, _MAX_HIDDEN)
            except TooManyDirectoryEntriesError:
                continue


def list_places(part: SimpleShellCommand) -> tuple[str, ...]:
    """Return the directories other than the first that the words of a command may be relative to."""
    places = part.places
    words = part.words or part.argv or ()
    for index, word in enumerate(words):
        if word is None or word[:1] != "-" or (match := _DIRECTORY_FLAG.fullmatch(word)) is None:
            continue
        directory = match[1] or match[2] or (words[index + 1] if index + 1 < len(words) else None)
        places = (*places, *join_places((directory or UNKNOWN_PATH,), places))
    return tuple(place for place in places if place)


def join_places(paths: Iterable[str], places: Iterable[str]) -> list[str]:
    """Return the paths as seen from each of the directories."""
    return [
        f"{place}/{path}" if place and path[:1] != "/" else path for path in paths for place in ("", *places)
    ]


def may_read_other_files(part: SimpleShellCommand) -> bool:
    """Return False if the command certainly reads the files that its words name, and no others."""
    if not part.read_only or part.via:
        return True
    if part.words:
        if get_program_name(part.words) in _SEARCHING_PROGRAMS:
            return True
    elif part.argv:
        return True
    return bool(part.reads) and GLOB.search(" ".join(part.reads)) is not None


def list_searched_directories(part: SimpleShellCommand) -> tuple[str, ...]:
    """Return the directories that a simple command searches or copies, whatever the files are called."""
    words = part.words or part.argv
    if not words:
        return ()
    if "find" in part.via and (
        bases := tuple(find_glob_base(path) for path in part.reads if GLOB.search(path))
    ):
        # Files found by find, at any depth.
        return bases
    if part.reads and (found := [path for path in part.reads if path.endswith(FOUND_PATHS)]):
        return (*map(find_glob_base, found), *(path for path in part.reads if not is_found_path(path)))
    name = get_program_name(words)
    match name:
        case "grep" | "egrep" | "fgrep" | "zgrep" if any(
            word is not None and _RECURSIVE.fullmatch(word) for word in words[1:]
        ):
            return part.reads or (WORKING_DIRECTORY,)
        case "rg" | "rgrep" if words[1:2] != ("--files",):
            return part.reads or (WORKING_DIRECTORY,)
        case "git" if "grep" in words:
            return (WORKING_DIRECTORY,)
        case "diff":
            return part.reads
    found_words = _list_copied_directories(name, words)
    if not found_words and not part.read_only and name not in CONTAINER_PROGRAMS:
        found_words = _list_directory_operands(name, words)
    places = list_places(part) if found_words else ()
    return tuple(join_places(found_words, places)) if places else found_words


def _list_copied_directories(name: str, words: Sequence[str | None]) -> tuple[str, ...]:
    if name in _DIRECTORY_COPIERS:
        return _list_copied_operands(name, words)
    if name in _ARCHIVERS:
        operands = tuple(word for word in words[1:] if word is not None and not word.startswith("-"))
        # Without files they take everything in the directory; `sftp` is told what to send on its input.
        return (
            (*operands, WORKING_DIRECTORY)
            if name in _WHOLE_DIRECTORY_ARCHIVERS and len(operands) < 3
            else operands
        )
    if name in _SEARCHERS or _is_file_server(name, words):
        return (WORKING_DIRECTORY,)
    if name in _VERSION_CONTROLS and not _CONTENT_WORDS.isdisjoint(words[1:]):
        return (WORKING_DIRECTORY,)
    if name in _CONTEXT_SUBCOMMANDS and not _CONTEXT_SUBCOMMANDS[name].isdisjoint(words[1:3]):
        return (WORKING_DIRECTORY,)
    return list_mounted_directories(words) if name in CONTAINER_PROGRAMS else ()


def _list_directory_operands(name: str, words: Sequence[str | None]) -> tuple[str, ...]:
    """Return the words that may be directories which an unknown program copies or shows."""
    values = [word for word in words[1:] if word is not None]
    if name.startswith("python"):
        module = next((values[index + 1] for index in range(len(values) - 1) if values[index] == "-m"), None)
        name = name if module is None else module.partition(".")[0]
    if name in DIRECTORY_TOOLS or name in WRITING_COMMANDS or name in _DIRECTORY_LISTERS | _REMOTE_RUNNERS:
        return ()
    found: list[str] = []
    for value in values:
        found += [value.partition("=")[2]] if value.startswith("-") else [value.removeprefix("file://")]
        if _PATH_SEPARATOR.search(value):
            found += _PATH_SEPARATOR.split(value)
        if name in COMMAND_RUNNERS and " " in value:
            found += value.split()
    return tuple(each for each in found if each and _DIRECTORY_WORD.fullmatch(each))


def _is_file_server(name: str, words: Sequence[str | None]) -> bool:
    """Return True if a program sends the files of its directory to others."""
    if name.startswith("python"):
        return any(
            word in ("http.server", "-mhttp.server", "SimpleHTTPServer", "pyftpdlib") for word in words[1:4]
        )
    return not _FILE_SERVERS.get(name, frozenset()).isdisjoint(words[1:])


def list_mounted_directories(words: Sequence[str | None], *, writable: bool = False) -> tuple[str, ...]:
    """Return the directories that a container can read, or write; those inside it do no harm."""
    found: list[str] = []
    for index, word in enumerate(words):
        if word is None:
            # Perhaps a mount with a variable in it.
            found.append(WORKING_DIRECTORY)
            continue
        if (match := _MOUNT.fullmatch(word)) is None:
            continue
        value = match[1] or (words[index + 1] if index + 1 < len(words) else None)
        if writable and value is not None and _READ_ONLY_MOUNT.search(value):
            continue
        found += [WORKING_DIRECTORY] if value is None else [each for each in _MOUNT_SIGN.split(value) if each]
    return tuple(found)


def _list_copied_operands(name: str, words: Sequence[str | None]) -> tuple[str, ...]:
    """Return the operands that are copied: all except the target."""
    operands: list[str] = []
    has_target = False
    values = iter(words[1:])
    for word in values:
        if word is None or not word.startswith("-"):
            operands.append(word or "")
        elif name in _TARGET_FLAG_PROGRAMS:
            if word in ("-t", "--target-directory") or re.fullmatch(r"-[a-zA-Z]*t", word):
                has_target = True
                next(values, None)
            elif word.startswith("--t"):
                has_target = True
    return tuple(word for word in (operands if has_target else operands[:-1]) if word)


def reads_listed_files(part: SimpleShellCommand) -> bool:
    """Return True if the command takes the names of the files that it copies from a list or its input."""
    words = part.words or part.argv or ("",)
    name = get_program_name(words)
    if name in _LISTED_FILE_READERS:
        return any(word is not None and _LISTED_FILE_READERS[name].match(word) for word in words[1:])
    if name in COMPILERS:
        return any(word is not None and word.startswith("@") for word in words[1:])
    if None in words and (name in _UNKNOWN_FILE_READERS or "blame" in words or "annotate" in words):
        return True
    if name in CONTAINER_PROGRAMS and None in words and _UNKNOWN_MOUNT.search(part.text):
        return True
    if name not in _LIST_READERS:
        return False
    if name in ("cpio", "pax") or "cpio" in words[1:2]:
        return True
    if name in ("curl", "wget"):
        return None in words or any(_DOWNLOAD_SETTINGS.match(word or "") for word in words[1:])
    return any(word is None or _LISTED_FILES.fullmatch(word) for word in words[1:])


def has_unknown_code(words: Sequence[str | None]) -> bool:
    """Return True if the code after a flag of an interpreter is known only at run time."""
    return any(
        word is None and flag is not None and _CODE_FLAG.fullmatch(flag) for flag, word in pairwise(words)
    )


def reads_computed_files(part: SimpleShellCommand) -> bool:
    """Return True if code in the words of an interpreter opens files whose names it computes."""
    words = part.words or part.argv or ("",)
    name = get_program_name(words)
    if not (name in INTERPRETERS or name.startswith("python")):
        return False
    if None in words and (has_unknown_code(words) or name in _VIEWERS or "json.tool" in words[1:4]):
        return True
    texts = [word for word in (*words[1:], *part.code) if word is not None]
    if name in _SEDS and None in part.code:
        return True
    if name in AWKS:
        return any(map(_AWK_COMPUTED_INPUT.search, texts))
    patterns = (_COMPUTED_FILE, COMPUTED_COPY, _LINE_CACHE) + (
        (_PERL_COMPUTED_FILE,) if name.startswith("perl") else ()
    )
    return any(pattern.search(text) for pattern in patterns for text in texts)


def iter_possible_read_paths(part: SimpleShellCommand) -> Iterator[str]:
    """Yield words that may be paths it reads: of a git command or an unknown command."""
    all_words = part.words or part.argv or ()
    words = [word for word in all_words[1:] if word is not None]
    name = get_program_name(all_words) if all_words else ""
    if name == "git":
        operands = [word for word in words if not word.startswith("-") or ":" in word]
        # As in `-Ffile`, `--exclude-from=file` and `-c core.excludesFile=file`.
        for word in words:
            yield word.partition("=")[2]
            if word[:1] == "-" and word[1:2] != "-":
                yield word[2:]
        for word in operands if operands[:1] != words[:1] else operands[1:]:
            yield word
            # As in `HEAD:file`, `:0:file` and `-L1,5:file`.
            rest = word
            while rest.partition(":")[1]:
                rest = rest.partition(":")[2]
                yield rest
    elif not part.read_only and name not in WRITING_COMMANDS:
        yield from _IMPLICIT_FILES.get(name, ())
        if _shows_loaded_variables(name, words):
            yield ".env"
        # Words with wildcards are unknown if a file name could be taken for a flag.
        wildcards = [word for word in part.text.split() if GLOB.search(word)] if part.globs else []
        yield from iter_input_tokens(part)
        yield from iter_unknown_path_ends(part)
        for word in (*words, *wildcards):
            yield from _iter_paths_in_word(name, word)


def _shows_loaded_variables(name: str, words: Sequence[str]) -> bool:
    """Return True if a program automatically loads `.env` for code or a command that may print it."""
    if any("dotenv" in word for word in words):
        return name in INTERPRETERS or name in COMMAND_RUNNERS or name.startswith("python")
    if name in ("bun", "deno"):
        loads = name == "bun" or any(word.startswith("--env") for word in words)
        return loads and any(_CODE_FLAG.fullmatch(word) or word.startswith("--env") for word in words)
    if name in _LOADING_RUNNERS and not _LOADING_RUNNERS[name].isdisjoint(words[:2]):
        return not _VARIABLE_PRINTERS.isdisjoint(words) or any(map(_CODE_FLAG.fullmatch, words))
    return False


def iter_unknown_path_ends(part: SimpleShellCommand) -> Iterator[str]:
    """Yield the ends of paths that begin with a value which is known only at run time, as `$PWD/.env`."""
    if None in (part.words or part.argv or (None,)):
        for end in _PATH_END.findall(part.text):
            # Most often it is the working directory or the home.
            yield from (end, f"~/{end}")


def _iter_paths_in_word(name: str, word: str) -> Iterator[str]:
    yield word
    # As in `--in=file`, `-d@file`, `-v directory:/mnt` and `-Tfile`.
    if _PATH_SEPARATOR.search(word):
        yield from _PATH_SEPARATOR.split(word)
    if word[:1] == "-" and word[1:2] != "-":
        yield word[2:]
        yield _FLAG_LETTERS.sub("", word, count=1)
    if name in INTERPRETERS or name in COMMAND_RUNNERS or _CODE_SIGN.search(word):
        # A star in code may be anything, such as a product.
        yield from (token for token in _CODE_TOKEN.findall(word) if not GLOB.search(token))
    if name in _SEDS:
        # The commands `rFILE` and `RFILE`.
        yield from (token[1:] for token in _CODE_TOKEN.findall(word) if token[0] in "rR")
        yield from list_sed_files(word)


def iter_input_tokens(part: SimpleShellCommand) -> Iterator[str]:
    """Yield words of text that a program may get as its input, such as a here-document, and obey."""
    if not part.code:
        return
    words = part.words or part.argv or ("",)
    name = get_program_name(words)
    is_interpreter = name in INTERPRETERS or name.startswith("python")
    for text in part.code:
        if text is None or text in words or not (is_interpreter or _STREAM_SIGN.search(text)):
            continue
        yield from iter_text_tokens(text)


def iter_text_tokens(text: str) -> Iterator[str]:
    """Yield the words of a text that may be paths."""
    return (token for token in _INPUT_TOKEN.findall(text) if not GLOB.search(token))


def get_program_name(words: Sequence[str | None]) -> str:
    """Return the name of a command without its directory."""
    name = words[0] or ""
    return name[name.rfind("/") + 1 :]


def is_found_path(path: str) -> bool:
    """Return True if the path stands for the paths that a search found, at any depth."""
    return path.endswith(FOUND_PATHS)


def find_glob_base(path: str) -> str:
    """Return the directory in which the first wildcard of a path is looked up."""
    steps = path.split("/")
    literal_count = next(at for at, step in enumerate(steps) if GLOB.search(step))
    return "/".join(steps[:literal_count]) or ("/" if path.startswith("/") else ".")


def _get_inner_path(directory: str, anchor: str) -> str | None:
    """Return the path that is inside the other, or None."""
    if is_same_or_below(anchor, directory):
        return anchor
    return directory if is_same_or_below(directory, anchor) else None


def _iter_matching_paths(start: str, expression: ForbiddingPathPattern, limit: int) -> Iterator[str]:
    """Yield the topmost matching paths from here on; links are followed."""
    if not os.path.lexists(start):
        return
    if expression.fullmatch(start):
        yield start
        return
    pending, seen, entry_count = [start], {start}, 0
    while pending:
        for entry in _list_directory_entries(pending.pop()):
            entry_count += 1
            if entry_count > limit:
                raise TooManyDirectoryEntriesError
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if expression.fullmatch(real):
                yield real
            elif real not in seen and os.path.isdir(real):  # noqa: PTH112 - for each of thousands
                seen.add(real)
                pending.append(real)


def _list_directory_entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
