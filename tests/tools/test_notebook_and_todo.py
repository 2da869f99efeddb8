"""NotebookEdit changes one cell and keeps the rest; TodoWrite keeps a list."""

from __future__ import annotations

import json

import pytest

from shoal.tools.file_tools import get_file_tools, todo_write
from shoal.tools.notebook_tool import notebook_edit
from shoal.tools.read_tool import read_tool


def _notebook(minor: int = 5) -> str:
    cells = [
        {"cell_type": "markdown", "id": "one", "metadata": {"kept": True}, "source": ["# Title"]},
        {
            "cell_type": "code",
            "id": "two",
            "execution_count": 3,
            "metadata": {},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "é"}],
            "source": ["print('é')"],
        },
    ]
    if minor < 5:
        for cell in cells:
            del cell["id"]
    notebook = {"cells": cells, "metadata": {"foreign": [1]}, "nbformat": 4, "nbformat_minor": minor}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


@pytest.fixture
async def notebook(tool_bench):
    path = tool_bench.write_file("n.ipynb", _notebook())
    await tool_bench.call_tool(read_tool, file_path="n.ipynb")
    return path


async def test_replacing_a_code_cell_removes_its_outputs_and_changes_nothing_else(tool_bench, notebook):
    await tool_bench.call_for_text(
        notebook_edit, notebook_path="n.ipynb", cell_id="two", new_source="a = 1\nb = 2"
    )
    expected = json.loads(_notebook())
    expected["cells"][1] |= {"source": ["a = 1\n", "b = 2"], "outputs": [], "execution_count": None}
    assert json.loads(notebook.read_text()) == expected
    assert notebook.read_text() == json.dumps(expected, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("text", ['{"cells": {}}', '{"cells": ""}', "[" * 100_000, '{"cells": ["a"]}'])
async def test_a_file_that_is_not_a_notebook_is_not_changed(tool_bench, text):
    path = tool_bench.write_file("n.ipynb", text)
    await tool_bench.call_tool(read_tool, file_path="n.ipynb")
    output = await tool_bench.call_for_failure(
        notebook_edit, notebook_path="n.ipynb", edit_mode="insert", cell_type="code", new_source="x"
    )
    assert "it is not a notebook of format 4" in output
    assert path.read_text() == text


async def test_a_lone_surrogate_and_unusual_formatting_of_a_notebook_are_kept(tool_bench):
    path = tool_bench.write_file("n.ipynb", '{"cells": [], "metadata": "\\ud800", "nbformat": "4"}')
    await tool_bench.call_tool(read_tool, file_path="n.ipynb")
    insert = {"edit_mode": "insert", "cell_type": "code", "new_source": "x"}
    await tool_bench.call_for_text(notebook_edit, notebook_path="n.ipynb", **insert)
    changed = json.loads(path.read_text())
    assert (changed["metadata"], changed["nbformat"]) == ("\ud800", "4")
    assert [cell["source"] for cell in changed["cells"]] == [["x"]]


async def test_a_cell_is_inserted_after_another_or_at_the_start(tool_bench, notebook):
    insert = {"notebook_path": "n.ipynb", "edit_mode": "insert"}
    await tool_bench.call_for_text(notebook_edit, **insert, cell_id="one", cell_type="code", new_source="x")
    await tool_bench.call_for_text(notebook_edit, **insert, cell_type="markdown", new_source="top")
    cells = json.loads(notebook.read_text())["cells"]
    assert [cell["source"] for cell in cells] == [["top"], ["# Title"], ["x"], ["print('é')"]]
    assert cells[2]["outputs"] == []
    assert "outputs" not in cells[0]
    assert len({cell["id"] for cell in cells}) == 4
    assert "cell_type is missing" in await tool_bench.call_for_failure(
        notebook_edit, **insert, new_source="x"
    )


async def test_a_cell_is_deleted(tool_bench, notebook):
    await tool_bench.call_for_text(
        notebook_edit, notebook_path="n.ipynb", cell_id="one", edit_mode="delete", new_source=""
    )
    assert [cell["id"] for cell in json.loads(notebook.read_text())["cells"]] == ["two"]


async def test_cells_of_old_notebooks_are_addressed_by_position_and_get_no_ids(tool_bench):
    path = tool_bench.write_file("old.ipynb", _notebook(minor=4))
    await tool_bench.call_tool(read_tool, file_path="old.ipynb")
    await tool_bench.call_for_text(notebook_edit, notebook_path="old.ipynb", cell_id="cell-1", new_source="y")
    await tool_bench.call_for_text(
        notebook_edit, notebook_path="old.ipynb", edit_mode="insert", cell_type="code", new_source="z"
    )
    cells = json.loads(path.read_text())["cells"]
    assert [cell["source"] for cell in cells] == [["z"], ["# Title"], ["y"]]
    assert all("id" not in cell for cell in cells)


async def test_an_impossible_edit_is_reported_and_changes_nothing(tool_bench, notebook):
    wrong = await tool_bench.call_for_failure(
        notebook_edit, notebook_path="n.ipynb", cell_id="three", new_source="x"
    )
    assert "there is no cell 'three'. It has 2 cells; the first are: one, two." in wrong
    assert "cell_id is missing" in await tool_bench.call_for_failure(
        notebook_edit, notebook_path="n.ipynb", new_source=""
    )
    tool_bench.write_file("t.ipynb", "not json")
    await tool_bench.call_tool(read_tool, file_path="t.ipynb")
    assert "not a notebook" in await tool_bench.call_for_failure(
        notebook_edit, notebook_path="t.ipynb", cell_id="a", new_source=""
    )
    assert notebook.read_text() == _notebook()


@pytest.mark.spec("USR-28")
async def test_a_notebook_that_was_not_read_is_not_changed(tool_bench):
    tool_bench.write_file("n.ipynb", _notebook())
    assert "has not been read" in await tool_bench.call_for_failure(
        notebook_edit, notebook_path="n.ipynb", cell_id="two", new_source="x"
    )


async def test_a_todo_list_is_shown_and_returned_as_data(tool_bench):
    todos = [
        {"content": "Read it", "status": "completed", "activeForm": "Reading it"},
        {"content": "Fix it", "status": "in_progress", "activeForm": "Fixing it"},
        {"content": "Test it", "status": "in_progress", "activeForm": "Testing it"},
    ]
    outcome = await tool_bench.call_tool(todo_write, todos=todos)
    assert "[x] Read it\n[>] Fix it\n[>] Test it\n(2 steps are in progress" in str(outcome.content)
    assert outcome.data == {"todos": todos}


async def test_an_invalid_todo_item_is_named(tool_bench):
    wrong = [{"content": "Read it", "status": "begun", "activeForm": "Reading it"}]
    assert "`todos[0].status`: invalid enum value 'begun'" in await tool_bench.call_for_failure(
        todo_write, todos=wrong
    )


def test_the_tools_have_the_documented_names_and_arguments():
    known = {tool.schema.name: list(tool.schema.input_schema["properties"]) for tool in get_file_tools()}
    assert known == {
        "Read": ["file_path", "offset", "limit", "pages"],
        "Write": ["file_path", "content"],
        "Edit": ["file_path", "old_string", "new_string", "replace_all"],
        "Glob": ["pattern", "path"],
        "Grep": [
            *("pattern", "path", "glob", "type", "output_mode", "-A", "-B", "-C", "-n", "-i"),
            *("multiline", "head_limit", "offset"),
        ],
        "NotebookEdit": ["notebook_path", "new_source", "cell_id", "cell_type", "edit_mode"],
        "TodoWrite": ["todos"],
    }
    for tool in get_file_tools():
        assert len(tool.schema.description) > 50
        assert "\n" not in tool.schema.description
        assert "$ref" not in json.dumps(tool.schema.input_schema)
