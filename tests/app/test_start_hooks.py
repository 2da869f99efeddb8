"""Hooks of the start of a session: the message and the title that they give it, and Setup."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from hook_helpers import HookInputLog, build_specific_answer, make_settings
from session_helpers import open_session
from shoal.app.session.typed_commands import parse_slash_command_when_ready
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.models.scripted_model import ScriptedModel
from skill_helpers import write_command


def answer_and_record(requests: list[ModelRequest], *replies: Any) -> ScriptedModel:
    lines = iter(replies)

    def reply(request: ModelRequest) -> Any:
        requests.append(replace(request, messages=list(request.messages)))
        return next(lines)

    return ScriptedModel(reply)


@pytest.mark.spec("CMP-049")
@pytest.mark.parametrize("attended", [False, True])
async def test_a_start_hook_adds_its_output_and_first_message_once_before_the_prompt(
    project: Path, attended: bool
) -> None:
    answer = build_specific_answer(
        hookEventName="SessionStart",
        initialUserMessage="Read TODO.md first.",
        additionalContext="It is Monday.",
    )
    requests: list[ModelRequest] = []
    model = answer_and_record(requests, "done", "done")
    settings = make_settings({"SessionStart": answer})
    async with open_session(project, model, settings=settings, attended=attended) as session:
        async for _ in session.run("Fix the test."):
            pass
        async for _ in session.run("And the other one."):
            pass
    assert requests[0].messages[-1].text.endswith("Read TODO.md first.\nFix the test.")
    said = "\n".join(message.text for message in requests[1].messages)
    assert [said.count(text) for text in ("It is Monday.", "Read TODO.md")] == [1, 1]


@pytest.mark.spec("CMP-049")
async def test_a_start_hook_starts_an_attended_session_without_a_prompt(project: Path) -> None:
    answer = build_specific_answer(hookEventName="SessionStart", initialUserMessage="Begin.")
    requests: list[ModelRequest] = []
    model = answer_and_record(requests, "done")
    settings = make_settings({"SessionStart": answer})
    async with open_session(project, model, settings=settings, attended=True) as session:
        turn = await session.next_turn(wait_for_input=True)
        assert turn is not None
        async for _ in turn:
            pass
    assert requests[0].messages[-1].text == "Begin."


@pytest.mark.spec("CMP-049")
@pytest.mark.parametrize(("flag", "title"), [(None, "berths"), ("mine", "mine")])
async def test_a_start_hook_names_the_session_unless_a_flag_does(
    project: Path, flag: str | None, title: str
) -> None:
    answer = build_specific_answer(hookEventName="SessionStart", sessionTitle="berths")
    settings = make_settings({"SessionStart": answer})
    async with open_session(project, ScriptedModel(["one"]), settings=settings, title=flag) as session:
        await run_all_turns(session, "hello")
        first = session.id
    async with open_session(project, ScriptedModel(["two"]), resume=title) as session:
        assert session.id == first


@pytest.mark.spec("CMP-045")
@pytest.mark.parametrize("setup", ["init", "maintenance", None])
async def test_setup_hooks_run_before_the_session_starts_if_asked_for(
    project: Path, hook_log: HookInputLog, setup: Literal["init", "maintenance"] | None
) -> None:
    log = hook_log.build_logging_command("echo 'export BERTHS=nine' >> \"$CLAUDE_ENV_FILE\"; echo READY")
    hooks = json.loads(make_settings({"Setup": ("init", log)}))["hooks"]
    hooks |= json.loads(make_settings({"SessionStart": hook_log.build_logging_command()}))["hooks"]
    results: list[ModelRequest] = []
    model = answer_and_record(results, call_tool("Bash", "b1", command="echo $BERTHS"), "done")
    settings = json.dumps({"hooks": hooks})
    async with open_session(project, model, settings=settings, setup=setup) as session:
        await run_all_turns(session, "go")
    told = [(each["hook_event_name"], each.get("trigger")) for each in hook_log.read_inputs()]
    is_run = setup == "init"
    assert told == ([("Setup", "init")] if is_run else []) + [("SessionStart", None)]
    texts = [message.text for message in results[0].messages]
    assert any("READY" in text for text in texts) is is_run
    assert ("nine" in str(results[1].messages[-1].content)) is is_run


@pytest.mark.spec("CMP-048")
async def test_hooks_get_the_id_of_the_prompt_and_the_effort(project: Path, hook_log: HookInputLog) -> None:
    log = hook_log.build_logging_command()
    events = ("SessionStart", "UserPromptExpansion", "UserPromptSubmit", "PreToolUse", "SubagentStop", "Stop")
    settings = make_settings(dict.fromkeys(events, log))
    write_command(Path(os.environ["SHOAL_HOME"]) / "commands", "second", "Go on.")
    model = script_agents(
        lead=[spawn_agent("child"), "one", call_tool("Glob", "g1", pattern="x"), "two"], child=["child done"]
    )
    async with open_session(project, model, settings=settings, effort="high") as session:
        await run_all_turns(session, "lead first")
        async for _ in session.run(await parse_slash_command_when_ready(session.runtime, "/second")):
            pass
    inputs = hook_log.read_inputs()
    assert "prompt_id" not in inputs[0]
    assert len(hook_log.read_inputs("UserPromptExpansion")) == 1
    first, second = (each["prompt_id"] for each in hook_log.read_inputs("UserPromptSubmit"))
    assert first != second
    ids = {each["prompt_id"]: None for each in inputs[1:]}
    assert list(ids) == [first, second]
    (child,) = hook_log.read_inputs("SubagentStop")
    assert child["prompt_id"] == first
    assert all(each["effort"] == {"level": "high"} for each in hook_log.read_inputs("PreToolUse"))
    assert all(each["effort"] == {"level": "high"} for each in hook_log.read_inputs("Stop"))


@pytest.mark.spec("CMP-048")
async def test_a_start_hook_gets_no_prompt_id_even_if_a_prompt_has_arrived(
    project: Path, hook_log: HookInputLog, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    hooks = json.loads(make_settings({"Setup": ("init", f"cat {gate}")}))["hooks"]
    log = hook_log.build_logging_command()
    hooks |= json.loads(make_settings({"SessionStart": log, "UserPromptSubmit": log}))["hooks"]
    settings = json.dumps({"hooks": hooks})
    async with open_session(project, ScriptedModel(["one"]), settings=settings, setup="init") as session:
        turn = session.run("go")
        # The turn waits for the hooks: its prompt has arrived when it has started.
        assert type(await anext(turn)).__name__ == "TurnStarted"
        await asyncio.to_thread(gate.write_text, "open")
        async for _ in turn:
            pass
    assert "prompt_id" not in hook_log.read_inputs("SessionStart")[0]
    assert hook_log.read_inputs("UserPromptSubmit")[0]["prompt_id"]


async def test_options_refuse_an_unknown_setup(project: Path) -> None:
    with pytest.raises(SettingsError, match="setup"):
        async with shoal.open(cwd=project, model=ScriptedModel([]), setup="now"):
            pass
