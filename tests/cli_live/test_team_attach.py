"""A team at a terminal: started there, and joined from another one that can be left again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import Place
from cli_live.terminal import Terminal, environment
from cli_live.test_interactive import CTRL_D, is_at_prompt
from company import after, company, last_words, tell
from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.names import AgentName, TeamName
from shoal.core.roster import Newcomer
from shoal.testing import messages_server
from shoal.testing.replies import call
from shoal.testing.servers import MockServer, in_thread

TEMPLATE = """\
---
description: Builds a roof.
roles:
  - name: alice
    prompt: "Build {goal}"
  - name: bob
    prompt: "Paint {goal}"
tasks:
  - subject: Build it
    owner: alice
---
Lead the building of {goal}.
"""
MODEL = ("--model", "anthropic:claude-haiku-5-5")


@contextmanager
def thinking(mind: Any) -> Iterator[dict[str, str]]:
    """The environment of programs that this mind speaks for."""
    with in_thread(messages_server(mind)) as server:
        assert isinstance(server, MockServer)
        yield {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}


def at_work(place: Place, env: dict[str, str]) -> Terminal:
    directory = place.project / ".claude" / "teams"
    directory.mkdir(parents=True)
    (directory / "roof.md").write_text(TEMPLATE)
    terminal = place.shoal_at_terminal("team", "start", "roof", "the roof", *MODEL, **env)
    terminal.wait_for("The team roof is made: alice, bob.")
    return terminal


def asks(body: dict[str, Any]) -> Any:
    return call("Write", file_path="plan.txt", content="four beams")


@pytest.mark.spec("USR-18", "SRF-01", "USR-05")
def test_a_team_is_joined_answered_talked_to_and_left_running(place: Place) -> None:
    heard: list[str] = []

    def hears(body: dict[str, Any]) -> str:
        heard.append(last_words(body))
        return "bob minds the gutter"

    mind = company(
        lead=["I wait for them.", "The lead heard it."],
        alice=[asks, "alice has written it"],
        bob=[after("Mind the gutter.", hears, otherwise="bob waits")],
    )
    with thinking(mind) as env:
        lead = at_work(place, env)
        lead.wait_for("allow?")
        there = place.shoal_at_terminal("team", "attach", "roof", **env)
        text = there.wait_for("allow?")
        assert "Write asks to run for alice" in text
        assert "content: four beams" in text
        assert "roof · " in text
        assert "1 waiting for you" in text
        there.type("@nobody hold on\r")
        there.wait_for("Nobody in the team roof is called 'nobody'")
        there.type("y\r")
        there.wait_for("alice: alice has written it")
        lead.wait_for(lambda text: "allowed once" in text and is_at_prompt(text))
        assert (place.project / "plan.txt").read_text() == "four beams"
        there.type("@nobody hello\r")
        there.wait_for("Nobody in the team roof is called 'nobody'")
        there.type("@bob Mind the gutter.\r")
        there.wait_for("bob: bob minds the gutter")
        assert "<teammate-message" not in heard[0]
        there.type("How far are you?\r")
        there.wait_for("The lead heard it.")
        lead.wait_for("The lead heard it.")
        there.type(CTRL_D)
        assert there.wait_for_end() == 0
        assert "The team goes on. Come back: shoal team attach roof" in there.screen.text
        assert '"lead":"alive"' in place.shoal("team", "show", "--json").stdout
        # Of two teams the one that runs is meant.
        asyncio.run(_with_pane(place.home, "%1", "barn"))
        again = place.shoal_at_terminal("team", "attach", **env)
        again.wait_for("bob minds the gutter")
        lead.wait_for(is_at_prompt)
        lead.type(CTRL_D)
        assert lead.wait_for_end() == 0
        assert again.wait_for_end() == 0
        assert "Go on with it: shoal team resume roof" in again.screen.text
    assert "Which team? There are: barn, roof." in place.shoal("team", "attach").stderr
    without = place.shoal("team", "attach", "roof")
    assert without.returncode == 1
    assert "shoal team resume roof" in without.stderr


@pytest.mark.spec("LIF-05", "USR-12")
def test_a_team_is_resumed_at_a_terminal_where_it_worked(place: Place, tmp_path: Path) -> None:
    mind = company(
        lead=["I wait for them.", "I go on."],
        alice=[tell("team-lead", "built"), "done"],
        bob=["bob waits", "bob is back"],
    )
    with thinking(mind) as env:
        lead = at_work(place, env)
        lead.wait_for(lambda text: "I go on." in text and is_at_prompt(text))
        os.kill(lead.pid, signal.SIGKILL)
        lead.wait_for_end()
        place.shoal("team", "send", "roof", "bob", "Are you there?")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        resume = place.argv("team", "resume", "roof", *MODEL)
        with Terminal(resume, cwd=elsewhere, env=environment(place.home, **env), columns=200) as back:
            back.wait_for(f"The team works in {place.project}.")
            back.wait_for(is_at_prompt)
            there = place.shoal_at_terminal("team", "attach", **env)
            there.wait_for("bob: bob is back")
            there.type("\x03")
            there.wait_for_end()
            back.type(CTRL_D)
            assert back.wait_for_end() == 0


def tmux(*words: str, env: dict[str, str], server: str = "shoal") -> str:
    ran = subprocess.run(
        ["tmux", "-L", server, *words], env=env, capture_output=True, text=True, timeout=20, check=True
    )
    return ran.stdout.strip()


@pytest.mark.needs("tmux")
def test_where_members_have_panes_one_is_brought_to_them(place: Place) -> None:
    env = environment(place.home, TMUX_TMPDIR=str(place.home))
    # Closed at the end whatever happens: each server is this test's own.
    try:
        new = ("-f", "/dev/null", "new-session", "-d")
        pane = tmux(*new, "-s", "roof-panes", "-P", "-F", "#{pane_id}", "cat", env=env)
        tmux("set-hook", "-g", "client-attached", "wait-for -S somebody", env=env)
        asyncio.run(_with_pane(place.home, pane))
        attach = " ".join(["exec", *(f"'{word}'" for word in place.argv("team", "attach", "--panes"))])
        tmux(*new, f"unset TMUX; {attach}", env=env, server="outer")
        tmux("wait-for", "somebody", env=env)
        assert tmux("list-clients", "-F", "#{session_name}", env=env) == "roof-panes"
    finally:
        for server in ("outer", "shoal"):
            subprocess.run(["tmux", "-L", server, "kill-server"], env=env, capture_output=True, check=False)
    attach_again = place.argv("team", "attach", "--panes")
    gone = subprocess.run(attach_again, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert gone.returncode == 1
    assert f"The pane {pane} is gone" in gone.stderr


async def _with_pane(home: Path, pane: str, team: str = "roof") -> None:
    record = AgentsRecord(home, clock=SystemClock(), ids=Ids(1))
    someone = Newcomer(name=AgentName("alice"), agent_type="general", model="m", cwd="/", prompt="")
    await record.rosters.create(TeamName(team), lead=someone, session="s-1", description=None)
    paned = Newcomer(
        name=AgentName("bob"),
        agent_type="general",
        model="m",
        cwd="/",
        prompt="",
        backend_type="tmux",
        tmux_pane_id=pane,
    )
    await record.rosters.join(TeamName(team), paned)
    await record.aclose()
