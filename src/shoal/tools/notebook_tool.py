"""The NotebookEdit tool, which replaces, inserts or deletes one cell of a notebook."""

from __future__ import annotations

import json
from typing import Any, Literal

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_count_with_noun
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.missing_paths import report_missing_path, stat_path
from shoal.tools.notebook_reader import get_notebook_cell_id
from shoal.tools.tool_texts import format_tool_text, load_tool_text

_MAX_LISTED_CELLS = 20
_CellKind = Literal["code", "markdown"]


class _NotebookEditRefusedError(Exception):
    """The notebook is not changed; the text says why."""


@builtin_tool(name="NotebookEdit", deadline=60)
async def notebook_edit(
    context: ToolContext,
    notebook_path: str,
    new_source: str,
    cell_id: str | None = None,
    cell_type: _CellKind | None = None,
    edit_mode: Literal["replace", "insert", "delete"] = "replace",
) -> ToolOutput:
    path = context.workspace.resolve_path(notebook_path)
    if stat_path(path) is None:
        return report_missing_path(path, context)
    content = context.workspace.read_file_for_change(path)
    try:
        notebook, cells = _parse_notebook(content)
        if edit_mode == "insert":
            cell = _build_notebook_cell(notebook, cell_type, new_source, context.ids.new_short_id())
            summary = _insert_notebook_cell(cells, cell_id, cell)
        elif edit_mode == "delete":
            summary = _delete_notebook_cell(cells, cell_id)
        else:
            summary = _replace_notebook_cell(cells, cell_id, cell_type, new_source)
    except _NotebookEditRefusedError as refusal:
        return create_tool_error_output(
            format_tool_text("NotebookEdit", "refused", path=escape_filename(path), reason=refusal)
        )
    indent = "\t" if b"\n\t" in content[:200] else 2 if content.startswith(b"{\n  ") else 1
    encoded = _encode_notebook(notebook, indent) + b"\n" * content.endswith(b"\n")
    context.workspace.write_file(path, encoded)
    return ToolOutput(
        content=f"{summary} in {escape_filename(path)}.",
        data={"path": escape_filename(path), "cells": len(cells), "changed": encoded != content},
    )


def _encode_notebook(notebook: dict[str, Any], indent: int | str) -> bytes:
    try:
        return json.dumps(notebook, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as an escape
        return json.dumps(notebook, indent=indent).encode()


def _parse_notebook(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        notebook = json.loads(content)
        cells = notebook["cells"]
        is_valid = isinstance(cells, list) and all(
            isinstance(cell, dict) and "cell_type" in cell for cell in cells
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise _NotebookEditRefusedError(format_tool_text("NotebookEdit", "not_a_notebook"))
    return notebook, cells


def _find_notebook_cell(cells: list[dict[str, Any]], cell_id: str | None) -> int:
    if cell_id is None:
        raise _NotebookEditRefusedError(load_tool_text("NotebookEdit", "no_cell_id"))
    for number, cell in enumerate(cells):
        if cell_id in (cell.get("id"), get_notebook_cell_id(number, cell)):
            return number
    names = ", ".join(
        get_notebook_cell_id(number, cell) for number, cell in enumerate(cells[:_MAX_LISTED_CELLS])
    )
    raise _NotebookEditRefusedError(
        format_tool_text(
            "NotebookEdit",
            "unknown_cell",
            id=repr(cell_id[:80]),
            count=format_count_with_noun(len(cells), "cell"),
            names=names or "none",
        )
    )


def _replace_notebook_cell(
    cells: list[dict[str, Any]], cell_id: str | None, kind: _CellKind | None, source: str
) -> str:
    number = _find_notebook_cell(cells, cell_id)
    cell = cells[number]
    cell["source"] = _split_cell_source(source)
    if kind is not None:
        cell["cell_type"] = kind
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    return f"Replaced cell {get_notebook_cell_id(number, cell)}"


def _delete_notebook_cell(cells: list[dict[str, Any]], cell_id: str | None) -> str:
    number = _find_notebook_cell(cells, cell_id)
    return f"Deleted cell {get_notebook_cell_id(number, cells.pop(number))}"


def _insert_notebook_cell(cells: list[dict[str, Any]], previous_id: str | None, cell: dict[str, Any]) -> str:
    number = 0 if previous_id is None else _find_notebook_cell(cells, previous_id) + 1
    cells.insert(number, cell)
    return f"Inserted cell {get_notebook_cell_id(number, cell)}"


def _build_notebook_cell(
    notebook: dict[str, Any], kind: _CellKind | None, source: str, cell_id: str
) -> dict[str, Any]:
    if kind is None:
        raise _NotebookEditRefusedError(load_tool_text("NotebookEdit", "no_cell_type"))
    cell: dict[str, Any] = {"cell_type": kind}
    # Ids were added in format 4.5; older readers reject them.
    version = notebook.get("nbformat", 4), notebook.get("nbformat_minor", 0)
    if all(isinstance(number, int) for number in version) and version >= (4, 5):
        cell["id"] = cell_id
    if kind == "code":
        cell |= {"execution_count": None, "metadata": {}, "outputs": []}
    else:
        cell["metadata"] = {}
    return {**cell, "source": _split_cell_source(source)}


def _split_cell_source(source: str) -> list[str]:
    return source.splitlines(keepends=True)
