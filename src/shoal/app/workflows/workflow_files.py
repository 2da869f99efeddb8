"""Workflows in files: which files define some, and the definitions in one of them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.workflows.workflow_definition import WorkflowDefinition
from shoal.core.errors import WorkflowError

_DECORATOR = "workflow"
_NO_JAVASCRIPT = "Shoal runs workflows in Python only. Rewrite it: docs/workflows.md has an example."


class WorkflowFileEntry(Struct, frozen=True, kw_only=True):
    """A file that defines workflows. It is parsed and never run to list it."""

    path: Path
    names: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing in it can be run."""
    is_of_project: bool = False


def list_workflow_files(*, cwd: Path, home: Path) -> list[WorkflowFileEntry]:
    """Return the files in `.claude/workflows` of the project and in `workflows` of the home."""
    return [
        *_iter_workflow_files(cwd / ".claude" / "workflows", is_of_project=True),
        *_iter_workflow_files(home / "workflows", is_of_project=False),
    ]


def find_workflow_file(reference: str, *, cwd: Path, home: Path) -> tuple[Path, str | None]:
    """Return the file and the name for `FILE.py`, `FILE.py:NAME`, or the NAME of a workflow in the home.

    A file of the project is code of somebody else, so only its path runs it. Raises `WorkflowError`.
    """
    path_text, _, name = reference.partition(":")
    if path_text.endswith(".py") or "/" in path_text:
        return (cwd / path_text).resolve(), name or None
    files = list_workflow_files(cwd=cwd, home=home)
    for file in files:
        if reference in file.names and not file.is_of_project:
            return file.path, reference
    for file in files:
        if reference in file.names:
            shown = file.path.relative_to(cwd)
            raise WorkflowError(
                f"The workflow {reference} is code of this project. Read it, then run it by its path: "
                f"shoal workflow run {shown}:{reference}"
            )
    known = ", ".join(name for file in files for name in file.names)
    raise WorkflowError(
        f"There is no workflow {reference!r}. Known workflows: {known or 'none'}. Pass a name, FILE.py or "
        "FILE.py:NAME."
    )


def load_workflow(path: Path, name: str | None) -> WorkflowDefinition[Any, Any]:
    """Run the file and return the workflow with this name, or the only one. Raises `WorkflowError`."""
    if path.suffix == ".js":
        raise WorkflowError(f"{path} is not used: {_NO_JAVASCRIPT}")
    module_name = f"shoal_workflow_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise WorkflowError(f"{path} is not a Python file. Pass the path of a file that defines a workflow.")
    module = importlib.util.module_from_spec(spec)
    # Types of the module's functions are looked up there.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the wall around a file of the person: it may raise anything
        raise WorkflowError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    found = {each.name: each for each in vars(module).values() if isinstance(each, WorkflowDefinition)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        names = ", ".join(found) or "none"
        what = (
            f"no workflow {name!r}"
            if name is not None
            else "more than one workflow"
            if found
            else "no workflow"
        )
        raise WorkflowError(f"{path} has {what}. Its workflows: {names}. Choose one with {path.name}:NAME.")
    return found[name]


def _iter_workflow_files(directory: Path, *, is_of_project: bool) -> Iterator[WorkflowFileEntry]:
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in (".py", ".js"))
    except OSError:
        return
    for path in paths:
        if path.suffix == ".js":
            yield WorkflowFileEntry(path=path, problem=_NO_JAVASCRIPT, is_of_project=is_of_project)
            continue
        try:
            names = tuple(_iter_workflow_names(ast.parse(path.read_text(encoding="utf-8"))))
        except (OSError, SyntaxError, ValueError) as error:
            yield WorkflowFileEntry(path=path, problem=str(error), is_of_project=is_of_project)
            continue
        problem = "" if names else "It defines no workflow. Decorate an async function with @shoal.workflow."
        yield WorkflowFileEntry(path=path, names=names, problem=problem, is_of_project=is_of_project)


def _iter_workflow_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and any(map(_is_workflow_decorator, node.decorator_list)):
            yield node.name


def _is_workflow_decorator(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == _DECORATOR) or (
        isinstance(node, ast.Name) and node.id == _DECORATOR
    )
