"""The home of a developer who has used Claude Code for a year: agents, skills, hooks and MCP servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

AGENTS = 40
SKILLS = 30
SERVERS = {"files": 6, "issues": 12, "docs": 4}
"""Number of tools by MCP server."""
_SERVER = Path(__file__).with_name("solo_server.py")
_LANGUAGES = ("python", "typescript", "rust", "go", "sql", "bash", "css", "docs")
_JOBS = ("reviewer", "tester", "refactorer", "explainer", "migrator")
_TOPICS = ("release", "changelog", "deploy", "triage", "fixture", "benchmark")
_STEPS = ("plan", "check", "write", "publish", "undo")
_MODELS = ("sonnet", "opus", "haiku", "inherit")
_COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "cyan")
_PARAGRAPH = (
    "Read the code around the change first. Follow the conventions that you find there. Run the tests that "
    "concern the change, and report what you saw. Do not change files that the task does not name.\n"
)


def write_solo_home(home: Path, *, server_delay: float = 0.0) -> None:
    """Write `~/.claude` and `~/.claude.json` below `home`. Each server waits that long before it answers."""
    claude = home / ".claude"
    (claude / "agents").mkdir(parents=True)
    for number in range(AGENTS):
        _write_agent(claude / "agents", number)
    (claude / "agents" / "README.md").write_text("These agents are for all my projects.\n")
    for number in range(SKILLS):
        _write_skill(claude / "skills", number)
    (claude / "commands").mkdir()
    (claude / "commands" / "standup.md").write_text(
        "---\ndescription: What changed since yesterday\nallowed-tools: Bash(git log:*)\n---\n"
        "Summarize the commits since yesterday for $ARGUMENTS.\n"
    )
    (claude / "CLAUDE.md").write_text("# How I work\n\nI prefer small commits.\n\n@style.md\n")
    (claude / "style.md").write_text("Write British English.\n")
    (claude / "rules").mkdir()
    (claude / "rules" / "testing.md").write_text("Write the test first.\n")
    (claude / "settings.json").write_text(_format_settings(home))
    (home / ".claude.json").write_text(json.dumps(_build_claude_json(server_delay), indent=1))


def format_hook_command(home: Path, name: str) -> str:
    """Return the command of a hook, which logs its name."""
    return f"cat > /dev/null; echo {name} >> '{home}/hooks.log'"


def _write_agent(directory: Path, number: int) -> None:
    name = f"{_LANGUAGES[number % 8]}-{_JOBS[number // 8]}"
    tools = "tools: Read, Grep, Glob, Bash\n" if number % 3 else ""
    (directory / f"{name}.md").write_text(
        f"---\nname: {name}\ndescription: Use this agent for {name} work, for example after a change to "
        f"several files. Use it proactively.\n{tools}model: {_MODELS[number % 4]}\n"
        f"color: {_COLORS[number % 8]}\n---\n\nYou are a senior engineer for {name} work.\n\n"
        + _PARAGRAPH
        * 6
    )


def _write_skill(directory: Path, number: int) -> None:
    name = f"{_TOPICS[number % 6]}-{_STEPS[number // 6]}"
    path = directory / name
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: Helps to {name.replace('-', ' ')} in any repository.\n"
        f"allowed-tools: Read, Bash(git status:*)\n---\n\n# {name}\n\n" + _PARAGRAPH * 8
    )
    (path / "reference.md").write_text(_PARAGRAPH * 20)


def _format_settings(home: Path) -> str:
    def log_event(name: str, **more: Any) -> list[dict[str, Any]]:
        return [{**more, "hooks": [{"type": "command", "command": format_hook_command(home, name)}]}]

    settings = {
        "model": "sonnet",
        "cleanupPeriodDays": 90,
        "permissions": {
            "allow": [
                "Bash(git diff:*)",
                "Bash(npm run test:*)",
                "Read(~/notes/**)",
                "WebFetch(domain:docs.rs)",
            ],
            "deny": ["Read(./.env)", "Read(./secrets/**)", "Bash(curl:*)"],
            "ask": ["Bash(git push:*)"],
        },
        "hooks": {
            "SessionStart": log_event("start"),
            "UserPromptSubmit": log_event("prompt"),
            "PreToolUse": log_event("before", matcher="Bash"),
            "PostToolUse": log_event("after", matcher="Edit|Write|MultiEdit"),
            "Notification": log_event("notify"),
            "Stop": log_event("stop"),
        },
        "statusLine": {"type": "command", "command": "~/.claude/statusline.sh"},
        "spinnerTipsEnabled": False,
    }
    # People keep notes in this file.
    return "// my settings\n" + json.dumps(settings, indent=2).replace(
        '"cleanupPeriodDays": 90,', '"cleanupPeriodDays": 90, // a quarter'
    )


def _build_claude_json(server_delay: float) -> dict[str, Any]:
    servers = {
        name: {
            "type": "stdio",
            "command": sys.executable,
            "args": ["-I", "-S", str(_SERVER), name, str(count), str(server_delay)],
            "env": {},
        }
        for name, count in SERVERS.items()
    }
    return {"numStartups": 412, "installMethod": "native", "mcpServers": servers, "projects": {}}
