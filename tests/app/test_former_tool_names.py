"""Former names of tools, such as MultiEdit: rules, definitions, flags and hooks apply to the current tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import list_lead_results, open_session
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.policy.hooks.hook_matcher import is_hook_matcher_match
from shoal.policy.permission_rules import parse_permission_rule

EDIT = call_tool("Edit", file_path="a.txt", old_string="old", new_string="new")
LIST = call_tool("Glob", pattern="*")
NOTEBOOK = call_tool("Read", file_path="a.ipynb")
NOTEBOOK_TEXT = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
ABSENT = "There is no tool named"


def write_project(root: Path, settings: dict[str, Any] | None = None) -> None:
    (root / "a.txt").write_text("old")
    (root / "a.ipynb").write_text(NOTEBOOK_TEXT)
    (root / ".claude").mkdir()
    (root / ".claude" / "settings.json").write_text(json.dumps(settings or {}))


async def run_calls(root: Path, *calls: ToolUseBlock, **options: Any) -> list[str]:
    model = script_agents(lead=[*calls, "done"])
    async with open_session(root, model, skip_permissions=False, **options) as session:
        await run_all_turns(session)
    return list_lead_results(session)


@pytest.mark.spec("CMP-082")
@pytest.mark.parametrize("place", ["deny", "ask", "flag", "definition"])
@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("MultiEdit", EDIT),
        ("MultiEdit(a.txt)", EDIT),
        ("LS", LIST),
        ("NotebookRead", NOTEBOOK),
        ("NotebookRead(a.ipynb)", NOTEBOOK),
    ],
)
async def test_a_rule_about_a_former_tool_forbids_the_current_one(
    tmp_path: Path, place: str, rule: str, call: ToolUseBlock
) -> None:
    write_project(tmp_path, {"permissions": {place: [rule]}} if place in ("deny", "ask") else None)
    options: dict[str, Any] = {"disallowed_tools": [rule]} if place == "flag" else {}
    if place == "definition":
        agents = tmp_path / ".claude" / "agents"
        agents.mkdir()
        (agents / "x.md").write_text(
            f"---\nname: x\ndescription: d\ndisallowedTools: ['{rule}']\n---\nYou work.\n"
        )
        options["agent"] = "x"
    read = call_tool("Read", file_path="a.txt")
    results = await run_calls(tmp_path, read, call, mode="acceptEdits", **options)
    assert "old" in results[0]
    assert ABSENT in results[1] or "was not run" in results[1]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.spec("CMP-082")
@pytest.mark.parametrize("rule", ["MultiEdit", "MultiEdit(a.txt)"])
async def test_an_allow_rule_about_a_former_tool_approves_the_current_one(tmp_path: Path, rule: str) -> None:
    write_project(tmp_path)
    read = call_tool("Read", file_path="a.txt")
    await run_calls(tmp_path, read, EDIT, allowed_tools=[rule])
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.spec("CMP-082")
async def test_an_allow_rule_about_notebooks_approves_no_other_files(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_project(tmp_path)
    outside = tmp_path_factory.mktemp("outside")
    (outside / "b.ipynb").write_text(NOTEBOOK_TEXT)
    (outside / "b.txt").write_text("private")
    calls = [call_tool("Read", file_path=str(outside / name)) for name in ("b.ipynb", "b.txt")]
    notebook, text = await run_calls(tmp_path, *calls, allowed_tools=["NotebookRead"])
    assert ("was not run" in notebook, "was not run" in text) == (False, True)
    refused = await run_calls(tmp_path, calls[1], allowed_tools=[f"NotebookRead(/{outside}/**)"])
    assert "was not run" in refused[0]


@pytest.mark.spec("CMP-037", "CMP-082")
@pytest.mark.parametrize(
    ("matcher", "is_blocked"),
    [("MultiEdit", True), ("Multi.*", True), ("Write|MultiEdit", True), ("NotebookRead", False)],
)
async def test_a_hook_for_a_former_tool_runs_for_the_current_one(
    tmp_path: Path, matcher: str, is_blocked: bool
) -> None:
    hook = {"matcher": matcher, "hooks": [{"type": "command", "command": "exit 2"}]}
    write_project(tmp_path)
    settings = json.dumps({"hooks": {"PreToolUse": [hook]}})
    read = call_tool("Read", file_path="a.txt")
    await run_calls(tmp_path, read, EDIT, mode="acceptEdits", settings=settings)
    assert (tmp_path / "a.txt").read_text() == ("old" if is_blocked else "new")


@pytest.mark.spec("CMP-082")
async def test_a_child_without_a_former_tool_lacks_the_current_one(tmp_path: Path) -> None:
    write_project(tmp_path)
    agents = tmp_path / ".claude" / "agents"
    agents.mkdir()
    text = (
        "---\nname: x\ndescription: d\ntools: Read, MultiEdit, LS\ndisallowedTools: MultiEdit\n---\nYou work."
    )
    (agents / "x.md").write_text(text)
    model = script_agents(
        lead=[spawn_agent("You: go", subagent_type="x"), "done"],
        You=[lambda request: ", ".join(tool.name for tool in request.tools)],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    assert "Read, Glob" in list_lead_results(session)[0]


@pytest.mark.spec("CMP-082")
def test_each_former_name_means_its_tool_in_rules_and_matchers() -> None:
    assert {*FORMER_TOOL_NAMES.values()} <= TOOL_NAMES
    for former, current in FORMER_TOOL_NAMES.items():
        rule = parse_permission_rule(former)
        assert rule.applies_to_tool(current)
        assert rule.applies_to_tool(former)  # a tool of the program may have this name
        assert parse_permission_rule(str(rule)) == rule
        assert is_hook_matcher_match(former, current, (former,))


@pytest.mark.spec("CMP-018")
@pytest.mark.parametrize(("matcher", "tool"), [("Notebook.*", "Read"), ("Agent.*", "TaskOutput")])
def test_an_expression_that_matches_a_current_name_does_not_mean_a_former_one(
    matcher: str, tool: str
) -> None:
    former = tuple(name for name, current in FORMER_TOOL_NAMES.items() if current == tool)
    assert not is_hook_matcher_match(matcher, tool, former)
    assert not parse_permission_rule(matcher.replace(".*", "*")).applies_to_tool(tool)
