"""The doctor examines a symptom and names the cause created here with a remedy."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from git_repository import GitRepository
from shoal.app.doctor.doctor_case import DoctorContext
from shoal.app.doctor.symptoms import SYMPTOMS, examine_symptom
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.core.clock import SystemClock
from shoal.core.errors import SessionNotFound
from shoal.surfaces.cli.main import run_command_line as shoal_command
from shoal.surfaces.terminal.listings import format_diagnostic_lines
from team_scripts import get_home, open_session, script_team, spawn_member

SRF = pytest.mark.spec("SRF-02")


class ClockOneHourBehind(SystemClock):
    """Clock one hour behind that of the doctor."""

    def now(self) -> int:
        return super().now() - 3_600_000


def examine(
    symptom: str, cwd: Path, run: RunHandle | None = None, about: str = ""
) -> dict[str, DoctorDiagnostic]:
    case = DoctorContext(cwd=cwd, home=get_home(), environ=os.environ, symptom=symptom, run=run, about=about)
    return {fact.name: fact for fact in examine_symptom(case)}


async def run_job(tmp_path: Path, model: object, **options: object) -> RunHandle:
    async with open_session(tmp_path, model, **options) as session:
        await run_all_turns(session, "lead, go")
        return RunHandle(session=session.id, home=get_home())


@SRF
async def test_a_missing_result_is_found_with_its_recipient_and_path(tmp_path: Path) -> None:
    parts = {
        "lead": [
            [spawn_agent("digger dig"), spawn_agent("mute say nothing", run_in_background=True)],
            "done",
            "heard",
        ],
        "digger": ["I found gold. " * 3000],
        "mute": [""],
    }
    run = await run_job(tmp_path, script_agents(**parts))
    case = DoctorContext(
        cwd=tmp_path, home=get_home(), environ=os.environ, symptom="result-not-seen", run=run
    )
    whole, mute = examine_symptom(case)
    assert "the reply to call" in whole.value
    assert "results" in whole.value
    assert "without a report" in mute.value
    assert f"shoal send {run.session[:8]} " in mute.advice
    assert examine("result-not-seen", tmp_path, run, "nobody")["agents"].state == "none"


@SRF
async def test_an_undelivered_result_is_a_warning_with_a_remedy(
    tmp_path: Path,
) -> None:
    parts = {
        "lead": [spawn_agent("digger dig", run_in_background=True), "done", "heard"],
        "digger": ["gold"],
    }
    run = await run_job(tmp_path, script_agents(**parts))
    (diagnostic,) = examine("result-not-seen", tmp_path, run).values()
    assert (diagnostic.state, "got its result" in diagnostic.value) == ("ok", True)
    lines = run.journal_path.read_bytes().splitlines(keepends=True)
    run.journal_path.write_bytes(b"".join(line for line in lines if b'"notified"' not in line))
    (untold,) = examine("result-not-seen", tmp_path, run).values()
    assert untold.state == "warn"
    assert f"shoal --resume {run.session}" in untold.advice


@SRF
async def test_an_unknown_recipient_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("researcher"), "wait"],
        researcher=["ready"],
    )
    run = await run_job(tmp_path, model)
    facts = examine("recipient-not-found", tmp_path, run, "researchr")
    assert (facts["researchr"].state, facts["researchr"].advice) == ("bad", "Did you mean researcher?")
    assert "researcher" in facts["agents in this run"].value
    left = examine("recipient-not-found", tmp_path, run, "researcher")["researcher"]
    assert left.state == "bad"
    assert "left" in left.value
    assert examine("recipient-not-found", tmp_path, run, "team-lead")["lead"].state == "ok"


@SRF
def test_a_missing_tool_is_traced_to_the_line_that_removes_it(tmp_path: Path) -> None:
    agents = tmp_path / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text("---\nname: reader\ndescription: reads\ntools: Read, Grep\n---\nRead.")
    (agents / "careful.md").write_text(
        "---\nname: careful\ndescription: c\ndisallowedTools: Bash\n---\nBe careful."
    )
    (agents / "odd.md").write_text("---\nname: odd\ndescription: o\ntools: Read, Grepp\n---\nOdd.")
    facts = examine("tool-missing", tmp_path, about="Bash")
    assert "reader.md:4" in facts["reader"].value
    assert "disallowedTools" in facts["careful"].value
    assert "careful.md:4" in facts["careful"].value
    assert (facts["odd"].state, "Grepp" in facts["odd"].value) in (("bad", True), ("warn", False))
    assert examine("tool-missing", tmp_path, about="Bsh")["Bsh"].advice == "Did you mean Bash?"
    served = examine("tool-missing", tmp_path, about="mcp__db__query")["mcp__db__query"]
    assert (served.state, "shoal mcp add db" in served.advice) == ("bad", True)


@SRF
async def test_a_denial_is_shown_with_its_rule_and_agent(tmp_path: Path) -> None:
    settings = json.dumps({"permissions": {"deny": ["Bash(rm *)"]}})
    parts = {"lead": [call_tool("Bash", command="rm -rf x"), "done"]}
    run = await run_job(tmp_path, script_agents(**parts), settings=settings, skip_permissions=False)
    facts = examine("permission-unexpected", tmp_path, run)
    refused = next(fact for name, fact in facts.items() if name.startswith("lead"))
    assert refused.state == "warn"
    assert "Bash(rm *)" in refused.value
    assert "shoal permissions explain Bash" in refused.advice
    assert facts["active"].advice == "See them: shoal permissions ls"


@SRF
def test_a_fork_that_did_not_happen_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = examine("fork-not-taken", tmp_path)["forks"]
    assert (off.state, '"forks": true' in off.advice) == ("bad", True)
    monkeypatch.setenv("SHOAL_FORK_SUBAGENT", "1")
    facts = examine("fork-not-taken", tmp_path)
    assert facts["forks"].state == "ok"
    assert "never forks" in facts["headless"].value
    assert "subagent_type" in facts["call"].value
    assert facts["coordinator"].state == "ok"
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "1")
    assert examine("fork-not-taken", tmp_path)["coordinator"].state == "bad"


@SRF
def test_a_skill_that_does_not_fork_gets_a_remedy(tmp_path: Path) -> None:
    skills = tmp_path / ".claude" / "skills"
    for name, more in (("deploy", ""), ("review", "context: fork\n")):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n{more}---\nDo it.")
    plain = examine("command-not-forked", tmp_path, about="/deploy")["/deploy"]
    assert (plain.state, "context: fork" in plain.advice) == ("bad", True)
    assert examine("command-not-forked", tmp_path, about="review")["/review"].state == "ok"
    assert examine("command-not-forked", tmp_path, about="deplo")["/deplo"].advice == "Did you mean /deploy?"


@SRF
async def test_a_retained_worktree_is_reported_with_its_content(tmp_path: Path) -> None:
    project = GitRepository(tmp_path).top
    parts = {
        "lead": [spawn_agent("digger dig", isolation="worktree"), "done"],
        "You": [call_tool("Bash", command="echo gold > found.txt"), "found"],
    }
    await run_job(project, script_agents(**parts))
    (fact,) = (await asyncio.to_thread(examine, "worktree-not-cleaned", project)).values()
    assert (fact.state, "uncommitted change" in fact.value) == ("warn", True)
    assert "shoal worktree merge" in fact.advice
    outside = await asyncio.to_thread(examine, "worktree-not-cleaned", tmp_path)
    assert outside["repository"].state == "none"


@SRF
async def test_a_stuck_wait_is_traced_to_the_question_or_the_dead_run(tmp_path: Path) -> None:
    model = script_agents(lead=[call_tool("Bash", command="touch x"), "done"])
    diagnostics: dict[str, DoctorDiagnostic] = {}
    async with open_session(tmp_path, model, skip_permissions=False, attended=True) as session:
        turn = session.run("lead, go")
        async for question in session.runtime.question_broker.watch_questions():
            run = RunHandle(session=session.id, home=get_home())
            diagnostics = examine("wait-does-not-end", tmp_path, run)
            assert f"shoal ask answer {question.id}" in diagnostics["lead"].advice
            break
        await turn.aclose()
    dead = examine("wait-does-not-end", tmp_path, run)["run"]
    assert (dead.state, dead.advice) == ("bad", f"Resume it: shoal --resume {run.session}")


@SRF
async def test_a_stuck_wait_is_traced_to_a_silent_agent_a_blocking_task_or_a_command(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            [
                call_tool("TaskCreate", "t1", subject="Dig", description="d"),
                call_tool("TaskCreate", "t2", subject="Fill", description="f"),
                call_tool("Bash", "b1", command="sleep 600", run_in_background=True),
                spawn_agent("digger digs", "c1", name="digger", run_in_background=True),
            ],
            call_tool("TaskUpdate", "u1", taskId="2", addBlockedBy=["1"]),
            call_tool("Until"),
            "out",
        ],
        digger=[call_tool("Gate"), "dug"],
    )
    options = {"tools": [gate.tool, gate.wait_tool], "clock": ClockOneHourBehind()}
    async with open_session(tmp_path, model, **options) as session:
        async for _ in session.run("lead, go"):
            pass
        facts = examine("wait-does-not-end", tmp_path, RunHandle(session=session.id, home=get_home()))
        gate.is_open.set()
    assert facts["task #2"].value == "Fill: waiting for #1 (pending)"
    assert (facts["digger"].state, "Gate" in facts["digger"].value) == ("warn", True)
    assert facts["digger"].advice.endswith(f"stop it: shoal stop {session.id[:8]} digger")
    assert facts["command"].value == "runs in the background: sleep 600"
    assert facts["command"].advice.startswith(f"Stop it: shoal stop {session.id[:8]} bash_")


@SRF
async def test_a_missing_result_is_traced_to_the_agents_open_question(
    tmp_path: Path,
) -> None:
    model = script_agents(
        lead=[spawn_agent("digger digs", name="digger", run_in_background=True), "out", "end"],
        digger=[call_tool("Write", file_path="hole.txt", content="deep"), "dug"],
    )
    async with open_session(tmp_path, model, skip_permissions=False, attended=True) as session:
        async for _ in session.run("lead, go"):
            pass
        question = await anext(session.runtime.question_broker.watch_questions())
        fact = examine("result-not-seen", tmp_path, RunHandle(session=session.id, home=get_home()), "digger")[
            "digger"
        ]
    assert (fact.state, fact.advice) == ("warn", f"Answer it: shoal ask answer {question.id}")


@SRF
def test_the_doctor_command_lists_symptoms_and_asks_for_a_run_if_none_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shoal_command(["doctor", "--symptoms"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in SYMPTOMS)
    assert shoal_command(["doctor", "resultnotseen"]) == 2
    assert "Did you mean result-not-seen?" in capsys.readouterr().err
    assert shoal_command(["doctor", "fork-not-taken", "--json"]) == 1
    diagnostic = json.loads(capsys.readouterr().out)
    assert (diagnostic["symptom"], diagnostic["found"]) == ("fork-not-taken", True)
    assert StoredRuns(home=get_home()).find_named_or_latest_run(tmp_path) is None
    with pytest.raises(SessionNotFound, match="--session ID"):
        examine("result-not-seen", tmp_path)


def test_doctor_output_contains_no_terminal_escapes() -> None:
    hostile = "x\x1b]0;taken over\x07"
    fact = DoctorDiagnostic(area="a", name=hostile, state="bad", value=hostile, advice=f"do {hostile}")
    assert "\x1b" not in "".join(format_diagnostic_lines([fact], colours=False))
