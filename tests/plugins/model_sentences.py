"""Finds sentences for models that are written in code and not in a file of `prompts`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

MODEL_REFUSALS = frozenset(
    {"AgentRequestRefused", "AgentTranscriptMissing", "QuestionUnanswerable", "ScheduleRefused"}
    | {"TaskUpdateRefused", "TeamStoreError", "TeamNotFound", "TeamHasActiveMembers", "InboxNotFound"}
    | {"InvalidName", "InvalidCronExpression", "LockUnavailable", "ProcessError", "TmuxCommandError"}
    | {"WorkspaceError", "WorktreeError", "MergeConflict", "WorkflowError", "WorkflowStopped"}
    | {"WorkflowChanged", "ScriptProtocolError", "McpRequestRefused", "McpConnectionLost", "ToolError"}
    | {"RelayedMcpServerError", "WebPageFetchRefusedError", "InvalidGlobError", "InvalidRegexError"}
    | {"UnfittingImage", "HookToolCallError", "DenyDecision", "DenyAnswer", "create_tool_error_output"}
    | {"_create_not_run_output", "_refuse_tool_call"}
)
"""Refusals whose text reaches a model, as the result of a tool or as a notice."""
MODEL_OUTPUTS = frozenset({"ToolOutput", "ToolResultBlock"})
"""Results of tools: fields such as `exit code: 1` may be in code, sentences may not."""
_WORD = r"[A-Za-z][A-Za-z'-]+"
_TWO_WORDS = re.compile(rf"{_WORD}\W+{_WORD}")
_THREE_WORDS = re.compile(rf"{_WORD},? {_WORD},? {_WORD}")
_VALUE = "0"


def find_model_sentences(paths: Sequence[Path]) -> list[str]:
    """Return `path:line: text` for each sentence in a refusal or an output for a model."""
    found = []
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{path}:{line}: {text}" for line, text in _find_in_scope(scope)]
    return found


def _find_in_scope(scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    nodes = list(_walk_scope(scope))
    variables = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        pattern = _TWO_WORDS if name in MODEL_REFUSALS else _THREE_WORDS if name in MODEL_OUTPUTS else None
        for argument in [*node.args, *(each.value for each in node.keywords)] if pattern else ():
            texts = [_join_literals(each) for each in _list_alternatives(argument, variables)]
            yield from ((node.lineno, text) for text in texts if pattern and pattern.search(text))


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk_scope(child)


def _list_alternatives(node: ast.expr, variables: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """Yield the expressions that may be the value: branches of a condition, and what a variable is set to."""
    match node:
        case ast.IfExp():
            yield from _list_alternatives(node.body, variables)
            yield from _list_alternatives(node.orelse, variables)
        case ast.BoolOp():
            for each in node.values:
                yield from _list_alternatives(each, variables)
        case ast.Name(id=name) if name in variables:
            yield from _list_alternatives(
                variables[name], {key: value for key, value in variables.items() if key != name}
            )
        case _:
            yield node


def _join_literals(node: ast.expr) -> str:
    """Return the literal parts of a text with `0` for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_join_literals(each) for each in node.values)
        case ast.BinOp(op=ast.Add()):
            return _join_literals(node.left) + _join_literals(node.right)
    return _VALUE
