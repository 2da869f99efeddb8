"""Messages from a person at a terminal to a member, and delegate mode for the lead."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import CliProject
from cli_live.pty_terminal import PtyTerminal
from cli_live.terminal_helpers import is_at_prompt, make_bash_call

ESCAPE, SHIFT_TAB = "\x1b", "\x1b[Z"
ANN = "You are ann, a member"


def make_tool_call(name: str, /, **tool_input: Any) -> dict[str, Any]:
    return {"name": name, "input": tool_input}


def start_lead_with_ann(
    cli_project: CliProject, *ann: dict[str, Any], mode: str = "bypassPermissions"
) -> PtyTerminal:
    """Start a lead whose only member plays these steps; on request the lead sends `hurry up` to it."""
    spawn = make_tool_call("Agent", description="plumbing", prompt="Wait for the water.", name="ann")
    hurry = make_tool_call("SendMessage", to="ann", message="hurry up", summary="a wish")
    return cli_project.start_scripted_terminal(
        *({"system": ANN, "at": at, **step} for at, step in enumerate(ann)),
        {"match": "go", "tools": [make_tool_call("TeamCreate", team_name="crew")]},
        {"match": "lead the team", "tools": [spawn]},
        {"match": "has joined the team", "text": "Ann is at work."},
        {"match": "press her", "tools": [hurry]},
        {"match": "Sent to ann", "text": "She was told."},
        {"match": "to the lead again", "text": "The lead heard it."},
        {"repeat": True, "text": "I know."},
        mode=mode,
        prompt="go",
    )


def read_transcript_of_ann(cli_project: CliProject) -> list[str]:
    """Return the texts of the transcript of ann, in order."""
    (path,) = (p for p in (cli_project.home / "projects").rglob("*.jsonl") if "ann" in p.name)
    return [get_line_text(json.loads(line)) for line in Path(path).read_text().splitlines()]


def get_line_text(line: dict[str, Any]) -> str:
    content = line.get("message", {}).get("content", "")
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.spec("SRF-01", "BOX-07")
def test_input_to_a_member_arrives_first_and_as_user_input(cli_project: CliProject) -> None:
    gate = cli_project.create_gate()
    at_work = cli_project.project / "at-work"
    os.mkfifo(at_work)
    terminal = start_lead_with_ann(
        cli_project,
        {"tools": [make_bash_call(f"echo yes >{at_work}; {gate.command}")]},
        {"text": "I mind the valve and the tap."},
        {"text": "All is dry."},
    )
    terminal.wait_for(lambda text: "Ann is at work." in text and is_at_prompt(text))
    # Reading waits until she is in her command.
    assert at_work.read_text() == "yes\n"
    terminal.type_text("press her\r")
    terminal.wait_for("She was told.")
    terminal.type_text("@ann mind the valve\r")
    terminal.wait_for("↳ sent to ann: mind the valve")
    terminal.type_text("/to ann\r")
    terminal.wait_for(lambda text: "You are talking to ann." in text and "to ann ›" in text)
    terminal.type_text("and the tap\r")
    terminal.wait_for("↳ sent to ann: and the tap")
    gate.open()
    terminal.wait_for("ann: I mind the valve and the tap.")
    # She is idle now, and is woken by it.
    terminal.type_text("is it dry?\r")
    terminal.wait_for("ann: All is dry.")
    terminal.type_text(ESCAPE)
    terminal.wait_for(lambda text: "You are talking to the lead." in text and "to ann ›" not in text)
    terminal.type_text("to the lead again\r")
    terminal.wait_for("The lead heard it.")
    texts = read_transcript_of_ann(cli_project)
    positions = [
        next(at for at, text in enumerate(texts) if words in text)
        for words in ("mind the valve", "and the tap", "hurry up")
    ]
    assert positions == sorted(positions), (
        "mail of the lead came first and is read after the input of the user"
    )
    assert texts[positions[0]] in ("mind the valve", '[{"type": "text", "text": "mind the valve"}]')
    assert "teammate-message" in texts[positions[2]]


@pytest.mark.spec("SRF-01")
def test_an_unknown_member_is_an_error_and_other_at_signs_are_prompts(
    cli_project: CliProject,
) -> None:
    terminal = start_lead_with_ann(cli_project, {"text": "Ready."})
    terminal.wait_for(lambda text: "Ann is at work." in text and is_at_prompt(text))
    terminal.type_text("/to bob\r")
    terminal.wait_for("There is no member 'bob'. Members: ann.")
    terminal.type_text("/to\r")
    terminal.wait_for("/to NAME lets you talk to one of these members: ann.")
    terminal.type_text("@anne hurry up\r")
    terminal.wait_for("There is no member 'anne'. Did you mean @ann? Nothing was sent.")
    terminal.type_text("@src/app.py to the lead again\r")
    terminal.wait_for("The lead heard it.")
    terminal.type_text("/to ann\r")
    terminal.wait_for("to ann ›")
    terminal.type_text("/to lead\r")
    terminal.wait_for(lambda text: "You are talking to the lead." in text and "to ann ›" not in text)


def test_commands_and_member_messages_are_not_answers_to_an_open_question(
    cli_project: CliProject,
) -> None:
    terminal = start_lead_with_ann(
        cli_project,
        {"tools": [make_tool_call("Write", file_path="valve.txt", content="open")]},
        {"text": "Done."},
        mode="default",
    )
    terminal.wait_for(lambda text: "→ ann has joined crew" in text and "allow? ›" in text)
    terminal.type_text("@ann mind the valve\r")
    terminal.wait_for("↳ sent to ann: mind the valve")
    terminal.type_text("/to ann\r")
    terminal.wait_for(lambda text: "You are talking to ann." in text and "allow? ›" in text)
    terminal.type_text("y\r")
    terminal.wait_for(lambda text: "ann: Done." in text)
    assert (cli_project.project / "valve.txt").read_text() == "open"


def test_output_of_a_member_in_its_own_process_is_shown_whole(cli_project: CliProject) -> None:
    (cli_project.home / "settings.json").write_text('{"shoal": {"teammate_mode": "process"}}')
    dry = f"All is dry. {'Nothing drips. ' * 20}The end."
    steps: list[dict[str, Any]] = [
        {"system": ANN, "match": "is it dry?", "text": dry},
        {"match": "go", "tools": [make_tool_call("TeamCreate", team_name="crew")]},
        {
            "match": "You now lead",
            "tools": [make_tool_call("Agent", description="plumbing", prompt="Wait.", name="ann")],
        },
        {"repeat": True, "text": "I know."},
    ]
    script = cli_project.home / "script.json"
    script.write_text(json.dumps(steps))
    terminal = cli_project.start_shoal_terminal("--model", f"scripted:{script}", "go")
    terminal.wait_for("ann has joined crew")
    terminal.type_text("/to ann\r")
    terminal.wait_for("to ann ›")
    terminal.type_text("is it dry?\r")
    terminal.wait_for(lambda text: "ann: All is dry." in text and "The end." in text)


def test_a_resumed_session_recalls_prompts_but_not_mail(cli_project: CliProject) -> None:
    report = make_tool_call("SendMessage", to="team-lead", message="it drips", summary="water")
    terminal = start_lead_with_ann(cli_project, {"tools": [report]}, {"text": "Sent."})
    terminal.wait_for(lambda text: "I know." in text and is_at_prompt(text))
    terminal.type_text("\x04")
    terminal.wait_for_end()
    again = cli_project.start_scripted_terminal({"repeat": True, "text": "Well."}, resume="latest")
    text = again.wait_for("I know.")
    assert "› go\n" in text
    assert "teammate-message" not in text


@pytest.mark.spec("DLG-02")
def test_delegate_mode_is_toggled_by_a_command_and_by_a_key(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "try it", "tools": [make_bash_call("touch made")]},
        {"match": "Delegate mode is on", "text": "I may not."},
        {"match": "try again", "tools": [make_bash_call("touch made")]},
        {"text": "I may."},
        mode="bypassPermissions",
    )
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/delegate\r")
    terminal.wait_for(lambda text: "Delegate mode is on: the lead" in text and "delegate ›" in text)
    terminal.type_text("try it\r")
    terminal.wait_for(lambda text: "I may not." in text and "delegate ›" in text)
    assert not (cli_project.project / "made").exists()
    terminal.type_text(SHIFT_TAB)
    terminal.wait_for(lambda text: "Delegate mode is off" in text and "delegate ›" not in text)
    terminal.type_text("try again\r")
    terminal.wait_for("I may.\n")
    assert (cli_project.project / "made").exists()
