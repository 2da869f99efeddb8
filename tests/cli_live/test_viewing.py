"""`shoal view`: one teammate in a terminal of its own, and a person who talks to it there."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli_live.conftest import SHOAL, Place
from cli_live.terminal import Terminal, environment
from cli_live.test_agents_live import events
from cli_live.test_interactive import CTRL_C, CTRL_D, bash, is_at_prompt
from cli_live.test_watch import session_of
from shoal.core.backends import Pane, PaneEnd
from tmux_rig import TmuxServer, panes_in

ANN = "You are ann"
FROM_LEAD = {"to": "ann", "message": "The lead has a word.", "summary": "a word"}
LONG = "I looked at " + "the roof and " * 30 + "the gutter."


def team(place: Place, *steps: dict[str, object], mode: str = "bypassPermissions") -> Terminal:
    """A lead with ann, who says these steps and then that she is ready."""
    spawn = {"description": "ann works", "prompt": "Begin.", "name": "ann"}
    talk = place.talk(
        *({"system": ANN, **step} for step in steps),
        {"system": ANN, "match": "Begin", "text": LONG},
        {"match": "go", "tools": [{"name": "TeamCreate", "input": {"team_name": "roof"}}]},
        {"at": 1, "tools": [{"name": "Agent", "input": spawn}]},
        {"at": 2, "text": "Ann is there."},
        {"match": "tell ann", "tools": [{"name": "SendMessage", "input": FROM_LEAD}]},
        {"text": "Good.", "repeat": True},
        mode=mode,
        prompt="go",
    )
    talk.wait_for("Ann is there.")
    return talk


def said_to_ann(place: Place) -> list[str]:
    (path,) = (place.home / "projects").glob("*/*/subagents/agent-ann@roof.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    contents = [line["message"]["content"] for line in lines if line["type"] == "user"]
    return [block["text"] for content in contents for block in content if block["type"] == "text"]


@pytest.mark.needs("tmux")
@pytest.mark.spec("SRF-01", "USR-20")
async def test_what_a_person_types_in_a_teammates_pane_reaches_it_as_from_the_person(
    place: Place, tmux: TmuxServer
) -> None:
    talk = team(place, {"match": "mind the valve", "text": "I minded the valve."})
    tmux.begin()
    env = {**environment(place.home)}
    del env["TERM"]
    argv = (*SHOAL, "view", session_of(place), "ann@roof")
    async with panes_in(tmux.inside) as panes:
        pane = await panes.open(Pane(title="ann", color="blue", argv=argv, cwd=place.project, env=env))
        await tmux.shows(pane, "● ann  general-purpose · scripted · team roof")
        await tmux.shows(pane, "team-lead › Begin.")
        await tmux.shows(pane, "the gutter.")
        await tmux.shows(pane, "○ idle")
        tmux("send-keys", "-t", pane, "-l", "mind the valve")
        tmux("send-keys", "-t", pane, "Enter")
        await tmux.shows(pane, "› mind the valve")
        await tmux.shows(pane, "I minded the valve.")
        assert said_to_ann(place)[-1] == "mind the valve"
        tmux("set-option", "-p", "-t", pane, "remain-on-exit", "on")
        tmux("set-hook", "-p", "-u", "-t", pane, "pane-died")
        tmux("send-keys", "-t", pane, "C-c")
        await tmux.shows(pane, "This view is closed; ann works on.")
        tmux("kill-pane", "-t", pane)
        assert await panes.over(pane) == PaneEnd()
    assert [each["name"] for each in json.loads(place.shoal("ps", "--json").stdout)][-1] == "ann"
    assert not any(each["type"] == "agent_ended" for each in events(place))
    talk.type(CTRL_D)
    assert talk.wait_for_end() == 0


@pytest.mark.spec("SRF-01")
def test_what_a_person_types_comes_before_what_the_lead_said_earlier(place: Place) -> None:
    gate = place.gate()
    talk = team(place, {"match": "Begin", "tools": [bash(gate.command)]}, {"text": "Heard.", "repeat": True})
    view = place.shoal_at_terminal("view", session_of(place), "ann")
    view.wait_for("● Bash")
    talk.wait_for(is_at_prompt)
    talk.type("tell ann\r")
    talk.wait_for(lambda text: "● SendMessage" in text and "Good." in text)
    view.type("me first\r")
    view.wait_for("ann hears it at its next step")
    gate.open()
    text = view.wait_for(lambda text: "› me first" in text and "The lead has a word." in text)
    assert text.index("› me first") < text.index("team-lead › The lead has a word.")
    heard = "\n".join(said_to_ann(place))
    assert heard.index("me first") < heard.index("The lead has a word.")


def test_calls_and_questions_are_seen_and_the_head_has_the_colour(place: Place) -> None:
    gate = place.gate()
    talk = team(
        place,
        {"match": "Begin", "tools": [bash(f"touch asked; {gate.command}")]},
        {"match": "gate opened", "text": "Through."},
        mode="default",
    )
    view = place.shoal_at_terminal("view", session_of(place)[:8], "ann")
    text = view.wait_for("answer it with: shoal ask answer")
    assert "\x1b[1;34m● ann" in view.raw
    question = text.split("shoal ask answer ")[1].split()[0]
    assert place.shoal("ask", "answer", question, "yes").returncode == 0
    view.wait_for("● Bash")
    gate.open()
    view.wait_for(lambda text: "→ exit 0" in text and "Through." in text)
    view.wait_for("○ idle")
    view.type(CTRL_D)
    assert view.wait_for_end() == 0
    assert "This view is closed; ann works on." in view.screen.text
    assert "See it again with: shoal view" in view.screen.text
    talk.wait_for(is_at_prompt)


def test_a_run_that_takes_its_time_keeps_nobody_from_typing(place: Place) -> None:
    talk = team(place, {"match": "one", "text": "Heard one."}, {"match": "two", "text": "Heard two."})
    view = place.shoal_at_terminal("view", session_of(place), "ann")
    view.wait_for("○ idle")
    os.kill(talk.pid, signal.SIGSTOP)
    try:
        view.type("one\r")
        view.wait_for("on its way: one")
        view.type("two\r")
        view.wait_for("on its way: two")
    finally:
        os.kill(talk.pid, signal.SIGCONT)
    view.wait_for(lambda text: "Heard" in text and "on its way" not in text)
    view.wait_for("› two")
    assert [text for text in said_to_ann(place) if "\n" not in text] == ["one", "two"]


def test_when_the_agent_ends_it_says_how_and_stays_until_a_key(place: Place) -> None:
    team(place)
    view = place.shoal_at_terminal("view", session_of(place), "ann")
    leaving = place.shoal_at_terminal("view", session_of(place), "ann", "--exit")
    for each in (view, leaving):
        each.wait_for("○ idle")
    assert place.shoal("stop", session_of(place), "ann").returncode == 0
    assert leaving.wait_for_end() == 0
    assert "ann was stopped" in leaving.screen.text
    view.wait_for("any key closes this view")
    view.type("x")
    assert view.wait_for_end() == 0
    assert "works on" not in view.screen.text


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_when_the_run_is_gone_it_says_so_and_ends(place: Place, how: str) -> None:
    talk = team(place)
    view = place.shoal_at_terminal("view", session_of(place), "ann")
    view.wait_for("○ idle")
    if how == "killed":
        os.kill(talk.pid, signal.SIGKILL)
    else:
        talk.wait_for(is_at_prompt)
        talk.type(CTRL_D)
    assert view.wait_for_end() == 0
    assert "The run has ended, and this view with it." in view.screen.text


def test_one_who_comes_before_the_agent_waits_for_it_and_words_for_nobody_are_given_back(
    place: Place,
) -> None:
    talk = place.talk({"text": "Hello."}, prompt="hi")
    talk.wait_for("Hello.")
    view = place.shoal_at_terminal("view", session_of(place), "ann")
    view.wait_for("ann has not started yet")
    view.type("hello\r")
    view.wait_for("It was not said")
    view.wait_for(lambda text: text.endswith("› hello"))
    view.type(CTRL_C)
    assert view.wait_for_end() == 0


def test_an_agent_that_a_run_which_has_ended_never_had_is_not_waited_for(place: Place) -> None:
    talk = place.talk({"text": "Hello."}, prompt="hi")
    talk.wait_for("Hello.")
    talk.type(CTRL_D)
    assert talk.wait_for_end() == 0
    told = place.shoal("view", session_of(place), "ann")
    assert (told.returncode, told.stdout) == (1, "")
    assert "has ended, and had no agent 'ann'. It had: lead." in told.stderr
    assert "Hello." in place.shoal("view", session_of(place), "lead").stdout


@pytest.mark.spec("BCK-08")
def test_help_shows_the_viewer_but_not_the_papers_of_teammates(place: Place) -> None:
    told = place.shoal("--help").stdout
    assert "\n  view " in told
    assert "--agent-" not in told
