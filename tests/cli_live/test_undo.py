"""`shoal undo`: restoring files and conversation to their state before a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import CliProject
from shoal.app.config.undo_history import read_messages_at_entry
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.file_store import FileStore


def make_write_step(name: str, content: str) -> dict[str, Any]:
    return {"tools": [{"name": "Write", "input": {"file_path": name, "content": content}}]}


async def run_three_turns(cli_project: CliProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Run three turns: one with text only, one that makes two files, one that changes one of them."""
    monkeypatch.setenv("SHOAL_HOME", str(cli_project.home))
    script = tmp_path / "script.json"
    steps = [
        {"text": "hello"},
        {**make_write_step("made.txt", "one\n"), "match": "make"},
        {**make_write_step("kept.txt", "agent\n")},
        {"text": "made"},
        {**make_write_step("made.txt", "two\n"), "match": "change"},
        {"text": "changed"},
    ]
    script.write_text(json.dumps(steps))
    (cli_project.project / "kept.txt").unlink(missing_ok=True)
    options = Options(cwd=cli_project.project, model=ScriptedModel.from_file(script), mode="acceptEdits")
    async with Session(options) as session:
        for prompt in ("say hello", "make files", "change one"):
            async for _ in session.run(prompt):
                pass
        return session.id


@pytest.fixture
async def session(cli_project: CliProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return await run_three_turns(cli_project, monkeypatch, tmp_path)


def test_turns_are_listed_with_prompts_and_files(cli_project: CliProject, session: str) -> None:
    listed = cli_project.run_shoal("undo", "--list")
    assert listed.stdout.splitlines() == [
        "turn 1  say hello",
        "turn 2  make files",
        "    created  made.txt",
        "    created  kept.txt",
        "turn 3  change one",
        "    changed  made.txt",
    ]
    data = json.loads(cli_project.run_shoal("undo", "--list", "--json", "--session", session[:8]).stdout)
    assert [each["turn"] for each in data] == [1, 2, 3]
    assert data[2]["files"] == [{"path": str(cli_project.project / "made.txt"), "how": "changed"}]


def test_the_last_turn_that_changed_files_is_undone(cli_project: CliProject, session: str) -> None:
    undone = cli_project.run_shoal("undo", "--yes")
    assert (undone.returncode, undone.stdout) == (0, "restored    made.txt\n")
    assert (cli_project.project / "made.txt").read_text() == "one\n"
    undone = cli_project.run_shoal("undo", "--yes")
    assert sorted(undone.stdout.splitlines()) == [
        "deleted     kept.txt  (created by the agent)",
        "deleted     made.txt  (created by the agent)",
    ]
    nothing = cli_project.run_shoal("undo", "--yes")
    assert nothing.returncode == 1
    assert "no turn of this session changed a file" in nothing.stderr


def test_files_the_user_changed_since_are_not_undone(cli_project: CliProject, session: str) -> None:
    (cli_project.project / "made.txt").write_text("mine\n")
    undone = cli_project.run_shoal("undo", "2", "--yes")
    assert undone.returncode == 0
    assert "kept        made.txt: somebody else changed it" in undone.stdout
    assert "deleted     kept.txt" in undone.stdout
    assert (cli_project.project / "made.txt").read_text() == "mine\n"
    assert not (cli_project.project / "kept.txt").exists()


def test_the_conversation_flag_undoes_the_conversation(cli_project: CliProject, session: str) -> None:
    undone = cli_project.run_shoal("undo", "2", "--conversation", "--yes")
    assert f"shoal --resume {session}" in undone.stdout
    transcript = next((cli_project.home / "projects").glob(f"*/{session}.jsonl"))
    from shoal.stores.files.sessions.session_files import read_session_transcript

    assert [message.text for message in read_session_transcript(transcript).messages] == [
        "say hello",
        "hello",
    ]
    assert read_messages_at_entry(FileStore(cli_project.home).find_session(session), None) == ()
    listed = cli_project.run_shoal("undo", "--list").stdout
    assert listed == "turn 1  say hello\n"


def test_undo_changes_nothing_without_confirmation(cli_project: CliProject, session: str) -> None:
    refused = cli_project.run_shoal("undo")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    terminal = cli_project.start_shoal_terminal("undo")
    terminal.wait_for(" to their state before turn 3?")
    terminal.type_text("n\n")
    assert terminal.wait_for_end() == 1
    assert (cli_project.project / "made.txt").read_text() == "two\n"
    terminal = cli_project.start_shoal_terminal("undo")
    terminal.wait_for(" to their state before turn 3?")
    terminal.type_text("y\n")
    assert terminal.wait_for_end() == 0
    assert (cli_project.project / "made.txt").read_text() == "one\n"


def test_undo_reports_its_changes_as_json(cli_project: CliProject, session: str) -> None:
    report = json.loads(cli_project.run_shoal("undo", "3", "--json").stdout)
    assert report == {
        "session": session,
        "turn": 3,
        "conversation": False,
        "restored": [str(cli_project.project / "made.txt")],
        "deleted": [],
        "left_alone": [],
    }


def test_undo_without_sessions_is_an_error_message(cli_project: CliProject) -> None:
    run = cli_project.run_shoal("undo")
    assert run.returncode == 1
    assert "There is no session in" in run.stderr


async def test_the_conversation_of_a_live_session_cannot_be_undone_from_outside(
    cli_project: CliProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(cli_project.home))
    options = Options(cwd=cli_project.project, model=ScriptedModel(["hello"]))
    async with Session(options) as session:
        async for _ in session.run("hi"):
            pass
        refused = cli_project.run_shoal("undo", "1", "--conversation", "--yes")
        assert refused.returncode == 1
        assert f"{session.id} is in use" in refused.stderr
