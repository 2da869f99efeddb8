"""Commands inside the words of programs that run other programs, for rules that forbid commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache

from shoal.policy.shell.known_commands import COMMAND_RUNNERS, INTERPRETERS
from shoal.policy.shell.simple_commands import may_use_home, shell_home
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

_EDITORS_AND_FILTERS = frozenset(
    """
    awk gawk mawk nawk sed gsed make gmake less more most vi vim nvim view emacs bc dc m4 sqlite3 psql mysql
    ftp tnftp lftp sftp telnet
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
LANGUAGES = INTERPRETERS - _EDITORS_AND_FILTERS
"""Interpreters that run their input as a program if they have no file."""
_INPUT_RUNNERS = SHELLS | LANGUAGES | frozenset("fish csh tcsh rbash ash mksh yash".split())  # noqa: SIM905
_RUNNERS = _INPUT_RUNNERS | COMMAND_RUNNERS | (frozenset(WRAPPERS) - {"exec", "command", "builtin"})
_SIGNS = re.compile(r"[$`\\'\"*?{(<>|;&\n]")
"""Characters with a meaning to the shell."""
_SETTING = re.compile(r"[A-Za-z][\w.-]*=|--?[\w-]+=|ext::|(?:EXEC|SYSTEM|SHELL):|[!|&:+-]+", re.IGNORECASE)
"""Text in front of a command in one word, as in `core.pager=…`, `!…` and `EXEC:…`."""
_MAX_DEPTH = 6
_depth: ContextVar[int] = ContextVar("depth", default=0)
_ENTER_KEYS = frozenset({"Enter", "C-m", "C-j", "KPEnter"})
_KEY = re.compile(
    r"(?:[CMS]-)+\S+|Escape|Up|Down|Left|Right|Home|End|[NP]Page|Page(?:Up|Down)|BSpace|F\d+|Tab|q"
)
_TYPING = frozenset({"send", "send-keys", "stuff"})
_FLAGS_WITH_VALUE = frozenset({"-t", "-N", "-S", "-p", "-X"})


def expand_inner_words(
    words: Sequence[str | None], *, has_input: bool, are_flags_commands: bool = False
) -> tuple[str | None, ...]:
    """Return the commands that the words of a runner contain; None for one that is known only at run time.

    `has_input` means that a shell without a script would read one from the input, `are_flags_commands` that
    the value of a flag is a command.
    """
    found: list[str | None] = []
    for index, value in enumerate(words):
        if value is None:
            continue
        name = value[value.rfind("/") + 1 :]
        if are_flags_commands and name in _INPUT_RUNNERS and (words[index - 1] or "")[:1] == "-":
            found.append(None)
        if name in _RUNNERS:
            rest = words[index:]
            known = [word for word in rest if word is not None]
            found += expand_inner_text(shlex.join(known), has_input) if len(known) == len(rest) else (None,)
            continue
        for text in _iter_texts(value, are_flags_commands=are_flags_commands):
            found += expand_inner_text(text, has_input or are_flags_commands)
    return (*found, *_list_typed_text(words))


def _iter_texts(value: str, *, are_flags_commands: bool) -> Iterator[str]:
    """Yield the texts in one word that may be commands, if they are more than a name."""
    texts = [value]
    while (match := _SETTING.match(texts[-1])) is not None:
        texts.append(texts[-1][match.end() :])
    if are_flags_commands and value[:1] == "-" and value[1:2] != "-":
        texts.append(value[2:])
    for text in texts:
        first = text.split(maxsplit=1)[0] if text.strip() else ""
        if first[first.rfind("/") + 1 :] in _RUNNERS or (_SIGNS.search(text) and text[:1] != "-"):
            yield text


def expand_inner_text(text: str, has_input: bool = True) -> tuple[str | None, ...]:  # noqa: FBT001, FBT002 - a key of the cache
    """Return the words of the commands in a text that a program runs; None if one is not known before."""
    return _expand_for_home(text, has_input, shell_home.get() if may_use_home(text) else None)


@lru_cache(maxsize=512)
def _expand_for_home(text: str, has_input: bool, home: str | None) -> tuple[str | None, ...]:  # noqa: FBT001 - a key of the cache
    name = text.strip()
    name = name[name.rfind("/") + 1 :]
    if name in _INPUT_RUNNERS:
        return (None,) if has_input else ()
    depth = _depth.get()
    if depth >= _MAX_DEPTH:
        return (None,)
    # This module is below the analysis, which uses it for each runner.
    from shoal.policy.shell.command_analysis import analyze_shell_command

    token = _depth.set(depth + 1)
    try:
        analysis = analyze_shell_command(text, home)
    finally:
        _depth.reset(token)
    found: list[str | None] = [] if analysis.is_complete else [None]
    for part in analysis.parts:
        words = part.words or part.argv or ()
        if (words and words[0] is None) or 0 in part.globs or (not words and part.argv is None):
            found.append(None)
        found.append(" ".join(word for word in words if word is not None))
        found.extend(part.code)
    return tuple(dict.fromkeys(found))


def _list_typed_text(words: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the text that tmux or screen types into a terminal; None for a part of a line."""
    for index, word in enumerate(words):
        if word in _TYPING:
            return _join_keys(words[index + 1 :], is_hex="-H" in words)
        if word in ("paste-buffer", "pasteb", "paste"):
            return (None,)
    return ()


def _join_keys(words: Sequence[str | None], *, is_hex: bool) -> tuple[str | None, ...]:
    if is_hex or None in words:
        return (None,)
    text, values = "", iter(words)
    for word in values:
        if word in _FLAGS_WITH_VALUE:
            next(values, None)
        elif word in _ENTER_KEYS:
            text += "\n"
        elif word == "Space":
            text += " "
        elif word and not word.startswith("-") and not _KEY.fullmatch(word):
            text += word
    text = text.replace("\\n", "\n").replace("\\r", "\n").replace("^M", "\n")
    if not text.strip():
        return ()
    return (*expand_inner_text(text), *(() if text.endswith(("\n", "\r")) else (None,)))
