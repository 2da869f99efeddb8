"""What Claude Code users type at a terminal by habit."""

from __future__ import annotations

import pytest

from cli_live.conftest import CliProject
from cli_live.terminal_helpers import CTRL_D, is_at_prompt


@pytest.mark.spec("CMP-100", "CMP-101", "CMP-102")
def test_prefixes_are_explained_once_and_missing_commands_each_time(cli_project: CliProject) -> None:
    terminal = cli_project.start_scripted_terminal(
        {"match": "! ls", "text": "first answer"},
        {"match": "!pwd", "text": "second answer"},
        {"match": "# use tabs", "text": "third answer"},
    )
    terminal.wait_for(is_at_prompt)
    terminal.type_text("! ls\r")
    terminal.wait_for("first answer")
    terminal.type_text("!pwd\r")
    terminal.wait_for("second answer")
    terminal.type_text("# use tabs\r")
    terminal.wait_for("third answer")
    terminal.type_text("/init\r")
    text = terminal.wait_for("describe the repository in CLAUDE.md")
    assert text.count("Shoal does not run lines that start with `!`") == 1
    assert text.count("/memory lists the instruction files") == 1
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0


@pytest.mark.spec("CMP-103")
def test_keys_that_shoal_lacks_leave_the_typed_text_alone(cli_project: CliProject) -> None:
    ctrl_r, ctrl_g, ctrl_s = "\x12", "\x07", "\x13"
    terminal = cli_project.start_scripted_terminal({"match": "hello there", "text": "understood"})
    terminal.wait_for(is_at_prompt)
    terminal.type_text(f"hello{ctrl_r}{ctrl_g}{ctrl_s} there\r")
    terminal.wait_for("understood")
    terminal.type_text(f"{ctrl_r}\x1bt")
    text = terminal.wait_for("Shoal does not switch thinking on or off.")
    for note in ("does not search the history", "does not open an editor", "does not stash the input"):
        assert text.count(note) == 1
    terminal.type_text("/help\r")
    terminal.wait_for("Ctrl-B moves foreground agents to the background; Shift-Tab is /delegate.")
    terminal.type_text(CTRL_D)
    assert terminal.wait_for_end() == 0
