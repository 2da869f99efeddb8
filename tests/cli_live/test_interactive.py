"""`shoal` at a terminal, used like a person uses it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli_live.conftest import TERMINAL_PROGRAM, CliProject
from cli_live.pty_terminal import build_environment
from cli_live.terminal_helpers import CTRL_C, CTRL_D, get_session_id, is_at_prompt, make_bash_call
from process_search import find_processes_in, wait_for_processes_in


def test_an_answer_streams_and_the_exit_message_shows_how_to_resume(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "one two three " * 40 + "end"}, pace=0.01)
    terminal.wait_for(is_at_prompt)
    terminal.type_text("hello\r")
    text = terminal.wait_for("one two three")
    assert not text.rstrip("› ").endswith("end")
    terminal.wait_for(lambda text: "end" in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    session = get_session_id(cli_project)
    assert f"shoal --resume {session}" in terminal.screen.text
    assert "›" not in terminal.screen.lines[-1]


def test_a_prompt_on_the_command_line_is_the_first_prompt(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "what is it?", "text": "It is this."}, prompt="what is it?"
    )
    assert "› what is it?" in terminal.wait_for("It is this.")


def test_several_lines_are_one_prompt(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"match": "one\ntwo\nthree", "text": "all three"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("one\\\r\x1b[200~two\r\nthree\x1b[201~\r")
    terminal.wait_for("all three")


@pytest.mark.spec("USR-07")
def test_ctrl_c_ends_the_turn_and_not_the_program(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "still there", "text": "I am."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text(CTRL_C)
    text = terminal.wait_for(lambda text: "interrupted" in text and is_at_prompt(text))
    assert text.count("interrupted") == 1
    terminal.type_text("still there?\r")
    terminal.wait_for("I am.")


def test_ctrl_c_twice_ends_the_program_and_its_child_processes(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"tools": [make_bash_call(gate.command)]}, mode="bypassPermissions", prompt="go"
    )
    terminal.wait_for("Bash waiting")
    # Shoal itself, and the command.
    wait_for_processes_in(cli_project.project, 2)
    terminal.type_text(CTRL_C + CTRL_C)
    assert terminal.wait_for_end() == 0
    assert find_processes_in(cli_project.project) == []


def test_ctrl_c_at_an_empty_prompt_asks_for_a_second_one(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "unused"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text(CTRL_C)
    terminal.wait_for("Press Ctrl-C again to exit.")
    terminal.type_text(CTRL_C)
    assert terminal.wait_for_end() == 0


def test_ctrl_c_drops_a_half_typed_line(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"match": "second", "text": "yes"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("first")
    terminal.wait_for("› first")
    terminal.type_text(CTRL_C)
    terminal.wait_for(is_at_prompt)
    terminal.type_text("second\r")
    assert "first" not in terminal.wait_for("yes")


@pytest.mark.spec("QUE-03")
def test_input_typed_during_a_turn_steers_the_agent(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "be quick", "text": "I heard you."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("be quick\r")
    terminal.wait_for("sent; the agent")
    gate.open()
    terminal.wait_for("I heard you.")


@pytest.mark.spec("QUE-03")
def test_input_typed_during_a_turn_survives_a_kill_and_is_answered_after_resume(
    cli_project: CliProject,
) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]}, mode="bypassPermissions", prompt="go"
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("be quick\r")
    terminal.wait_for("sent; the agent")
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait_for_end() == -signal.SIGKILL
    again = cli_project.start_scripted_terminal(
        {"match": "be quick", "text": "I heard you."}, resume="latest", mode="bypassPermissions"
    )
    again.wait_for("I heard you.")
    (transcript,) = (cli_project.home / "projects").glob("*/*.jsonl")
    assert transcript.read_text().count("be quick") == 1


@pytest.mark.spec("FRK-07")
def test_a_side_question_is_answered_while_the_agent_works_and_leaves_no_trace(
    cli_project: CliProject,
) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "which port", "text": "It is 8021."},
        {"match": "to save them the typing", "text": "Now close the port."},
        {"match": "waiting", "text": "It is over."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("/btw which port?\r")
    terminal.wait_for("It is 8021.")
    terminal.type_text("/suggest\r")
    terminal.wait_for("↳ Now close the port.")
    gate.open()
    terminal.wait_for("It is over.")
    (transcript,) = (cli_project.home / "projects").glob("*/*.jsonl")
    assert "8021" not in transcript.read_text()
    assert "close the port" not in transcript.read_text()
    assert "which port" not in transcript.read_text()


def test_a_command_typed_while_a_tool_runs_leaves_the_call_one_line(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "waiting", "text": "It is over."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("/help\r/compact\r")
    terminal.wait_for("/compact must wait")
    gate.open()
    text = terminal.wait_for("It is over.")
    (line,) = (line for line in text.splitlines() if line.startswith("● Bash"))
    assert "→ exit 0" in line


def test_unsent_input_is_put_back_after_an_interrupt(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "be quick", "text": "Quick it is."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("be quick\r")
    terminal.wait_for("sent; the agent")
    terminal.type_text(CTRL_C)
    terminal.wait_for(lambda text: "interrupted" in text and text.endswith("› be quick"))
    terminal.type_text("\r")
    terminal.wait_for("Quick it is.")


@pytest.mark.parametrize(
    ("answer", "expected_text"),
    [("y", "ran it"), ("n", "did not: the user said no."), ("use ls instead", "did not: use ls instead")],
)
def test_a_permission_question_is_answered_at_the_prompt(
    cli_project: CliProject, answer: str, expected_text: str
) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call("printf it-%s ran | tee out")]},
        {"match": "it-ran", "text": "ran it"},
        {"match": "was not run: the user said no.", "text": "did not: the user said no."},
        {"match": "was not run: use ls instead", "text": "did not: use ls instead"},
        prompt="go",
    )
    text = terminal.wait_for("allow? ›")
    assert "command: printf it-%s ran | tee out" in text
    assert "it writes out" in text or "tee" in text
    terminal.type_text(f"{answer}\r")
    terminal.wait_for(expected_text)


def test_an_answer_for_the_session_is_not_asked_for_again(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call("printf it-%s ran | tee out")]},
        {"match": "it-ran", "text": "first done"},
        {"match": "again", "tools": [make_bash_call("printf it-%s ran | tee out")]},
        {"match": "it-ran", "text": "second done"},
        prompt="go",
    )
    terminal.wait_for("allow? ›")
    terminal.type_text("a\r")
    terminal.wait_for(lambda text: "first done" in text and is_at_prompt(text))
    terminal.type_text("again\r")
    assert terminal.wait_for("second done").count("asks to run") == 1


def test_an_answer_for_always_is_written_to_settings_as_offered(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call("git tag it-ran")]},
        {"match": "not a git", "text": "done"},
        prompt="go",
    )
    text = terminal.wait_for("allow? ›")
    assert "s save in your settings for this project: allow Bash(git tag:*)" in text
    terminal.type_text("s\r")
    terminal.wait_for("done")
    settings = json.loads((cli_project.project / ".claude" / "settings.local.json").read_text())
    assert settings == {"permissions": {"allow": ["Bash(git tag:*)"]}}


def test_a_half_typed_line_is_not_taken_for_an_answer(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command), make_bash_call("printf two | tee out")]},
        {"match": "two", "text": "all done"},
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("half a thought")
    terminal.wait_for("› half a thought")
    gate.open()
    terminal.wait_for("allow? ›")
    terminal.type_text("y\r")
    terminal.wait_for("all done")
    terminal.wait_for(lambda text: text.endswith("› half a thought"))


def test_a_question_with_choices_is_answered_by_number(cli_project: CliProject) -> None:
    pytest.importorskip("shoal.tools.question_tool")
    question = {
        "question": "Which colour?",
        "header": "Colour",
        "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}],
        "multiSelect": False,
    }
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [{"name": "AskUserQuestion", "input": {"questions": [question]}}]},
        {"match": "blue", "text": "Blue it is."},
        prompt="go",
    )
    assert "  1  red  warm" in terminal.wait_for("Colour? ›")
    terminal.type_text("2\r")
    terminal.wait_for("Blue it is.")


def test_compact_continues_the_conversation_from_a_summary(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "the first thing", "text": "noted the first thing"},
        {"match": "mind the colours", "text": "SUMMARY-OF-IT"},
        {"match": "what now", "at": 0, "text": "on from the summary"},
        prompt="the first thing",
    )
    terminal.wait_for(lambda text: "noted the first" in text and is_at_prompt(text))
    terminal.type_text("/compact mind the colours\r")
    terminal.wait_for("continues from a summary")
    terminal.type_text("what now\r")
    terminal.wait_for("on from the summary")


@pytest.mark.spec("CMP-105")
def test_rewind_restores_files_and_conversation(cli_project: CliProject) -> None:
    made = cli_project.project / "made.txt"
    write = {"name": "Write", "input": {"file_path": "made.txt", "content": "hello\n"}}
    terminal = cli_project.start_scripted_terminal(
        {"match": "first", "text": "the first answer"},
        {"match": "make it", "tools": [write]},
        {"match": "made.txt", "text": "made it"},
        {"match": "how many", "at": 1, "text": "one answer is left"},
        mode="acceptEdits",
        prompt="first",
    )
    terminal.wait_for(lambda text: "the first answer" in text and is_at_prompt(text))
    terminal.type_text("make it\r")
    terminal.wait_for(lambda text: "made it" in text and is_at_prompt(text))
    assert made.exists()
    terminal.type_text("/rewind\r")
    terminal.wait_for("2  make it")
    terminal.type_text("/rewind 2\r")
    terminal.wait_for("Rewind the conversation too? y/n ›")
    terminal.type_text("y\r")
    terminal.wait_for("deleted     made.txt")
    assert not made.exists()
    terminal.type_text("how many\r")
    terminal.wait_for("one answer is left")


def test_help_describes_commands_and_unknown_ones_are_reported(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "unused"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/help\r")
    assert "/rewind [TURN]" in terminal.wait_for("Ctrl-D, to exit.")
    terminal.type_text("/cots\r")
    terminal.wait_for("Did you mean /cost?")
    terminal.type_text("/cost\r")
    terminal.wait_for("0 tokens in, 0 out")
    terminal.type_text("/model no-such-model\r")
    terminal.wait_for("✗")
    terminal.type_text("/exit\r")
    assert terminal.wait_for_end() == 0


def test_clear_starts_a_new_session(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "one"}, {"at": 0, "text": "two"}, prompt="first")
    terminal.wait_for(lambda text: "\none" in text and is_at_prompt(text))
    terminal.type_text("/clear\r")
    terminal.wait_for(lambda text: text.count("/help lists the commands") == 2 and is_at_prompt(text))
    terminal.type_text("second\r")
    terminal.wait_for("two")
    assert len(list((cli_project.home / "projects").glob("*/*.jsonl"))) == 2


@pytest.mark.spec("CMP-127")
def test_clear_keeps_the_model_and_the_permission_mode(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "one"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/model ollama:other\r")
    terminal.wait_for("The model is other.")
    terminal.type_text("/permissions acceptEdits\r")
    terminal.wait_for(lambda text: "acceptEdits" in text.split("/permissions acceptEdits")[-1])
    terminal.type_text("/clear\r")
    terminal.wait_for(lambda text: text.count("/help lists the commands") == 2 and is_at_prompt(text))
    terminal.type_text("/model\r")
    terminal.wait_for(lambda text: text.count("The model is other.") == 2)
    terminal.type_text("/permissions\r")
    terminal.wait_for(lambda text: "acceptEdits" in text.split("/help lists the commands")[-1])


def test_the_prompt_history_is_available_in_the_next_session(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "one"}, prompt=None)
    terminal.wait_for(is_at_prompt)
    terminal.type_text("remember me\r")
    terminal.wait_for(lambda text: "\none" in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    assert stat.S_IMODE((cli_project.home / "shoal" / "history").stat().st_mode) == 0o600
    again = cli_project.start_scripted_terminal({"text": "two"})
    again.wait_for(is_at_prompt)
    again.type_text("\x1b[A")
    again.wait_for("› remember me")


def test_a_dumb_terminal_gets_plain_lines(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call("printf it-%s ran | tee out")]},
        {"match": "it-ran", "text": "ran it"},
        TERM="dumb",
    )
    terminal.wait_for("/help lists")
    terminal.type_text("go\n")
    terminal.wait_for("allow?")
    terminal.type_text("y\n")
    terminal.wait_for("ran it")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    assert "\x1b" not in terminal.raw
    lines = [line.strip("› ") for line in terminal.screen.text.splitlines()]
    assert (lines.count("go"), lines.count("y")) == (1, 1)


def test_the_terminal_is_restored_when_the_program_ends(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "unused"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    assert terminal.raw.rindex("\x1b[?2004l") > terminal.raw.rindex("\x1b[?2004h")


def test_shoal_without_a_terminal_runs_headless_with_a_notice(
    cli_project: CliProject, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"match": "from the pipe", "text": "Piped."}]')
    run = subprocess.run(
        [sys.executable, str(TERMINAL_PROGRAM), str(script), "default", "0", ""],
        cwd=cli_project.project,
        env=build_environment(cli_project.home),
        input="from the pipe",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "Piped.\n")
    assert "Standard input is not a terminal, so Shoal runs headless, as with -p." in run.stderr


def test_a_resumed_session_shows_its_last_exchange(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"text": "The answer was forty-two."}, prompt="what was the answer?"
    )
    terminal.wait_for(lambda text: "forty-two" in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    again = cli_project.start_scripted_terminal(
        {"match": "sure?", "at": 1, "text": "Quite sure."}, resume="latest"
    )
    text = again.wait_for("forty-two.")
    assert "› what was the answer?\nThe answer was forty-two." in text
    again.type_text("sure?\r")
    again.wait_for("Quite sure.")


def test_a_signal_ends_the_program_cleanly(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"tools": [make_bash_call(gate.command)]}, mode="bypassPermissions", prompt="go"
    )
    terminal.wait_for("Bash waiting")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait_for_end() == 128 + signal.SIGTERM
    assert "shoal --resume" in terminal.screen.text
    assert terminal.raw.rindex("\x1b[?2004l") > terminal.raw.rindex("\x1b[?2004h")


def test_a_command_name_is_completed(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "unused"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/he\t\r")
    terminal.wait_for("/rewind [TURN]")


def test_a_model_error_is_reported_with_advice(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"match": "never"}, prompt="go")
    text = terminal.wait_for(lambda text: "✗" in text and is_at_prompt(text))
    assert "No remaining step of the script" in text
    assert text.count("✗") == 1
