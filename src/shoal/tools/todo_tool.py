"""The TodoWrite tool: the agent's own to-do list, for people to follow."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, to_builtins

from shoal.core.tools import ToolOutput
from shoal.tools.function_tool import tool

_CHECKBOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoItem(Struct, frozen=True, kw_only=True, rename="camel"):
    content: Annotated[str, Meta(min_length=1, description="What is to be done: Run the tests")]
    status: Literal["pending", "in_progress", "completed"]
    active_form: Annotated[str, Meta(min_length=1, description="As it is being done: Running the tests")]


@tool(name="TodoWrite", deadline=5)
async def todo_write(
    todos: Annotated[list[TodoItem], "The whole list; it replaces the one before"],
) -> ToolOutput:
    """Keep a list of steps for work that has three or more of them, so that the person can follow. Give the
    whole list each time. Have one step in_progress while you work on it, and mark it completed as soon as
    it is done, not before."""
    listing = "\n".join(f"{_CHECKBOXES[todo.status]} {todo.content}" for todo in todos)
    active = sum(todo.status == "in_progress" for todo in todos)
    advice = (
        f"\n({active} steps are in progress at once; one at a time is easier to follow.)"
        if active > 1
        else ""
    )
    return ToolOutput(
        content=f"The list is now:\n{listing or '(empty)'}{advice}", data={"todos": to_builtins(todos)}
    )
