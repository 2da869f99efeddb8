"""A typed function becomes a tool with a plain schema, and says in words what is wrong with a call."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from shoal.core.conversation.tools import ToolContext, ToolOutput
from shoal.core.errors import InvalidCronExpression, StateFileError, WorkspaceError
from shoal.tools.function_tool import ToolParameterName, tool


class Item(msgspec.Struct, frozen=True):
    text: Annotated[str, msgspec.Meta(description="What it says")]
    title: str = ""


@tool(name="Sample", reads_only=True, deadline=30)
async def sample(
    context: ToolContext,
    file_path: Annotated[str, "Where"],
    mode: Literal["a", "b"] = "a",
    limit: Annotated[int | None, "How many"] = None,
    items: list[Item] | None = None,
    after: Annotated[int, ToolParameterName("-A"), "Lines after"] = 0,
    flag: bool = False,
) -> str:
    """What it does."""
    return f"{file_path} {mode} {limit} {items} {after} {flag}"


NOWHERE: Any = None


def test_the_function_signature_becomes_a_flat_inlined_schema():
    assert sample.schema.name == "Sample"
    assert sample.schema.description == "What it does."
    assert sample.is_read_only
    assert sample.deadline == 30
    assert sample.schema.input_schema == {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "Where"},
            "mode": {"enum": ["a", "b"], "default": "a", "type": "string"},
            "limit": {"type": "integer", "description": "How many"},
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "description": "What it says"},
                        "title": {"type": "string", "default": ""},
                    },
                    "required": ["text"],
                },
            },
            "-A": {"type": "integer", "description": "Lines after", "default": 0},
            "flag": {"type": "boolean", "default": False},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }


async def test_a_valid_call_reaches_the_function():
    outcome = await sample.run({"file_path": "x", "-A": 2, "items": [{"text": "t"}], "limit": None}, NOWHERE)
    assert outcome == ToolOutput(content="x a None [Item(text='t', title='')] 2 False")


async def test_every_invalid_argument_is_named_with_the_expected_and_the_given_value():
    outcome = await sample.run(
        {"file_pth": "x", "mode": "c", "limit": "many", "items": [{"text": 1}]}, NOWHERE
    )
    assert outcome.is_error
    text = str(outcome.content)
    assert "`file_pth` is not an argument of Sample. Did you mean `file_path`?" in text
    assert '`mode`: expected one of "a", "b", got the string \'c\'' in text
    assert "`limit`: expected an integer, got the string 'many'" in text
    assert "`items[0].text`: expected `str`, got `int`" in text
    assert "`file_path` is missing: expected a string" in text
    assert "Sample takes: file_path (a string, required); mode" in text


async def test_numbers_booleans_and_lists_sent_as_strings_are_accepted():
    outcome = await sample.run(
        {"file_path": "null", "limit": "5", "flag": "true", "items": '[{"text": "t"}]'}, NOWHERE
    )
    assert outcome.content == "null a 5 [Item(text='t', title='')] 0 True"


async def test_a_huge_invalid_value_is_truncated_in_the_error():
    outcome = await sample.run({"file_path": "x", "limit": "9" * 100_000 + "x"}, NOWHERE)
    assert outcome.is_error
    assert len(outcome.content) < 1000
    assert "100001 characters" in str(outcome.content)


async def test_a_plain_function_runs_in_a_thread_and_its_result_is_json():
    @tool
    def count(words: list[str]) -> dict[str, int]:
        """Counts."""
        return {"words": len(words), "main": int(threading.current_thread() is threading.main_thread())}

    outcome = await count.run({"words": ["a", "b"]}, NOWHERE)
    assert outcome == ToolOutput(content='{"words":2,"main":0}', data={"words": 2, "main": 0})
    assert count.schema.name == "count"


async def test_no_argument_can_replace_the_tool_context():
    outcome = await sample.run({"file_path": "x", "site": "mine"}, NOWHERE)
    assert outcome.is_error
    assert "`site` is not an argument" in str(outcome.content)


async def test_a_workspace_error_is_a_failed_tool_output():
    @tool
    async def refuse() -> str:
        raise WorkspaceError("the file is stale")

    assert await refuse.run({}, NOWHERE) == ToolOutput(content="the file is stale", is_error=True)
    assert "takes no arguments" in str((await refuse.run({"x": 1}, NOWHERE)).content)


async def test_a_shoal_error_is_a_failed_tool_output_but_a_store_error_is_raised():
    @tool
    async def refuse() -> str:
        raise InvalidCronExpression("no hour is 25", field="hour")

    @tool
    async def lose() -> str:
        raise StateFileError("the disk is full", path=Path("journal"))

    assert await refuse.run({}, NOWHERE) == ToolOutput(content="no hour is 25", is_error=True)
    with pytest.raises(StateFileError, match="the disk is full"):
        await lose.run({}, NOWHERE)


async def test_an_undocumented_input_is_still_accepted():
    @tool
    async def write(to: str, older_name: str = "") -> str:
        return f"{to} {older_name}"

    write.restrict_inputs(write.get_inputs_without("older_name", "to"), required=())
    assert write.schema.input_schema["properties"] == {}
    assert write.schema.input_schema["required"] == []
    assert (await write.run({"to": "you", "older_name": "me"}, NOWHERE)).content == "you me"
    assert (await write.run({}, NOWHERE)).is_error


def test_functions_that_cannot_be_tools_are_refused_when_defined():
    with pytest.raises(TypeError, match="Name each argument"):

        @tool
        async def loose(*words: str) -> str: ...

    with pytest.raises(TypeError, match="Recursive contains itself"):

        @tool
        async def deep(tree: Recursive) -> str: ...

    with pytest.raises(TypeError, match="Import it at module level"):

        @tool
        async def use_undefined_type(x: Nowhere) -> str: ...  # noqa: F821


class Recursive(msgspec.Struct):
    children: list[Recursive]


async def test_a_tool_call_has_little_overhead():
    rounds = 2_000
    arguments = {"file_path": "x", "limit": 5}
    best = min([await _seconds(rounds, arguments) for _ in range(5)])
    assert best / rounds < 15e-6


async def _seconds(rounds: int, arguments: dict[str, Any]) -> float:
    start = time.process_time()
    for _ in range(rounds):
        await sample.run(arguments, NOWHERE)
    return time.process_time() - start


def test_a_tool_described_by_its_docstring_is_refused_where_python_removes_docstrings() -> None:
    script = textwrap.dedent('''
        from shoal.tools.function_tool import tool

        def find_port(name: str) -> str:
            """Find a port."""
            return name

        print(tool(description="Find a port.")(find_port).schema.description)
        try:
            print(tool(find_port).schema.description)
        except TypeError as error:
            print(error)
    ''')
    plain, optimized = (
        subprocess.run(
            [sys.executable, *flags, "-c", script], capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()
        for flags in (["-Xutf8"], ["-Xutf8", "-OO"])
    )
    assert plain == ["Find a port.", "Find a port."]
    assert optimized == [
        "Find a port.",
        "the tool find_port has no description: python -OO removes docstrings. Pass description=… to @tool, "
        "or run Python without -OO.",
    ]
