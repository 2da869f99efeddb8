"""`shoal` at a terminal in a project whose own settings would allow something."""

from __future__ import annotations

import json

import pytest

from cli_live.conftest import CliProject

TOUCH = {"match": "go", "tools": [{"name": "Bash", "input": {"command": "touch made"}}]}


@pytest.fixture
def clone(cli_project: CliProject) -> CliProject:
    (cli_project.project / ".claude").mkdir()
    (cli_project.project / ".claude" / "settings.json").write_text(
        json.dumps({"permissions": {"allow": ["Bash(touch:*)"]}})
    )
    return cli_project


def test_trust_is_asked_once_and_shows_what_would_be_allowed(clone: CliProject) -> None:
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    text = terminal.wait_for("Trust these settings until they change? [y/N]:")
    assert "permissions.allow" in text
    assert "Bash(touch:*)" in text
    assert not (clone.project / "made").exists()
    terminal.type_text("y\r")
    terminal.wait_for("all done")
    assert (clone.project / "made").exists()
    again = clone.start_scripted_terminal({"text": "hello again"}, prompt="hi")
    assert "Trust these" not in again.wait_for("hello again")


def test_a_refused_trust_question_is_remembered_and_the_rules_are_ignored(clone: CliProject) -> None:
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    terminal.wait_for("Trust these settings")
    terminal.type_text("\r")
    assert "settings are not trusted" in terminal.wait_for("allow? ›")
    again = clone.start_scripted_terminal({"text": "hello again"}, prompt="hi")
    text = again.wait_for("hello again")
    assert "Trust these" not in text
    assert "settings are not trusted" in text


def test_refusing_one_settings_file_keeps_the_trust_in_another(clone: CliProject) -> None:
    assert clone.run_shoal("trust").returncode == 0
    (clone.project / ".claude" / "settings.local.json").write_text('{"env": {"A": "1"}}')
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    text = terminal.wait_for("Trust these settings")
    assert "env.A" in text
    assert "Bash(touch:*)" not in text
    terminal.type_text("n\r")
    terminal.wait_for("all done")
    assert (clone.project / "made").exists()


def test_a_project_without_allow_rules_starts_without_a_question(cli_project: CliProject) -> None:
    (cli_project.project / ".claude").mkdir()
    (cli_project.project / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["WebFetch"]}}')
    terminal = cli_project.start_scripted_terminal({"text": "hello"}, prompt="hi")
    assert "rust" not in terminal.wait_for("hello")
