"""`/notes` at the prompt."""

from __future__ import annotations

from cli_live.conftest import CliProject


def test_the_notes_are_saved_and_shown(cli_project: CliProject) -> None:
    (cli_project.home / "settings.json").write_text('{"shoal": {"session_memory": true}}')
    terminal = cli_project.start_scripted_terminal({"text": "Hello."}, {"text": "- likes short answers"})
    terminal.wait_for("›")
    terminal.type_text("hi\r")
    terminal.wait_for("Hello.")
    terminal.type_text("/notes\r")
    terminal.wait_for("There are no notes yet")
    terminal.type_text("/notes save\r")
    terminal.wait_for("The notes are in")
    terminal.type_text("/notes\r")
    terminal.wait_for("- likes short answers")
    (notes_file,) = (cli_project.home / "shoal/runs").glob("*/memory.md")
    assert notes_file.read_text() == "- likes short answers\n"


def test_notes_without_the_setting_are_reported_as_off(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal({"text": "Hello."})
    terminal.wait_for("›")
    terminal.type_text("/notes save\r")
    terminal.wait_for("shoal.session_memory is off")
