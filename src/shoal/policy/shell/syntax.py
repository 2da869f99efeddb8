"""Parsing of command text into a syntax tree, or the reason why it cannot be judged."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST_COMMAND = 100_000
DEEPEST_NESTING = 60
MOST_SIGNS = 3_000
"""Limit for shell signs: text that does not parse costs time quadratic in them; this stays below 1 s."""
_SIGNS = "()<>&|{}$`[]=;!"

# Tab and newline are the only control characters with a plain meaning; unusual blanks and marks that
# reorder text are words to bash and look different to a reader.
_UNREADABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_HEREDOC = re.compile(
    r"(?<![<\\])<<(?P<strip>-?)[ \t]*(?P<quote>['\"]?)(?P<mark>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)"
    r"(?P<rest>[^\n'\"\\`$(){}#<]*)(?:\n|$)"
)
_LIVE_BODY = re.compile(r"[\\`]|\$[^\sA-Za-z0-9_.,:;)%/\"'-]")
_STAND_IN = "SHOAL_HEREDOC_BODY"
_MARKED = f"<<<{_STAND_IN}".encode()


class Unjudgeable(Exception):
    """The command cannot be judged before it runs; the text says why."""


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def tree_of(command: str) -> tuple[Node, bytes]:
    """Return the root of the syntax tree and the bytes that its positions refer to."""
    if len(command) > LONGEST_COMMAND:
        raise Unjudgeable(f"the command has more than {LONGEST_COMMAND} characters")
    if _UNREADABLE.search(command):
        raise Unjudgeable("the command holds control characters or blanks that do not show")
    if "<<" in command:
        command = _without_heredoc_bodies(command)
    if len(command) > MOST_SIGNS and sum(map(command.count, _SIGNS)) > MOST_SIGNS:
        raise Unjudgeable(f"the command holds more than {MOST_SIGNS} signs of the shell")
    source = command.encode()
    root = _parser().parse(source).root_node
    if root.has_error:
        raise Unjudgeable("the command does not parse as bash")
    if _MARKED in source:
        _check_stand_ins(root, source)
    return root, source


def _without_heredoc_bodies(command: str) -> str:
    """Return the command with each here-document replaced by a here-string placeholder.

    A body ends by bash's own rule (at the first line that is the delimiter), so what follows is always read
    as commands. A later check verifies that each placeholder is where a here-string belongs.
    """
    lifted: list[str] = []
    while (start := _heredoc_start(command)) >= 0:
        match = _HEREDOC.match(command, start)
        if match is None or "<<" in command[match.end("mark") : match.end()]:
            raise Unjudgeable("the here-document is written in a way that is not judged")
        body, after = _body(command, match)
        if not match["quote"] and _LIVE_BODY.search(body):
            raise Unjudgeable("the here-document holds expansions")
        head = command[:start]
        if head.endswith("\\"):
            raise Unjudgeable("the here-document is written in a way that is not judged")
        lifted.append(f"{head}<<<{_STAND_IN}{match['rest']}\n")
        command = after
    return "".join((*lifted, command))


def _heredoc_start(command: str) -> int:
    at = 0
    while (at := command.find("<<", at)) >= 0:
        if not command.startswith("<<<", at):
            return at
        at += 3
    return -1


def _body(command: str, match: re.Match[str]) -> tuple[str, str]:
    at = match.end()
    while at < len(command):
        end = command.find("\n", at)
        line = command[at:] if end < 0 else command[at:end]
        if (line.lstrip("\t") if match["strip"] else line) == match["mark"]:
            return command[match.end() : at], "" if end < 0 else command[end + 1 :]
        if end < 0:
            break
        at = end + 1
    raise Unjudgeable("the here-document does not end")


def _check_stand_ins(root: Node, source: bytes) -> None:
    """Check that every replaced here-document was in a position where bash accepts one."""
    wanted = source.count(_MARKED)
    found = 0
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "herestring_redirect" and source[node.start_byte : node.end_byte].endswith(
            _STAND_IN.encode()
        ):
            found += 1
        stack.extend(node.children)
    if found != wanted:
        raise Unjudgeable("a here-document stands where it is not judged")
