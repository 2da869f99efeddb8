"""Variables that `shoal doctor --claude` calls used are those that the program really reads."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import shoal as shoal_package
from shoal.app.doctor.claude_variables import (
    EFFECTIVE_ENV_NAMES,
    SHELL_ENV_NAMES,
    explain_unused_variable,
)
from shoal.app.settings.settings import load_settings

SOURCE = Path(shoal_package.__file__).parent
READ_LATER = {
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "app/definitions/project_memory.py",
    "CLAUDE_CODE_SHELL": "tools/shell_snapshot.py",
    "CLAUDE_ENV_FILE": "tools/command_launcher.py",
    "ENABLE_TOOL_SEARCH": "app/mcp/deferred_tools.py",
}
"""Variables that a session reads in the environment of tools, and where."""
VALUES = {
    "ANTHROPIC_CUSTOM_HEADERS": "X-A: b",
    "CLAUDE_CODE_EFFORT_LEVEL": "low",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "MCP_CONNECTION_NONBLOCKING": "0",
}


def list_constants(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def load(tmp_path: Path, *, environ: dict[str, str], env: dict[str, str]) -> dict[str, Any]:
    """Load settings, and return what they mean, without the texts of the files."""
    given = json.dumps({"env": env, "apiKeyHelper": "true"})
    settings = load_settings(
        cwd=tmp_path, environ={"HOME": str(tmp_path), **environ}, given=given, managed=()
    )
    names = (
        "access",
        "models",
        "own",
        "foreign",
        "proxies",
        "are_forks_enabled",
        "hides_session_state_events",
    )
    # Some types hide their contents, which may be secret, so the fields are compared.
    return {name: getattr(settings, name) for name in names}


@pytest.mark.spec("CMP-006")
@pytest.mark.parametrize("name", sorted(EFFECTIVE_ENV_NAMES))
def test_a_variable_that_is_listed_as_used_is_read_in_env(tmp_path: Path, name: str) -> None:
    if (module := READ_LATER.get(name)) is not None:
        assert name in list_constants(SOURCE / module)
        return
    without = load(tmp_path, environ={}, env={})
    assert load(tmp_path, environ={}, env={name: VALUES.get(name, "1")}) != without


@pytest.mark.spec("CMP-006")
def test_a_variable_that_is_read_only_in_the_shell_has_no_effect_in_env(tmp_path: Path) -> None:
    without = load(tmp_path, environ={}, env={})
    for name in SHELL_ENV_NAMES:
        assert load(tmp_path, environ={}, env={name: "1"}) == without
        assert explain_unused_variable(name) is not None


def test_each_listed_variable_is_in_the_code_and_each_read_one_is_listed() -> None:
    tables = SOURCE / "app/doctor/claude_variables.py"
    listed = (EFFECTIVE_ENV_NAMES | SHELL_ENV_NAMES) - {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
    constants: set[str] = set()
    # The whole package takes seconds to parse.
    words = re.compile("|".join(f"[\"']{name}[\"']" for name in listed))
    for path in SOURCE.rglob("*.py"):
        if path != tables and not listed <= constants and words.search(path.read_text()):
            constants |= list_constants(path)
    assert sorted(listed - constants) == []
    assert not EFFECTIVE_ENV_NAMES & SHELL_ENV_NAMES
    reader = list_constants(SOURCE / "app/settings/foreign_variables.py")
    named = {name for name in reader if name.isupper() and "_" in name}
    assert sorted(named - EFFECTIVE_ENV_NAMES) == []
