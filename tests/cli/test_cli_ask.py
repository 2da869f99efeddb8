"""`shoal ask`: answering an agent's question from another terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, Program, ended

from shoal.core.ids import LEAD
from shoal.core.questions import MayRun
from shoal.stores.files.questions import Questions
from shoal.testing import call, messages_server
from shoal.testing.replies import Delay

WAITING = json.dumps({"shoal": {"question_patience": 30}})


async def asked(shoal: Program, run: asyncio.subprocess.Process) -> dict[str, Any]:
    """The question, once it is there."""
    assert run.stdin is not None
    run.stdin.close()  # the prompt is whole
    async with asyncio.timeout(15):
        while True:
            rows = json.loads((await shoal("ask", "ls", "--json")).text)
            if rows:
                return rows[0]


@pytest.mark.spec("USR-05", "USR-27")
async def test_a_yes_may_change_what_runs(shoal: Program, project: Path) -> None:
    mind = [call("Bash", command="echo done > made.txt"), "finished"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
            wrong = await shoal("ask", "answer", row["id"], "yes", "--input", "[1]")
            assert (wrong.code, "JSON object" in wrong.err) == (2, True)
            no = await shoal("ask", "answer", row["id"], "no", "--input", "{}")
            assert (no.code, "goes with a yes" in no.err) == (2, True)
            other = json.dumps({"command": "echo other > made.txt"})
            assert (await shoal("ask", "answer", row["id"], "yes", "--input", other)).code == 0
            await ended(run)
        assert json.loads((await shoal("ask", "--json")).text) == []
    assert (project / "made.txt").read_text() == "other\n"


@pytest.mark.spec("USR-05")
async def test_a_question_of_a_headless_run_is_answered_from_another_process(shoal: Program) -> None:
    mind = [call("Bash", command="echo done > made.txt"), "finished"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
            assert (row["agent"], row["live"]) == (LEAD, True)
            assert row["question"]["input"] == {"command": "echo done > made.txt"}
            listed = await shoal("ask")
            assert "Bash(command: echo done > made.txt)" in listed.text
            assert "command: echo done > made.txt" in (await shoal("ask", "show", row["id"])).text
            answer = await shoal("ask", "answer", row["id"][:6], "yes")
            assert (answer.code, answer.err) == (0, "")
            ran = await ended(run)
            assert ran.text == "finished\n"
            assert f"waits for an answer: may Bash run? See it with: shoal ask show {row['id']}" in ran.err
    assert (shoal.project / "made.txt").read_text() == "done\n"
    late = await shoal("ask", "answer", row["id"], "no")
    assert late.code == 1
    assert "answered, or withdrawn" in late.err


async def test_a_no_with_a_reason_reaches_the_agent(shoal: Program) -> None:
    async with messages_server([call("Bash", command="touch made"), "finished"]) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
            await shoal("ask", "answer", row["id"], "no", "--reason", "use make")
            await ended(run)
    assert "use make" in json.dumps(server.requests[-1].body["messages"])
    assert not (shoal.project / "made").exists()


async def test_a_question_of_an_agent_is_told_with_its_name_and_task(shoal: Program) -> None:
    agent = {"description": "make it", "prompt": "job", "subagent_type": "Bash"}
    mind = [call("Agent", **agent), call("Bash", command="touch made"), "done", "finished"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
            assert "  Bash (make it)  Bash(command: touch made)" in (await shoal("ask")).text
            assert " by Bash (make it) in session " in (await shoal("ask", "show", row["id"])).text
            answered = await shoal("ask", "answer", row["id"], "no")
            assert f"Answered {row['id']}: Bash (make it) goes on." in answered.text
            await ended(run)


async def test_a_choice_is_given_by_its_label(shoal: Program) -> None:
    options = [{"label": "red", "description": ""}, {"label": "blue", "description": ""}]
    question = {"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}
    async with messages_server([call("AskUserQuestion", questions=[question]), "finished"]) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
            wrong = await shoal("ask", "answer", row["id"])
            assert wrong.code == 2
            assert "Which? red | blue" in wrong.err
            await shoal("ask", "answer", row["id"], "--choice", "blue")
            await ended(run)
    assert "blue" in json.dumps(server.requests[-1].body["messages"][-1])


async def test_a_question_of_a_run_that_has_ended_is_not_taken_for_a_live_one(
    shoal: Program, home: Path
) -> None:
    left = MayRun(id="left0ver", agent=LEAD, tool_use_id="t", tool="Bash", input={}, reason="r")
    Questions(home / "shoal" / "runs" / "gone" / "questions").put(left)
    assert (await shoal("ask", "ls")).text == "Nobody asks anything.\n"
    assert "its run has ended" in (await shoal("ask", "ls", "--all")).text
    answer = await shoal("ask", "answer", "left", "yes")
    assert answer.code == 1
    assert "shoal --resume gone" in answer.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("yes", "--reason", "but not twice"), "--reason goes with a no"),
        (("yes", "--choice", "red"), "--choice goes with a question"),
        (("no", "--for", "session"), "--for session goes with a yes"),
    ],
)
async def test_an_answer_that_would_say_less_than_the_person_is_refused(
    shoal: Program, home: Path, words: tuple[str, ...], why: str
) -> None:
    left = MayRun(id="left0ver", agent=LEAD, tool_use_id="t", tool="Bash", input={}, reason="r", rule="Bash")
    Questions(home / "shoal" / "runs" / "gone" / "questions").put(left)
    answer = await shoal("ask", "answer", "left", *words)
    assert (answer.code, why in answer.err) == (2, True)


@pytest.mark.parametrize("how_long", ["session", "settings"])
async def test_a_yes_that_would_keep_nothing_is_refused(shoal: Program, home: Path, how_long: str) -> None:
    ruleless = MayRun(id="ruleless", agent=LEAD, tool_use_id="t", tool="Bash", input={}, reason="r")
    Questions(home / "shoal" / "runs" / "gone" / "questions").put(ruleless)
    answer = await shoal("ask", "answer", "ruleless", "yes", "--for", how_long)
    assert answer.code == 2
    assert f"leave --for {how_long} out" in answer.err


@pytest.mark.spec("QUE-03")
async def test_a_yes_to_a_question_of_a_killed_run_is_heard_when_it_was_resumed(shoal: Program) -> None:
    async with messages_server([call("Bash", command="touch made"), ["never", Delay(seconds=60)]]) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await asked(shoal, run)
        dead = await shoal("ask", "answer", row["id"], "yes")
        assert (dead.code, f"--resume {row['session']}" in dead.err) == (1, True)
        again = ("-p", "go on", "--model", MODEL, "--resume", row["session"])
        async with shoal.started(*again) as run:
            assert run.stdin is not None
            run.stdin.close()
            await server.arrived(2)
            no = await shoal("ask", "answer", row["id"], "no")
            assert (no.code, "nothing left to deny" in no.err) == (1, True)
            yes = await shoal("ask", "answer", row["id"], "yes")
            assert (yes.code, "is not run by itself" in yes.text) == (0, True)
            twice = await shoal("ask", "answer", row["id"], "yes")
            assert (twice.code, "counts once" in twice.err) == (1, True)
    assert not (shoal.project / "made").exists()
