"""Agents of a run seen, told and stopped from another terminal."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal
from cli_live.terminal_helpers import is_at_prompt, make_bash_call
from cli_live.test_agents_live import agent, define, events
from cli_live.test_watch import session_of


def two_at_work(place: CliProject) -> PtyTerminal:
    gate = place.create_gate()
    define(place, "plumber", "orange")
    terminal = place.start_scripted_terminal(
        {
            "match": "go",
            "tools": [
                agent("one", background=True, subagent_type="plumber", name="joe"),
                agent("two", background=True),
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


def both_in_tools(place: CliProject) -> None:
    """Returns when each of them runs its command."""
    watch = place.start_shoal_terminal("watch")
    watch.wait_for(lambda text: "do one · Bash" in text and "do two · Bash" in text)


@pytest.mark.spec("USR-18", "DEF-10")
def test_watch_shows_each_agent_with_its_model_cost_and_last_event(place: CliProject) -> None:
    talk = two_at_work(place)
    watch = place.start_shoal_terminal("watch")
    watch.wait_for(lambda text: "● joe: do one · Bash" in text and "● general-purpose: do two" in text)
    details = re.compile(
        r"^ +a\w+ · working · scripted · \$0\.0000 · heard (just now|.* ago) · in the", re.MULTILINE
    )
    watch.wait_for(lambda text: len(details.findall(text)) == 2)
    assert "\x1b[38;5;208m●" in watch.raw
    talk.type_text("/agents stop all\r")
    watch.wait_for(lambda text: "agent joe was stopped" in text and "● joe:" not in text)


@pytest.mark.spec("USR-18", "CTL-08", "DEF-10")
def test_ps_lists_the_agents_for_people_and_for_programs(place: CliProject) -> None:
    talk = two_at_work(place)
    both_in_tools(place)
    printed = place.run_shoal("ps")
    assert printed.returncode == 0
    assert "  ● lead  go" in printed.stdout
    assert "    ● joe  do one" in printed.stdout
    assert "working: Bash" in printed.stdout
    shown = place.start_shoal_terminal("ps")
    assert shown.wait_for_end() == 0
    assert "\x1b[38;5;208m●\x1b[0m joe" in shown.raw
    lead, joe, _ = json.loads(place.run_shoal("ps", "--json").stdout)
    assert (lead["agent"], lead["state"]) == ("lead", "idle")
    assert (joe["name"], joe["kind"], joe["state"]) == ("joe", "plumber", "working")
    assert (joe["task"], joe["parent"], joe["background"]) == ("do one", "lead", True)
    assert joe["doing"].startswith("Bash")
    assert joe["model"] == "scripted"
    assert joe["tokens"] > 0
    assert joe["question"] is None
    assert joe["last_event_seconds"] >= 0
    os.kill(talk.pid, signal.SIGKILL)
    talk.wait_for_end()
    past = json.loads(place.run_shoal("ps", session_of(place), "--json").stdout)
    assert [each["state"] for each in past] == ["idle", "gone", "gone"]
    assert "No run is live here." in place.run_shoal("ps").stdout


@pytest.mark.spec("USR-18", "CTL-02")
def test_send_reaches_a_running_agent_and_continues_an_ended_one(place: CliProject) -> None:
    talk = two_at_work(place)
    both_in_tools(place)
    sent = place.run_shoal("send", session_of(place)[:8], "joe", "mind the valve")
    assert (sent.returncode, sent.stdout) == (0, "joe hears it at its next step.\n")
    (place.project / "gate").write_text("gate opened\n")
    talk.wait_for("Joe minded the valve.")
    assert any(each["type"] == "queued" and each["by"] == "person" for each in events(place))
    again = place.run_shoal("send", session_of(place), "joe", "and the tap", "--json")
    assert json.loads(again.stdout)["how"] == "resumed"
    talk.wait_for("Joe minded the tap.")
    stranger = place.run_shoal("send", session_of(place), "nobody", "hello")
    assert stranger.returncode == 1
    assert "nobody" in stranger.stderr


@pytest.mark.spec("CTL-08")
def test_stop_ends_one_agent_all_agents_or_the_run(place: CliProject) -> None:
    talk = two_at_work(place)
    session = session_of(place)
    two = next(e["agent"] for e in events(place) if e["type"] == "agent_started" and not e["name"])
    stopped = place.run_shoal("stop", session, two)
    assert (stopped.returncode, stopped.stdout) == (0, f"Stopped:\n  {two}  general-purpose (do two)\n")
    talk.wait_for(lambda text: "The second one was stopped." in text and is_at_prompt(text))
    again = place.run_shoal("stop", session, two)
    assert again.returncode == 1
    assert "is not running: it was stopped." in again.stderr
    assert f"{two} · stopped · " in place.run_shoal("ps").stdout
    every = place.run_shoal("stop", session, "all", "--json")
    (joe,) = (e["agent"] for e in events(place) if e["type"] == "agent_started" and e["name"] == "joe")
    assert json.loads(every.stdout) == {"session": session, "stopped": [joe]}
    assert place.run_shoal("stop", session).stdout == f"Session {session} ends.\n"
    assert talk.wait_for_end() == 0
    gone = place.run_shoal("stop", session)
    assert gone.returncode == 1
    assert f"has ended. Go on with it: shoal --resume {session}" in gone.stderr
