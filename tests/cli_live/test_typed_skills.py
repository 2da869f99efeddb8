"""Commands and skills at the prompt of a terminal."""

from __future__ import annotations

from cli_live.conftest import Place
from skill_rig import command, skill


def is_at_prompt(text: str) -> bool:
    return text.endswith("›")


def test_commands_are_listed_completed_and_carried_out(place: Place) -> None:
    command(place.project / ".claude" / "commands", "greet", "Greet $1.", description="Greets somebody")
    skill(place.home / "skills", "pdf", description="Fills forms")
    (place.project / "CLAUDE.md").write_text("Be kind.")
    terminal = place.talk({"match": "Greet Ann.", "text": "Hello, Ann."})
    terminal.wait_for(is_at_prompt)
    terminal.type("/help\r")
    assert "Greets somebody (project)" in terminal.wait_for("Fills forms (user)")
    terminal.type("/gre\t")
    terminal.wait_for("› /greet")
    terminal.type(" Ann\r")
    terminal.wait_for("Hello, Ann.")
    terminal.wait_for(is_at_prompt)
    terminal.type("/gret\r")
    terminal.wait_for("There is no command /gret. Did you mean /greet?")
    terminal.type("/skills\r")
    terminal.wait_for("Fills forms")
    terminal.type("/memory\r")
    terminal.wait_for("8 characters")


def test_a_command_that_forks_shows_its_agent_and_then_its_report(place: Place) -> None:
    command(place.project / ".claude" / "commands", "census", "Count them.", context="fork")
    terminal = place.talk({"match": "Count them.", "text": "There are seven."})
    terminal.wait_for(is_at_prompt)
    terminal.type("/census\r")
    text = terminal.wait_for(lambda text: "There are seven." in text and is_at_prompt(text))
    assert "/census" in text


def test_a_command_written_while_the_session_runs_is_there(place: Place) -> None:
    terminal = place.talk({"match": "Just made", "text": "Seen."})
    terminal.wait_for(is_at_prompt)
    terminal.type("/late\r")
    terminal.wait_for("There is no command /late.")
    command(place.project / ".claude" / "commands", "late", "Just made.")
    terminal.type("/late\r")
    terminal.wait_for("Seen.")
