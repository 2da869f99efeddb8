"""Commands and skills at the prompt of a terminal."""

from __future__ import annotations

from cli_live.conftest import CliProject
from cli_live.terminal_helpers import is_at_prompt
from skill_helpers import write_command, write_skill


def test_slash_commands_are_listed_completed_and_run(cli_project: CliProject) -> None:
    write_command(
        cli_project.project / ".claude" / "commands", "greet", "Greet $0.", description="Greets somebody"
    )
    write_skill(cli_project.home / "skills", "pdf", description="Fills forms")
    (cli_project.project / "CLAUDE.md").write_text("Be kind.")
    terminal = cli_project.start_scripted_terminal({"match": "Greet Ann.", "text": "Hello, Ann."})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/help\r")
    assert "Greets somebody (project)" in terminal.wait_for("Fills forms (user)")
    terminal.type_text("/gre\t")
    terminal.wait_for("› /greet")
    terminal.type_text(" Ann\r")
    terminal.wait_for("Hello, Ann.")
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/gret\r")
    terminal.wait_for("Unknown command /gret. Did you mean /greet?")
    terminal.type_text("/skills\r")
    terminal.wait_for("Fills forms")
    terminal.type_text("/memory\r")
    terminal.wait_for("8 characters")


def test_a_forking_command_shows_its_agent_and_then_its_report(cli_project: CliProject) -> None:
    write_command(cli_project.project / ".claude" / "commands", "census", "Count them.", context="fork")
    terminal = cli_project.start_scripted_terminal({"match": "Count them.", "text": "There are seven."})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/census\r")
    text = terminal.wait_for(lambda text: "There are seven." in text and is_at_prompt(text))
    assert "/census" in text


def test_a_command_file_written_during_the_session_is_available(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"match": "Just made", "text": "Seen."})
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/late\r")
    terminal.wait_for("Unknown command /late.")
    write_command(cli_project.project / ".claude" / "commands", "late", "Just made.")
    terminal.type_text("/late\r")
    terminal.wait_for("Seen.")
