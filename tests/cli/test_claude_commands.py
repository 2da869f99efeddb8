"""Slash commands of Claude Code that Shoal does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.app.skills.claude_commands import (
    CLAUDE_COMMAND_NAMES,
    TERMINAL_COMMAND_NAMES,
    explain_claude_command,
)
from shoal.surfaces.cli.main import run_command_line
from shoal.surfaces.terminal.foreign_keys import FOREIGN_KEYS
from shoal.surfaces.terminal.slash_commands import COMMANDS
from shoal.testing import messages_server
from shoal.testing.servers import run_in_thread

ROOT = Path(__file__).parents[2]


@pytest.mark.spec("CMP-102", "CMP-104")
@pytest.mark.parametrize("name", ["init", "review", "context", "plan", "add-dir", "goal", "loop", "plugin"])
def test_a_command_that_shoal_lacks_is_refused_with_advice(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
    with run_in_thread(messages_server(["done"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run_command_line(["-p", f"/{name} something"]) == 1
        assert f"There is no command '/{name}'. {explain_claude_command(name)}" in capsys.readouterr().err
        assert not server.requests
        # A command of the project with that name is used.
        (project / ".claude" / "commands").mkdir(parents=True)
        (project / ".claude" / "commands" / f"{name}.md").write_text("Do it: $ARGUMENTS")
        assert run_command_line(["-p", f"/{name} something"]) == 0
        assert "Do it: something" in str(server.requests[0].body["messages"])


@pytest.mark.spec("CMP-102")
def test_a_command_of_terminals_is_refused_with_advice_elsewhere(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {f"/{name}" for name in TERMINAL_COMMAND_NAMES} == {command.name for command in COMMANDS}
    monkeypatch.chdir(project)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
    assert run_command_line(["-p", "/compact"]) == 1
    assert "There is no command '/compact'. It works only in a terminal session" in capsys.readouterr().err


def test_the_plugin_command_names_the_command_line() -> None:
    assert "`shoal plugin` lists, checks and enables plug-ins" in explain_claude_command("plugin")


def test_advice_is_given_only_for_commands_that_no_terminal_has() -> None:
    assert not {f"/{name}" for name in CLAUDE_COMMAND_NAMES} & {command.name for command in COMMANDS}


@pytest.mark.spec("CMP-103")
def test_the_page_about_moving_lists_the_keys_with_the_same_advice() -> None:
    page = (ROOT / "docs/how-to/move-from-claude-code.md").read_text()
    rows = re.findall(r"^\| `((?:Ctrl|Alt)-\w)` \| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == FOREIGN_KEYS


def test_the_page_about_moving_lists_the_commands_with_the_same_advice() -> None:
    page = (ROOT / "docs/how-to/move-from-claude-code.md").read_text()
    rows = page.partition("## At the prompt")[2].splitlines()
    assert [row for row in rows if row.startswith("| `/")] == [
        f"| `/{name}` | {explain_claude_command(name)} |" for name in CLAUDE_COMMAND_NAMES
    ]
