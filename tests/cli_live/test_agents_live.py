"""Agents at a terminal: their rows, results and questions, and the keys and commands that control them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from cli_live.conftest import CliProject, FifoGate
from cli_live.pty_terminal import build_environment
from cli_live.terminal_helpers import (
    CTRL_C,
    CTRL_D,
    is_at_prompt,
    make_agent_call,
    make_bash_call,
    read_journal,
    write_agent_definition,
)

CTRL_B = "\x02"


@pytest.mark.spec("RUN-03", "DEF-10", "TRN-03")
def test_a_foreground_agent_has_a_live_row_and_its_text_is_not_shown(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    write_agent_definition(cli_project, "plumber", "'#ff8800'")
    terminal = cli_project.start_scripted_terminal(
        {
            "match": "go",
            "text": "I ask the plumber.",
            "tools": [make_agent_call("one", subagent_type="plumber")],
        },
        {"match": "job one", "text": "SECRET WORDS OF THE CHILD", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the report"},
        {"match": "the report", "text": "The plumber is done."},
        mode="bypassPermissions",
        prompt="go",
    )
    row = re.compile(r"^  ● plumber: do one · Bash .* · 0 calls · [0-9.k]+ tokens · [0-9.]+ s$", re.MULTILINE)
    terminal.wait_for(lambda text: row.search(text) is not None)
    assert "\x1b[38;2;255;136;0m●" in terminal.raw
    gate.open()
    text = terminal.wait_for(lambda text: "The plumber is done." in text and "● plumber" not in text)
    assert "SECRET WORDS" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("● Agent"))
    assert line.startswith("● Agent do one  → done · 1 call")


@pytest.mark.spec("QUE-04", "CTL-08", "DEF-10")
def test_a_background_agent_is_counted_and_listed_and_its_result_starts_a_turn(
    cli_project: CliProject,
) -> None:
    gate = cli_project.create_gate()
    write_agent_definition(cli_project, "plumber", "purple")
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_agent_call("one", background=True, subagent_type="plumber")]},
        {"match": "job one", "text": "I am looking.", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the report"},
        {"match": "<task-notification>", "text": "I was woken."},
        {"match": "works in the background", "text": "It is started."},
        mode="bypassPermissions",
        prompt="go",
    )
    wanted = ("It is started.", "1 agent working in the background · /agents lists them\n›")
    text = terminal.wait_for(lambda text: all(words in text for words in wanted))
    assert "● agent plumber started in the background: do one" in text
    terminal.type_text("/agents\r")
    wanted = ("● plumber  do one", "working: Bash", "$0.0", "/agents show ID")
    terminal.wait_for(lambda text: all(words in text for words in wanted))
    terminal.type_text("/agents show nobody\r")
    terminal.wait_for("There is no agent 'nobody'")
    gate.open()
    text = terminal.wait_for(lambda text: "I was woken." in text and "1 agent works" not in text)
    assert text.index("● agent plumber completed (1 tool call") < text.index("I was woken.")
    told = (("● ", "agent plumber started"), ("  ● ", "\x1b[1mplumber"), ("● ", "agent plumber completed"))
    for dot, words in told:
        assert f"\x1b[35m{dot}\x1b[0m{words}" in terminal.raw
    identity = next(event["agent"] for event in read_journal(cli_project) if event["type"] == "agent_started")
    terminal.type_text(f"/agents show {identity[:8]}\r")
    terminal.wait_for(lambda text: "I am looking." in text and "    the report" in text)


@pytest.mark.spec("RUN-04")
def test_ctrl_b_moves_the_running_agent_to_the_background(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_agent_call("one")]},
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the report"},
        {"match": "continues in the background", "text": "I do not wait."},
        {"match": "<task-notification>", "text": "It has ended now."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for("● general-purpose: do one · Bash")
    terminal.type_text(CTRL_B)
    text = terminal.wait_for(lambda text: "I do not wait." in text and is_at_prompt(text))
    assert "● agent general-purpose continues in the background: do one" in text
    gate.open()
    terminal.wait_for("It has ended now.")
    assert [event["type"] for event in read_journal(cli_project)].count("agent_started") == 1
    tools = [
        event
        for event in read_journal(cli_project)
        if event["type"] == "tool_started" and event["tool"] == "Bash"
    ]
    assert len(tools) == 1


def test_ctrl_b_moves_the_cursor_when_no_agent_is_in_the_foreground(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"match": "hello", "text": "yes"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("helo" + CTRL_B + "l\r")
    terminal.wait_for("yes")


@pytest.mark.spec("RUN-06", "CTL-08")
def test_ctrl_c_stops_the_turn_and_commands_stop_one_or_all_agents(
    cli_project: CliProject,
) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {
            "match": "go",
            "tools": [make_agent_call("one", background=True), make_agent_call("two", background=True)],
        },
        {"match": "job", "tools": [make_bash_call("sleep 600")], "repeat": True},
        {"match": "works in the background", "tools": [make_bash_call(gate.command)]},
        {"match": "<status>killed</status>", "text": "I hear of it.", "repeat": True},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for(lambda text: "2 agents working in the background" in text and "Bash waiting" in text)
    terminal.type_text(CTRL_C)
    wanted = ("interrupted", "2 agents working in the background · /agents lists them\n›")
    terminal.wait_for(lambda text: all(words in text for words in wanted))
    assert not [event for event in read_journal(cli_project) if event["type"] == "agent_ended"]
    first, second = (
        event["agent"] for event in read_journal(cli_project) if event["type"] == "agent_started"
    )
    terminal.type_text(f"/agents stop {first[:8]}\r")
    terminal.wait_for(lambda text: text.count("agent general-purpose was stopped") == 1)
    terminal.wait_for(lambda text: "I hear of it." in text and is_at_prompt(text))
    assert [event["agent"] for event in read_journal(cli_project) if event["type"] == "agent_ended"] == [
        first
    ]
    terminal.type_text("/agents stop all\r")
    terminal.wait_for(lambda text: text.count("agent general-purpose was stopped") == 2)
    assert [event["agent"] for event in read_journal(cli_project) if event["type"] == "agent_ended"] == [
        first,
        second,
    ]
    ends = [
        event["completion"]["status"] for event in read_journal(cli_project) if event["type"] == "agent_ended"
    ]
    assert ends == ["killed", "killed"]


@pytest.mark.spec("CTL-02")
def test_an_agent_stopped_by_exit_is_listed_and_can_be_continued_after_resume(
    cli_project: CliProject,
) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_agent_call("one", background=True)]},
        {"match": "job", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "text": "Started."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for(lambda text: "Started." in text and is_at_prompt(text))
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    text = terminal.screen.text
    assert "Stopped before it finished:" in text
    assert "do one" in text.split("Stopped before it finished:")[1]
    assert "shoal --resume" in text
    identity = next(event["agent"] for event in read_journal(cli_project) if event["type"] == "agent_started")
    again = cli_project.start_scripted_terminal(
        {"match": "go on", "text": "I went on."},
        {"match": "<status>killed", "text": "It was stopped."},
        {"match": "<status>completed", "text": "It went on and is done."},
        mode="bypassPermissions",
        resume="yes",
    )
    again.wait_for(is_at_prompt)
    again.type_text("/agents\r")
    again.wait_for(lambda text: "● general-purpose  do one" in text and f"{identity} · stopped" in text)
    again.type_text(f"/agents send {identity} go on\r")
    again.wait_for(lambda text: "continues with it." in text and "It went on and is done." in text)


@pytest.mark.spec("USR-26", "USR-05", "QUE-06")
def test_notifications_wait_for_the_answer_to_a_question_from_depth_three(
    cli_project: CliProject,
) -> None:
    gate = cli_project.create_gate()
    terminal = cli_project.start_scripted_terminal(
        {
            "match": "go",
            "tools": [make_agent_call("one", background=True), make_agent_call("other", background=True)],
        },
        {"match": "job one", "tools": [make_agent_call("two")]},
        {"match": "job two", "tools": [make_agent_call("three", name="diver")]},
        {"match": "job three", "tools": [make_bash_call("touch asked-for")]},
        {"match": "job other", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the other is done"},
        {"match": "one is done", "text": "All of them are done."},
        {"match": "the other is done", "text": "The other one came first."},
        {"match": "works in the background", "text": "Both are started."},
        {"match": "(no output)", "text": "three is done"},
        {"match": "three is done", "text": "two is done"},
        {"match": "two is done", "text": "one is done"},
        {"text": "unexpected", "repeat": True},
        prompt="go",
    )
    terminal.wait_for("Bash asks to run for diver (do three)")
    shown_at = time.time()
    question_event = next(event for event in read_journal(cli_project) if event["type"] == "asked")
    asked_at = (
        datetime.strptime(question_event["at"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    )
    assert shown_at - asked_at <= 1.0
    assert "touch asked-for" in terminal.wait_for("allow? ›")
    # The other agent's end waits for the user's answer.
    gate.open()
    terminal.wait_for(lambda text: "agent general-purpose completed" in text and "do other" in text)
    lead, *_ = json.loads(cli_project.run_shoal("ps", "--json").stdout)
    assert lead["state"] == "idle"
    assert [event["type"] for event in read_journal(cli_project)].count("turn_started") == 1
    terminal.type_text("y\r")
    terminal.wait_for("All of them are done.")
    assert (cli_project.project / "asked-for").exists()


def test_unsent_input_is_not_taken_as_an_answer_to_an_open_question(cli_project: CliProject) -> None:
    gate, other_gate = cli_project.create_gate(), FifoGate(cli_project.project / "other")
    terminal = cli_project.start_scripted_terminal(
        {"match": "go", "tools": [make_agent_call("one", background=True), make_bash_call(gate.command)]},
        {"match": "job one", "tools": [make_bash_call(other_gate.command)]},
        {"match": "gate opened", "tools": [make_bash_call("touch asked-for")]},
        {"match": "did not", "text": "one is done"},
        {"text": "Noted.", "repeat": True},
        prompt="go",
    )
    terminal.wait_for("Bash waiting")
    terminal.type_text("be quick\r")
    terminal.wait_for("sent; the agent")
    other_gate.open()
    terminal.wait_for("allow? ›")
    terminal.type_text(CTRL_C)
    terminal.wait_for(lambda text: "interrupted" in text and text.endswith("allow? ›"))
    terminal.type_text("n\r")
    terminal.wait_for(lambda text: text.endswith("\n› be quick"))
    assert not (cli_project.project / "asked-for").exists()


@pytest.fixture
def provider(cli_project: CliProject) -> Iterator[Callable[..., dict[str, str]]]:
    """Function that starts a provider with these steps and returns its environment variables."""
    with ExitStack() as exits:

        def start(*steps: dict[str, Any]) -> dict[str, str]:
            script = cli_project.home / "provider.json"
            script.write_text(json.dumps(steps))
            program = [sys.executable, "-m", "shoal.testing.servers"]
            server = subprocess.Popen(
                [*program, "--script", str(script), "--with-parent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=build_environment(cli_project.home),
                text=True,
            )
            # Leaving closes its standard input, which ends it, and waits for that.
            exits.enter_context(server)
            assert server.stdout is not None
            return {"ANTHROPIC_BASE_URL": server.stdout.readline().strip(), "ANTHROPIC_API_KEY": "for-tests"}

        yield start


@pytest.mark.spec("USR-22", "TRN-03")
def test_a_headless_run_at_a_terminal_shows_the_agents_it_waits_for(
    cli_project: CliProject, provider: Callable[..., dict[str, str]]
) -> None:
    gate = cli_project.create_gate()
    env = provider(
        {"match": "go", "tools": [make_agent_call("one", background=True)]},
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the report"},
        {"match": "<task-notification>", "text": "All is done."},
        {"match": "works in the background", "text": "It is started."},
    )
    flags = ("--model", "anthropic:claude-haiku-5-5", "--dangerously-skip-permissions")
    terminal = cli_project.start_shoal_terminal("-p", "go", *flags, **env)
    # Between turns only the agent's row is shown, not the lead's.
    terminal.wait_for(
        lambda text: "● general-purpose: do one · Bash waiting" in text and "lead ·" not in text
    )
    gate.open()
    assert terminal.wait_for_end() == 0
    text = terminal.screen.text
    assert "● general-purpose" not in text
    assert "It is started." not in text
    assert text.splitlines()[-1] == "All is done."
