"""`shoal team start`, `attach` and `resume` at a terminal."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal, build_environment
from cli_live.terminal_helpers import CTRL_D, is_at_prompt
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.roster import NewMember
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
def serve_model(script: Any) -> Iterator[dict[str, str]]:
    """Serve this script as a model and yield the environment variables that select it."""
    with run_in_thread(messages_server(script)) as server:
        assert isinstance(server, MockServer)
        yield {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}


def start_team(cli_project: CliProject, env: dict[str, str]) -> PtyTerminal:
    directory = cli_project.project / ".claude" / "teams"
    directory.mkdir(parents=True)
    (directory / "roof.md").write_text(TEMPLATE)
    terminal = cli_project.start_shoal_terminal("team", "start", "roof", "the roof", *MODEL, **env)
    terminal.wait_for("Created the team roof: alice, bob.")
    return terminal


def write_plan(body: dict[str, Any]) -> Any:
    return make_tool_call("Write", file_path="plan.txt", content="four beams")


@pytest.mark.spec("USR-18", "SRF-01", "USR-05")
def test_an_attached_terminal_answers_and_messages_a_team_that_keeps_running(cli_project: CliProject) -> None:
    messages: list[str] = []

    def record_message(body: dict[str, Any]) -> str:
        messages.append(get_last_text(body))
        return "bob minds the gutter"

    script = script_team_server(
        lead=["I wait for them.", "The lead heard it."],
        alice=[write_plan, "alice has written it"],
        bob=[reply_after_text("Mind the gutter.", record_message, before="bob waits")],
    )
    with serve_model(script) as env:
        lead = start_team(cli_project, env)
        lead.wait_for("allow?")
        attached = cli_project.start_shoal_terminal("team", "attach", "roof", **env)
        text = attached.wait_for("allow?")
        assert "Write asks to run for alice" in text
        assert "content: four beams" in text
        assert "roof · " in text
        assert "1 waiting for you" in text
        attached.type_text("@nobody hold on\r")
        attached.wait_for("The team roof has no member 'nobody'")
        attached.type_text("y\r")
        attached.wait_for("alice: alice has written it")
        lead.wait_for(lambda text: "allowed once" in text and is_at_prompt(text))
        assert (cli_project.project / "plan.txt").read_text() == "four beams"
        attached.type_text("@nobody hello\r")
        attached.wait_for("The team roof has no member 'nobody'")
        attached.type_text("@bob Mind the gutter.\r")
        attached.wait_for("bob: bob minds the gutter")
        assert "<teammate-message" not in messages[0]
        attached.type_text("How far are you?\r")
        attached.wait_for("The lead heard it.")
        lead.wait_for("The lead heard it.")
        attached.type_text(CTRL_D)
        assert attached.wait_for_end() == 0
        assert "The team continues. Come back: shoal team attach roof" in attached.screen.text
        assert '"lead":"alive"' in cli_project.run_shoal("team", "show", "--json").stdout
        # Of two teams the one that runs is meant.
        asyncio.run(create_team_with_pane(cli_project.home, "%1", "barn"))
        again = cli_project.start_shoal_terminal("team", "attach", **env)
        again.wait_for("bob minds the gutter")
        lead.wait_for(is_at_prompt)
        lead.type_text(CTRL_D)
        assert lead.wait_for_end() == 0
        assert again.wait_for_end() == 0
        assert "Resume it: shoal team resume roof" in again.screen.text
    assert "Which team? Existing teams: barn, roof." in cli_project.run_shoal("team", "attach").stderr
    without = cli_project.run_shoal("team", "attach", "roof")
    assert without.returncode == 1
    assert "shoal team resume roof" in without.stderr


@pytest.mark.spec("LIF-05", "USR-12")
def test_a_resumed_team_works_in_its_original_directory(cli_project: CliProject, tmp_path: Path) -> None:
    script = script_team_server(
        lead=["I wait for them.", "I go on."],
        alice=[send_message("team-lead", "built"), "done"],
        bob=["bob waits", "bob is back"],
    )
    with serve_model(script) as env:
        lead = start_team(cli_project, env)
        lead.wait_for(lambda text: "I go on." in text and is_at_prompt(text))
        os.kill(lead.pid, signal.SIGKILL)
        lead.wait_for_end()
        cli_project.run_shoal("team", "send", "roof", "bob", "Are you there?")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        resume = cli_project.build_argv("team", "resume", "roof", *MODEL)
        with PtyTerminal(
            resume, cwd=elsewhere, env=build_environment(cli_project.home, **env), columns=200
        ) as back:
            back.wait_for(f"The team works in {cli_project.project}.")
            back.wait_for(is_at_prompt)
            attached = cli_project.start_shoal_terminal("team", "attach", **env)
            attached.wait_for("bob: bob is back")
            attached.type_text("\x03")
            attached.wait_for_end()
            back.type_text(CTRL_D)
            assert back.wait_for_end() == 0


def run_tmux(*words: str, env: dict[str, str], server: str = "shoal") -> str:
    ran = subprocess.run(
        ["tmux", "-L", server, *words], env=env, capture_output=True, text=True, timeout=20, check=True
    )
    return ran.stdout.strip()


@pytest.mark.needs("tmux")
def test_attach_with_panes_switches_to_the_panes_of_the_members(cli_project: CliProject) -> None:
    # Not in TMPDIR, which may be too long for the path of a socket.
    sockets = mkdtemp(prefix="tmux-", dir="/tmp")
    env = build_environment(cli_project.home, TMUX_TMPDIR=sockets)
    # Closed at the end whatever happens: each server is this test's own.
    try:
        new = ("-f", "/dev/null", "new-session", "-d")
        pane = run_tmux(*new, "-s", "roof-panes", "-P", "-F", "#{pane_id}", "cat", env=env)
        run_tmux("set-hook", "-g", "client-attached", "wait-for -S somebody", env=env)
        asyncio.run(create_team_with_pane(cli_project.home, pane))
        attach = " ".join(
            ["exec", *(f"'{word}'" for word in cli_project.build_argv("team", "attach", "--panes"))]
        )
        run_tmux(*new, f"unset TMUX; {attach}", env=env, server="outer")
        run_tmux("wait-for", "somebody", env=env)
        assert run_tmux("list-clients", "-F", "#{session_name}", env=env) == "roof-panes"
    finally:
        for server in ("outer", "shoal"):
            subprocess.run(["tmux", "-L", server, "kill-server"], env=env, capture_output=True, check=False)
        shutil.rmtree(sockets)
    attach_again = cli_project.build_argv("team", "attach", "--panes")
    gone = subprocess.run(attach_again, env=env, capture_output=True, text=True, timeout=20, check=False)
    assert gone.returncode == 1
    assert f"The pane {pane} is gone" in gone.stderr


async def create_team_with_pane(home: Path, pane: str, team: str = "roof") -> None:
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
    lead_member = NewMember(name=AgentName("alice"), agent_type="general", model="m", cwd="/", prompt="")
    await record.rosters.create_team(TeamName(team), lead=lead_member, session="s-1", description=None)
    member_with_pane = NewMember(
        name=AgentName("bob"),
        agent_type="general",
        model="m",
        cwd="/",
        prompt="",
        backend_type="tmux",
        tmux_pane_id=pane,
    )
    await record.rosters.add_member(TeamName(team), member_with_pane)
    await record.aclose()
