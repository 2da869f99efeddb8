"""Error messages in the words of a Python program: options of `shoal.open` instead of flags."""

from __future__ import annotations

import re

from shoal.app.options import Options
from shoal.core.errors import ShoalError
from shoal.core.session_locks import COPY_ADVICE

_OPTION_OF_FLAG = {
    "allowedTools": "allowed_tools",
    "disallowedTools": "disallowed_tools",
    "tools": "available_tools",
    "permission-mode": "mode",
    "add-dir": "add_dirs",
    "fork-session": "fork",
    "continue": "continue_last",
    "plugin-dir": "plugin_dirs",
    "dangerously-skip-permissions": "skip_permissions",
}
"""Options whose names differ from those of their flags."""
_OPEN = "shoal.open"
_HOME_VARIABLE = "SHOAL_HOME=DIRECTORY"
_COMMAND = re.compile(r"shoal --resume ([\w-]+)|shoal --continue")
_LIST_TOOL = "Use ListAgents to list the agents."
_LIST_METHOD = "session.list_subagents() returns the agents."
_SETTINGS_LINE = "--settings:1:"
"""A mapping is written as JSON in one line, so the number of the line is always 1."""
_FLAG = re.compile(r"(?<![\w-])--([a-zA-Z][\w-]*)")


def name_options_in_text(text: str) -> str:
    """Replace command-line flags with the options that a program passes; other flags stay."""
    text = text.replace(_HOME_VARIABLE, "home=DIRECTORY").replace(_LIST_TOOL, _LIST_METHOD)
    if "--" not in text:
        return text
    text = _COMMAND.sub(_replace_command, text.replace(_SETTINGS_LINE, "--settings:"))
    return _FLAG.sub(_replace_flag, text)


def name_options_in_error(error: ShoalError, opened_by: str = _OPEN) -> None:
    """Replace flags in the message of an error, and name the function that the program called."""
    if error.args and isinstance(error.args[0], str):
        text = name_options_in_text(error.args[0])
        if opened_by.startswith("shoal.Team"):  # a team cannot be copied
            text = text.replace(name_options_in_text(COPY_ADVICE), "")
        if opened_by != _OPEN and text.startswith(f"{_OPEN}: "):
            text = f"{opened_by}{text.removeprefix(_OPEN)}"
        error.args = (text, *error.args[1:])


def leave_out_copies(error: ShoalError) -> None:
    """Leave out the advice to continue in a copy, for commands whose work a copy would not have."""
    if error.args and isinstance(error.args[0], str):
        error.args = (error.args[0].replace(COPY_ADVICE, ""), *error.args[1:])


def _replace_command(match: re.Match[str]) -> str:
    return f'shoal.open(resume="{match[1]}")' if match[1] else "shoal.open(continue_last=True)"


def _replace_flag(match: re.Match[str]) -> str:
    name = _OPTION_OF_FLAG.get(match[1], match[1].replace("-", "_"))
    return f"{name}=" if name in Options.__struct_fields__ else match[0]
