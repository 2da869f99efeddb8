"""`shoal view`: one member in its own terminal, where a person can talk to it."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli_live.conftest import SHOAL_COMMAND, CliProject
from cli_live.pty_terminal import PtyTerminal, build_environment
from cli_live.terminal_helpers import (
    CTRL_C,
    CTRL_D,
    get_session_id,
    is_at_prompt,
    make_bash_call,
    read_journal,
)
from shoal.core.teams.member_backends import PaneExit, PaneSpec
from tmux_server import TmuxServer, open_panes

ANN = "You are ann"
FROM_LEAD = {"to": "ann", "message": "The lead has a word.", "summary": "a word"}
LONG = "I looked at " + "the roof and " * 30 + "the gutter."


def start_team_with_ann(
    cli_project: CliProject, *steps: dict[str, object], mode: str = "bypassPermissions"
) -> PtyTerminal:
    """Start a lead with the member ann, who plays these steps and then describes the roof."""
    spawn = {"description": "ann works", "prompt": "Begin.", "name": "ann"}
    terminal = cli_project.start_scripted_terminal(
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
    terminal.wait_for("Ann is there.")
    return terminal


def list_messages_to_ann(cli_project: CliProject) -> list[str]:
    (path,) = (cli_project.home / "projects").glob("*/*/subagents/agent-ann@roof.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    contents = [line["message"]["content"] for line in lines if line["type"] == "user"]
    return [block["text"] for content in contents for block in content if block["type"] == "text"]


@pytest.mark.needs("tmux")
@pytest.mark.spec("SRF-01", "USR-20")
async def test_input_in_a_members_pane_reaches_it_as_user_input(
    cli_project: CliProject, tmux: TmuxServer
) -> None:
    terminal = start_team_with_ann(cli_project, {"match": "mind the valve", "text": "I minded the valve."})
    tmux.start_user_session()
    env = {**build_environment(cli_project.home)}
    del env["TERM"]
    argv = (*SHOAL_COMMAND, "view", get_session_id(cli_project), "ann@roof")
    async with open_panes(tmux.inside_env) as panes:
        pane = await panes.open_pane(
            PaneSpec(title="ann", color="blue", argv=argv, cwd=cli_project.project, env=env)
        )
        await tmux.wait_for_text(pane, "● ann  general-purpose · scripted · team roof")
        await tmux.wait_for_text(pane, "team-lead › Begin.")
        await tmux.wait_for_text(pane, "the gutter.")
        await tmux.wait_for_text(pane, "○ idle")
        tmux("send-keys", "-t", pane, "-l", "mind the valve")
        tmux("send-keys", "-t", pane, "Enter")
        await tmux.wait_for_text(pane, "› mind the valve")
        await tmux.wait_for_text(pane, "I minded the valve.")
        assert list_messages_to_ann(cli_project)[-1] == "mind the valve"
        tmux("set-option", "-p", "-t", pane, "remain-on-exit", "on")
        tmux("set-hook", "-p", "-u", "-t", pane, "pane-died")
        tmux("send-keys", "-t", pane, "C-c")
        await tmux.wait_for_text(pane, "This view is closed; ann keeps working.")
        tmux("kill-pane", "-t", pane)
        assert await panes.wait_for_pane_exit(pane) == PaneExit()
    assert [each["name"] for each in json.loads(cli_project.run_shoal("ps", "--json").stdout)][-1] == "ann"
    assert not any(each["type"] == "agent_ended" for each in read_journal(cli_project))
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0


@pytest.mark.spec("SRF-01")
def test_user_input_is_read_before_earlier_mail_from_the_lead(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = start_team_with_ann(
        cli_project,
        {"match": "Begin", "tools": [make_bash_call(gate.command)]},
        {"text": "Heard.", "repeat": True},
    )
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann")
    view.wait_for("● Bash")
    terminal.wait_for(is_at_prompt)
    terminal.type_text("tell ann\r")
    terminal.wait_for(lambda text: "● SendMessage" in text and "Good." in text)
    view.type_text("me first\r")
    view.wait_for("ann reads it at its next step")
    gate.open()
    text = view.wait_for(lambda text: "› me first" in text and "The lead has a word." in text)
    assert text.index("› me first") < text.index("team-lead › The lead has a word.")
    messages = "\n".join(list_messages_to_ann(cli_project))
    assert messages.index("me first") < messages.index("The lead has a word.")


def test_the_viewer_shows_calls_questions_and_the_colour_of_its_agent(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    terminal = start_team_with_ann(
        cli_project,
        {"match": "Begin", "tools": [make_bash_call(f"touch asked; {gate.command}")]},
        {"match": "gate opened", "text": "Through."},
        mode="default",
    )
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project)[:8], "ann")
    text = view.wait_for("answer it: shoal ask answer")
    assert "\x1b[1;34m● ann" in view.raw
    question = text.split("shoal ask answer ")[1].split()[0]
    assert cli_project.run_shoal("ask", "answer", question, "yes").returncode == 0
    view.wait_for("● Bash")
    gate.open()
    view.wait_for(lambda text: "→ exit 0" in text and "Through." in text)
    view.wait_for("○ idle")
    view.type_text(CTRL_D)
    assert view.wait_for_end() == 0
    assert "This view is closed; ann keeps working." in view.screen.text
    assert "Open it again: shoal view" in view.screen.text
    terminal.wait_for(is_at_prompt)


def test_a_slow_run_does_not_block_typing(cli_project: CliProject) -> None:
    terminal = start_team_with_ann(
        cli_project, {"match": "one", "text": "Heard one."}, {"match": "two", "text": "Heard two."}
    )
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann")
    view.wait_for("○ idle")
    os.kill(terminal.pid, signal.SIGSTOP)
    try:
        view.type_text("one\r")
        view.wait_for("sent: one")
        view.type_text("two\r")
        view.wait_for("sent: two")
    finally:
        os.kill(terminal.pid, signal.SIGCONT)
    view.wait_for(lambda text: "Heard" in text and "sent" not in text)
    view.wait_for("› two")
    assert [text for text in list_messages_to_ann(cli_project) if "\n" not in text] == ["one", "two"]


def test_the_viewer_shows_how_its_agent_ended_until_a_key_is_pressed(cli_project: CliProject) -> None:
    start_team_with_ann(cli_project)
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann")
    leaving = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann", "--exit")
    for viewer in (view, leaving):
        viewer.wait_for("○ idle")
    assert cli_project.run_shoal("stop", get_session_id(cli_project), "ann").returncode == 0
    assert leaving.wait_for_end() == 0
    assert "ann was stopped" in leaving.screen.text
    view.wait_for("press any key to close this view")
    view.type_text("x")
    assert view.wait_for_end() == 0
    assert "keeps working" not in view.screen.text


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_the_viewer_ends_with_a_message_when_its_run_is_gone(cli_project: CliProject, how: str) -> None:
    terminal = start_team_with_ann(cli_project)
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann")
    view.wait_for("○ idle")
    if how == "killed":
        os.kill(terminal.pid, signal.SIGKILL)
    else:
        terminal.wait_for(is_at_prompt)
        terminal.type_text(CTRL_D)
    assert view.wait_for_end() == 0
    assert "The run has ended, so this view ends too." in view.screen.text


def test_a_viewer_waits_for_its_agent_and_returns_undeliverable_input(
    cli_project: CliProject,
) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "Hello."}, prompt="hi")
    terminal.wait_for("Hello.")
    view = cli_project.start_shoal_terminal("view", get_session_id(cli_project), "ann")
    view.wait_for("ann has not started yet")
    view.type_text("hello\r")
    view.wait_for("Not sent")
    view.wait_for(lambda text: text.endswith("› hello"))
    view.type_text(CTRL_C)
    assert view.wait_for_end() == 0


def test_a_viewer_does_not_wait_for_an_unknown_agent_of_an_ended_run(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "Hello."}, prompt="hi")
    terminal.wait_for("Hello.")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
    result = cli_project.run_shoal("view", get_session_id(cli_project), "ann")
    assert (result.returncode, result.stdout) == (1, "")
    assert "has ended and had no agent 'ann'. Its agents: lead." in result.stderr
    assert "Hello." in cli_project.run_shoal("view", get_session_id(cli_project), "lead").stdout


@pytest.mark.spec("BCK-08")
def test_help_lists_the_viewer_but_not_the_member_launch_flags(cli_project: CliProject) -> None:
    help_text = cli_project.run_shoal("--help").stdout
    assert "\n  view " in help_text
    assert "--agent-" not in help_text
