"""Finds sentences for models that are written in code and not in a file of `prompts`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from syntax_trees import list_children, list_nodes, parse_module

MODEL_REFUSALS = frozenset(
    {"AgentRequestRefused", "AgentTranscriptMissing", "AgentProcessNotStarted", "QuestionUnanswerable"}
    | {"ScheduleRefused"}
    | {"TaskUpdateRefused", "TeamStoreError", "TeamNotFound", "TeamHasActiveMembers", "InboxNotFound"}
    | {"InvalidName", "InvalidCronExpression", "LockUnavailable", "ProcessError", "TmuxCommandError"}
    | {"WorkspaceError", "WorktreeError", "MergeConflict", "WorkflowError", "WorkflowStopped"}
    | {"WorkflowChanged", "ScriptProtocolError", "McpRequestRefused", "McpConnectionLost", "ToolError"}
    | {"RelayedMcpServerError", "WebPageFetchRefusedError", "InvalidGlobError", "InvalidRegexError"}
    | {"UnfittingImage", "HookToolCallError", "DenyDecision", "DenyAnswer", "create_tool_error_output"}
    | {"_create_not_run_output", "_refuse_tool_call", "AskDecision", "UnjudgeableCommandError"}
    | {"BudgetRefusal", "_build_agent_start_refusal", "PythonSubprocessTimeoutError"}
)
"""Refusals whose text reaches a model, as the result of a tool or as a notice."""
END_REASONS = frozenset(
    {"AgentRunOutcome", "AgentResult", "BackgroundShellResult", "LostMember", "join_outcome_details"}
    | {"stop_running_agent", "stop_run_if_running", "stop_child_agents", "stop_all_agents", "_stop_run"}
    | {"stop_agents_of", "end_member", "request_member_end", "shut_down_member", "stop_workflow"}
    | {"stop", "stop_all", "_stop_shells", "stop_all_work", "_emit_end"}
)
"""Calls whose text says why an agent, a command or a workflow ended: its starter is notified."""
END_FIELDS = frozenset({"halt_reason", "stop_reason"})
"""Fields that keep such a text."""
MODEL_OUTPUTS = frozenset({"ToolOutput", "ToolResultBlock"})
"""Results of tools: fields such as `exit code: 1` may be in code, sentences may not."""
ALLOWING_CALLS = frozenset({"AllowDecision", "build_readonly_verdict", "_append_readonly_command"})
"""Calls whose text is the reason of an allowed call, which only people read."""
_CLAUSE = re.compile(
    r"(?<![\w-])(?:the|that|which|may|can|cannot|its|would|before|without|with|an|is|are|has|does|outside)"
    r"(?![\w-])|^it "
)
_WORD = r"[A-Za-z][A-Za-z'-]+"
_TWO_WORDS = re.compile(rf"{_WORD}\W+{_WORD}")
_THREE_WORDS = re.compile(rf"{_WORD},? {_WORD},? {_WORD}")
_VALUE = "0"


def find_model_sentences(paths: Sequence[Path]) -> list[str]:
    """Return `path:line: text` for each sentence in a refusal or an output for a model."""
    found = []
    for path in paths:
        tree = parse_module(path)
        constants = _list_variables(tree.body)
        for scope in list_nodes(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{path}:{line}: {text}" for line, text in _find_in_scope(scope, constants)]
    return found


def find_reason_clauses(paths: Sequence[Path]) -> list[str]:
    """Return `path:line: text` for each clause in modules that say why a call is not allowed.

    Such clauses are returned, stored and joined before they are quoted to a model, so every text counts that
    is neither the reason of an allowed call nor the message of another error.
    """
    return [
        f"{path}:{node.lineno}: {text}" for path in paths for node, text in _find_clauses(parse_module(path))
    ]


def _find_clauses(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call() if _is_for_people(node):
            return
        case ast.Constant(value=str()) | ast.JoinedStr():
            text = _join_literals(node)
            is_table = text.startswith("\n")
            if not is_table and _CLAUSE.search(text) and len(re.findall(_WORD, text)) > 2:
                yield node, text
            return
    for child in list_children(node):
        yield from _find_clauses(child)


def _is_for_people(call: ast.Call) -> bool:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    return (
        name in ALLOWING_CALLS
        or (name.endswith("Error") and name not in MODEL_REFUSALS)
        or name in ("compile", "notify")
        or any(ast.unparse(each) in ("read_only=True", "verdict='allow'") for each in call.keywords)
    )


def _find_in_scope(
    scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef, constants: dict[str, ast.expr]
) -> Iterator[tuple[int, str]]:
    nodes = list(_walk_scope(scope))
    variables = _list_variables(nodes)
    for node in nodes:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", "") in END_FIELDS:
            texts = map(_join_literals, _list_alternatives(node.value, variables))
            yield from ((node.lineno, text) for text in texts if _TWO_WORDS.search(text))
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        is_reason = name in MODEL_REFUSALS or name in END_REASONS
        pattern = _TWO_WORDS if is_reason else _THREE_WORDS if name in MODEL_OUTPUTS else None
        for argument in [*node.args, *(each.value for each in node.keywords)] if pattern else ():
            for each in _list_alternatives(argument, variables):
                # A constant of two words is a name, such as that of a source of rules.
                constant = constants.get(each.id) if isinstance(each, ast.Name) else None
                text = _join_literals(each if constant is None else constant)
                if pattern and (pattern if constant is None else _THREE_WORDS).search(text):
                    yield node.lineno, text


def _list_variables(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """Return what each variable is set to, also where several are set at once."""
    variables = {}
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                variables[target.id] = node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                variables |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return variables


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    for child in list_children(scope):
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
