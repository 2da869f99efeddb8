"""`shoal doctor --claude`: what Shoal does with each item of Claude Code's files, and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.app.doctor.claude_items import OTHER_FILES
from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.testing import messages_server
from shoal.wire.settings_codec import SettingsSchema

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/move-from-claude-code.md"
TABLE = ROOT / "src/shoal/app/settings/claude_keys.py"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


async def list_items(shoal: ShoalProgram) -> dict[tuple[str, str], str]:
    ran = await shoal("doctor", "--claude", "--json")
    items = json.loads(ran.out)["items"]
    return {(Path(each["file"]).name, each["item"]): each["use"] for each in items}


async def test_each_item_of_home_and_project_has_its_state(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    settings = {
        "statusLine": {"type": "command"},
        "model": "opus",
        "permissions": {"allow": ["Read", "mcp__*"], "deny": ["WebFetch"]},
        "hooks": {"PreToolUse": hook, "MessageDisplay": hook},
        "sandbox": {"enabled": False, "filesystem": {"denyRead": ["x"]}},
        "disableSkillShellExecution": True,
    }
    write_json(home / "settings.json", settings)
    untrusted = {"model": "haiku", "permissions": {"allow": ["Bash(touch:*)"]}, "env": {"A": "1"}}
    write_json(project / ".claude/settings.json", untrusted)
    (home / "CLAUDE.md").write_text("mine\n")
    (home / "output-styles").mkdir()
    (home / "output-styles/loud.md").write_text("loud\n")
    (home / "agents").mkdir()
    (home / "agents/rev.md").write_text("---\nname: rev\ndescription: d\n---\nReview.\n")
    (home / "agents/bad.md").write_text("---\nname: bad\n---\n")
    items = await list_items(shoal)
    assert items["settings.json", "permissions.deny"] == "used"
    assert items["settings.json", "permissions.allow 'mcp__*'"] == "not used"
    assert items["settings.json", "statusLine"] == "not used"
    assert items["settings.json", "hooks.PreToolUse"] == "used"
    assert items["settings.json", "hooks.MessageDisplay"] == "not used"
    assert items["settings.json", "sandbox.filesystem.denyRead"] == "not used"
    assert items["settings.json", "disableSkillShellExecution"] == "wider here"
    assert items["settings.json", "env.A"] == "not used"
    assert items["rev.md", "agent rev"] == "used"
    assert items["bad.md", "agent bad"] == "not used"
    assert items["CLAUDE.md", "instructions"] == "used"
    assert items["loud.md", "file"] == "not used"
    shown = await shoal("doctor", "--claude")
    assert (shown.code, "not used    statusLine  → the status line is fixed" in shown.text) == (0, True)
    assert f"not used    model  → {project / '.claude/settings.json'} sets it and is stronger" in shown.text


async def test_a_refused_item_is_named_and_nothing_counts_as_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_json(home / "settings.json", {"permissions": {"deny": ["Bash("]}})
    write_json(project / ".claude/settings.json", {"model": "opus"})
    ran = await shoal("doctor", "--claude")
    assert ran.code == 1
    assert "settings.json:4: permissions.deny" in ran.text
    assert set((await list_items(shoal)).values()) <= {"refused", "not used"}


@pytest.mark.spec("CMP-002", "CMP-028", "CMP-093")
async def test_a_run_with_items_that_are_not_used_tells_it_in_one_line(
    shoal: ShoalProgram, home: Path
) -> None:
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    settings = {"statusLine": {}, "hooks": {"PostCompact": hook}, "permissions": {"allow": ["mcp__*"]}}
    write_json(home / "settings.json", settings)
    for mode in ("auto", "manual"):
        async with messages_server(["done"]) as server:
            shoal.use_server(server)
            ran = await shoal("-p", "go", "--model", MODEL, "--permission-mode", mode)
        assert (ran.code, ran.out.strip()) == (0, b"done")
        notes = [line for line in ran.err.splitlines() if "not used" in line]
        assert len(notes) == 1
        assert "3 items in your settings are not used: run shoal doctor --claude" in notes[0]
        assert ("Auto mode is not available" in ran.err) is (mode == "auto")


def test_the_page_has_the_same_tables_as_the_code() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
    expected = [(key.name, key.use, key.advice) for key in CLAUDE_KEYS]
    assert rows == [*expected, *((name, "not used", advice) for name, advice in OTHER_FILES.items())]


def test_a_key_is_listed_as_used_exactly_if_the_code_reads_it() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src/shoal").rglob("*.py") if path != TABLE)
    fields = set(SettingsSchema.__struct_encode_fields__)
    for key in CLAUDE_KEYS:
        last = key.name.rpartition(".")[2]
        is_read = last in fields or f'"{last}"' in sources
        if "auto mode" in key.advice:
            continue
        if key.use in ("used", "refused"):
            assert is_read, f"{key.name} is listed as {key.use}, but nothing reads it"
        elif "." not in key.name and key.name not in _OTHER_MEANINGS:
            assert not is_read, f"{key.name} is listed as {key.use}, but the code reads it"


_OTHER_MEANINGS = {"verbose", "worktree", "enabledMcpjsonServers"}
"""Keys whose names also mean something else in the code."""
