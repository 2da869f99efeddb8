"""`shoal watch`: following a run from another process."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli_live.conftest import CliProject
from cli_live.terminal_helpers import CTRL_D, get_session_id, is_at_prompt, make_bash_call


@pytest.mark.spec("USR-18")
def test_watch_follows_a_live_run_to_its_end(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "text": "I begin.", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "It is open now."},
        mode="bypassPermissions",
        prompt="go on",
    )
    terminal.wait_for("Bash waiting")
    watch = cli_project.start_shoal_terminal("watch")
    text = watch.wait_for("● Bash")
    assert f"session {get_session_id(cli_project)}" in text
    assert "› go on" in text
    assert "I begin." in text
    watch.wait_for("lead · Bash")
    gate.open()
    watch.wait_for("It is open now.")
    assert "→ exit 0 · gate opened" in watch.screen.text
    terminal.wait_for(is_at_prompt)
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    assert watch.wait_for_end() == 0
    assert "tokens" in watch.screen.lines[-2] + watch.screen.lines[-1]


def test_watch_finds_a_run_before_its_first_prompt(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "Hello."})
    terminal.wait_for("/help lists")
    watch = cli_project.start_shoal_terminal("watch")
    watch.wait_for("session ")
    terminal.type_text("hi\r")
    watch.wait_for("Hello.")


@pytest.mark.slow
def test_watch_shows_text_while_it_streams(cli_project: CliProject) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    terminal = cli_project.start_scripted_terminal(
        {"text": "ready"}, {"match": "speak", "text": words}, pace=0.005, prompt="go"
    )
    terminal.wait_for(lambda text: "ready" in text and is_at_prompt(text))
    watch = cli_project.start_shoal_terminal("watch")
    watch.wait_for("ready")
    terminal.type_text("speak\r")
    text = watch.wait_for("word10 ")
    assert "word399" not in text
    watch.wait_for("word399")


@pytest.mark.spec("USR-18")
def test_a_finished_run_is_printed_from_its_journal(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "text": "I begin.", "tools": [make_bash_call("echo hi")]},
        {"text": "All done."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for(lambda text: "All done." in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    none_live = cli_project.run_shoal("watch")
    assert none_live.returncode == 1
    assert f"shoal watch {get_session_id(cli_project)[:8]}" in none_live.stderr
    printed = cli_project.run_shoal("watch", get_session_id(cli_project)[:8])
    assert printed.returncode == 0
    assert "I begin.\n\n● Bash echo hi  → exit 0\n\nAll done.\n" in printed.stdout
    assert "\x1b" not in printed.stdout


def test_watch_prints_events_as_json(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "Hello."}, prompt="go")
    terminal.wait_for(lambda text: "Hello." in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    printed = cli_project.run_shoal("watch", get_session_id(cli_project), "--json")
    kinds = [json.loads(line)["type"] for line in printed.stdout.splitlines()]
    assert kinds[0] == "session_started"
    assert kinds[-1] == "session_ended"
    assert "request_settled" in kinds


@pytest.mark.spec("USR-18")
def test_frames_print_view_deltas_as_json(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "It is open."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    watching = cli_project.start_shoal_terminal("watch", "--frames")
    watching.wait_for('"state":"working"')
    gate.open()
    terminal.wait_for(lambda text: "It is open." in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    terminal.wait_for_end()
    assert watching.wait_for_end() == 0
    printed = cli_project.run_shoal("watch", get_session_id(cli_project), "--frames").stdout.splitlines()
    frame = json.loads(printed[-1])
    (lead,) = frame["agents"]
    assert (lead["name"], lead["state"], lead["tool_calls"]) == ("lead", "idle", 1)
    assert lead["tokens"] == sum(row["input_tokens"] + row["output_tokens"] for row in frame["costs"]) > 0
    assert (frame["live"], frame["run"]["ended"]) == (False, True)


def test_watching_a_killed_run_ends_with_a_message(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"tools": [make_bash_call(gate.command)]}, mode="bypassPermissions", prompt="go"
    )
    terminal.wait_for("Bash waiting")
    watch = cli_project.start_shoal_terminal("watch")
    watch.wait_for("● Bash")
    os.kill(terminal.pid, signal.SIGKILL)
    assert watch.wait_for_end() == 0
    assert "its process is gone" in watch.screen.text
    assert f"shoal --resume {get_session_id(cli_project)}" in watch.screen.text


def test_watching_an_unknown_run_is_an_error_message(cli_project: CliProject) -> None:
    run = cli_project.run_shoal("watch", "nonesuch")
    assert run.returncode == 1
    assert "'nonesuch' does not identify a run" in run.stderr
