"""Options and hooks that a program passes: what is not understood is refused, or blocks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.events import Event, NoteAdded, ToolOutputReturned
from shoal.core.extensions.hooks import HookDecision
from shoal.models.scripted_model import ScriptedModel


def ignore_event(_: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "paln"}, r"mode: unknown value 'paln'. Did you mean plan\?"),
        ({"mode": "PLAN"}, r"Did you mean plan\?"),
        ({"allowed_tools": "Bash"}, r"allowed_tools: expected a list of strings.*\['Bash'\]"),
        ({"disallowed_tools": "Bash"}, "disallowed_tools: expected a list of strings"),
        ({"available_tools": "Read"}, "available_tools: expected a list of strings"),
        (
            {"available_tools": ["Raed"]},
            r"available_tools: there is no tool named 'Raed'. Did you mean Read\?",
        ),
        ({"disallowed_tools": [3]}, r"disallowed_tools\[0\]"),
        ({"name": "../ana"}, "name: '../ana' is not a valid name"),
        (
            {"disallowed_tools": ["bash"]},
            "disallowed_tools: the rule bash names an unknown tool. Did you mean Bash\\?",
        ),
        ({"disallowed_tools": ["Frobnicate"]}, "the rule Frobnicate names an unknown tool"),
        ({"setting_sources": ["usr"]}, r"setting_sources: unknown value 'usr'. Did you mean user\?"),
        ({"setting_sources": "user"}, "setting_sources: expected a list of strings"),
        ({"add_dirs": "/tmp"}, "add_dirs: expected a list of paths"),
        ({"add_dirs": Path("/tmp")}, "add_dirs: expected a list of paths"),
        ({"plugin_dirs": "x"}, r"plugin_dirs: expected a list of paths"),
        ({"mcp_config": "x.json"}, r"mcp_config: expected a list of strings and mappings"),
        ({"channels": "server:x"}, r"channels: expected a list of strings"),
        ({"skip_permissions": "false"}, r"skip_permissions: expected True or False"),
        ({"persist": "no"}, r"persist: expected True or False"),
        ({"max_budget_usd": "5"}, "max_budget_usd: expected a number"),
        ({"max_budget_usd": float("nan")}, "max_budget_usd: expected a number"),
        ({"max_turns": True}, "max_turns: expected an integer"),
        ({"tools": [ignore_event]}, "tools\\[0\\]: expected a tool"),
        ({"hooks": [ignore_event]}, r"hooks: expected a mapping of events"),
        (
            {"hooks": {"PreToolUs": [ignore_event]}},
            "PreToolUs: unknown event; did you mean PreToolUse\\?",
        ),
        ({"hooks": {"PreToolUse": ignore_event}}, "hooks.PreToolUse: expected a list"),
        ({"hooks": {"PreToolUse": "echo"}}, "hooks.PreToolUse: expected a list"),
        ({"hooks": {"PreToolUse": ["echo"]}}, r"expected a function, or \(matcher, function\)"),
        ({"hooks": {"PreToolUse": [("(", ignore_event)]}}, "is not a valid regular expression"),
        (
            {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"comand": "x"}]}]}},
            r"comand: unknown field",
        ),
    ],
)
async def test_a_wrong_option_is_refused_at_the_start(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        await shoal.open(cwd=tmp_path, model=ScriptedModel([]), **options).__aenter__()


@pytest.mark.parametrize(
    ("permissions", "problem"),
    [
        (
            {"deny": ["Bsah(rm:*)"]},
            "settings.json:\\d+: the rule Bsah\\(rm:\\*\\) names an unknown tool. Did you mean Bash\\?",
        ),
        ({"ask": ["edit"]}, "the rule edit names an unknown tool. Did you mean Edit\\?"),
        ({"dney": ["Bash"]}, "settings.json:\\d+: permissions.dney: unknown key. Did you mean deny\\?"),
    ],
)
async def test_a_misspelled_permission_in_settings_is_refused(
    tmp_path: Path, permissions: dict[str, Any], problem: str
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    (home / "settings.json").write_text(json.dumps({"permissions": permissions}))
    with pytest.raises(SettingsError, match=problem):
        await shoal.open(cwd=tmp_path, model=ScriptedModel([])).__aenter__()


async def test_permissions_of_other_programs_in_settings_do_no_harm(tmp_path: Path) -> None:
    permissions = {
        "deny": ["WebSearch", "MultiEdit", "Zzz"],
        "disableBypassPermissionsMode": "disable",
        "x": 1,
    }
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text(json.dumps({"permissions": permissions}))
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([])) as session:
        assert session.notes == ["1 item in your settings is not used: run shoal doctor --claude"]


def raise_error(_: dict[str, Any]) -> None:
    raise RuntimeError("the guard is broken")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raise_error, "RuntimeError: the guard is broken"),
        (lambda _: False, "it returned bool"),
        (lambda _: "deny", "has no effect for PreToolUse"),
        (lambda _: {"decison": "block"}, "'decison'; did you mean 'decision'?"),
        (lambda _: {"decision": "deny"}, "an unknown format"),
        (lambda _: {"continue_": False}, "'continue_'; did you mean 'continue'?"),
        (
            lambda _: {"hookSpecificOutput": {"permissionDecison": "deny"}},
            "'permissionDecison'; did you mean 'permissionDecision'?",
        ),
        (lambda _: HookDecision(decision="denied"), "a HookDecision with a wrong field"),  # type: ignore[arg-type]
        (lambda _: ["block"], "it returned list instead of an object"),
    ],
)
async def test_a_hook_function_that_fails_blocks_the_call(tmp_path: Path, function: Any, reason: str) -> None:
    events = await run_touch(tmp_path, {"PreToolUse": [("Bash", function)]})
    assert not (tmp_path / "made").exists()
    (result,) = [event.result for event in events if isinstance(event, ToolOutputReturned)]
    assert reason in extract_tool_result_text(result)
    assert any(
        "failed" in event.text and reason in event.text for event in events if isinstance(event, NoteAdded)
    )


async def test_a_hook_function_that_returns_nothing_lets_the_call_through(tmp_path: Path) -> None:
    await run_touch(tmp_path, {"PreToolUse": [ignore_event], "PostToolUse": [lambda _: {}]})
    assert (tmp_path / "made").exists()


async def test_a_command_hook_that_fails_keeps_its_documented_rules(tmp_path: Path) -> None:
    hook = {"hooks": [{"type": "command", "command": "echo text; echo '{\"x\": 1}'; exit 1"}]}
    await run_touch(tmp_path, {"PreToolUse": [hook]})
    assert (tmp_path / "made").exists()


async def test_a_failing_stop_function_does_not_send_the_agent_back_to_work(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    model = ScriptedModel(answer)
    async with shoal.open(cwd=tmp_path, model=model, hooks={"Stop": [raise_error]}) as session:
        events = [event async for event in session.run("go")]
    assert any("the guard is broken" in event.text for event in events if isinstance(event, NoteAdded))
    assert len(requests) == 1


async def run_touch(project: Path, hooks: dict[str, Any]) -> list[Event]:
    call = ToolUseBlock(id="c1", name="Bash", input={"command": "touch made"})
    model = ScriptedModel([[call], "end"])
    async with shoal.open(cwd=project, model=model, skip_permissions=True, hooks=hooks) as session:
        return [event async for event in session.run("go")]
