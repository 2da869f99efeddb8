"""Each setting, flag and answer that narrows what an agent may do holds in every position of an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from agent_scripts import call_tool
from hook_helpers import (
    AGENT_POSITIONS,
    build_answer_command,
    build_specific_answer,
    list_results,
    make_command_hook,
    open_hook_scenario,
)

POSITIONS = tuple(each for each in AGENT_POSITIONS if each != "nested agent")
_ALLOW = build_specific_answer(hookEventName="PreToolUse", permissionDecision="allow")


class NarrowingItem(Struct, frozen=True, kw_only=True):
    """A setting and a call that must not be run with it; without it, the call is run."""

    settings: dict[str, Any]
    call: tuple[str, dict[str, Any]]
    mode: str = "bypassPermissions"
    options: dict[str, Any] = {}
    refusal: str = "was not run"


def make_hook(entry: dict[str, Any], *actions: dict[str, Any]) -> dict[str, Any]:
    return {"hooks": {"PreToolUse": [{**entry, "hooks": list(actions)}]}}


def make_rules(**rules: list[str]) -> dict[str, Any]:
    return {"permissions": rules}


WRITE = ("Write", {"file_path": "made", "content": "x"})
TOUCH = ("Bash", {"command": "touch made"})
BLOCK = make_command_hook("exit 2")
ITEMS = {
    "CMP-016": NarrowingItem(settings=make_rules(allow=["*"]), call=WRITE, mode="default"),
    "CMP-019": NarrowingItem(
        settings=make_rules(deny=["Bash(run_in_background:true)"]),
        call=("Bash", {"command": "touch made", "run_in_background": True}),
    ),
    "CMP-020": NarrowingItem(
        settings=make_rules(deny=["Read(secrets/**)"]), call=("Read", {"file_path": "lib/secrets/key"})
    ),
    "CMP-021": NarrowingItem(settings=make_rules(deny=["Read(made)"]), call=WRITE),
    "CMP-023": NarrowingItem(
        settings=make_hook({}, make_command_hook(_ALLOW)), call=("Bash", {"command": "rmdir /"})
    ),
    "CMP-024": NarrowingItem(
        settings={}, call=("Write", {"file_path": ".husky/pre-commit", "content": "x"}), mode="acceptEdits"
    ),
    "CMP-036": NarrowingItem(
        settings=make_hook({"matcher": "Bash"}, make_command_hook(_ALLOW, **{"if": "Bash(git status)"})),
        call=("Bash", {"command": "git status; touch made"}),
        mode="default",
    ),
    "CMP-037": NarrowingItem(
        settings=make_hook({"matcher": "Task"}, make_command_hook("! grep -q INNER || exit 2")),
        call=("Agent", {"description": "x", "prompt": "INNER", "subagent_type": "Explore"}),
    ),
    "CMP-038": NarrowingItem(settings=make_hook({"matcher": "Edit, Write"}, BLOCK), call=WRITE),
    "CMP-041": NarrowingItem(
        settings=make_hook({"matcher": "Write"}, {"type": "prompt", "prompt": "Is $ARGUMENTS safe?"}),
        call=WRITE,
    ),
    "CMP-050": NarrowingItem(
        settings=make_hook(
            {"matcher": "Write"},
            make_command_hook(build_specific_answer(hookEventName="PreToolUse", permissionDecision="defer")),
        ),
        call=WRITE,
    ),
    "CMP-014": NarrowingItem(
        settings={"permissions": {"defaultMode": "auto", "allow": ["B*"]}}, call=TOUCH, mode="auto"
    ),
    "CMP-015": NarrowingItem(settings=make_rules(allow=["B*", "mcp__*"]), call=TOUCH, mode="default"),
    "CMP-018": NarrowingItem(settings=make_rules(deny=["B*", "mcp__*"]), call=TOUCH, refusal="no tool named"),
    "permissions.deny": NarrowingItem(
        settings=make_rules(deny=["Write"]), call=WRITE, refusal="no tool named"
    ),
    "permissions.ask": NarrowingItem(settings=make_rules(ask=["Bash(touch:*)"]), call=TOUCH),
    "permissions.defaultMode plan": NarrowingItem(
        settings={"permissions": {"defaultMode": "plan"}}, call=TOUCH, mode="plan"
    ),
    "permissions.defaultMode dontAsk": NarrowingItem(
        settings={"permissions": {"defaultMode": "dontAsk"}}, call=TOUCH, mode="dontAsk"
    ),
    "--disallowedTools": NarrowingItem(
        settings={}, call=TOUCH, options={"disallowed_tools": ["Bash(touch:*)"]}
    ),
    "hook that says no": NarrowingItem(
        settings=make_hook(
            {"matcher": "Write"}, make_command_hook(build_answer_command({"decision": "block"}))
        ),
        call=WRITE,
    ),
}


def list_cases() -> list[Any]:
    return [
        pytest.param(position, name, marks=pytest.mark.spec(name) if name.startswith("CMP-") else ())
        for name in ITEMS
        for position in POSITIONS
    ]


@pytest.mark.parametrize(("position", "name"), list_cases())
async def test_a_narrowing_item_holds_in_every_position(
    position: str, name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = ITEMS[name]
    (project / "lib/secrets").mkdir(parents=True)
    (project / "lib/secrets/key").write_text("the secret\n")
    tool, arguments = item.call
    script = [call_tool(tool, "c1", **_anchor_path(arguments, project)), "done"]
    given = {"skip_permissions": item.mode == "bypassPermissions", "mode": item.mode, **item.options}
    if item.mode == "bypassPermissions":
        del given["mode"]
    raw = json.dumps(item.settings)
    async with open_hook_scenario(position, project, monkeypatch, script, raw, **given) as scenario:
        await scenario.run_session()
        result = list_results(scenario.last_request)[0]
    assert item.refusal in result or "not allowed" in result, result
    assert "the secret" not in result
    assert not (project / "made").exists()
    assert not (project / ".husky").exists()


def _anchor_path(arguments: dict[str, Any], project: Path) -> dict[str, Any]:
    path = arguments.get("file_path")
    return arguments if path is None else {**arguments, "file_path": str(project / path)}
