"""Workflows at a terminal: their questions are answered there or elsewhere, and `shoal watch` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal
from cli_live.terminal_helpers import CTRL_D

ASKING = """
import shoal

editor = shoal.Agent("editor", prompt="You edit.", tools=[])


@shoal.workflow
async def release(flow: shoal.Workflow) -> str:
    flow.phase("prepare")
    await flow.agent(editor, "Prepare the notes")
    color = await flow.ask("Which color?", ["red", "blue"])
    await flow.shell("touch made")
    return f"chosen: {color}"
"""


@pytest.fixture
def workflow(cli_project: CliProject) -> Path:
    file = cli_project.project / "release.py"
    file.write_text(ASKING)
    (cli_project.home / "model.json").write_text(json.dumps([{"text": "Prepared.", "repeat": True}]))
    return file


def start_workflow(cli_project: CliProject, *flags: str) -> PtyTerminal:
    model = f"scripted:{cli_project.home / 'model.json'}"
    return cli_project.start_shoal_terminal("workflow", "run", "release.py", "--model", model, *flags)


@pytest.mark.spec("WFL-12")
@pytest.mark.usefixtures("workflow")
def test_a_question_and_a_permission_are_answered_where_the_workflow_runs(cli_project: CliProject) -> None:
    terminal = start_workflow(cli_project)
    text = terminal.wait_for("Workflow?")
    assert "? Which color?" in text
    assert "2  blue" in text
    terminal.type_text("7\n")  # not an option: it asks again
    terminal.wait_for(lambda text: text.count("? Which color?") == 2)
    terminal.type_text("2\n")
    assert "command: touch made" in terminal.wait_for("allow?")
    terminal.type_text("y\n")
    terminal.wait_for("chosen: blue")
    assert terminal.wait_for_end() == 0
    assert (cli_project.project / "made").exists()


@pytest.mark.spec("WFL-12")
@pytest.mark.usefixtures("workflow")
def test_a_question_of_a_workflow_is_answered_from_another_terminal(cli_project: CliProject) -> None:
    terminal = start_workflow(cli_project, "--permission-mode", "bypassPermissions")
    terminal.wait_for("Workflow?")
    (question,) = json.loads(cli_project.run_shoal("ask", "ls", "--json").stdout)
    assert question["question"]["choices"][0]["question"] == "Which color?"
    answered = cli_project.run_shoal("ask", "answer", question["id"], "--choice", "red")
    assert answered.returncode == 0, answered.stderr
    text = terminal.wait_for("chosen: red")
    assert "The question was answered elsewhere." in text
    assert terminal.wait_for_end() == 0


@pytest.mark.spec("WFL-12")
@pytest.mark.usefixtures("workflow")
def test_the_end_of_the_input_answers_no_question(cli_project: CliProject) -> None:
    terminal = start_workflow(cli_project)
    terminal.wait_for("Workflow?")
    terminal.type_text(CTRL_D)
    terminal.wait_for("The user closed the input")
    assert terminal.wait_for_end() == 1
    assert not (cli_project.project / "made").exists()


@pytest.mark.spec("WFL-12")
@pytest.mark.usefixtures("workflow")
def test_without_a_terminal_a_question_is_refused_with_a_sentence(cli_project: CliProject) -> None:
    model = f"scripted:{cli_project.home / 'model.json'}"
    ran = cli_project.run_shoal("workflow", "run", "release.py", "--model", model)
    assert ran.returncode == 1
    assert "Nobody answered the question 'Which color?'" in ran.stderr
    assert "at a terminal" in ran.stderr
    assert not (cli_project.project / "made").exists()


@pytest.mark.spec("WFL-10")
@pytest.mark.usefixtures("workflow")
def test_watch_shows_phases_and_agents_of_a_workflow(cli_project: CliProject) -> None:
    terminal = start_workflow(cli_project, "--permission-mode", "bypassPermissions")
    terminal.wait_for("Workflow?")
    watch = cli_project.start_shoal_terminal("watch")
    text = watch.wait_for("Which color?")
    assert "phase prepare" in text
    assert "agent editor completed" in text
    assert "prepare: Prepare the notes" in " ".join(text.split())
    terminal.type_text("1\n")
    watch.wait_for("completed (")
    assert watch.wait_for_end() == 0
