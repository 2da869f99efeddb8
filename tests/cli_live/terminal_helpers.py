"""Keys, scripted calls and checks for tests of the program at a terminal."""

from __future__ import annotations

from typing import Any

CTRL_C, CTRL_D = "\x03", "\x04"


def make_bash_call(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command}}


def is_at_prompt(text: str) -> bool:
    return text.endswith("›")
