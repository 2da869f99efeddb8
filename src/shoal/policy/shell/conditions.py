"""Words of `[ … ]` and `[[ … ]]` that only compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.policy.shell.syntax import Unjudgeable
from shoal.policy.shell.words import ARGUMENTS, PLAIN_PATTERN, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_EXPRESSIONS = frozenset({"unary_expression", "binary_expression", "negated_command"})
_COMPARING = frozenset({"=", "==", "!=", "!", "test_operator"})
# These evaluate a subscript in their operands, including any substitution in it.
_EVALUATING = frozenset({"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


def words_of_test(test: Node, source: bytes, words_of_node: Callable[[Node], list[Word]]) -> list[Word]:
    first, *inside, last = test.children
    double = first.type == "[["
    if (first.type, last.type) not in (("[", "]"), ("[[", "]]")):
        raise _strange()
    _check_blanks(test, source)
    words = [Word("[[" if double else "test")]
    stack = inside[::-1]
    while stack:
        node = stack.pop()
        kind = node.type
        text = source[node.start_byte : node.end_byte].decode()
        if kind in _EXPRESSIONS:
            stack.extend(reversed(node.children))
        elif kind in ARGUMENTS or (double and kind == "extglob_pattern" and PLAIN_PATTERN.fullmatch(text)):
            words.extend(words_of_node(node))
        elif kind in _COMPARING and not (double and text in _EVALUATING):
            words.append(Word(text))
        elif not (double and kind in ("&&", "||")):
            raise _strange()
    return words


def _check_blanks(test: Node, source: bytes) -> None:
    """Check that blanks separate everything: in a test each token is a word."""
    at = -1
    stack = [test]
    while stack:
        node = stack.pop()
        if node.type in _EXPRESSIONS or node.type == "test_command":
            stack.extend(reversed(node.children))
            continue
        gap = source[at : node.start_byte] if at >= 0 else b" "
        if not gap or gap.strip(b" \t"):
            raise _strange()
        at = node.end_byte
    after = source[at : at + 1]
    if after and after not in b" \t\n;&|()<>":
        raise _strange()


def _strange() -> Unjudgeable:
    return Unjudgeable("the test is written in a way that is not judged")
