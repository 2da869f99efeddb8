"""A copy of the tree whose functions mark that they were entered.

Only the compiled modules differ, so lines, sources and programs that tests start are as they are. A mark
takes less than a tenth of a microsecond; a trace function of the interpreter makes tests much slower.
"""

from __future__ import annotations

import ast
import importlib._bootstrap_external
import importlib.util
import json
import shutil
from pathlib import Path

from tests.mutation.rooms import ROOT

COPIED = ("src", "tests", "scripts", "bench", "docs", "examples", "web/dev", "pyproject.toml", "README.md")
FUNCTIONS = "functions.json"
"""Names of the functions, in the order of their marks."""
MARKS = "__entry_marks__"


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
            )
        elif source.exists():
            shutil.copy2(source, target / name)


def instrument_tree(root: Path, directory: Path) -> None:
    """Compile the modules of a copy with marks; the marks of a process are in the directory."""
    functions: list[str] = []
    for path in sorted((root / "src" / "shoal").rglob("*.py")):
        source = path.read_bytes()
        module = ast.parse(source)
        _FunctionMarker(str(path.relative_to(root)), functions).mark_module(module)
        _write_bytecode(path, module, source)
    (directory / FUNCTIONS).write_text(json.dumps(functions))
    marks = Path(__file__).with_name("entry_marks.py").read_text(encoding="utf-8")
    marks = marks.replace('DIRECTORY = ""', f"DIRECTORY = {str(directory)!r}")
    marks = marks.replace("COUNT = 0", f"COUNT = {len(functions)}")
    (root / "src" / "shoal" / "_entry_marks.py").write_text(marks, encoding="utf-8")


def _write_bytecode(path: Path, module: ast.Module, source: bytes) -> None:
    code = compile(ast.fix_missing_locations(module), path, "exec", dont_inherit=True)
    # Unchecked: the interpreter does not compare it with the source.
    encoded = importlib._bootstrap_external._code_to_hash_pyc(  # type: ignore[attr-defined]
        code, importlib.util.source_hash(source), checked=False
    )
    target = Path(importlib.util.cache_from_source(str(path)))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(encoded)


class _FunctionMarker:
    """Puts a mark at the start of each function of one module."""

    def __init__(self, module: str, functions: list[str]) -> None:
        self._module = module
        self._functions = functions

    def mark_module(self, tree: ast.Module) -> None:
        self._mark_functions(tree, "")
        place = _find_first_statement(tree.body)
        while place < len(tree.body):
            statement = tree.body[place]
            if not isinstance(statement, ast.ImportFrom) or statement.module != "__future__":
                break
            place += 1
        tree.body[place:place] = ast.parse(f"from shoal._entry_marks import MARKS as {MARKS}").body

    def _mark_functions(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                self._mark_functions(child, f"{name}.<locals>.")
                mark = ast.parse(f"{MARKS}[{len(self._functions)}] = 1").body[0]
                place = _find_first_statement(child.body)
                line = child.body[min(place, len(child.body) - 1)].lineno
                for part in ast.walk(mark):
                    if hasattr(part, "lineno"):
                        part.lineno = part.end_lineno = line
                child.body.insert(place, mark)
                self._functions.append(f"{self._module}:{name}")
            elif isinstance(child, ast.ClassDef):
                self._mark_functions(child, f"{prefix}{child.name}.")
            else:
                self._mark_functions(child, prefix)


def _find_first_statement(body: list[ast.stmt]) -> int:
    """Return the place after the docstring."""
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return 1 if is_text and isinstance(first.value.value, str) else 0
