"""Hooks at the prompt: the /hooks list, and notices when a hook blocks or adds something."""

from __future__ import annotations

import json

import pytest

from cli_live.conftest import CliProject
from cli_live.terminal_helpers import is_at_prompt


@pytest.mark.spec("HOK-01", "HOK-02")
def test_hook_runs_are_shown_and_an_erased_prompt_is_reported(cli_project: CliProject) -> None:
    hook_log = cli_project.home / "told"
    refuses = "grep -q secret && { echo no keys here >&2; exit 2; }; exit 0"
    hooks = {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": refuses}]}],
        "SessionStart": [
            {"hooks": [{"type": "command", "command": f"cat >> {hook_log}; echo >> {hook_log}"}]}
        ],
        "SessionEnd": [{"hooks": [{"type": "command", "command": f"cat >> {hook_log}; echo >> {hook_log}"}]}],
    }
    (cli_project.home / "settings.json").write_text(json.dumps({"hooks": hooks}))
    terminal = cli_project.start_scripted_terminal(
        {"match": "hello", "text": "Good day."}, {"at": 0, "match": "again", "text": "Once more."}
    )
    terminal.wait_for(is_at_prompt)
    terminal.type_text("/hooks\r")
    terminal.wait_for(lambda text: "UserPromptSubmit" in text and "grep -q secret" in text)
    terminal.type_text("my secret is 7\r")
    terminal.wait_for(lambda text: "no keys here" in text and is_at_prompt(text))
    terminal.type_text("hello\r")
    terminal.wait_for(lambda text: "Good day." in text and is_at_prompt(text))
    terminal.type_text("/clear\r")
    terminal.wait_for(lambda text: text.count("/help lists the commands") == 2 and is_at_prompt(text))
    terminal.type_text("hello again\r")
    terminal.wait_for(lambda text: "Once more." in text and is_at_prompt(text))
    terminal.type_text("/exit\r")
    assert terminal.wait_for_end() == 0
    lines = [json.loads(line) for line in hook_log.read_text().splitlines() if line]
    assert [line.get("source") or line.get("reason") for line in lines] == [
        "startup",
        "clear",
        "clear",
        "prompt_input_exit",
    ]
