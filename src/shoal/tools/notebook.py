"""The NotebookEdit tool, which replaces, inserts or deletes one cell of a notebook."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from shoal.core.filenames import shown
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.define import tool
from shoal.tools.nearby import missing, state_of
from shoal.tools.read_notebook import cell_name

_LISTED = 20
_Kind = Literal["code", "markdown"]


class _Refused(Exception):
    """The notebook is not changed; the text says why."""


@tool(name="NotebookEdit", deadline=60)
async def notebook_edit(
    site: Site,
    notebook_path: Annotated[str, "The .ipynb file, absolute or relative to the working directory"],
    new_source: Annotated[str, "The source of the cell; empty for delete"],
    cell_id: Annotated[str | None, "The cell, by the id Read shows; for insert, the one before"] = None,
    cell_type: Annotated[_Kind | None, "Needed for insert; for replace only to change it"] = None,
    edit_mode: Literal["replace", "insert", "delete"] = "replace",
) -> Outcome:
    """Replace, insert or delete one cell of a notebook. Read the notebook first: it shows the ids of its
    cells. Without cell_id, insert puts the cell at the start. The outputs of a replaced cell are cleared."""
    path = site.workspace.locate(notebook_path)
    if state_of(path) is None:
        return missing(path, site)
    content = site.workspace.current(path)
    try:
        notebook, cells = _parsed(content)
        if edit_mode == "insert":
            cell = _new_cell(notebook, cell_type, new_source, site.ids.short())
            told = _insert(cells, cell_id, cell)
        elif edit_mode == "delete":
            told = _delete(cells, cell_id)
        else:
            told = _replace(cells, cell_id, cell_type, new_source)
    except _Refused as refusal:
        return failed(f"{shown(path)}: {refusal} Nothing was changed.")
    indent = "\t" if b"\n\t" in content[:200] else 2 if content.startswith(b"{\n  ") else 1
    site.workspace.write(path, _encoded(notebook, indent) + b"\n" * content.endswith(b"\n"))
    return Outcome(content=f"{told} in {shown(path)}.", data={"path": shown(path), "cells": len(cells)})


def _encoded(notebook: dict[str, Any], indent: int | str) -> bytes:
    try:
        return json.dumps(notebook, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as an escape
        return json.dumps(notebook, indent=indent).encode()


def _parsed(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        notebook = json.loads(content)
        cells = notebook["cells"]
        sound = isinstance(cells, list) and all(
            isinstance(cell, dict) and "cell_type" in cell for cell in cells
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise _Refused("it is not a notebook of format 4 (JSON with a list of cells).")
    return notebook, cells


def _place(cells: list[dict[str, Any]], cell_id: str | None) -> int:
    if cell_id is None:
        raise _Refused("cell_id is missing.")
    for number, cell in enumerate(cells):
        if cell_id in (cell.get("id"), cell_name(number, cell)):
            return number
    names = ", ".join(cell_name(number, cell) for number, cell in enumerate(cells[:_LISTED]))
    raise _Refused(f"there is no cell {cell_id[:80]!r}; of {len(cells)} the first are {names or 'none'}.")


def _replace(cells: list[dict[str, Any]], cell_id: str | None, kind: _Kind | None, source: str) -> str:
    number = _place(cells, cell_id)
    cell = cells[number]
    cell["source"] = _lines(source)
    if kind is not None:
        cell["cell_type"] = kind
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    return f"Replaced cell {cell_name(number, cell)}"


def _delete(cells: list[dict[str, Any]], cell_id: str | None) -> str:
    number = _place(cells, cell_id)
    return f"Deleted cell {cell_name(number, cells.pop(number))}"


def _insert(cells: list[dict[str, Any]], after: str | None, cell: dict[str, Any]) -> str:
    number = 0 if after is None else _place(cells, after) + 1
    cells.insert(number, cell)
    return f"Inserted cell {cell_name(number, cell)}"


def _new_cell(notebook: dict[str, Any], kind: _Kind | None, source: str, name: str) -> dict[str, Any]:
    if kind is None:
        raise _Refused("cell_type is missing; insert needs it.")
    cell: dict[str, Any] = {"cell_type": kind}
    # Ids were added in format 4.5; older readers reject them.
    version = notebook.get("nbformat", 4), notebook.get("nbformat_minor", 0)
    if all(isinstance(number, int) for number in version) and version >= (4, 5):
        cell["id"] = name
    if kind == "code":
        cell |= {"execution_count": None, "metadata": {}, "outputs": []}
    else:
        cell["metadata"] = {}
    return {**cell, "source": _lines(source)}


def _lines(source: str) -> list[str]:
    return source.splitlines(keepends=True)
