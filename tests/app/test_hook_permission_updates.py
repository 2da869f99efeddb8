"""Permission changes in the answer of a PermissionRequest hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool
from hook_helpers import (
    AGENT_POSITIONS,
    HookInputLog,
    build_specific_answer,
    list_results,
    make_settings,
    open_hook_scenario,
)

MP = pytest.MonkeyPatch


def allow_with(log: HookInputLog, *updates: dict[str, Any]) -> str:
    decision = {"behavior": "allow", "updatedPermissions": list(updates)}
    answer = build_specific_answer(hookEventName="PermissionRequest", decision=decision)
    return make_settings({"PermissionRequest": log.build_logging_command(answer)})


@pytest.mark.spec("CMP-050")
@pytest.mark.parametrize("position", AGENT_POSITIONS)
async def test_a_rule_in_the_answer_of_a_hook_avoids_the_next_question(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    rule = {"toolName": "Bash", "ruleContent": "touch:*"}
    settings = allow_with(
        hook_log, {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
    )
    calls = [call_tool("Bash", f"b{name}", command=f"touch {name}") for name in "xyz"]
    options: dict[str, Any] = {"skip_permissions": False}
    async with open_hook_scenario(
        position, project, monkeypatch, [*calls, "done"], settings, **options
    ) as scenario:
        await scenario.run_session()
    asked = [each for each in hook_log.read_inputs() if each["tool_name"] == "Bash"]
    assert len(asked) == 1
    assert {path.name for path in project.iterdir()} >= {"x", "y", "z"}


@pytest.mark.spec("CMP-050")
async def test_an_unknown_permission_change_makes_the_answer_of_a_hook_void(
    project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    settings = allow_with(hook_log, {"type": "removeRules", "rules": [{"toolName": "Bash"}]})
    script = [call_tool("Bash", "b1", command="touch x"), "done"]
    async with open_hook_scenario(
        "lead", project, monkeypatch, script, settings, skip_permissions=False
    ) as scenario:
        await scenario.run_session()
        assert "was not run" in list_results(scenario.last_request)[0]
    assert len(hook_log.read_inputs()) == 1
    assert not (project / "x").exists()
