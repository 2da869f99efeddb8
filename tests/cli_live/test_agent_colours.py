"""Colours of agents and members in terminal output."""

from __future__ import annotations

import json

import pytest

from cli_live.conftest import CliProject


@pytest.mark.sampled(1)
@pytest.mark.spec("DEF-10")
@pytest.mark.parametrize(
    ("color", "code"), [("purple", "35"), ("orange", "38;5;208"), ("'#ff8800'", "38;2;255;136;0")]
)
def test_an_agent_is_shown_in_its_colour(cli_project: CliProject, color: str, code: str) -> None:
    directory = cli_project.project / ".claude" / "agents"
    directory.mkdir(parents=True)
    (directory / "a.md").write_text(f"---\nname: painter\ndescription: d\ncolor: {color}\n---\nx\n")
    for arguments in (("ls",), ("show", "painter")):
        terminal = cli_project.start_shoal_terminal("agents", *arguments)
        assert terminal.wait_for_end() == 0
        assert f"\x1b[{code}mpainter\x1b[0m" in terminal.raw
    plain = cli_project.start_shoal_terminal("agents", "ls", NO_COLOR="1")
    plain.wait_for_end()
    assert "\x1b[" not in plain.raw


@pytest.mark.spec("DEF-10")
def test_a_member_is_shown_in_its_colour(cli_project: CliProject) -> None:
    member = {"agentId": "x@roof", "name": "x", "agentType": "t", "model": "m", "joinedAt": 1, "cwd": "/"}
    config = {
        "name": "roof",
        "createdAt": 1,
        "leadAgentId": "team-lead@roof",
        "leadSessionId": "s",
        "members": [{**member, "color": "pink", "isActive": True, "tmuxPaneId": "", "subscriptions": []}],
    }
    directory = cli_project.home / "teams" / "roof"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    terminal = cli_project.start_shoal_terminal("team", "show", "roof", SHOAL_HOME=str(cli_project.home))
    assert terminal.wait_for_end() == 0
    assert "\x1b[38;5;213mx\x1b[0m" in terminal.raw
    mail = {
        "from": "x",
        "text": "hi",
        "timestamp": "2026-02-13T10:11:35.247Z",
        "read": False,
        "color": "pink",
    }
    (directory / "inboxes").mkdir(exist_ok=True)
    (directory / "inboxes" / "y.json").write_text(json.dumps([mail]))
    terminal = cli_project.start_shoal_terminal(
        "inbox", "show", "y", "--team", "roof", SHOAL_HOME=str(cli_project.home)
    )
    assert terminal.wait_for_end() == 0
    assert "\x1b[38;5;213mx\x1b[0m" in terminal.raw
