"""Effects that an allow rule with an open end, such as `Bash(pytest:*)`, does not cover.

Such a rule means the program in the working directories. It does not cover words that lead elsewhere, nor
programs that run only because a script in the words says so.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.shell.command_analysis import UNKNOWN_PATH, SimpleShellCommand
from shoal.policy.shell.inner_commands import LANGUAGES
from shoal.policy.shell.interpreter_code import may_expression_run
from shoal.policy.shell.small_languages import AWKS, ScriptEffects, find_awk_effects, find_sed_effects
from shoal.policy.unreadable_files import (
    COMPILERS,
    CONTAINER_PROGRAMS,
    get_program_name,
)

_OPEN_END = re.compile(r"(?<!\\)\*")
_SEDS = frozenset({"sed", "gsed"})
_REMOTE_SHELLS = frozenset({"ssh", "mosh", "autossh", "sshpass"})
"""Programs whose words mean paths on another machine."""
_REMOTE_COPIERS = frozenset({"scp", "sftp", "rsync", "rclone", "git", "kubectl", "oc", *CONTAINER_PROGRAMS})
_REMOTE_PATH = re.compile(r"[\w.@-]+:(?!//)")
_REMOTE_ARCHIVERS = frozenset({"tar", "gtar", "star", "cpio", "mt"})
_REMOTE_ARCHIVE = re.compile(r"(?:--?[\w-]*[=fFIO])?[\w.@-]+:")
"""The archive of such a program, which is on another machine if a colon follows its first part."""
_URL = re.compile(r"(?!(?:[a-z]+\+)?file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_CONTAINER_RUNS = frozenset({"run", "exec", "create", "debug"})
_CONTAINER_FILE_FLAG = re.compile(
    r"(?:--(?:env-file|cidfile|iidfile|label-file|device|security-opt|file|project-directory|secret|ssh|volume|mount"
    r"|build-context|kubeconfig|tlscacert|tlscert|tlskey|config|root|runroot)=?|-[a-z]*[fv])(.*)", re.DOTALL,
)  # fmt: skip
"""Flags of container programs with a path on this machine."""
_MOUNT_SOURCE = re.compile(r"(?:^|,)(?:source|src)=([^,]*)")
_SERVICE_CLIENTS = frozenset({"gh", "glab", "aws", "gcloud", "az", "kubectl", "oc", "helm", "http", "https"})
"""Programs many of whose words are names at a service that look like absolute paths."""
_SERVICE_FILE_FLAG = re.compile(
    r"-[fFk]|--(?:file|from-file|from-env-file|kustomize|kubeconfig|input|body-file|values|template-body|cli-input|zip-file"
    r"|cache|config|certificate|ca-|client-|output-dir|recover|key-file|cert)",
)
"""Flags of such programs with a path on this machine."""
_TEXT_FLAG = re.compile(r"-[A-Za-z]*m|--(?:message|title|body|notes|subject|description)(?:=.*)?", re.DOTALL)
_TEXT_PROGRAMS = frozenset({"git", "gh", "glab", "hg", "jj", "svn"})
_SYSTEM_LIBRARIES = ("/usr/include", "/usr/lib", "/usr/local/include", "/usr/local/lib", "/lib")
_SEPARATOR = re.compile(r"[=@:,;<]")
_FLAG_LETTERS = re.compile(r"-[A-Za-z0-9]*")
_TEXT_SEPARATOR = re.compile(r"[\s=:,;@\"'()]+")
_CHECKING_WORD = re.compile(r"--(?:check|diff|dry-run|noemit|list-different|no-fix)(?:-only)?", re.IGNORECASE)
"""Flags with which a program changes nothing."""
_WRITING_WORD = re.compile(r"--(?:w|fix|in-?place|apply|unsafe-fix).*|-[wi]|--no-(?:check|dry-run|diff)")


def names_open_end(rule: ToolPermissionRule) -> bool:
    """Return True if a rule about commands leaves some of their words open, but not all."""
    words = split_rule_pattern(rule.pattern or "")
    return "*" in words[-1:] and words != ("*",)


@lru_cache(maxsize=512)
def split_rule_pattern(pattern: str) -> tuple[str, ...]:
    """Return the words of a rule, with `*` at the end if further words may follow or a word has a star."""
    is_open = pattern.endswith(":*") or _OPEN_END.search(pattern) is not None
    text = pattern.removesuffix(":*")
    try:
        words = shlex.split(text.replace("\\*", "\\\\*"))
    except ValueError:
        words = text.split()
    return (*words, "*") if is_open and words[-1:] != ["*"] else tuple(words)


def undoes_check(rule: ToolPermissionRule, part: SimpleShellCommand) -> bool:
    """Return True if a rule names a flag such as `--check`, and a word makes the program write after all."""
    words = split_rule_pattern(rule.pattern or "")
    if not any(map(_CHECKING_WORD.fullmatch, words)):
        return False
    return any(_WRITING_WORD.fullmatch(word) and word not in words for word in part.argv or ())


def find_script_effects(part: SimpleShellCommand) -> ScriptEffects:
    """Return what a script of a small language in the words runs and writes."""
    words = part.argv or ()
    name = get_program_name(words) if words else ""
    if part.read_only or not words:
        return ScriptEffects()
    if name in _SEDS:
        return find_sed_effects(words[1:])
    if name in AWKS:
        return find_awk_effects(words[1:])
    texts = (*words[1:], *(text for text in part.code if text))
    return ScriptEffects(runs=any(may_expression_run(name, text) for text in texts))


def iter_possible_outer_paths(part: SimpleShellCommand, rule: ToolPermissionRule) -> Iterator[str]:
    """Yield the paths in the words of a command that the rule does not name: operands and values of flags."""
    words = part.argv or ()
    name = get_program_name(words) if words else ""
    if part.read_only or len(words) < 2 or name in _REMOTE_SHELLS:
        return
    if name in CONTAINER_PROGRAMS and not _CONTAINER_RUNS.isdisjoint(words[1:4]):
        yield from _iter_container_paths(words)
        return
    named = split_rule_pattern(rule.pattern or "")
    is_language = name in LANGUAGES or name.startswith("python")
    script = _find_script_words(name, words)
    for index, word in enumerate(words[1:], 1):
        is_text = name in _TEXT_PROGRAMS and (
            _TEXT_FLAG.fullmatch(words[index - 1]) is not None or (_TEXT_FLAG.fullmatch(word) and "=" in word)
        )
        if is_text or index in script or _URL.match(word) or _is_named(word, named):
            continue
        if name in _REMOTE_COPIERS and _REMOTE_PATH.match(word):
            continue
        if name in _REMOTE_ARCHIVERS and _REMOTE_ARCHIVE.match(word):
            # It starts a program that connects to another machine.
            yield UNKNOWN_PATH
        if is_language and (" " in word or "(" in word or "\n" in word):
            # It is code, which may do anything.
            continue
        for path in _iter_paths(word):
            is_library = name in COMPILERS and word[:1] == "-" and path.startswith(_SYSTEM_LIBRARIES)
            # A name at a service is no file here, and no flag before it says that it is one.
            is_name = (
                name in _SERVICE_CLIENTS
                and path[:1] == "/"
                and not _SERVICE_FILE_FLAG.match(words[index - 1] if path == word else word)
                and not os.path.lexists(path)
            )
            if not is_library and not is_name and not _is_named(path, named):
                yield path


def _is_named(path: str, rule_words: Sequence[str]) -> bool:
    """Return True if a word of the rule is this path, or has a star for a part of it."""
    if path in rule_words:
        return True
    is_plain = ".." not in path.split("/")
    return is_plain and any(
        "/" in word and "*" in word and fnmatchcase(path, re.sub(r"[\[?]", r"[\g<0>]", word))
        for word in rule_words
    )


def _find_script_words(name: str, words: Sequence[str]) -> frozenset[int]:
    """Return the indexes of words that are scripts, or signs that separate fields."""
    if name in AWKS:
        return frozenset(
            index
            for index, word in enumerate(words)
            if word[:2] in ("-F", "-v")
            or words[index - 1] in ("-F", "-v", "-e")
            or " " in word
            or "{" in word
        )
    if name in _SEDS:
        operands = [index for index, word in enumerate(words) if index and word[:1] != "-"]
        has_script = any(word.startswith(("-e", "--exp", "-f", "--fil", "-ne", "-Ee")) for word in words)
        after_flag = [
            i + 1 for i, word in enumerate(words) if re.fullmatch(r"-[nErsuz]*e|--expression", word)
        ]
        attached = [i for i, word in enumerate(words) if word.startswith(("-e", "--exp", "-ne", "-Ee"))]
        return frozenset(after_flag + attached if has_script else operands[:1])
    return frozenset()


def _iter_container_paths(words: Sequence[str]) -> Iterator[str]:
    """Yield the paths on this machine that a container program is told to use."""
    for index, word in enumerate(words):
        if (match := _CONTAINER_FILE_FLAG.fullmatch(word)) is None:
            continue
        value = match[1] or (words[index + 1] if index + 1 < len(words) else "")
        if (source := _MOUNT_SOURCE.search(value)) is not None:
            yield source[1]
        elif "=" not in value.partition(":")[0]:
            # A volume names the directory first, and then where it is in the container.
            yield value.partition(":")[0]
        else:
            yield from _SEPARATOR.split(value)


def _iter_paths(word: str) -> Iterator[str]:
    if word[:1] != "-":
        # As in `cargo +/toolchain build`.
        yield word[1:] if word[:1] == "+" else word
    elif word[1:2] != "-":
        # As in `-I../x` and `-vf../x`; a single sign, as in `-d/`, is a separator.
        yield from (rest for rest in (word[2:], _FLAG_LETTERS.sub("", word, count=1)) if len(rest) > 1)
    if " " in word or "\n" in word or "'" in word or '"' in word:
        for token in _TEXT_SEPARATOR.split(word):
            path = _FLAG_LETTERS.sub("", token, count=1) if token[:1] == "-" else token
            if len(path) > 1 and path[0] in "/~.":
                yield path
    elif _SEPARATOR.search(word):
        yield from filter(None, _SEPARATOR.split(word))
