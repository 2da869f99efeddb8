"""Words of `[ … ]` and `[[ … ]]` that only compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shoal.policy.shell.evaluated_text import ShellVariables
from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
from shoal.policy.shell.shell_words import PLAIN_PATTERN, WORD_NODE_TYPES, ShellWord

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN_REGEX = re.compile(r"[A-Za-z0-9_.*?/+=:@^$,{}\[\]-]*")
_EXPRESSIONS = frozenset({"unary_expression", "binary_expression", "negated_command"})
_COMPARISON_NODES = frozenset({"=", "==", "!=", "=~", "!", "test_operator"})
# These evaluate a subscript in their operands, including any substitution in it.
_NUMBER_OPERATORS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_EVALUATING_OPERATORS = _NUMBER_OPERATORS | {"-v", "-R"}
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|\"\$[A-Za-z_]\w*\"|\"\$\{[A-Za-z_]\w*\}\"")
_NUMBER = re.compile(r"-?[0-9]+")


def parse_shell_test_words(
    test: Node,
    source: bytes,
    words_of_node: Callable[[Node], list[ShellWord]],
    variables: ShellVariables,
) -> list[ShellWord]:
    first, *inner_nodes, last = test.children
    double = first.type == "[["
    if (first.type, last.type) not in (("[", "]"), ("[[", "]]")):
        raise _build_shell_test_error()
    _check_blanks_in_shell_test(test, source)
    words = [ShellWord("[[" if double else "test")]
    stack = inner_nodes[::-1]
    while stack:
        node = stack.pop()
        kind = node.type
        text = source[node.start_byte : node.end_byte].decode()
        if kind in _EXPRESSIONS:
            stack.extend(reversed(node.children))
        elif kind in WORD_NODE_TYPES or (
            double and kind == "extglob_pattern" and PLAIN_PATTERN.fullmatch(text)
        ):
            words.extend(
                [ShellWord("0")] if _is_number_variable(node, source, variables) else words_of_node(node)
            )
        elif kind in _COMPARISON_NODES:
            words.append(ShellWord(text))
            if double and text in _EVALUATING_OPERATORS:
                _note_evaluated_operands(node, source, variables)
        elif double and kind == "regex" and _PLAIN_REGEX.fullmatch(text):
            words.append(ShellWord(None))
        elif not (double and kind in ("&&", "||")):
            raise _build_shell_test_error()
    return words


def _is_number_variable(node: Node, source: bytes, variables: ShellVariables) -> bool:
    """Return True for a variable in a comparison of numbers; that its values are numbers shows later."""
    text = source[node.start_byte : node.end_byte].decode()
    if node.parent is None or not _VARIABLE.fullmatch(text):
        return False
    siblings = (source[each.start_byte : each.end_byte].decode() for each in node.parent.children)
    return not _NUMBER_OPERATORS.isdisjoint(siblings) and variables.is_counting(text.strip('"'))


def _note_evaluated_operands(operator: Node, source: bytes, variables: ShellVariables) -> None:
    for node in operator.parent.children if operator.parent is not None else ():
        if node.type != "test_operator":
            variables.add_expression(source[node.start_byte : node.end_byte].decode().strip("\"'"))


def is_evaluating_test(words: Sequence[ShellWord]) -> bool:
    """Return True if `[[` evaluates an operand as an expression or the name of a variable."""
    for index, word in enumerate(words):
        operands = (*words[max(0, index - 1) : index], *words[index + 1 : index + 2])
        if word.value in _EVALUATING_OPERATORS and (
            word.value not in _NUMBER_OPERATORS
            or not all(_NUMBER.fullmatch(each.value or "") for each in operands)
        ):
            return True
    return False


def _check_blanks_in_shell_test(test: Node, source: bytes) -> None:
    """Check that blanks separate everything: in a test each token is a word."""
    offset = -1
    stack = [test]
    while stack:
        node = stack.pop()
        if node.type in _EXPRESSIONS or node.type == "test_command":
            stack.extend(reversed(node.children))
            continue
        gap = source[offset : node.start_byte] if offset >= 0 else b" "
        if not gap or gap.strip(b" \t"):
            raise _build_shell_test_error()
        offset = node.end_byte
    next_byte = source[offset : offset + 1]
    if next_byte and next_byte not in b" \t\n;&|()<>":
        raise _build_shell_test_error()


def _build_shell_test_error() -> UnjudgeableCommandError:
    return UnjudgeableCommandError("test_form")
