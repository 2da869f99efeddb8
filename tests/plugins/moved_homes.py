"""Homes and projects as people bring them from Claude Code: a company's, and a monorepo."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KEY = "sk-from-the-helper"
ORGANIZATION_TEXT = "Never paste customer data into a prompt."


def write_files(root: Path, files: dict[str, Any]) -> None:
    """Write texts, and other values as JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


def make_stdio_server(name: str, tools: int) -> dict[str, Any]:
    from bench import solo_home

    server = Path(solo_home.__file__).with_name("solo_server.py")
    return {"type": "stdio", "command": sys.executable, "args": ["-I", "-S", str(server), name, str(tools)]}


def write_company_home(root: Path, gateway: str) -> None:
    """Write the managed files below `etc`, the home below `home` and a project, for a gateway with a key."""
    audit = {"type": "command", "command": f"cat >> '{root}/audit.log'; echo >> '{root}/audit.log'"}
    managed = {
        "apiKeyHelper": f"echo called >> '{root}/helper.log'; echo {KEY}",
        "env": {
            "ANTHROPIC_BASE_URL": gateway,
            "ANTHROPIC_CUSTOM_HEADERS": "X-Team: payments\nX-Cost-Center: 4711",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16000",
            "DISABLE_TELEMETRY": "1",
        },
        "model": "opus",
        "availableModels": ["opus", "sonnet", "haiku"],
        "permissions": {
            "deny": ["Bash(curl:*)", "Read(**/.env)", "WebFetch"],
            "disableBypassPermissionsMode": "disable",
        },
        "deniedMcpServers": [{"serverName": "github"}],
        "allowManagedMcpServersOnly": True,
        "cleanupPeriodDays": 14,
        "includeCoAuthoredBy": False,
        "companyAnnouncements": ["Use the gateway."],
        "forceLoginMethod": "console",
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [audit]}]},
    }
    write_files(
        root,
        {
            "etc/managed-settings.json": managed,
            "etc/managed-settings.d/10-language.json": {"language": "German"},
            "etc/managed-settings.d/20-language.json": {"language": "Norwegian"},
            "etc/CLAUDE.md": ORGANIZATION_TEXT,
            "home/.claude/settings.json": {
                "model": "haiku",
                "language": "Latin",
                "permissions": {"allow": ["Bash(curl:*)", "Bash(date:*)"]},
                "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
            },
            "home/.claude.json": {
                "mcpServers": {"github": make_stdio_server("github", 3), "wiki": make_stdio_server("wiki", 2)}
            },
            "home/.claude/CLAUDE.md": "I work on payments.",
            "project/README.md": "The ledger.",
            "project/.env": "TOKEN=secret",
        },
    )


def write_monorepo(root: Path) -> None:
    """Write a repository with rules and nested instructions below `project`, and an empty home."""
    write_files(
        root,
        {
            "home/.claude/CLAUDE.md": "I like short answers.",
            "project/.git/HEAD": "ref: refs/heads/main\n",
            "project/CLAUDE.md": (
                "# Monorepo\n<!-- nobody should read this comment -->\nSee @docs/conventions.md.\n"
                "```\nnot an import: @docs/secret.md\n```\n"
            ),
            "project/docs/conventions.md": "Conventions: tabs. More in @naming.md.\n",
            "project/docs/naming.md": "Naming: snake_case.\n",
            "project/docs/secret.md": "This file is not imported.\n",
            "project/CLAUDE.local.md": "My local database is on port 5433.\n",
            "project/.claude/rules/general.md": "General rule: run make test.\n",
            "project/.claude/rules/backend/api.md": (
                '---\npaths: ["services/api/**/*.py"]\n---\nApi rule: validate every input.\n'
            ),
            "project/.claude/rules/web.md": (
                "---\npaths:\n  - services/web/**/*.{ts,tsx}\n---\nWeb rule: no inline styles.\n"
            ),
            "project/services/api/CLAUDE.md": "Nested api instructions. @openapi.md\n",
            "project/services/api/openapi.md": "The schema is the contract.\n",
            "project/services/api/app.py": "print('api')\n",
            "project/services/web/CLAUDE.md": "Nested web instructions.\n",
            "project/services/web/page.tsx": "export {}\n",
            "project/services/legacy/CLAUDE.md": "Legacy instructions.\n",
            "project/services/legacy/main.py": "pass\n",
            "project/.claude/settings.json": {"claudeMdExcludes": ["**/legacy/CLAUDE.md"]},
        },
    )
