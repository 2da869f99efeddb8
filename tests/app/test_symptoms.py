"""The doctor looks into a symptom: the cause is made here, and the doctor must name it and what to do."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from cast import Gate, agent, all_turns, cast, use
from git_rig import Repository
from shoal.app.doctor.case import Case
from shoal.app.doctor.known import SYMPTOMS, looked_into
from shoal.app.outside.watching import Run, latest_run
from shoal.app.quarters.machine import Fact
from shoal.core.clock import SystemClock
from shoal.core.errors import NoSuchSession
from shoal.surfaces.cli.main import run as shoal_command
from shoal.surfaces.terminal.listings import fact_lines
from troupe import home, member, opened, troupe

SRF = pytest.mark.spec("SRF-02")


class AnHourAgo(SystemClock):
    """What is told by this clock is long ago for the doctor, whose clock is the machine's."""

    def now(self) -> int:
        return super().now() - 3_600_000


def look(symptom: str, cwd: Path, run: Run | None = None, about: str = "") -> dict[str, Fact]:
    case = Case(cwd=cwd, home=home(), environ=os.environ, symptom=symptom, run=run, about=about)
    return {fact.name: fact for fact in looked_into(case)}


async def job(tmp_path: Path, model: object, **options: object) -> Run:
    async with opened(tmp_path, model, **options) as session:
        await all_turns(session, "lead, go")
        return Run(session=session.id, home=home())


@SRF
async def test_a_result_that_was_not_seen_is_found_with_who_has_it_and_where_it_is(tmp_path: Path) -> None:
    parts = {
        "lead": [[agent("digger dig"), agent("mute say nothing", run_in_background=True)], "done", "heard"],
        "digger": ["I found gold. " * 3000],
        "mute": [""],
    }
    run = await job(tmp_path, cast(**parts))
    case = Case(cwd=tmp_path, home=home(), environ=os.environ, symptom="result-not-seen", run=run)
    whole, mute = looked_into(case)
    assert "the answer to the call" in whole.value
    assert "results" in whole.value
    assert "without a report" in mute.value
    assert f"shoal send {run.session[:8]} " in mute.advice
    assert look("result-not-seen", tmp_path, run, "nobody")["agents"].state == "none"


@SRF
async def test_a_result_the_lead_has_not_heard_of_is_a_warning_with_the_way_on(
    tmp_path: Path,
) -> None:
    parts = {
        "lead": [agent("digger dig", run_in_background=True), "done", "heard"],
        "digger": ["gold"],
    }
    run = await job(tmp_path, cast(**parts))
    (told,) = look("result-not-seen", tmp_path, run).values()
    assert (told.state, "was given its result" in told.value) == ("ok", True)
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(line for line in lines if b'"notified"' not in line))
    (untold,) = look("result-not-seen", tmp_path, run).values()
    assert untold.state == "warn"
    assert f"shoal --resume {run.session}" in untold.advice


@SRF
async def test_a_recipient_that_is_not_there_is_told_with_who_is(tmp_path: Path) -> None:
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("researcher"), "wait"], researcher=["ready"]
    )
    run = await job(tmp_path, model)
    facts = look("recipient-not-found", tmp_path, run, "researchr")
    assert (facts["researchr"].state, facts["researchr"].advice) == ("bad", "Is researcher meant?")
    assert "researcher" in facts["those there"].value
    left = look("recipient-not-found", tmp_path, run, "researcher")["researcher"]
    assert left.state == "bad"
    assert "left" in left.value
    assert look("recipient-not-found", tmp_path, run, "team-lead")["lead"].state == "ok"


@SRF
def test_a_missing_tool_is_traced_to_the_line_that_takes_it_away(tmp_path: Path) -> None:
    agents = tmp_path / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text("---\nname: reader\ndescription: reads\ntools: Read, Grep\n---\nRead.")
    (agents / "careful.md").write_text(
        "---\nname: careful\ndescription: c\ndisallowedTools: Bash\n---\nBe careful."
    )
    (agents / "odd.md").write_text("---\nname: odd\ndescription: o\ntools: Read, Grepp\n---\nOdd.")
    facts = look("tool-missing", tmp_path, about="Bash")
    assert "reader.md:4" in facts["reader"].value
    assert "disallowedTools" in facts["careful"].value
    assert "careful.md:4" in facts["careful"].value
    assert (facts["odd"].state, "Grepp" in facts["odd"].value) in (("bad", True), ("warn", False))
    assert look("tool-missing", tmp_path, about="Bsh")["Bsh"].advice == "Is Bash meant?"
    served = look("tool-missing", tmp_path, about="mcp__db__query")["mcp__db__query"]
    assert (served.state, "shoal mcp add db" in served.advice) == ("bad", True)


@SRF
async def test_a_refusal_is_shown_with_its_rule_and_who_was_refused(tmp_path: Path) -> None:
    settings = json.dumps({"permissions": {"deny": ["Bash(rm *)"]}})
    parts = {"lead": [use("Bash", command="rm -rf x"), "done"]}
    run = await job(tmp_path, cast(**parts), settings=settings, skip_permissions=False)
    facts = look("permission-unexpected", tmp_path, run)
    refused = next(fact for name, fact in facts.items() if name.startswith("lead"))
    assert refused.state == "warn"
    assert "Bash(rm *)" in refused.value
    assert "shoal permissions explain Bash" in refused.advice
    assert facts["in force"].advice == "See them: shoal permissions ls"


@SRF
def test_a_fork_that_was_not_taken_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = look("fork-not-taken", tmp_path)["forks"]
    assert (off.state, '"forks": true' in off.advice) == ("bad", True)
    monkeypatch.setenv("SHOAL_FORK_SUBAGENT", "1")
    facts = look("fork-not-taken", tmp_path)
    assert facts["forks"].state == "ok"
    assert "never forks" in facts["headless"].value
    assert "subagent_type" in facts["call"].value
    assert facts["coordinator"].state == "ok"
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "1")
    assert look("fork-not-taken", tmp_path)["coordinator"].state == "bad"


@SRF
def test_a_command_that_does_not_fork_is_told_what_to_write(tmp_path: Path) -> None:
    skills = tmp_path / ".claude" / "skills"
    for name, more in (("deploy", ""), ("review", "context: fork\n")):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n{more}---\nDo it.")
    plain = look("command-not-forked", tmp_path, about="/deploy")["/deploy"]
    assert (plain.state, "context: fork" in plain.advice) == ("bad", True)
    assert look("command-not-forked", tmp_path, about="review")["/review"].state == "ok"
    assert look("command-not-forked", tmp_path, about="deplo")["/deplo"].advice == "Is /deploy meant?"


@SRF
async def test_a_worktree_that_stays_is_told_what_it_holds(tmp_path: Path) -> None:
    project = Repository(tmp_path).top
    parts = {
        "lead": [agent("digger dig", isolation="worktree"), "done"],
        "You": [use("Bash", command="echo gold > found.txt"), "found"],
    }
    await job(project, cast(**parts))
    (fact,) = (await asyncio.to_thread(look, "worktree-not-cleaned", project)).values()
    assert (fact.state, "changes that are not committed" in fact.value) == ("warn", True)
    assert "shoal worktree merge" in fact.advice
    outside = await asyncio.to_thread(look, "worktree-not-cleaned", tmp_path)
    assert outside["repository"].state == "none"


@SRF
async def test_a_wait_that_does_not_end_is_traced_to_the_question_or_the_dead_run(tmp_path: Path) -> None:
    model = cast(lead=[use("Bash", command="touch x"), "done"])
    seen: dict[str, Fact] = {}
    async with opened(tmp_path, model, skip_permissions=False, attended=True) as session:
        turn = session.run("lead, go")
        async for question in session.parts.desk.incoming():
            run = Run(session=session.id, home=home())
            seen = look("wait-does-not-end", tmp_path, run)
            assert f"shoal ask answer {question.id}" in seen["lead"].advice
            break
        await turn.aclose()
    dead = look("wait-does-not-end", tmp_path, run)["run"]
    assert (dead.state, dead.advice) == ("bad", f"Go on with it: shoal --resume {run.session}")


@SRF
async def test_a_wait_is_traced_to_the_silent_agent_the_task_before_and_the_command(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[
            [
                use("TaskCreate", "t1", subject="Dig", description="d"),
                use("TaskCreate", "t2", subject="Fill", description="f"),
                use("Bash", "b1", command="sleep 600", run_in_background=True),
                agent("digger digs", "c1", name="digger", run_in_background=True),
            ],
            use("TaskUpdate", "u1", taskId="2", addBlockedBy=["1"]),
            use("Until"),
            "out",
        ],
        digger=[use("Gate"), "dug"],
    )
    options = {"tools": [gate.tool, gate.until], "clock": AnHourAgo()}
    async with opened(tmp_path, model, **options) as session:
        async for _ in session.run("lead, go"):
            pass
        facts = look("wait-does-not-end", tmp_path, Run(session=session.id, home=home()))
        gate.opened.set()
    assert facts["task #2"].value == "Fill: waits for #1 (pending)"
    assert (facts["digger"].state, "Gate" in facts["digger"].value) == ("warn", True)
    assert facts["digger"].advice.endswith(f"end it: shoal stop {session.id[:8]} digger")
    assert facts["command"].value == "runs in the background: sleep 600"
    assert facts["command"].advice.startswith(f"End it: shoal stop {session.id[:8]} bash_")


@SRF
async def test_an_agent_that_waits_for_an_answer_has_no_result_and_the_question_is_named(
    tmp_path: Path,
) -> None:
    model = cast(
        lead=[agent("digger digs", name="digger", run_in_background=True), "out", "end"],
        digger=[use("Write", file_path="hole.txt", content="deep"), "dug"],
    )
    async with opened(tmp_path, model, skip_permissions=False, attended=True) as session:
        async for _ in session.run("lead, go"):
            pass
        question = await anext(session.parts.desk.incoming())
        fact = look("result-not-seen", tmp_path, Run(session=session.id, home=home()), "digger")["digger"]
    assert (fact.state, fact.advice) == ("warn", f"Answer it: shoal ask answer {question.id}")


@SRF
def test_the_command_lists_the_symptoms_and_asks_for_a_run_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shoal_command(["doctor", "--symptoms"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in SYMPTOMS)
    assert shoal_command(["doctor", "resultnotseen"]) == 2
    assert "Is result-not-seen meant?" in capsys.readouterr().err
    assert shoal_command(["doctor", "fork-not-taken", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["symptom"], told["found"]) == ("fork-not-taken", True)
    assert latest_run(home(), tmp_path) is None
    with pytest.raises(NoSuchSession, match="--session ID"):
        look("result-not-seen", tmp_path)


def test_what_the_doctor_prints_commands_no_terminal() -> None:
    hostile = "x\x1b]0;taken over\x07"
    fact = Fact(area="a", name=hostile, state="bad", value=hostile, advice=f"do {hostile}")
    assert "\x1b" not in "".join(fact_lines([fact], colours=False))
