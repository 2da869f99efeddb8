"""Tools and model of an agent definition."""

from __future__ import annotations

import pytest

from shoal.core.agents.agent_definitions import (
    AgentCapabilities,
    ToolSelection,
    select_agent_model,
    select_definition_tools,
)

OFFERED = ("Read", "Grep", "Glob", "Edit", "Bash", "Agent", "mcp__web__get", "mcp__web__put", "mcp__db__ask")


def resolve_tools(tools: tuple[str, ...] | None = None, off: tuple[str, ...] = ()) -> ToolSelection:
    return select_definition_tools(AgentCapabilities(tools=tools, disallowed_tools=off), OFFERED)


@pytest.mark.spec("DEF-05")
@pytest.mark.parametrize("tools", [None, ("*",), ("Read", "*")])
def test_no_list_or_a_star_selects_every_tool(tools: tuple[str, ...] | None):
    assert resolve_tools(tools) == ToolSelection(names=OFFERED)


@pytest.mark.spec("DEF-05")
def test_selected_tools_keep_the_order_of_the_available_tools():
    assert resolve_tools(("Bash", "Read", "Bash")).names == ("Read", "Bash")
    assert resolve_tools(()).names == ()


@pytest.mark.spec("DEF-05")
def test_disallowed_tools_are_removed_from_the_selection():
    found = resolve_tools(("Read", "Bash"), off=("Bash", "Nothing"))
    # Agents that it starts may not use them either.
    assert (found.names, found.never) == (("Read",), ("Bash", "Nothing"))
    assert resolve_tools(None, off=("Agent", "mcp__web")).names == (
        "Read",
        "Grep",
        "Glob",
        "Edit",
        "Bash",
        "mcp__db__ask",
    )
    assert resolve_tools(("*",), off=("*",)).names == ()


@pytest.mark.spec("DEF-05")
def test_a_pattern_selects_the_tool_and_restricts_it():
    found = resolve_tools(("Read", "Bash(git log:*)", "Bash(make, test)"))
    assert found.names == ("Read", "Bash")
    assert found.only == ("Bash(git log:*)", "Bash(make, test)")
    assert resolve_tools(("*", "Bash(git:*)")).only == ("Bash(git:*)",)


def test_a_disallowed_pattern_keeps_the_tool_and_is_listed_separately():
    found = resolve_tools(("Read", "Bash"), off=("Bash(rm:*)", "Edit(x)"))
    assert (found.names, found.never) == (("Read", "Bash"), ("Bash(rm:*)", "Edit(x)"))


def test_a_disallowed_tool_keeps_no_patterns():
    found = resolve_tools(("Read", "Bash(git:*)"), off=("Bash",))
    assert (found.names, found.only) == (("Read",), ())


def test_missing_tools_are_listed():
    found = resolve_tools(("Read", "Web", "Shell(x:*)", "mcp__gone", "mcp__web__*"))
    assert found.names == ("Read", "mcp__web__get", "mcp__web__put")
    assert found.missing == ("Web", "Shell(x:*)", "mcp__gone")


@pytest.mark.parametrize(
    ("old", "new"), [("Task", "Agent"), ("MultiEdit", "Edit"), ("LS", "Glob"), ("NotebookRead", "Read")]
)
def test_former_tool_names_select_the_current_tool(old: str, new: str):
    assert resolve_tools((old,)) == ToolSelection(names=(new,))
    denied = resolve_tools(None, off=(old,))
    if old == "NotebookRead":
        assert denied.never == ("Read(//**/*.ipynb)",)  # the only files that it read
    else:
        assert new not in denied.names
    assert resolve_tools((f"{old}(x)",)).only == (f"{new}(x)",)


def test_a_custom_tool_with_a_former_name_is_selected_itself():
    capabilities = AgentCapabilities(tools=("LS", "Task"))
    assert select_definition_tools(capabilities, ("LS", "Glob", "Agent")).names == ("LS", "Agent")


@pytest.mark.spec("DEF-06")
@pytest.mark.parametrize(
    ("wishes", "model"),
    [
        (("e", "c", "d"), "e"),
        ((None, "c", "d"), "c"),
        (("", "", "d"), "d"),
        ((None, None, None), None),
        ((None, "inherit", "d"), None),
        (("inherit", "c", "d"), None),
        ((None, "sonnet", "d"), None),
        ((None, None, "parent-1"), None),
        ((None, "opus", "sonnet"), "opus"),
    ],
)
def test_the_first_requested_model_wins_and_the_parents_names_inherit(
    wishes: tuple[str | None, ...], model: str | None
):
    env, call, definition = wishes
    found = select_agent_model(env=env, call=call, definition=definition, parent={"sonnet", "parent-1"})
    assert found == model
