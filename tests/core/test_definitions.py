"""What a definition comes down to: its tools, and the model it asks for."""

from __future__ import annotations

import pytest

from shoal.core.definitions import Definition, Source, Toolset, tool_names, wished_model

OFFERED = ("Read", "Grep", "Glob", "Edit", "Bash", "Agent", "mcp__web__get", "mcp__web__put", "mcp__db__ask")


def resolved(tools: tuple[str, ...] | None = None, off: tuple[str, ...] = ()) -> Toolset:
    definition = Definition(
        name="a",
        description="b",
        prompt="c",
        source=Source(kind="flag"),
        tools=tools,
        disallowed_tools=off,
    )
    return tool_names(definition, OFFERED)


@pytest.mark.spec("DEF-05")
@pytest.mark.parametrize("tools", [None, ("*",), ("Read", "*")])
def test_no_list_and_a_star_mean_every_tool(tools: tuple[str, ...] | None):
    assert resolved(tools) == Toolset(names=OFFERED)


@pytest.mark.spec("DEF-05")
def test_named_tools_come_in_the_order_in_which_they_are_offered():
    assert resolved(("Bash", "Read", "Bash")).names == ("Read", "Bash")
    assert resolved(()).names == ()


@pytest.mark.spec("DEF-05")
def test_what_is_disallowed_is_taken_off_whatever_was_named():
    assert resolved(("Read", "Bash"), off=("Bash", "Nothing")) == Toolset(names=("Read",))
    assert resolved(None, off=("Agent", "mcp__web")).names == (
        "Read",
        "Grep",
        "Glob",
        "Edit",
        "Bash",
        "mcp__db__ask",
    )
    assert resolved(("*",), off=("*",)).names == ()


@pytest.mark.spec("DEF-05")
def test_a_pattern_gives_the_tool_and_narrows_it():
    found = resolved(("Read", "Bash(git log:*)", "Bash(make, test)"))
    assert found.names == ("Read", "Bash")
    assert found.only == ("Bash(git log:*)", "Bash(make, test)")
    assert resolved(("*", "Bash(git:*)")).only == ("Bash(git:*)",)


def test_a_disallowed_pattern_leaves_the_tool_and_is_told_apart():
    found = resolved(("Read", "Bash"), off=("Bash(rm:*)", "Edit(x)"))
    assert (found.names, found.never) == (("Read", "Bash"), ("Bash(rm:*)",))


def test_a_tool_that_is_taken_off_has_no_patterns_left():
    found = resolved(("Read", "Bash(git:*)"), off=("Bash",))
    assert (found.names, found.only) == (("Read",), ())


def test_what_cannot_be_had_is_named():
    found = resolved(("Read", "Web", "Shell(x:*)", "mcp__gone", "mcp__web__*"))
    assert found.names == ("Read", "mcp__web__get", "mcp__web__put")
    assert found.missing == ("Web", "Shell(x:*)", "mcp__gone")


@pytest.mark.parametrize(
    ("old", "new"), [("Task", "Agent"), ("MultiEdit", "Edit"), ("LS", "Glob"), ("NotebookRead", "Read")]
)
def test_former_names_mean_the_tool_of_today(old: str, new: str):
    assert resolved((old,)) == Toolset(names=(new,))
    assert new not in resolved(None, off=(old,)).names
    assert resolved((f"{old}(x)",)).only == (f"{new}(x)",)


def test_a_tool_of_ones_own_that_has_a_former_name_is_itself():
    definition = Definition(
        name="a", description="b", prompt="c", source=Source(kind="flag"), tools=("LS", "Task")
    )
    assert tool_names(definition, ("LS", "Glob", "Agent")).names == ("LS", "Agent")


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
def test_the_first_wish_counts_and_the_parents_own_names_are_the_parents_model(
    wishes: tuple[str | None, ...], model: str | None
):
    env, call, definition = wishes
    found = wished_model(env=env, call=call, definition=definition, parent={"sonnet", "parent-1"})
    assert found == model
