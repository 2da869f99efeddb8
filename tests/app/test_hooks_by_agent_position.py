"""Hooks work alike in a lead, a sub-agent, a nested agent and a member in any process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events
from hook_helpers import (
    AGENT_POSITIONS,
    TEAMMATE_POSITIONS,
    HookInputLog,
    HookScenario,
    build_answer_command,
    build_specific_answer,
    get_opening_text,
    list_results,
    make_settings,
    open_hook_scenario,
)
from shoal.core.events import MemberWentIdle, NoteAdded
from shoal.core.extensions.hooks import MAX_WAKES_IN_A_ROW

in_every_position = pytest.mark.parametrize("position", AGENT_POSITIONS)
MP = pytest.MonkeyPatch
AGENT_IDS = {"lead": None, "teammate": "ann@crew", "teammate in a process": "ann@crew"}


def assert_hook_input(scenario: HookScenario, hook_input: dict[str, object]) -> None:
    """Check the identity fields that every hook input has."""
    assert hook_input["session_id"] == scenario.session.id
    assert str(hook_input["transcript_path"]).endswith(f"{scenario.session.id}.jsonl")
    if scenario.position in AGENT_IDS:
        assert hook_input.get("agent_id") == AGENT_IDS[scenario.position]
    else:
        assert str(hook_input["agent_id"]).startswith("a")
    assert ("agent_type" in hook_input) == (scenario.position != "lead")


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@in_every_position
async def test_a_pre_tool_hook_gets_the_call_and_exit_2_blocks_it(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    call = call_tool("Write", "w1", file_path=str(project / "made"), content="x")
    blocks = make_settings(
        {"PreToolUse": ("Write|Edit", hook_log.build_logging_command("echo not on Mondays >&2; exit 2"))}
    )
    async with open_hook_scenario(position, project, monkeypatch, [call, "done"], blocks) as scenario:
        await scenario.run_session()
        (hook_input,) = hook_log.read_inputs()
        assert_hook_input(scenario, hook_input)
        assert hook_input["hook_event_name"] == "PreToolUse"
        assert (hook_input["tool_name"], hook_input["tool_use_id"]) == ("Write", "w1")
        assert hook_input["tool_input"] == {"file_path": str(project / "made"), "content": "x"}
        assert (hook_input["cwd"], hook_input["permission_mode"]) == (str(project), "bypassPermissions")
        assert "not on Mondays" in list_results(scenario.last_request)[-1]
        (ran,) = scenario.hook_runs
    assert (ran.event, ran.verdict, ran.origin) == ("PreToolUse", "blocked", "--settings:1")
    assert not (project / "made").exists()


@pytest.mark.spec("USR-13", "HOK-02")
@in_every_position
async def test_a_hook_changes_the_input_of_a_call_and_rules_check_the_new_input(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    def build_changed_input(path: Path) -> str:
        answer = {"file_path": str(path), "content": "by the hook"}
        return build_specific_answer(
            hookEventName="PreToolUse", permissionDecision="allow", updatedInput=answer
        )

    allowed, denied = build_changed_input(project / "other"), build_changed_input(project / "kept/x")
    script = f"case $(cat) in *one*) {allowed};; *) {denied};; esac"
    raw = make_settings(
        {"PreToolUse": ("Write", script)}, permissions={"deny": ["Edit(/kept/**)", "Write(/kept/**)"]}
    )
    calls = [
        call_tool("Write", "w1", file_path=str(project / "one"), content="x"),
        call_tool("Write", "w2", file_path=str(project / "two"), content="x"),
    ]
    async with open_hook_scenario(position, project, monkeypatch, [*calls, "done"], raw) as scenario:
        await scenario.run_session()
        assert "was not run" in list_results(scenario.last_request)[-1]
    assert (project / "other").read_text() == "by the hook"
    assert [path.name for path in project.iterdir()] == ["other"]


@pytest.mark.spec("USR-13", "HOK-02")
@in_every_position
async def test_a_hook_can_answer_a_permission_question_but_not_override_a_rule(
    position: str, project: Path, monkeypatch: MP
) -> None:
    allows = build_specific_answer(permissionDecision="allow")
    calls = [
        call_tool("Write", "w1", file_path=str(project / "allowed"), content="x"),
        call_tool("Write", "w2", file_path=str(project / "denied"), content="x"),
        call_tool("Write", "w3", file_path=str(project / "asked"), content="x"),
    ]
    rules = {"deny": ["Edit(/denied)"], "ask": ["Edit(/asked)"]}
    raw = make_settings({"PreToolUse": allows}, permissions=rules)
    async with open_hook_scenario(
        position, project, monkeypatch, [*calls, "done"], raw, skip_permissions=False
    ) as scenario:
        await scenario.run_session()
    assert [path.name for path in project.iterdir()] == ["allowed"]


@pytest.mark.spec("USR-13", "HOK-01")
@in_every_position
async def test_a_permission_question_goes_to_hooks_first(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    yes = build_specific_answer(decision={"behavior": "allow"})
    no = build_specific_answer(decision={"behavior": "deny", "message": "no, says the hook"})
    script = hook_log.build_logging_command(
        f"case $(tail -n 1 '{hook_log.path}') in *'\"w1\"'*) {yes};; *) {no};; esac"
    )
    calls = [
        call_tool("Write", "w1", file_path=str(project / "allowed"), content="x"),
        call_tool("Write", "w2", file_path=str(project / "denied"), content="x"),
    ]
    raw = make_settings({"PermissionRequest": ("Write", script)})
    async with open_hook_scenario(
        position, project, monkeypatch, [*calls, "done"], raw, skip_permissions=False
    ) as scenario:
        await scenario.run_session()
        assert "no, says the hook" in list_results(scenario.last_request)[-1]
        assert_hook_input(scenario, hook_log.read_inputs()[0])
    assert [path.name for path in project.iterdir()] == ["allowed"]


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@in_every_position
async def test_post_tool_hooks_can_object_and_add_context(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    adds = build_specific_answer(additionalContext="the linter is happy")
    objects = "echo badly formatted >&2; exit 2"
    script = hook_log.build_logging_command(
        f"case $(tail -n 1 '{hook_log.path}') in *'\"w1\"'*) {adds};; *) {objects};; esac"
    )
    calls = [
        call_tool("Write", "w1", file_path=str(project / "one"), content="x"),
        call_tool("Write", "w2", file_path=str(project / "two"), content="x"),
        call_tool("Read", "r1", file_path=str(project / "missing")),
    ]
    raw = make_settings(
        {"PostToolUse": ("Write", script), "PostToolUseFailure": hook_log.build_logging_command()}
    )
    async with open_hook_scenario(position, project, monkeypatch, [*calls, "done"], raw) as scenario:
        await scenario.run_session()
        one, two, _ = list_results(scenario.last_request)
        hook_input, _, failed = hook_log.read_inputs()
        assert_hook_input(scenario, hook_input)
    assert "the linter is happy" in one
    assert "badly formatted" in two
    assert (project / "two").exists()
    assert (hook_input["tool_name"], hook_input["tool_input"]["content"]) == ("Write", "x")
    assert hook_input["tool_response"]["content"]
    assert (failed["hook_event_name"], failed["tool_use_id"]) == ("PostToolUseFailure", "r1")
    assert "missing" in failed["error"]


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@in_every_position
async def test_a_stop_hook_sends_the_agent_back_to_work_with_a_reason(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    event = "Stop" if position == "lead" else "SubagentStop"
    block = "{ echo 'run the tests first <user-message>' >&2; exit 2; }"
    once = hook_log.build_logging_command(f"test $(wc -l < '{hook_log.path}') -gt 1 || {block}")
    async with open_hook_scenario(
        position, project, monkeypatch, ["I am done", "now really"], make_settings({event: once})
    ) as scenario:
        await scenario.run_session()
        first, second = hook_log.read_inputs()[:2]
        assert_hook_input(scenario, first)
        assert "run the tests first <\\user-message>" in json.dumps(
            scenario.last_request["messages"][-1]
        ).replace("\\\\", "\\")
    assert (first["stop_hook_active"], first["last_assistant_message"]) == (False, "I am done")
    assert (second["stop_hook_active"], second["last_assistant_message"]) == (True, "now really")
    if position != "lead":
        assert first["agent_transcript_path"].endswith(f"agent-{first['agent_id']}.jsonl")
        assert Path(first["agent_transcript_path"]).exists()


@pytest.mark.spec("USR-13", "HOK-02")
@in_every_position
async def test_a_stop_hook_that_always_blocks_is_ignored_after_a_limit(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    event = "Stop" if position == "lead" else "SubagentStop"
    raw = make_settings({event: hook_log.build_logging_command("echo more >&2; exit 2")})
    async with open_hook_scenario(position, project, monkeypatch, ["done"], raw) as scenario:
        await scenario.run_session()
        assert len(scenario.worker_requests) == MAX_WAKES_IN_A_ROW + 1
    assert (
        sum(hook_input["last_assistant_message"] == "done" for hook_input in hook_log.read_inputs())
        == MAX_WAKES_IN_A_ROW + 1
    )


@pytest.mark.spec("USR-13", "HOK-02")
@in_every_position
async def test_a_hook_can_stop_the_agent(position: str, project: Path, monkeypatch: MP) -> None:
    stops = build_answer_command({"continue": False, "stopReason": "the disk is nearly full"})
    calls = [call_tool("Write", f"w{n}", file_path=str(project / f"f{n}"), content="x") for n in (1, 2)]
    raw = make_settings({"PostToolUse": ("Write", stops)})
    async with open_hook_scenario(position, project, monkeypatch, [calls, "never said"], raw) as scenario:
        answer = await scenario.run_session()
        assert len(scenario.worker_requests) == 1
        assert {ran.verdict for ran in scenario.hook_runs if ran.event == "PostToolUse"} == {"stopped"}
    assert "never said" not in answer
    assert [path.name for path in project.iterdir()] == ["f1"]


@pytest.mark.spec("USR-13", "HOK-01")
@in_every_position
async def test_hooks_can_veto_a_task_and_its_completion(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    veto = hook_log.build_logging_command(
        f"case $(tail -n 1 '{hook_log.path}') in *wrong*) echo not so >&2; exit 2;; esac"
    )
    calls = [
        call_tool("TaskCreate", "t1", subject="wrong", description="d"),
        call_tool("TaskCreate", "t2", subject="good", description="d"),
        call_tool("TaskUpdate", "t3", taskId="1", status="in_progress"),
        call_tool("TaskUpdate", "t4", taskId="1", description="made wrong"),
        call_tool("TaskUpdate", "t5", taskId="1", status="completed"),
        call_tool("TaskGet", "t6", taskId="1"),
    ]
    raw = make_settings({"TaskCreated": veto, "TaskCompleted": veto})
    async with open_hook_scenario(position, project, monkeypatch, [*calls, "done"], raw) as scenario:
        await scenario.run_session()
        body = next(body for body in scenario.worker_requests if len(list_results(body)) == len(calls))
        bad, good, *_, refused, task = list_results(body)
        first, *_, completed = hook_log.read_inputs()[:3]
        assert_hook_input(scenario, first)
    assert "not so" in bad
    assert "Task 1 is on the board: good" in good
    assert "not so" in refused
    assert "in_progress" in task
    assert (completed["task_id"], completed["task_subject"]) == ("1", "good")
    if position in TEAMMATE_POSITIONS:
        assert (first["teammate_name"], first["team_name"]) == ("ann", "crew")


@pytest.mark.spec("USR-13", "HOK-01")
@pytest.mark.parametrize("position", TEAMMATE_POSITIONS)
async def test_an_idle_hook_sends_a_member_back_to_work_a_limited_number_of_times(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    raw = make_settings({"TeammateIdle": hook_log.build_logging_command("echo take task 7 >&2; exit 2")})
    async with open_hook_scenario(position, project, monkeypatch, ["done"], raw) as scenario:
        await scenario.run_session()
        assert "take task 7" in str(scenario.last_request["messages"][-1])
        assert len(scenario.worker_requests) == len(hook_log.read_inputs()) == MAX_WAKES_IN_A_ROW + 1
        assert_hook_input(scenario, hook_log.read_inputs()[0])
    assert (hook_log.read_inputs()[0]["teammate_name"], hook_log.read_inputs()[0]["team_name"]) == (
        "ann",
        "crew",
    )


@pytest.mark.spec("USR-13", "HOK-01")
@pytest.mark.parametrize("position", TEAMMATE_POSITIONS)
async def test_a_hook_can_erase_user_input_to_a_member_without_an_error(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    erases = hook_log.build_logging_command(
        f"case $(tail -n 1 '{hook_log.path}') in *secret*) echo no keys >&2; exit 2;; esac"
    )
    async with open_hook_scenario(
        position, project, monkeypatch, ["done"], make_settings({"UserPromptSubmit": erases})
    ) as scenario:
        await scenario.run_session()
        await scenario.session.send("ann", "a secret")
        async with asyncio.timeout(20):
            await scenario.session.wait_agents_idle()
        assert_hook_input(scenario, hook_log.read_inputs()[-1])
        assert len(scenario.worker_requests) == 1
        events = read_events(scenario.session)
        assert {event.reason for event in events if isinstance(event, MemberWentIdle)} == {"available"}
        assert any("no keys" in event.text for event in events if isinstance(event, NoteAdded))
        await scenario.session.send("ann", "be brief")
        async with asyncio.timeout(20):
            await scenario.session.wait_agents_idle()
        assert "be brief" in str(scenario.last_request["messages"])
        assert "secret" not in str(scenario.last_request["messages"])


@pytest.mark.spec("USR-13", "HOK-01", "HOK-03")
@pytest.mark.parametrize("position", AGENT_POSITIONS[1:])
async def test_a_start_hook_adds_context_to_the_first_prompt_of_an_agent(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    adds = build_specific_answer(additionalContext="mind the gap")
    raw = make_settings({"SubagentStart": ("general-purpose", hook_log.build_logging_command(adds))})
    async with open_hook_scenario(position, project, monkeypatch, ["done"], raw) as scenario:
        await scenario.run_session()
        first = get_opening_text(scenario.worker_requests[0])
        assert first.index("WORKER") < first.index("mind the gap")
        assert_hook_input(scenario, hook_log.read_inputs()[-1])
        started = [ran for ran in scenario.hook_runs if ran.event == "SubagentStart"]
    assert len(started) == len(hook_log.read_inputs()) == (2 if position == "nested agent" else 1)
    assert hook_log.read_inputs()[-1]["agent_type"] == "general-purpose"


@pytest.mark.spec("HOK-01", "RUN-09")
@pytest.mark.parametrize("position", AGENT_POSITIONS[1:4])
async def test_hooks_of_a_definition_apply_only_to_its_agents(
    position: str, project: Path, monkeypatch: MP, hook_log: HookInputLog
) -> None:
    hooks = {
        "PreToolUse": [
            {"matcher": "Glob", "hooks": [{"type": "command", "command": hook_log.build_logging_command()}]}
        ],
        "Stop": [{"hooks": [{"type": "command", "command": hook_log.build_logging_command()}]}],
    }
    agents = {"general-purpose": {"description": "d", "prompt": "p", "hooks": hooks}}
    look = call_tool("Glob", "g1", pattern="*")
    async with open_hook_scenario(
        position, project, monkeypatch, [look, "done"], "{}", agents=agents
    ) as scenario:
        await scenario.run_session()
        mine = hook_log.read_inputs("PreToolUse")
        await scenario.session.stop_agents()
        before = len(hook_log.read_inputs())
        lead = scenario.session.agent
        assert not lead.hooks.has_hooks_for("PreToolUse")
        assert not lead.hooks.has_hooks_for("Stop")
        assert not lead.hooks.has_hooks_for("SubagentStop")
    assert [hook_input["agent_type"] for hook_input in mine] == ["general-purpose"]
    assert {hook_input["hook_event_name"] for hook_input in hook_log.read_inputs()} == {
        "PreToolUse",
        "SubagentStop",
    }
    assert len(hook_log.read_inputs()) == before
