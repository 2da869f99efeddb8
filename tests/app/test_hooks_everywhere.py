"""Hooks fire alike in a lead, a sub-agent, a nested agent and a teammate, wherever that one runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cast import recorded, use
from hook_rig import PLACES, TEAMMATES, Log, Stage, opening_words, results, says, settings, specific, staged
from shoal.core.events import MemberRested, Noted
from shoal.core.hooks import IN_A_ROW

everywhere = pytest.mark.parametrize("place", PLACES)
MP = pytest.MonkeyPatch
AGENT_IDS = {"lead": None, "teammate": "ann@crew", "teammate in a process": "ann@crew"}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "told.jsonl")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def who(stage: Stage, told: dict[str, object]) -> None:
    """What every hook is told of the agent it is about."""
    assert told["session_id"] == stage.session.id
    assert str(told["transcript_path"]).endswith(f"{stage.session.id}.jsonl")
    if stage.place in AGENT_IDS:
        assert told.get("agent_id") == AGENT_IDS[stage.place]
    else:
        assert str(told["agent_id"]).startswith("a")
    assert ("agent_type" in told) == (stage.place != "lead")


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@everywhere
async def test_a_hook_is_told_of_a_call_and_its_exit_2_keeps_it_from_running(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    call = use("Write", "w1", file_path=str(project / "made"), content="x")
    blocks = settings({"PreToolUse": ("Write|Edit", log.keeping("echo not on Mondays >&2; exit 2"))})
    async with staged(place, project, monkeypatch, [call, "done"], blocks) as stage:
        await stage.play()
        (told,) = log.lines()
        who(stage, told)
        assert told["hook_event_name"] == "PreToolUse"
        assert (told["tool_name"], told["tool_use_id"]) == ("Write", "w1")
        assert told["tool_input"] == {"file_path": str(project / "made"), "content": "x"}
        assert (told["cwd"], told["permission_mode"]) == (str(project), "bypassPermissions")
        assert "not on Mondays" in results(stage.last)[-1]
        (ran,) = stage.ran
    assert (ran.event, ran.verdict, ran.origin) == ("PreToolUse", "blocked", "--settings:1")
    assert not (project / "made").exists()


@pytest.mark.spec("USR-13", "HOK-02")
@everywhere
async def test_a_hook_changes_the_input_of_a_call_and_rules_judge_what_it_made(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    def changed(path: Path) -> str:
        answer = {"file_path": str(path), "content": "by the hook"}
        return specific(hookEventName="PreToolUse", permissionDecision="allow", updatedInput=answer)

    script = f"case $(cat) in *one*) {changed(project / 'other')};; *) {changed(project / 'kept/x')};; esac"
    raw = settings(
        {"PreToolUse": ("Write", script)}, permissions={"deny": ["Edit(/kept/**)", "Write(/kept/**)"]}
    )
    calls = [
        use("Write", "w1", file_path=str(project / "one"), content="x"),
        use("Write", "w2", file_path=str(project / "two"), content="x"),
    ]
    async with staged(place, project, monkeypatch, [*calls, "done"], raw) as stage:
        await stage.play()
        assert "was not run" in results(stage.last)[-1]
    assert (project / "other").read_text() == "by the hook"
    assert [path.name for path in project.iterdir()] == ["other"]


@pytest.mark.spec("USR-13", "HOK-02")
@everywhere
async def test_a_hook_answers_for_the_person_but_not_against_a_rule(
    place: str, project: Path, monkeypatch: MP
) -> None:
    allows = specific(permissionDecision="allow")
    calls = [
        use("Write", "w1", file_path=str(project / "allowed"), content="x"),
        use("Write", "w2", file_path=str(project / "denied"), content="x"),
        use("Write", "w3", file_path=str(project / "asked"), content="x"),
    ]
    rules = {"deny": ["Edit(/denied)"], "ask": ["Edit(/asked)"]}
    raw = settings({"PreToolUse": allows}, permissions=rules)
    async with staged(place, project, monkeypatch, [*calls, "done"], raw, skip_permissions=False) as stage:
        await stage.play()
    assert [path.name for path in project.iterdir()] == ["allowed"]


@pytest.mark.spec("USR-13", "HOK-01")
@everywhere
async def test_a_question_for_a_person_goes_to_hooks_first(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    yes = specific(decision={"behavior": "allow"})
    no = specific(decision={"behavior": "deny", "message": "no, says the hook"})
    script = log.keeping(f"case $(tail -n 1 '{log.path}') in *'\"w1\"'*) {yes};; *) {no};; esac")
    calls = [
        use("Write", "w1", file_path=str(project / "allowed"), content="x"),
        use("Write", "w2", file_path=str(project / "denied"), content="x"),
    ]
    raw = settings({"PermissionRequest": ("Write", script)})
    async with staged(place, project, monkeypatch, [*calls, "done"], raw, skip_permissions=False) as stage:
        await stage.play()
        assert "no, says the hook" in results(stage.last)[-1]
        who(stage, log.lines()[0])
    assert [path.name for path in project.iterdir()] == ["allowed"]


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@everywhere
async def test_after_a_call_hooks_object_and_add(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    adds = specific(additionalContext="the linter is happy")
    objects = "echo badly formatted >&2; exit 2"
    script = log.keeping(f"case $(tail -n 1 '{log.path}') in *'\"w1\"'*) {adds};; *) {objects};; esac")
    calls = [
        use("Write", "w1", file_path=str(project / "one"), content="x"),
        use("Write", "w2", file_path=str(project / "two"), content="x"),
        use("Read", "r1", file_path=str(project / "missing")),
    ]
    raw = settings({"PostToolUse": ("Write", script), "PostToolUseFailure": log.keeping()})
    async with staged(place, project, monkeypatch, [*calls, "done"], raw) as stage:
        await stage.play()
        one, two, _ = results(stage.last)
        told, _, failed = log.lines()
        who(stage, told)
    assert "the linter is happy" in one
    assert "badly formatted" in two
    assert (project / "two").exists()
    assert (told["tool_name"], told["tool_input"]["content"]) == ("Write", "x")
    assert told["tool_response"]["content"]
    assert (failed["hook_event_name"], failed["tool_use_id"]) == ("PostToolUseFailure", "r1")
    assert "missing" in failed["error"]


@pytest.mark.spec("USR-13", "HOK-01", "HOK-02")
@everywhere
async def test_one_that_would_stop_is_sent_back_to_work_with_the_reason(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    event = "Stop" if place == "lead" else "SubagentStop"
    once = log.keeping(f"test $(wc -l < '{log.path}') -gt 1 || {{ echo run the tests first >&2; exit 2; }}")
    async with staged(
        place, project, monkeypatch, ["I am done", "now really"], settings({event: once})
    ) as stage:
        await stage.play()
        first, second = log.lines()[:2]
        who(stage, first)
        assert "run the tests first" in str(stage.last["messages"][-1])
    assert (first["stop_hook_active"], first["last_assistant_message"]) == (False, "I am done")
    assert (second["stop_hook_active"], second["last_assistant_message"]) == (True, "now really")
    if place != "lead":
        assert first["agent_transcript_path"].endswith(f"agent-{first['agent_id']}.jsonl")
        assert Path(first["agent_transcript_path"]).exists()


@pytest.mark.spec("USR-13", "HOK-02")
@everywhere
async def test_a_hook_that_never_lets_an_agent_stop_is_not_heeded_for_ever(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    event = "Stop" if place == "lead" else "SubagentStop"
    raw = settings({event: log.keeping("echo more >&2; exit 2")})
    async with staged(place, project, monkeypatch, ["done"], raw) as stage:
        await stage.play()
        assert len(stage.asked) == IN_A_ROW + 1
    assert sum(told["last_assistant_message"] == "done" for told in log.lines()) == IN_A_ROW + 1


@pytest.mark.spec("USR-13", "HOK-02")
@everywhere
async def test_a_hook_stops_the_agent(place: str, project: Path, monkeypatch: MP) -> None:
    stops = says({"continue": False, "stopReason": "the disk is nearly full"})
    calls = [use("Write", f"w{n}", file_path=str(project / f"f{n}"), content="x") for n in (1, 2)]
    raw = settings({"PostToolUse": ("Write", stops)})
    async with staged(place, project, monkeypatch, [calls, "never said"], raw) as stage:
        said = await stage.play()
        assert len(stage.asked) == 1
        assert {ran.verdict for ran in stage.ran if ran.event == "PostToolUse"} == {"stopped"}
    assert "never said" not in said
    assert [path.name for path in project.iterdir()] == ["f1"]


@pytest.mark.spec("USR-13", "HOK-01")
@everywhere
async def test_hooks_veto_a_task_and_its_completion(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    veto = log.keeping(f"case $(tail -n 1 '{log.path}') in *wrong*) echo not so >&2; exit 2;; esac")
    calls = [
        use("TaskCreate", "t1", subject="wrong", description="d"),
        use("TaskCreate", "t2", subject="good", description="d"),
        use("TaskUpdate", "t3", taskId="1", status="in_progress"),
        use("TaskUpdate", "t4", taskId="1", description="made wrong"),
        use("TaskUpdate", "t5", taskId="1", status="completed"),
        use("TaskGet", "t6", taskId="1"),
    ]
    raw = settings({"TaskCreated": veto, "TaskCompleted": veto})
    async with staged(place, project, monkeypatch, [*calls, "done"], raw) as stage:
        await stage.play()
        body = next(body for body in stage.asked if len(results(body)) == len(calls))
        bad, good, *_, refused, task = results(body)
        first, *_, completed = log.lines()[:3]
        who(stage, first)
    assert "not so" in bad
    assert "Task 1 is on the board: good" in good
    assert "not so" in refused
    assert "in_progress" in task
    assert (completed["task_id"], completed["task_subject"]) == ("1", "good")
    if place in TEAMMATES:
        assert (first["teammate_name"], first["team_name"]) == ("ann", "crew")


@pytest.mark.spec("USR-13", "HOK-01")
@pytest.mark.parametrize("place", TEAMMATES)
async def test_an_idle_teammate_is_sent_back_to_work_and_not_for_ever(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    raw = settings({"TeammateIdle": log.keeping("echo take task 7 >&2; exit 2")})
    async with staged(place, project, monkeypatch, ["done"], raw) as stage:
        await stage.play()
        assert "take task 7" in str(stage.last["messages"][-1])
        assert len(stage.asked) == len(log.lines()) == IN_A_ROW + 1
        who(stage, log.lines()[0])
    assert (log.lines()[0]["teammate_name"], log.lines()[0]["team_name"]) == ("ann", "crew")


@pytest.mark.spec("USR-13", "HOK-01")
@pytest.mark.parametrize("place", TEAMMATES)
async def test_what_a_person_says_to_a_teammate_can_be_erased_and_is_no_failure(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    erases = log.keeping(f"case $(tail -n 1 '{log.path}') in *secret*) echo no keys >&2; exit 2;; esac")
    async with staged(place, project, monkeypatch, ["done"], settings({"UserPromptSubmit": erases})) as stage:
        await stage.play()
        await stage.session.send("ann", "a secret")
        async with asyncio.timeout(20):
            await stage.session.agents_idle()
        who(stage, log.lines()[-1])
        assert len(stage.asked) == 1
        events = recorded(stage.session)
        assert {event.reason for event in events if isinstance(event, MemberRested)} == {"available"}
        assert any("no keys" in event.text for event in events if isinstance(event, Noted))
        await stage.session.send("ann", "be brief")
        async with asyncio.timeout(20):
            await stage.session.agents_idle()
        assert "be brief" in str(stage.last["messages"])
        assert "secret" not in str(stage.last["messages"])


@pytest.mark.spec("USR-13", "HOK-01", "HOK-03")
@pytest.mark.parametrize("place", PLACES[1:])
async def test_a_hook_adds_to_what_an_agent_starts_with(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    adds = specific(additionalContext="mind the gap")
    raw = settings({"SubagentStart": ("general-purpose", log.keeping(adds))})
    async with staged(place, project, monkeypatch, ["done"], raw) as stage:
        await stage.play()
        first = opening_words(stage.asked[0])
        assert first.index("WORKER") < first.index("mind the gap")
        who(stage, log.lines()[-1])
        started = [ran for ran in stage.ran if ran.event == "SubagentStart"]
    assert len(started) == len(log.lines()) == (2 if place == "nested agent" else 1)
    assert log.lines()[-1]["agent_type"] == "general-purpose"


@pytest.mark.spec("HOK-01", "RUN-09")
@pytest.mark.parametrize("place", PLACES[1:4])
async def test_hooks_of_a_definition_live_with_its_agents_alone(
    place: str, project: Path, monkeypatch: MP, log: Log
) -> None:
    hooks = {
        "PreToolUse": [{"matcher": "Glob", "hooks": [{"type": "command", "command": log.keeping()}]}],
        "Stop": [{"hooks": [{"type": "command", "command": log.keeping()}]}],
    }
    agents = {"general-purpose": {"description": "d", "prompt": "p", "hooks": hooks}}
    look = use("Glob", "g1", pattern="*")
    async with staged(place, project, monkeypatch, [look, "done"], "{}", agents=agents) as stage:
        await stage.play()
        mine = log.lines("PreToolUse")
        await stage.session.stop_agents()
        before = len(log.lines())
        lead = stage.session.agent
        assert not lead.hooks.wants("PreToolUse")
        assert not lead.hooks.wants("Stop")
        assert not lead.hooks.wants("SubagentStop")
    assert [told["agent_type"] for told in mine] == ["general-purpose"]
    assert {told["hook_event_name"] for told in log.lines()} == {"PreToolUse", "SubagentStop"}
    assert len(log.lines()) == before
