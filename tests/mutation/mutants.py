"""Small faults put into the program's source, one at a time."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}
SKIPPED_FUNCTIONS = {"__repr__", "__str__", "__rich__", "__dir__"}
SKIPPED_BASES = {"Protocol", "TypedDict"}


class Mutant(Struct, frozen=True):
    """One change of one module."""

    module: str
    line: int
    column: int
    function: str
    """Qualified name of the function that contains the change."""
    start: int
    end: int
    before: str
    after: str

    def describe(self) -> str:
        before, after = (" ".join(text.split())[:70] for text in (self.before, self.after))
        return f"{self.module}:{self.line}: {before} -> {after}"

    @property
    def key(self) -> str:
        """Unique name of the change; without the line and column, it outlives changes of other lines."""
        change = f"{' '.join(self.before.split())} -> {self.after}"
        return f"{self.module}:{self.line}:{self.column} {self.function}: {change}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


class MutantFinder:
    """Lists the possible mutants of one module."""

    def __init__(self, module: Path, source: bytes) -> None:
        self.module = module
        self.source = source
        self.line_offsets = [0]
        for line in source.splitlines(keepends=True):
            self.line_offsets.append(self.line_offsets[-1] + len(line))

    def find(self) -> list[Mutant]:
        return list(self._walk(ast.parse(self.source), "", ""))

    def _walk(self, node: ast.AST, function: str, prefix: str) -> Iterator[Mutant]:
        """Walk a node of a function; `prefix` precedes the names of functions and classes in it."""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._walk_definition(node, function, f"{prefix}{node.name}")
            return
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.JoinedStr | ast.Assert):
            return
        if function:
            yield from self._change(node, function)
        children = (
            [node.value] if isinstance(node, ast.AnnAssign) and node.value else ast.iter_child_nodes(node)
        )
        for child in children:
            yield from self._walk(child, function, prefix)

    def _walk_definition(
        self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, function: str, name: str
    ) -> Iterator[Mutant]:
        prefix = f"{name}.<locals>."
        if isinstance(node, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id in SKIPPED_BASES for base in node.bases):
                return
            prefix = f"{name}."
        elif node.name in SKIPPED_FUNCTIONS:
            return
        else:
            function = name
        for statement in node.body:
            yield from self._walk(statement, function, prefix)

    def _change(self, node: ast.AST, function: str) -> Iterator[Mutant]:
        for replaced, text in self._replacements(node):
            start, end = self._span(replaced)
            yield Mutant(
                module=str(self.module),
                line=replaced.lineno,
                column=replaced.col_offset + 1,
                function=function,
                start=start,
                end=end,
                before=self.source[start:end].decode(),
                after=text,
            )

    def _replacements(self, node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
        if isinstance(node, ast.stmt):
            yield from _iter_statement_replacements(node)
        elif isinstance(node, ast.expr):
            yield from _iter_expression_replacements(node)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.line_offsets[node.lineno - 1] + node.col_offset,
            self.line_offsets[node.end_lineno - 1] + node.end_col_offset,
        )


def _iter_statement_replacements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.If(test=test):
            yield test, "False"
            yield test, "True"
        case ast.While(test=test):
            yield test, "False"
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield value, "None"
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.AugAssign():
            yield node, "pass"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case _:
            pass


def _iter_expression_replacements(node: ast.expr) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in COMPARISONS:
            changed = ast.Compare(left=left, ops=[COMPARISONS[type(operation)]()], comparators=[right])
            yield node, f"({ast.unparse(changed)})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(op=other, values=values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC and not _has_text(node):
            yield node, f"({ast.unparse(ast.BinOp(left=left, op=ARITHMETIC[type(sign)](), right=right))})"
        case ast.IfExp(test=test):
            yield test, "False"
            yield test, "True"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case _:
            pass


def _has_text(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
        for part in ast.walk(node)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def find_callees(source: bytes, line: int) -> set[str]:
    """Return the names that the outermost function around a line calls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (
            node.end_lineno or 0
        ):
            calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
            return {getattr(called, "attr", getattr(called, "id", "")) for called in calls} - {""}
    return set()


def draw_mutants(root: Path, modules: list[Path], count: int, seed: int) -> list[Mutant]:
    """Draw mutants without replacement; every possible change of the modules is equally likely."""
    found = [
        mutant for module in modules for mutant in MutantFinder(module, (root / module).read_bytes()).find()
    ]
    return random.Random(seed).sample(found, min(count, len(found)))
