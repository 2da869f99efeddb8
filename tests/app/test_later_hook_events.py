"""Hook events of a failed turn, a compaction, a batch of calls, a denial and a typed command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from hook_helpers import (
    AGENT_POSITIONS,
    HookInputLog,
    build_answer_command,
    build_specific_answer,
    list_results,
    make_settings,
    open_hook_scenario,
)
from shoal.app.session.typed_commands import parse_slash_command_when_ready
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import Unauthorized
from shoal.core.events import RunFinished
from shoal.models.scripted_model import ScriptedModel
from skill_helpers import write_command

MP = pytest.MonkeyPatch
in_every_position = pytest.mark.parametrize("position", AGENT_POSITIONS)


@pytest.mark.spec("CMP-046")
@in_every_position
async def test_a_hook_gets_all_calls_of_a_reply_at_once_and_adds_context(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    answer = build_specific_answer(hookEventName="PostToolBatch", additionalContext="LINT IS CLEAN")
    settings = make_settings({"PostToolBatch": hook_log.build_logging_command(answer)})
    calls = [call_tool("Glob", f"g{name}", pattern=name) for name in "ab"]
    async with open_hook_scenario(position, project, monkeypatch, [calls, "done"], settings) as scenario:
        await scenario.run_session()
        assert "LINT IS CLEAN" in json.dumps(scenario.last_request["messages"])
    batches = [[call["tool_use_id"] for call in each["tool_calls"]] for each in hook_log.read_inputs()]
    assert ["ga", "gb"] in batches


@pytest.mark.spec("CMP-046")
async def test_a_hook_after_a_batch_of_calls_ends_the_turn(project: Path, monkeypatch: MP) -> None:
    settings = make_settings(
        {"PostToolBatch": build_answer_command({"decision": "block", "reason": "enough"})}
    )
    script = [call_tool("Glob", "g1", pattern="a"), "done"]
    async with open_hook_scenario("lead", project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
        assert len(scenario.worker_requests) == 1


@pytest.mark.spec("CMP-044")
@pytest.mark.parametrize("blocks", [False, True])
@in_every_position
async def test_a_hook_is_told_of_a_changed_settings_file_and_can_keep_it_out(
    position: str, blocks: bool, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    home.mkdir(exist_ok=True)
    changed = home / "settings.json"
    changed.write_text("{}")

    def change_settings(_: Any) -> Any:
        changed.write_text(json.dumps({"permissions": {"deny": ["Bash(touch:*)"]}}))
        return call_tool("Bash", "b1", command="touch made")

    command = hook_log.build_logging_command("exit 2" if blocks else "")
    settings = make_settings({"ConfigChange": ("user_settings", command)})
    async with open_hook_scenario(
        position, project, monkeypatch, [change_settings, "done"], settings
    ) as scenario:
        await scenario.run_session()
    told = hook_log.read_inputs()
    assert [(each["source"], each["file_path"]) for each in told] == [("user_settings", str(changed))]
    assert (project / "made").exists() is blocks


@pytest.mark.spec("CMP-044")
async def test_a_blocked_change_stays_blocked_when_another_file_changes(
    project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    home.mkdir(exist_ok=True)
    blocked, applied = home / "settings.json", project / ".claude" / "settings.json"
    applied.parent.mkdir()

    def change_settings(file: Path, command: str) -> Any:
        def make_call(_: Any) -> Any:
            file.write_text(json.dumps({"permissions": {"deny": [f"Bash({command}:*)"]}}))
            return call_tool("Bash", f"b-{command}", command=f"{command} made-{command}")

        return make_call

    settings = make_settings({"ConfigChange": ("user_settings", "exit 2")})
    script = [
        change_settings(blocked, "touch"),
        change_settings(applied, "mkdir"),
        call_tool("Bash", "b3", command="touch made-later"),
        "done",
    ]
    async with open_hook_scenario("lead", project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
    assert sorted(each.name for each in project.glob("made-*")) == ["made-later", "made-touch"]


@pytest.mark.spec("CMP-046")
async def test_hooks_are_told_of_a_turn_that_the_model_fails_and_of_a_compaction(
    project: Path, hook_log: HookInputLog
) -> None:
    log = hook_log.build_logging_command()
    settings = make_settings({"StopFailure": ("authentication_failed", log), "PostCompact": log})

    def reply(request: ModelRequest) -> Any:
        if "FAIL" in request.messages[-1].text:
            raise Unauthorized("the key is wrong", provider="scripted", model="scripted")
        return "THE SUMMARY"

    async with shoal.open(cwd=project, model=ScriptedModel(reply), settings=settings) as session:
        await run_all_turns(session, "begin")
        await session.compact()
        await run_all_turns(session, "FAIL NOW")
    compacted, failed = hook_log.read_inputs()
    assert (compacted["hook_event_name"], compacted["trigger"]) == ("PostCompact", "manual")
    assert compacted["compact_summary"] == "THE SUMMARY"
    assert (failed["hook_event_name"], failed["error"]) == ("StopFailure", "authentication_failed")
    assert "the key is wrong" in failed["error_details"]


@pytest.mark.spec("CMP-047")
@in_every_position
async def test_a_hook_is_told_of_a_denied_call_and_lets_the_model_try_again(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    answer = build_specific_answer(hookEventName="PermissionDenied", retry=True)
    settings = make_settings(
        {"PermissionDenied": ("Bash", hook_log.build_logging_command(answer))},
        permissions={"deny": ["Bash(touch:*)"]},
    )
    script = [call_tool("Bash", "b1", command="touch made"), "done"]
    async with open_hook_scenario(position, project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
        assert "you may make this call again" in list_results(scenario.last_request)[0]
    (told,) = hook_log.read_inputs()
    assert told["tool_input"] == {"command": "touch made"}
    assert "touch" in told["reason"]


@pytest.mark.spec("CMP-047")
async def test_a_hook_blocks_a_typed_command(project: Path, hook_log: HookInputLog) -> None:
    write_command(Path(os.environ["SHOAL_HOME"]) / "commands", "deploy", "DEPLOY IT: $ARGUMENTS")
    added = {"hookEventName": "UserPromptExpansion", "additionalContext": "TIDE IS LOW"}
    answer = {"decision": "block", "reason": "not today", "hookSpecificOutput": added}
    command = hook_log.build_logging_command(build_answer_command(answer))
    settings = make_settings({"UserPromptExpansion": ("deploy", command)})
    seen: list[str] = []

    def reply(request: ModelRequest) -> Any:
        seen.append("\n".join(message.text for message in request.messages))
        return "done"

    async with shoal.open(cwd=project, model=ScriptedModel(reply), settings=settings) as session:
        typed = await parse_slash_command_when_ready(session.runtime, "/deploy to sea")
        events = [event async for event in session.run(typed)]
        assert seen == []
        assert await run_all_turns(session, "begin") == "done"
    assert isinstance(events[-1], RunFinished)
    assert "not today" in events[-1].detail
    # What a blocked command would have added is not for the model.
    assert seen == ["begin"]
    (told,) = hook_log.read_inputs()
    assert (told["command_name"], told["command_args"], told["prompt"]) == (
        "deploy",
        "to sea",
        "/deploy to sea",
    )
    assert told["expansion_type"] == "slash_command"
    assert told["command_source"].endswith("commands/deploy.md")


@pytest.mark.spec("CMP-045", "CMP-047")
@pytest.mark.parametrize(
    "event",
    ["CwdChanged", "FileChanged", "DirectoryAdded", "Elicitation", "ElicitationResult",
     "MessageDisplay"],
)  # fmt: skip
async def test_an_event_that_does_not_exist_here_is_counted_in_one_note(event: str, project: Path) -> None:
    path = project / "hooks.json"
    path.write_text(make_settings({event: "exit 2", "WorldEnded": "exit 2"}))
    async with shoal.open(cwd=project, model=ScriptedModel(["done"]), settings=path) as session:
        notes = [note for note in session.notes if "not used" in note or event in note]
        assert await run_all_turns(session, "begin") == "done"
    assert notes == ["2 items in your settings are not used: run shoal doctor --claude"]


@pytest.mark.spec("CMP-049")
async def test_the_start_of_a_fork_is_named_so(project: Path, hook_log: HookInputLog) -> None:
    settings = make_settings({"SessionStart": hook_log.build_logging_command()})
    async with shoal.open(cwd=project, model=ScriptedModel(["done"]), settings=settings) as session:
        await run_all_turns(session, "begin")
        first = session.id
    model = ScriptedModel(["done"])
    async with shoal.open(cwd=project, model=model, settings=settings, resume=first, fork=True) as session:
        await run_all_turns(session, "go on")
    assert [each["source"] for each in hook_log.read_inputs()] == ["startup", "fork"]
