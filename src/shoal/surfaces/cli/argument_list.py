"""Words of the command line: lists of several words, and names of another program's flags and commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.surfaces.cli.comfort_flags import complete_switch

LIST_FLAGS = frozenset(
    {
        "--allowedTools",
        "--allowed-tools",
        "--disallowedTools",
        "--disallowed-tools",
        "--tools",
        "--add-dir",
        "--mcp-config",
        "--betas",
    }
)
"""Flags that take all words up to the next flag."""
OTHER_FLAGS = {
    "--autocompact": "set shoal.compact_at in the settings, or compact with /compact",
    "--bg": "start the run in another terminal, or append `&` to the `shoal -p` command",
    "--background": "start the run in another terminal, or append `&` to the `shoal -p` command",
    "--brief": "agents reply to you directly, without a tool",
    "--chrome": "add an MCP server that controls a browser: `shoal mcp add`",
    "--cloud": "Shoal runs only on this machine",
    "--remote": "Shoal runs only on this machine; `shoal web` controls it from a browser",
    "--remote-control": "`shoal web` controls a run from a browser",
    "--teleport": "Shoal runs only on this machine",
    "--from-pr": "resume a session by its id or name: --resume",
    "--append-subagent-system-prompt": "put the text in CLAUDE.md or in the agent files",
    "--append-subagent-system-prompt-file": "put the text in CLAUDE.md or in the agent files",
    "--dangerously-load-development-channels": "name the servers with --channels",
    "--file": "mention local files in the prompt: @path/to/file",
    "--permission-prompts": "--permission-mode dontAsk denies every call that would need a question",
    "--plugin-url": "download the plug-in, and pass its directory with --plugin-dir",
    "--rc": "`shoal web` controls a run from a browser",
    "--resume-drops-turn": "resume the session, and go back with /rewind",
    "--resume-session-at": "resume the session, and go back with /rewind",
    "--rewind-files": "`shoal undo` restores files",
    "--session-mirror": "read the transcript files, or set shoal.store to keep sessions in PostgreSQL",
}
_EDIT_SETTINGS = (
    "Write the setting in ~/.claude/settings.json, or in .claude/settings.json for one project. "
    "`shoal config show --origin` shows each value and its file."
)
_OTHER_COMMANDS = {
    "auto-mode": "Shoal has no auto mode. Choose a mode with --permission-mode.",
    "config add": _EDIT_SETTINGS,
    "config remove": _EDIT_SETTINGS,
    "config set": _EDIT_SETTINGS,
    "auth": "Store a key with `shoal setup`.",
    "install": "Install Shoal with your package manager, such as pip or uv.",
    "login": "Store a key with `shoal setup`.",
    "logout": "Remove a key with `shoal setup --remove PROVIDER`.",
    "logs": "Follow a run with `shoal watch`.",
    "mcp add-from-claude-desktop": "Add each server from that file with `shoal mcp add-json NAME JSON`.",
    "migrate-installer": "Install Shoal with your package manager, such as pip or uv.",
    "plugin i": "Install plug-ins with `claude plugin install`; Shoal uses them.",
    "plugin prune": "Remove plug-ins with `claude plugin prune`.",
    "remote-control": "Control runs from a browser with `shoal web`.",
    "setup-token": "Shoal cannot use a Claude subscription. Store a key with `shoal setup`.",
    "ultrareview": "Review a change with `shoal team start review`.",
    "update": "Update Shoal with your package manager, such as pip or uv.",
    "upgrade": "Update Shoal with your package manager, such as pip or uv.",
}


def expand_list_flags(arguments: Sequence[str]) -> list[str]:
    """Repeat a list flag for each of its words, because the parser knows only flags with one value."""
    expanded: list[str] = []
    flag = ""
    for position, word in enumerate(arguments):
        if word == "--":
            return [*expanded, *arguments[position:]]
        if flag and not _is_flag(word):
            # A repeated flag; the first word follows the flag that is already there.
            expanded += [word] if expanded[-1] == flag else [flag, word]
            continue
        name, _, debug_filter = word.partition("=")
        flag = word if word in LIST_FLAGS else ""
        if name == "--debug" and debug_filter:
            expanded += ["--debug", f"--debug-filter={debug_filter}"]
        else:
            expanded.append(complete_switch(word, next(iter(arguments[position + 1 : position + 2]), None)))
    return expanded


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def explain_other_flag(flag: str) -> str:
    """Return a sentence for a flag that Shoal does not have; empty if the flag is unknown."""
    advice = OTHER_FLAGS.get(flag.partition("=")[0])
    return f"Shoal has no {flag}: {advice}." if advice else ""


def explain_other_command(word: str) -> str:
    """Return a sentence for a command that Shoal does not have; empty if the command is unknown."""
    advice = _OTHER_COMMANDS.get(word)
    return f"Shoal has no command {word!r}. {advice}" if advice else ""


def is_command_word(word: str) -> bool:
    """Return True if a first word looks like a command and not like a prompt, which has several words."""
    return re.fullmatch(r"[a-z][a-z0-9_-]*", word) is not None
