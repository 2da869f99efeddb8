"""Commands that show, message and stop the agents of a run from another terminal."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal
from cli_live.terminal_helpers import (
    get_session_id,
    is_at_prompt,
    make_agent_call,
    make_bash_call,
    read_journal,
    write_agent_definition,
)


def start_two_agents(cli_project: CliProject) -> PtyTerminal:
    gate = cli_project.create_gate()
    write_agent_definition(cli_project, "plumber", "orange")
    terminal = cli_project.start_scripted_terminal(
        {
            "match": "go",
            "tools": [
                make_agent_call("one", background=True, subagent_type="plumber", name="joe"),
                make_agent_call("two", background=True),
            ],
        },
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "mind the valve", "text": "I minded the valve."},
        {"match": "and the tap", "text": "I minded the tap, too."},
        {"match": "job two", "tools": [make_bash_call("sleep 600")]},
        {"match": "minded the tap", "text": "Joe minded the tap."},
        {"match": "minded the valve", "text": "Joe minded the valve."},
        {"match": "was stopped", "text": "The second one was stopped."},
        {"match": "works in the background", "text": "Both are started."},
        mode="bypassPermissions",
        prompt="go",
    )
    terminal.wait_for(lambda text: "Both are started." in text and "2 agents work" in text)
    return terminal


def wait_for_both_commands(cli_project: CliProject) -> None:
    """Wait until each of the two agents runs its command."""
    watch = cli_project.start_shoal_terminal("watch")
    watch.wait_for(lambda text: "do one · Bash" in text and "do two · Bash" in text)


@pytest.mark.spec("USR-18", "DEF-10")
def test_watch_shows_each_agent_with_its_model_cost_and_last_event(cli_project: CliProject) -> None:
    terminal = start_two_agents(cli_project)
    watch = cli_project.start_shoal_terminal("watch")
    watch.resize_screen(120)
    watch.wait_for(lambda text: "● joe: do one · Bash" in text and "● general-purpose: do two" in text)
    details = re.compile(
        r"^ +a\w+ · working · scripted · \$0\.0000 · "
        r"(active just now|last event .* ago) · in the background$",
        re.MULTILINE,
    )
    watch.wait_for(lambda text: len(details.findall(text)) == 2)
    assert "\x1b[38;5;208m●" in watch.raw
    terminal.type_text("/agents stop all\r")
    watch.wait_for(lambda text: "agent joe was stopped" in text and "● joe:" not in text)


@pytest.mark.spec("USR-18", "CTL-08", "DEF-10")
def test_ps_lists_the_agents_for_people_and_for_programs(cli_project: CliProject) -> None:
    terminal = start_two_agents(cli_project)
    wait_for_both_commands(cli_project)
    printed = cli_project.run_shoal("ps")
    assert printed.returncode == 0
    assert "  ● lead  go" in printed.stdout
    assert "    ● joe  do one" in printed.stdout
    assert "working: Bash" in printed.stdout
    ps_terminal = cli_project.start_shoal_terminal("ps")
    assert ps_terminal.wait_for_end() == 0
    assert "\x1b[38;5;208m●\x1b[0m joe" in ps_terminal.raw
    lead, joe, _ = json.loads(cli_project.run_shoal("ps", "--json").stdout)
    assert (lead["agent"], lead["state"]) == ("lead", "idle")
    assert (joe["name"], joe["kind"], joe["state"]) == ("joe", "plumber", "working")
    assert (joe["task"], joe["parent"], joe["background"]) == ("do one", "lead", True)
    assert joe["doing"].startswith("Bash")
    assert joe["model"] == "scripted"
    assert joe["tokens"] > 0
    assert joe["question"] is None
    assert joe["last_event_seconds"] >= 0
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.wait_for_end()
    ended_agents = json.loads(cli_project.run_shoal("ps", get_session_id(cli_project), "--json").stdout)
    assert [row["state"] for row in ended_agents] == ["idle", "gone", "gone"]
    assert "There is no live run here." in cli_project.run_shoal("ps").stdout


@pytest.mark.spec("USR-18", "CTL-02")
def test_send_reaches_a_running_agent_and_continues_an_ended_one(cli_project: CliProject) -> None:
    terminal = start_two_agents(cli_project)
    wait_for_both_commands(cli_project)
    sent = cli_project.run_shoal("send", get_session_id(cli_project)[:8], "joe", "mind the valve")
    assert (sent.returncode, sent.stdout) == (0, "joe reads it at its next step.\n")
    (cli_project.project / "gate").write_text("gate opened\n")
    terminal.wait_for("Joe minded the valve.")
    assert any(event["type"] == "queued" and event["by"] == "person" for event in read_journal(cli_project))
    again = cli_project.run_shoal("send", get_session_id(cli_project), "joe", "and the tap", "--json")
    assert json.loads(again.stdout)["how"] == "resumed"
    terminal.wait_for("Joe minded the tap.")
    stranger = cli_project.run_shoal("send", get_session_id(cli_project), "nobody", "hello")
    assert stranger.returncode == 1
    assert "nobody" in stranger.stderr


@pytest.mark.spec("CTL-08")
def test_stop_ends_one_agent_all_agents_or_the_run(cli_project: CliProject) -> None:
    terminal = start_two_agents(cli_project)
    session = get_session_id(cli_project)
    two = next(
        e["agent"] for e in read_journal(cli_project) if e["type"] == "agent_started" and not e["name"]
    )
    stopped = cli_project.run_shoal("stop", session, two)
    assert (stopped.returncode, stopped.stdout) == (0, f"Stopped:\n  {two}  general-purpose (do two)\n")
    terminal.wait_for(lambda text: "The second one was stopped." in text and is_at_prompt(text))
    again = cli_project.run_shoal("stop", session, two)
    assert again.returncode == 1
    assert "is not running: it was stopped." in again.stderr
    assert f"{two} · stopped · " in cli_project.run_shoal("ps").stdout
    every = cli_project.run_shoal("stop", session, "all", "--json")
    (joe,) = (
        e["agent"] for e in read_journal(cli_project) if e["type"] == "agent_started" and e["name"] == "joe"
    )
    assert json.loads(every.stdout) == {"session": session, "stopped": [joe]}
    assert cli_project.run_shoal("stop", session).stdout == f"Stopping session {session}.\n"
    assert terminal.wait_for_end() == 0
    gone = cli_project.run_shoal("stop", session)
    assert gone.returncode == 1
    assert f"has ended, so it cannot respond. Resume it: shoal --resume {session}" in gone.stderr
