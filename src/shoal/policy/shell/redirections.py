"""Redirections: the files they read and write, in the forms that bash and the grammar parse alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from shoal.policy.shell.shell_syntax import HEREDOC_PLACEHOLDER, UnjudgeableCommandError
from shoal.policy.shell.shell_words import SIMPLE_WORD, WORD_NODE_TYPES, ShellWord

if TYPE_CHECKING:
    from tree_sitter import Node

_BEFORE_DESCRIPTOR = b" \t\n;&|()"
_DUPLICATE = re.compile(r"[0-9]+-?|-")
_NETWORK = re.compile(r"/+dev/+(?:tcp|udp)")
_NULL_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"})
_STRAY_DESCRIPTOR = re.compile(rb"(?:^|[ \t\n;&|()])[0-9]+$")


def parse_redirections(
    nodes: Iterable[Node], source: bytes, words_of_node: Callable[[Node], list[ShellWord]]
) -> tuple[list[ShellWord], list[ShellWord]]:
    """Return the files that redirections read and those they write."""
    reads: list[ShellWord] = []
    writes: list[ShellWord] = []
    for node in nodes:
        add_redirection_files(node, source, words_of_node, reads, writes)
    return reads, writes


def add_redirection_files(
    node: Node,
    source: bytes,
    words_of_node: Callable[[Node], list[ShellWord]],
    reads: list[ShellWord],
    writes: list[ShellWord],
) -> None:
    """Add the file of a redirection to `reads` or `writes`."""
    operator, *targets = _strip_redirect_descriptor(node, source)
    kind = operator.type
    if kind in (">&-", "<&-") and not targets:
        return
    if len(targets) != 1 or targets[0].type not in WORD_NODE_TYPES:
        raise _build_redirection_error()
    target = targets[0]
    if source[operator.end_byte : target.start_byte].strip(b" \t"):
        raise _build_redirection_error()
    words = words_of_node(target)
    if len(words) != 1:
        raise UnjudgeableCommandError("redirection_of_several")
    text = source[target.start_byte : target.end_byte].decode()
    is_heredoc = kind == "<<<" or (kind == "<" and text == HEREDOC_PLACEHOLDER)
    if is_heredoc or (kind in (">&", "<&") and _DUPLICATE.fullmatch(text)):
        return
    if kind == ">&" and not SIMPLE_WORD.fullmatch(text):
        # bash expands this word again, quoted or not.
        raise _build_redirection_error()
    if target.type != "process_substitution":
        add_redirect_target(kind, words[0], reads, writes)


def _strip_redirect_descriptor(node: Node, source: bytes) -> list[Node]:
    children = list(node.children)
    start = node.start_byte
    preceding = source[start - 1 : start] if start else b""
    if children[0].type == "file_descriptor":
        descriptor = children.pop(0)
        number = source[descriptor.start_byte : descriptor.end_byte]
        touches = descriptor.end_byte == children[0].start_byte
        if not number.isdigit() or not touches or preceding not in _BEFORE_DESCRIPTOR:
            raise _build_redirection_error()
    elif preceding == b"}" or _STRAY_DESCRIPTOR.search(source, max(0, start - 20), start):
        raise _build_redirection_error()
    return children


def add_redirect_target(
    kind: str, target: ShellWord, reads: list[ShellWord], writes: list[ShellWord]
) -> None:
    """Add the file that this redirection operator opens."""
    path = target.value
    if _NETWORK.match(path or target.prefix):
        raise UnjudgeableCommandError("network_redirection")
    if path in _NULL_DEVICES:
        return
    match kind:
        case ">" | ">>" | ">|" | "&>" | "&>>" | ">&":
            writes.append(target)
        case "<":
            reads.append(target)
        case "<>":
            reads.append(target)
            writes.append(target)
        case _:
            raise UnjudgeableCommandError("unknown_redirection", kind=kind)


def _build_redirection_error() -> UnjudgeableCommandError:
    return UnjudgeableCommandError("redirection_form")
