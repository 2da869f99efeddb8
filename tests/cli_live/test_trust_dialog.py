"""`shoal` at a terminal in a project whose own settings would allow something."""

from __future__ import annotations

import json

import pytest

from cli_live.conftest import CliProject

TOUCH = {"match": "go", "tools": [{"name": "Bash", "input": {"command": "touch made"}}]}


@pytest.fixture
def clone(place: CliProject) -> CliProject:
    (place.project / ".claude").mkdir()
    (place.project / ".claude" / "settings.json").write_text(
        json.dumps({"permissions": {"allow": ["Bash(touch:*)"]}})
    )
    return place


def test_trust_is_asked_once_and_shows_what_would_be_allowed(clone: CliProject) -> None:
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    text = terminal.wait_for("Trust these settings, until they change? [y/N]:")
    assert "permissions.allow" in text
    assert "Bash(touch:*)" in text
    assert not (clone.project / "made").exists()
    terminal.type_text("y\r")
    terminal.wait_for("all done")
    assert (clone.project / "made").exists()
    again = clone.start_scripted_terminal({"text": "hello again"}, prompt="hi")
    assert "Trust these" not in again.wait_for("hello again")


def test_a_no_is_remembered_and_the_rules_do_not_count(clone: CliProject) -> None:
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    terminal.wait_for("Trust these settings")
    terminal.type_text("\r")
    assert "settings are not trusted" in terminal.wait_for("allow? ›")
    again = clone.start_scripted_terminal({"text": "hello again"}, prompt="hi")
    text = again.wait_for("hello again")
    assert "Trust these" not in text
    assert "settings are not trusted" in text


def test_a_no_to_one_file_takes_nothing_from_another_that_is_trusted(clone: CliProject) -> None:
    assert clone.run_shoal("trust").returncode == 0
    (clone.project / ".claude" / "settings.local.json").write_text('{"env": {"A": "1"}}')
    terminal = clone.start_scripted_terminal(TOUCH, {"text": "all done"}, prompt="go")
    text = terminal.wait_for("Trust these settings")
    assert "env.A" in text
    assert "Bash(touch:*)" not in text
    terminal.type_text("n\r")
    terminal.wait_for("all done")
    assert (clone.project / "made").exists()


def test_a_project_that_allows_nothing_asks_nothing(place: CliProject) -> None:
    (place.project / ".claude").mkdir()
    (place.project / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["WebFetch"]}}')
    terminal = place.start_scripted_terminal({"text": "hello"}, prompt="hi")
    assert "rust" not in terminal.wait_for("hello")
