"""The plain line-by-line terminal: its selection and its slash commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_live.conftest import TERMINAL_PROGRAM, CliProject
from cli_live.pty_terminal import build_environment
from cli_live.terminal_helpers import get_session_id

CTRL_D = "\x04"
FULL = "\x1b[?1049h"
"""Terminal code that switches to the full screen."""


def write_script(cli_project: CliProject, *steps: dict[str, object]) -> str:
    script = cli_project.home / "steps.json"
    script.write_text(json.dumps(steps))
    return f"scripted:{script}"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("how", ["flag", "setting", "dumb"])
def test_the_plain_terminal_is_chosen_by_flag_setting_or_dumb_terminal(
    cli_project: CliProject, how: str
) -> None:
    if how == "setting":
        (cli_project.home / "settings.json").write_text(json.dumps({"shoal": {"plain": True}}))
    arguments = ["--model", write_script(cli_project, {"text": "plain words"}), "hello"]
    env = {"SHOAL_PLAIN": "", **({"TERM": "dumb"} if how == "dumb" else {})}
    terminal = cli_project.start_shoal_terminal(*(["--plain"] if how == "flag" else []), *arguments, **env)
    terminal.wait_for("plain words")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    assert FULL not in terminal.raw


def test_terminal_codes_in_a_headless_answer_are_removed_at_a_terminal_but_not_in_a_pipe(
    cli_project: CliProject,
) -> None:
    hostile = "an\x1b]0;owned\x07swer"
    arguments = ("-p", "hello", "--model", write_script(cli_project, {"text": hostile}))
    terminal = cli_project.start_shoal_terminal(*arguments)
    assert terminal.wait_for_end() == 0
    assert "answer" in terminal.screen.text
    assert "owned" not in terminal.raw
    env = build_environment(cli_project.home)
    argv, nothing = cli_project.build_argv(*arguments), subprocess.DEVNULL
    piped = subprocess.run(
        argv, cwd=cli_project.project, env=env, stdin=nothing, capture_output=True, check=True
    )
    assert piped.stdout == f"{hostile}\n".encode()


def test_the_plain_terminal_names_the_missing_tui_extra_and_continues(cli_project: CliProject) -> None:
    run = f"runpy.run_path({str(TERMINAL_PROGRAM)!r}, run_name='__main__')"
    code = f"import runpy, sys; sys.modules['textual'] = None; {run}"
    script = cli_project.home / "steps.json"
    script.write_text(json.dumps([{"text": "plain words"}]))
    argv = [sys.executable, "-c", code, str(script), "default", "0", "", "hello"]
    terminal = cli_project.start_program(argv, SHOAL_PLAIN="0")
    terminal.wait_for("pip install 'shoal[tui]'")
    terminal.wait_for("plain words")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0


def test_a_headless_run_does_not_import_tui_modules(cli_project: CliProject) -> None:
    script = write_script(cli_project, {"text": "yes"})
    code = (
        "import sys; from shoal.surfaces.cli.main import run_command_line\n"
        f"status = run_command_line(['-p', 'hi', '--model', {script!r}])\n"
        "print(status, [name for name in ('textual', 'rich', 'starlette') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cli_project.project,
        env=build_environment(cli_project.home),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "0 []"


@pytest.mark.spec("USR-18")
def test_board_team_permissions_and_export_are_slash_commands(cli_project: CliProject) -> None:
    create = {"name": "TaskCreate", "input": {"subject": "Paint the roof", "description": "red"}}
    terminal = cli_project.start_scripted_terminal(
        {"tools": [create]}, {"text": "on the board"}, prompt="plan it"
    )
    terminal.wait_for("on the board")
    terminal.type_text("/tasks\r")
    terminal.wait_for("○ #1 Paint the roof")
    terminal.type_text("/team\r")
    terminal.wait_for("There is no team.")
    terminal.type_text("/permissions plan\r")
    terminal.wait_for("The mode is plan.")
    terminal.type_text("/permissions\r")
    terminal.wait_for("mode  plan  (this session)")
    terminal.type_text("/export talk.md\r")
    terminal.wait_for("Wrote the conversation to")
    written = (cli_project.project / "talk.md").read_text()
    assert "## You\n\nplan it\n" in written
    assert '**TaskCreate**\n\n```json\n{\n  "subject": "Paint the roof"' in written
    assert written.rstrip().endswith("on the board")
    terminal.type_text("/export talk.md\r")
    terminal.wait_for("already exists, so nothing was written")
    assert (cli_project.project / "talk.md").read_text() == written
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0


def test_an_exported_conversation_contains_no_secrets(cli_project: CliProject) -> None:
    key = "sk-ant-api03-" + "A" * 40
    terminal = cli_project.start_scripted_terminal(
        {"text": f"It is {key}, and the word is open-sesame-1."}, prompt="tell", DOOR_PASSWORD="open-sesame-1"
    )
    terminal.wait_for("the word is")
    terminal.type_text("/export talk.md\r")
    terminal.wait_for("Wrote the conversation to")
    written = (cli_project.project / "talk.md").read_text()
    assert "[redacted: DOOR_PASSWORD]" in written
    assert "open-sesame" not in written
    assert "A" * 40 not in written
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0


def test_resume_switches_to_another_session(cli_project: CliProject) -> None:
    first = cli_project.start_scripted_terminal({"text": "the first answer"}, prompt="remember me")
    first.wait_for("the first answer")
    first.type_text(CTRL_D)
    first.wait_for_end()
    session = get_session_id(cli_project)

    terminal = cli_project.start_scripted_terminal({"text": "the second answer"})
    terminal.wait_for("/help lists")
    terminal.type_text("/resume\r")
    terminal.wait_for("remember me")
    terminal.type_text(f"/resume {session[:8]}\r")
    terminal.wait_for("the first answer")
    terminal.type_text("and now?\r")
    terminal.wait_for("the second answer")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    assert f"shoal --resume {session}" in terminal.screen.text


def test_a_session_in_use_by_another_process_is_not_resumed(cli_project: CliProject) -> None:
    other_terminal = cli_project.start_scripted_terminal({"text": "still here"}, prompt="stay")
    other_terminal.wait_for("still here")
    session = get_session_id(cli_project)
    terminal = cli_project.start_scripted_terminal({"text": "no"})
    terminal.wait_for("/help lists")
    terminal.type_text(f"/resume {session}\r")
    terminal.wait_for(f"shoal attach {session[:8]}")


def test_attaching_needs_a_live_run_and_a_terminal(cli_project: CliProject) -> None:
    assert "There is no live run in this directory" in cli_project.run_shoal("attach").stderr
    other_terminal = cli_project.start_scripted_terminal({"text": "still here"}, prompt="stay")
    other_terminal.wait_for("still here")
    result = cli_project.run_shoal("attach")
    assert result.returncode == 1
    assert "shoal watch" in result.stderr
    other_terminal.type_text(CTRL_D)
    other_terminal.wait_for_end()
    session = get_session_id(cli_project)
    assert f"shoal --resume {session}" in cli_project.run_shoal("attach", session[:6]).stderr


def test_doctor_runs_inside_a_session(cli_project: CliProject, tmp_path: Path) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "yes"})
    terminal.wait_for("/help lists")
    terminal.type_text("/doctor\r")
    terminal.wait_for(lambda text: "Shoal can" in text or "No problems found." in text)
