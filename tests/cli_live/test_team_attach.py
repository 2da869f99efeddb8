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

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal, build_environment
from cli_live.terminal_helpers import CTRL_D, is_at_prompt
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.roster import NewMember
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call
from shoal.testing.servers import MockServer, run_in_thread
from team_server_scripts import get_last_text, reply_after_text, script_team_server, send_message

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
    with run_in_thread(messages_server(mind)) as server:
        assert isinstance(server, MockServer)
        yield {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}


def at_work(place: CliProject, env: dict[str, str]) -> PtyTerminal:
    directory = place.project / ".claude" / "teams"
    directory.mkdir(parents=True)
    (directory / "roof.md").write_text(TEMPLATE)
    terminal = place.start_shoal_terminal("team", "start", "roof", "the roof", *MODEL, **env)
    terminal.wait_for("The team roof is made: alice, bob.")
    return terminal


def asks(body: dict[str, Any]) -> Any:
    return make_tool_call("Write", file_path="plan.txt", content="four beams")


@pytest.mark.spec("USR-18", "SRF-01", "USR-05")
def test_a_team_is_joined_answered_talked_to_and_left_running(place: CliProject) -> None:
    heard: list[str] = []

    def hears(body: dict[str, Any]) -> str:
        heard.append(get_last_text(body))
        return "bob minds the gutter"

    mind = script_team_server(
        lead=["I wait for them.", "The lead heard it."],
        alice=[asks, "alice has written it"],
        bob=[reply_after_text("Mind the gutter.", hears, before="bob waits")],
    )
    with thinking(mind) as env:
        lead = at_work(place, env)
        lead.wait_for("allow?")
        there = place.start_shoal_terminal("team", "attach", "roof", **env)
        text = there.wait_for("allow?")
        assert "Write asks to run for alice" in text
        assert "content: four beams" in text
        assert "roof · " in text
        assert "1 waiting for you" in text
        there.type_text("@nobody hold on\r")
        there.wait_for("Nobody in the team roof is called 'nobody'")
        there.type_text("y\r")
        there.wait_for("alice: alice has written it")
        lead.wait_for(lambda text: "allowed once" in text and is_at_prompt(text))
        assert (place.project / "plan.txt").read_text() == "four beams"
        there.type_text("@nobody hello\r")
        there.wait_for("Nobody in the team roof is called 'nobody'")
        there.type_text("@bob Mind the gutter.\r")
        there.wait_for("bob: bob minds the gutter")
        assert "<teammate-message" not in heard[0]
        there.type_text("How far are you?\r")
        there.wait_for("The lead heard it.")
        lead.wait_for("The lead heard it.")
        there.type_text(CTRL_D)
        assert there.wait_for_end() == 0
        assert "The team goes on. Come back: shoal team attach roof" in there.screen.text
        assert '"lead":"alive"' in place.run_shoal("team", "show", "--json").stdout
        # Of two teams the one that runs is meant.
        asyncio.run(_with_pane(place.home, "%1", "barn"))
        again = place.start_shoal_terminal("team", "attach", **env)
        again.wait_for("bob minds the gutter")
        lead.wait_for(is_at_prompt)
        lead.type_text(CTRL_D)
        assert lead.wait_for_end() == 0
        assert again.wait_for_end() == 0
        assert "Go on with it: shoal team resume roof" in again.screen.text
    assert "Which team? There are: barn, roof." in place.run_shoal("team", "attach").stderr
    without = place.run_shoal("team", "attach", "roof")
    assert without.returncode == 1
    assert "shoal team resume roof" in without.stderr


@pytest.mark.spec("LIF-05", "USR-12")
def test_a_team_is_resumed_at_a_terminal_where_it_worked(place: CliProject, tmp_path: Path) -> None:
    mind = script_team_server(
        lead=["I wait for them.", "I go on."],
        alice=[send_message("team-lead", "built"), "done"],
        bob=["bob waits", "bob is back"],
    )
    with thinking(mind) as env:
        lead = at_work(place, env)
        lead.wait_for(lambda text: "I go on." in text and is_at_prompt(text))
        os.kill(lead.pid, signal.SIGKILL)
        lead.wait_for_end()
        place.run_shoal("team", "send", "roof", "bob", "Are you there?")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        resume = place.build_argv("team", "resume", "roof", *MODEL)
        with PtyTerminal(
            resume, cwd=elsewhere, env=build_environment(place.home, **env), columns=200
        ) as back:
            back.wait_for(f"The team works in {place.project}.")
            back.wait_for(is_at_prompt)
            there = place.start_shoal_terminal("team", "attach", **env)
            there.wait_for("bob: bob is back")
            there.type_text("\x03")
            there.wait_for_end()
            back.type_text(CTRL_D)
            assert back.wait_for_end() == 0


def tmux(*words: str, env: dict[str, str], server: str = "shoal") -> str:
    ran = subprocess.run(
        ["tmux", "-L", server, *words], env=env, capture_output=True, text=True, timeout=20, check=True
    )
    return ran.stdout.strip()


@pytest.mark.needs("tmux")
def test_where_members_have_panes_one_is_brought_to_them(place: CliProject) -> None:
    env = build_environment(place.home, TMUX_TMPDIR=str(place.home))
    # Closed at the end whatever happens: each server is this test's own.
    try:
        new = ("-f", "/dev/null", "new-session", "-d")
        pane = tmux(*new, "-s", "roof-panes", "-P", "-F", "#{pane_id}", "cat", env=env)
        tmux("set-hook", "-g", "client-attached", "wait-for -S somebody", env=env)
        asyncio.run(_with_pane(place.home, pane))
        attach = " ".join(["exec", *(f"'{word}'" for word in place.build_argv("team", "attach", "--panes"))])
        tmux(*new, f"unset TMUX; {attach}", env=env, server="outer")
        tmux("wait-for", "somebody", env=env)
        assert tmux("list-clients", "-F", "#{session_name}", env=env) == "roof-panes"
    finally:
        for server in ("outer", "shoal"):
            subprocess.run(["tmux", "-L", server, "kill-server"], env=env, capture_output=True, check=False)
    attach_again = place.build_argv("team", "attach", "--panes")
    gone = subprocess.run(attach_again, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert gone.returncode == 1
    assert f"The pane {pane} is gone" in gone.stderr


async def _with_pane(home: Path, pane: str, team: str = "roof") -> None:
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
    someone = NewMember(name=AgentName("alice"), agent_type="general", model="m", cwd="/", prompt="")
    await record.rosters.create_team(TeamName(team), lead=someone, session="s-1", description=None)
    paned = NewMember(
        name=AgentName("bob"),
        agent_type="general",
        model="m",
        cwd="/",
        prompt="",
        backend_type="tmux",
        tmux_pane_id=pane,
    )
    await record.rosters.add_member(TeamName(team), paned)
    await record.aclose()
