"""Hooks that are a program with arguments, a question to a model, or a tool of an MCP server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, read_events
from hook_helpers import AGENT_POSITIONS, list_results, open_hook_scenario
from shoal.core.events import ModelRequestSent, NoteAdded
from shoal.testing.mock_replies import ReplyLike, RequestBody

in_every_position = pytest.mark.parametrize("position", AGENT_POSITIONS)
MP = pytest.MonkeyPatch


def make_hook(event: str, matcher: str = "", **action: Any) -> str:
    return json.dumps({"hooks": {event: [{"matcher": matcher, "hooks": [action]}]}})


def judge_calls(script: list[Any], *judgements: Any) -> Any:
    """Play `script`, and answer questions of hooks with these judgements; the last one repeats."""
    asked: list[RequestBody] = []

    def choose_line(number: int) -> Any:
        def reply(body: RequestBody) -> ReplyLike:
            if "You judge one event" in json.dumps(body["system"]):
                asked.append(body)
                return judgements[min(len(asked), len(judgements)) - 1]
            return script[number]

        return reply

    return asked, [choose_line(number) for number in range(len(script))]


@pytest.mark.spec("CMP-039")
@in_every_position
async def test_a_hook_with_args_runs_without_a_shell(position: str, project: Path, monkeypatch: MP) -> None:
    (project / "check it.py").write_text("import sys; sys.exit(2 if sys.argv[1:] == ['$HOME', 'a b'] else 0)")
    settings = make_hook(
        "PreToolUse", "Write", type="command", command="python3",
        args=["${CLAUDE_PROJECT_DIR}/check it.py", "$HOME", "a b"], statusMessage="Checking",
    )  # fmt: skip
    script = [call_tool("Write", "w1", file_path=str(project / "made"), content="x"), "done"]
    async with open_hook_scenario(position, project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
        assert "was not run" in list_results(scenario.last_request)[0]
        assert not any("statusMessage" in note for note in scenario.session.notes)
    assert not (project / "made").exists()


@pytest.mark.spec("CMP-041")
@in_every_position
async def test_a_prompt_hook_asks_the_small_model_which_denies_the_call_and_ends_the_turn(
    position: str, project: Path, monkeypatch: MP
) -> None:
    settings = make_hook("PreToolUse", "Write", type="prompt", prompt="WORKER: is this safe? $ARGUMENTS")
    script = [call_tool("Write", "w1", file_path=str(project / "made"), content="x"), "done"]
    judge, lines = judge_calls(script, 'Sure: {"ok": false, "reason": "not on Mondays"}')
    async with open_hook_scenario(position, project, monkeypatch, lines, settings) as scenario:
        await scenario.run_session()
        (asked,) = judge
        assert "haiku" in asked["model"]
        assert '"file_path"' in json.dumps(asked["messages"]).replace("\\", "")
        assert "tools" not in asked or not asked["tools"]
        # The turn ended: the worker was asked only before the call.
        assert len(scenario.worker_requests) == 2
        sent = [event for event in read_events(scenario.session) if isinstance(event, ModelRequestSent)]
        assert sum("haiku" in event.model for event in sent) == 1
    assert not (project / "made").exists()


@pytest.mark.spec("CMP-041")
async def test_a_prompt_hook_that_continues_on_block_gives_the_model_the_reason(
    project: Path, monkeypatch: MP
) -> None:
    settings = make_hook("PreToolUse", "Write", type="prompt", prompt="WORKER: safe?", continueOnBlock=True)
    made = project / "made"
    script = [call_tool("Write", f"w{number}", file_path=str(made), content="x") for number in (1, 2)]
    _, lines = judge_calls([*script, "done"], '{"ok": false, "reason": "say please"}', '{"ok": true}')
    async with open_hook_scenario("lead", project, monkeypatch, lines, settings) as scenario:
        assert await scenario.run_session() == "done"
        assert "say please" in list_results(scenario.last_request)[0]
    assert made.read_text() == "x"


@pytest.mark.spec("CMP-041")
@pytest.mark.parametrize("answer", ["I am not sure.", '{"reason": "no field ok"}'])
async def test_a_prompt_hook_without_a_judgement_blocks_what_it_guards(
    answer: str, project: Path, monkeypatch: MP
) -> None:
    settings = make_hook("PreToolUse", "Write", type="prompt", prompt="WORKER: safe?")
    script = [call_tool("Write", "w1", file_path=str(project / "made"), content="x"), "done"]
    _, lines = judge_calls(script, answer)
    async with open_hook_scenario("lead", project, monkeypatch, lines, settings) as scenario:
        await scenario.run_session()
        assert "answered without a judgment" in list_results(scenario.last_request)[0]
    assert not (project / "made").exists()


@pytest.mark.spec("CMP-041")
@pytest.mark.parametrize(("impossible", "requests"), [(False, 3), (True, 1)])
async def test_a_prompt_hook_sends_a_stopping_agent_back_unless_that_is_impossible(
    impossible: bool, requests: int, project: Path, monkeypatch: MP
) -> None:
    settings = make_hook("Stop", type="prompt", prompt="WORKER: is it tested? $ARGUMENTS")
    no = json.dumps({"ok": False, "reason": "run the tests", "impossible": impossible})
    judge, lines = judge_calls(["first", "second", "third"], no, no, '{"ok": true}')
    async with open_hook_scenario("lead", project, monkeypatch, lines, settings) as scenario:
        await scenario.run_session()
        own = [body for body in scenario.worker_requests if body not in judge]
    assert len(own) == requests
    if not impossible:
        assert "run the tests" in json.dumps(own[-1]["messages"])


@pytest.mark.spec("CMP-042")
@pytest.mark.parametrize("ok", [True, False])
@in_every_position
async def test_an_agent_hook_reads_files_before_it_judges(
    position: str, ok: bool, project: Path, monkeypatch: MP
) -> None:
    (project / "rules.txt").write_text("nine berths")
    (project / "secret.txt").write_text("hunter2")
    settings = json.loads(make_hook("PreToolUse", "Write", type="agent", prompt="WORKER: safe? $ARGUMENTS"))
    settings["permissions"] = {"deny": ["Read(secret.txt)"]}
    reads: list[Any] = [
        call_tool("Read", f"r{name}", file_path=str(project / f"{name}.txt")) for name in ("rules", "secret")
    ]
    script = [call_tool("Write", "w1", file_path=str(project / "made"), content="x"), "done"]
    judge, lines = judge_calls(script, reads, json.dumps({"ok": ok, "reason": "not on Mondays"}))
    async with open_hook_scenario(position, project, monkeypatch, lines, json.dumps(settings)) as scenario:
        await scenario.run_session()
    assert [tool["name"] for tool in judge[0]["tools"]] == ["Read", "Grep", "Glob"]
    rules, secret = list_results(judge[1])
    assert "nine berths" in rules
    assert "hunter2" not in secret
    assert (project / "made").exists() is ok


@pytest.mark.spec("CMP-042")
@pytest.mark.parametrize(
    "action",
    [
        {"type": "agent"},
        {"type": "prompt"},
        {"type": "mcp_tool", "server": "none", "tool": "check"},
    ],
)
async def test_a_hook_that_cannot_judge_blocks_what_it_guards(
    action: dict[str, Any], project: Path, monkeypatch: MP
) -> None:
    # In a file: a program that passes such a hook cannot open its session.
    path = Path(os.environ["SHOAL_HOME"]) / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_hook("PreToolUse", "Write", **action))
    script = [call_tool("Write", "w1", file_path=str(project / "made"), content="x"), "done"]
    async with open_hook_scenario("lead", project, monkeypatch, script, "{}") as scenario:
        await scenario.run_session()
        notes = [*scenario.session.notes]
        notes += [each.text for each in read_events(scenario.session) if isinstance(each, NoteAdded)]
        assert "was not run" in list_results(scenario.last_request)[0]
        assert any(f"{path}:1" in note for note in notes)
    assert not (project / "made").exists()
