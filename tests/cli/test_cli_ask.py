"""`shoal ask`: answering an agent's question from another terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, TIMEOUT, ShoalProgram, wait_for_result

from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import PermissionQuestion
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.testing import make_tool_call, messages_server
from shoal.testing.mock_replies import DelayedReplyFault

WAITING = json.dumps({"shoal": {"question_patience": 30}})


async def wait_for_question(shoal: ShoalProgram, run: asyncio.subprocess.Process) -> dict[str, Any]:
    """Wait until the run asks a question, and return it."""
    assert run.stdin is not None
    run.stdin.close()  # the prompt is whole
    async with asyncio.timeout(TIMEOUT):
        while True:
            rows = json.loads((await shoal("ask", "ls", "--json")).text)
            if rows:
                return rows[0]


@pytest.mark.spec("USR-05", "USR-27")
async def test_an_allow_answer_can_change_the_tool_input(shoal: ShoalProgram, project: Path) -> None:
    replies = [make_tool_call("Bash", command="echo done > made.txt"), "finished"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
            wrong = await shoal("ask", "answer", row["id"], "yes", "--input", "[1]")
            assert (wrong.code, "JSON object" in wrong.err) == (2, True)
            no = await shoal("ask", "answer", row["id"], "no", "--input", "{}")
            assert (no.code, "works only when you answer `yes`" in no.err) == (2, True)
            new_input = json.dumps({"command": "echo other > made.txt"})
            assert (await shoal("ask", "answer", row["id"], "yes", "--input", new_input)).code == 0
            await wait_for_result(run)
        assert json.loads((await shoal("ask", "--json")).text) == []
    assert (project / "made.txt").read_text() == "other\n"


@pytest.mark.spec("USR-05")
async def test_a_question_of_a_headless_run_is_answered_from_another_process(shoal: ShoalProgram) -> None:
    replies = [make_tool_call("Bash", command="echo done > made.txt"), "finished"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
            assert (row["agent"], row["live"]) == (LEAD_ID, True)
            assert row["question"]["input"] == {"command": "echo done > made.txt"}
            listed = await shoal("ask")
            assert "Bash(command: echo done > made.txt)" in listed.text
            assert "command: echo done > made.txt" in (await shoal("ask", "show", row["id"])).text
            answer = await shoal("ask", "answer", row["id"][:6], "yes")
            assert (answer.code, answer.err) == (0, "")
            ran = await wait_for_result(run)
            assert ran.text == "finished\n"
            assert (
                f"waiting for an answer: may Bash run? Show the question: shoal ask show {row['id']}"
                in ran.err
            )
    assert (shoal.project / "made.txt").read_text() == "done\n"
    late = await shoal("ask", "answer", row["id"], "no")
    assert late.code == 1
    assert "answered or withdrawn" in late.err


async def test_a_deny_answer_with_a_reason_reaches_the_agent(shoal: ShoalProgram) -> None:
    async with messages_server([make_tool_call("Bash", command="touch made"), "finished"]) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
            await shoal("ask", "answer", row["id"], "no", "--reason", "use make")
            await wait_for_result(run)
    assert "use make" in json.dumps(server.requests[-1].body["messages"])
    assert not (shoal.project / "made").exists()


async def test_a_question_is_listed_with_its_agent_and_task(shoal: ShoalProgram) -> None:
    agent = {"description": "make it", "prompt": "job", "subagent_type": "Bash"}
    replies = [
        make_tool_call("Agent", **agent),
        make_tool_call("Bash", command="touch made"),
        "done",
        "finished",
    ]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
            assert "  Bash (make it)  Bash(command: touch made)" in (await shoal("ask")).text
            assert " by Bash (make it) in session " in (await shoal("ask", "show", row["id"])).text
            answered = await shoal("ask", "answer", row["id"], "no")
            assert f"Answered {row['id']}: Bash (make it) continues." in answered.text
            await wait_for_result(run)


async def test_a_choice_is_answered_by_its_label(shoal: ShoalProgram) -> None:
    options = [{"label": "red", "description": ""}, {"label": "blue", "description": ""}]
    question = {"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}
    async with messages_server(
        [make_tool_call("AskUserQuestion", questions=[question]), "finished"]
    ) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
            wrong = await shoal("ask", "answer", row["id"])
            assert wrong.code == 2
            assert "Which? red | blue" in wrong.err
            await shoal("ask", "answer", row["id"], "--choice", "blue")
            await wait_for_result(run)
    assert "blue" in json.dumps(server.requests[-1].body["messages"][-1])


async def test_a_question_of_an_ended_run_is_not_listed_as_open(shoal: ShoalProgram, home: Path) -> None:
    question = PermissionQuestion(
        id="left0ver", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={}, reason="r"
    )
    QuestionFiles(home / "shoal" / "runs" / "gone" / "questions").store_question(question)
    assert (await shoal("ask", "ls")).text == "There are no open questions.\n"
    assert "its run has ended" in (await shoal("ask", "ls", "--all")).text
    answer = await shoal("ask", "answer", "left", "yes")
    assert answer.code == 1
    assert "shoal --resume gone" in answer.err


async def test_a_question_is_shown_with_everything_that_would_run(shoal: ShoalProgram, home: Path) -> None:
    command = f"ls{' ' * 600}; echo '\x1b]0;'; curl evil '\x07'{chr(10) * 40}{'x' * 5_000}; curl more"
    question = PermissionQuestion(
        id="left0ver", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={"command": command}, reason="r"
    )
    QuestionFiles(home / "shoal" / "runs" / "gone" / "questions").store_question(question)
    assert (await shoal("ask", "show", "left")).text.splitlines()[2:] == [
        "    command: ls[… 600 spaces …]; echo '\\x1b]0;'; curl evil '\\x07'",
        "      [… 39 empty lines …]",
        f"      {'x' * 5_000}; curl more",
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("yes", "--reason", "but not twice"), "--reason works only with `no`"),
        (("yes", "--choice", "red"), "--choice works only for a question"),
        (("no", "--for", "session"), "--for session works only with `yes`"),
    ],
)
async def test_an_answer_that_would_say_less_than_the_person_is_refused(
    shoal: ShoalProgram, home: Path, words: tuple[str, ...], why: str
) -> None:
    question = PermissionQuestion(
        id="left0ver", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={}, reason="r", rule="Bash"
    )
    QuestionFiles(home / "shoal" / "runs" / "gone" / "questions").store_question(question)
    answer = await shoal("ask", "answer", "left", *words)
    assert (answer.code, why in answer.err) == (2, True)


@pytest.mark.parametrize("how_long", ["session", "settings"])
async def test_remembering_without_a_rule_is_refused(shoal: ShoalProgram, home: Path, how_long: str) -> None:
    ruleless = PermissionQuestion(
        id="ruleless", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={}, reason="r"
    )
    QuestionFiles(home / "shoal" / "runs" / "gone" / "questions").store_question(ruleless)
    answer = await shoal("ask", "answer", "ruleless", "yes", "--for", how_long)
    assert answer.code == 2
    assert f"Leave out --for {how_long}" in answer.err


@pytest.mark.spec("QUE-03")
async def test_an_answer_to_a_killed_run_is_applied_after_resume(shoal: ShoalProgram) -> None:
    async with messages_server(
        [make_tool_call("Bash", command="touch made"), ["never", DelayedReplyFault(seconds=60)]]
    ) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--settings", WAITING) as run:
            row = await wait_for_question(shoal, run)
        dead = await shoal("ask", "answer", row["id"], "yes")
        assert (dead.code, f"--resume {row['session']}" in dead.err) == (1, True)
        again = ("-p", "go on", "--model", MODEL, "--resume", row["session"])
        async with shoal.start_process(*again) as run:
            assert run.stdin is not None
            run.stdin.close()
            await server.wait_for_requests(2)
            no = await shoal("ask", "answer", row["id"], "no")
            assert (no.code, "nothing to deny" in no.err) == (1, True)
            yes = await shoal("ask", "answer", row["id"], "yes")
            assert (yes.code, "Shoal does not repeat it, but notifies" in yes.text) == (0, True)
            twice = await shoal("ask", "answer", row["id"], "yes")
            assert (twice.code, "counts only once" in twice.err) == (1, True)
    assert not (shoal.project / "made").exists()
