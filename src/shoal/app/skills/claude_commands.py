"""Slash commands of Claude Code that Shoal does not have, with what to do instead."""

from __future__ import annotations

_ADVICE = {
    "add-dir": "Start Shoal with --add-dir DIRECTORY.",
    "branch": "Resume a copy of the session: `shoal --resume ID --fork-session`.",
    "bug": "Report problems where you got Shoal from; `shoal doctor` shows your setup.",
    "chrome": "Add an MCP server that controls a browser: `shoal mcp add`.",
    "config": "`shoal config` shows the settings; change them in settings.json.",
    "context": "/cost shows how many tokens the session used.",
    "copy": "/export writes the conversation to a file.",
    "diff": "Ask the agent for the changes, or run `git diff`.",
    "effort": "Start Shoal with --effort LEVEL.",
    "feedback": "Report problems where you got Shoal from; `shoal doctor` shows your setup.",
    "goal": "Add a Stop hook of type prompt that checks your condition.",
    "ide": "Shoal runs in any terminal, also in that of an editor.",
    "init": "Ask the agent to describe the repository in CLAUDE.md.",
    "install-github-app": "Run `shoal -p` in a workflow of your repository.",
    "keybindings": "Shoal's key bindings are fixed.",
    "login": "Store a key with `shoal setup`.",
    "logout": "Remove a key with `shoal setup --remove PROVIDER`.",
    "loop": "Ask the agent to schedule the prompt.",
    "output-style": "Set outputStyle in settings.json.",
    "plan": "/permissions plan starts plan mode.",
    "plugin": "`shoal plugin` lists, checks and enables plug-ins; `claude plugin install` installs them.",
    "pr-comments": "Ask the agent to read the comments, for example with `gh`.",
    "quit": "/exit exits Shoal.",
    "release-notes": "CHANGELOG.md lists the changes of each version.",
    "remote-control": "`shoal web` controls a run from a browser.",
    "rename": "Start Shoal with -n NAME.",
    "review": "Ask the agent to review the changes, or run `shoal team start review`.",
    "sandbox": "Set shoal.sandbox in settings.json.",
    "security-review": "Ask the agent to review the changes for security problems.",
    "stats": "`shoal cost` shows the cost of a session.",
    "status": "/doctor checks the setup, and /model shows the model.",
    "statusline": "Shoal does not run a status line.",
    "terminal-setup": "End a line with \\ to continue it.",
    "theme": "Set theme in settings.json.",
    "todos": "/tasks shows the task board.",
    "upgrade": "Update Shoal with your package manager, such as pip or uv.",
    "usage": "/cost shows the cost of the session.",
    "vim": "Shoal has no vim mode.",
}
CLAUDE_COMMAND_NAMES = tuple(_ADVICE)
TERMINAL_COMMAND_NAMES = (
    "agents", "btw", "clear", "compact", "cost", "delegate", "doctor", "exit", "export", "help",
    "hooks", "mcp", "memory", "model", "notes", "permissions", "resume", "rewind", "skills",
    "suggest", "tasks", "team", "to",
)  # fmt: skip
"""Commands that only a terminal has."""


def explain_claude_command(name: str) -> str:
    """Return what to do instead of a command that does not exist here; empty if there is no advice."""
    if name in TERMINAL_COMMAND_NAMES:
        return "It works only in a terminal session: start Shoal without -p."
    return _ADVICE.get(name, "")
