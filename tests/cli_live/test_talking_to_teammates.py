"""A person at a terminal talks to a teammate, and holds the lead to giving work out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import Place
from cli_live.terminal import Terminal
from cli_live.test_interactive import bash, is_at_prompt

ESCAPE, SHIFT_TAB = "\x1b", "\x1b[Z"
ANN = "You are ann, a member"


def call(name: str, /, **given: Any) -> dict[str, Any]:
    return {"name": name, "input": given}


def with_ann(place: Place, *ann: dict[str, Any]) -> Terminal:
    """A lead whose only teammate says these steps, and to whom it says `hurry up` when it is asked to."""
    spawn = call("Agent", description="plumbing", prompt="Wait for the water.", name="ann")
    hurry = call("SendMessage", to="ann", message="hurry up", summary="a wish")
    return place.talk(
        *({"system": ANN, "at": at, **step} for at, step in enumerate(ann)),
        {"match": "go", "tools": [call("TeamCreate", team_name="crew")]},
        {"match": "You lead the team", "tools": [spawn]},
        {"match": "has joined the team", "text": "Ann is at work."},
        {"match": "press her", "tools": [hurry]},
        {"match": "Sent to ann", "text": "She was told."},
        {"match": "to the lead again", "text": "The lead heard it."},
        {"repeat": True, "text": "I know."},
        mode="bypassPermissions",
        prompt="go",
    )


def transcript_of_ann(place: Place) -> list[str]:
    """What she was told, in order."""
    (path,) = (p for p in (place.home / "projects").rglob("*.jsonl") if "ann" in p.name)
    return [_text(json.loads(line)) for line in Path(path).read_text().splitlines()]


def _text(line: dict[str, Any]) -> str:
    content = line.get("message", {}).get("content", "")
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.spec("SRF-01", "BOX-07")
def test_what_is_typed_reaches_the_teammate_as_the_persons_own_and_first(place: Place) -> None:
    gate = place.gate()
    at_work = place.project / "at-work"
    os.mkfifo(at_work)
    terminal = with_ann(
        place,
        {"tools": [bash(f"echo yes >{at_work}; {gate.command}")]},
        {"text": "I mind the valve and the tap."},
        {"text": "All is dry."},
    )
    terminal.wait_for(lambda text: "Ann is at work." in text and is_at_prompt(text))
    # Reading waits until she is in her command.
    assert at_work.read_text() == "yes\n"
    terminal.type("press her\r")
    terminal.wait_for("She was told.")
    terminal.type("@ann mind the valve\r")
    terminal.wait_for("↳ told ann: mind the valve")
    terminal.type("/to ann\r")
    terminal.wait_for(lambda text: "You talk to ann." in text and "to ann ›" in text)
    terminal.type("and the tap\r")
    terminal.wait_for("↳ told ann: and the tap")
    gate.open()
    terminal.wait_for("ann: I mind the valve and the tap.")
    # She is idle now, and is woken by it.
    terminal.type("is it dry?\r")
    terminal.wait_for("ann: All is dry.")
    terminal.type(ESCAPE)
    terminal.wait_for(lambda text: "You talk to the lead." in text and "to ann ›" not in text)
    terminal.type("to the lead again\r")
    terminal.wait_for("The lead heard it.")
    told = transcript_of_ann(place)
    places = [
        next(at for at, text in enumerate(told) if words in text)
        for words in ("mind the valve", "and the tap", "hurry up")
    ]
    assert places == sorted(places), "the lead's word came first, and is taken after the person's"
    assert told[places[0]] in ("mind the valve", '[{"type": "text", "text": "mind the valve"}]')
    assert "teammate-message" in told[places[2]]


@pytest.mark.spec("SRF-01")
def test_who_is_not_there_cannot_be_talked_to_and_other_words_with_an_at_sign_are_prompts(
    place: Place,
) -> None:
    terminal = with_ann(place, {"text": "Ready."})
    terminal.wait_for(lambda text: "Ann is at work." in text and is_at_prompt(text))
    terminal.type("/to bob\r")
    terminal.wait_for("There is nobody called 'bob' to talk to. There are: ann.")
    terminal.type("/to\r")
    terminal.wait_for("/to NAME lets you talk to one of: ann.")
    terminal.type("@src/app.py to the lead again\r")
    terminal.wait_for("The lead heard it.")
    terminal.type("/to ann\r")
    terminal.wait_for("to ann ›")
    terminal.type("/to lead\r")
    terminal.wait_for(lambda text: "You talk to the lead." in text and "to ann ›" not in text)


@pytest.mark.spec("DLG-02")
def test_delegate_mode_is_toggled_by_a_command_and_by_a_key(place: Place) -> None:
    terminal = place.talk(
        {"match": "try it", "tools": [bash("touch made")]},
        {"match": "Delegate mode is on", "text": "I may not."},
        {"match": "try again", "tools": [bash("touch made")]},
        {"text": "I may."},
        mode="bypassPermissions",
    )
    terminal.wait_for(is_at_prompt)
    terminal.type("/delegate\r")
    terminal.wait_for(lambda text: "Delegate mode is on: the lead" in text and "delegate ›" in text)
    terminal.type("try it\r")
    terminal.wait_for(lambda text: "I may not." in text and "delegate ›" in text)
    assert not (place.project / "made").exists()
    terminal.type(SHIFT_TAB)
    terminal.wait_for(lambda text: "Delegate mode is off" in text and "delegate ›" not in text)
    terminal.type("try again\r")
    terminal.wait_for("I may.\n")
    assert (place.project / "made").exists()
