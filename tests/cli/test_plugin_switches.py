"""`shoal plugin` with the words of Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import ShoalProgram


@pytest.mark.spec("CMP-090")
async def test_installed_plugins_are_listed_enabled_and_disabled_but_not_installed(
    shoal: ShoalProgram, home: Path
) -> None:
    root = home / "plugins" / "cache" / "tools" / "broom" / "1.0.0"
    (root / ".claude-plugin").mkdir(parents=True)
    (root / ".claude-plugin" / "plugin.json").write_text('{"name": "broom"}')
    record = {"version": 2, "plugins": {"broom@tools": [{"scope": "user", "installPath": str(root)}]}}
    (home / "plugins" / "installed_plugins.json").write_text(json.dumps(record))
    assert "broom" not in (await shoal("plugin", "list")).text
    assert (await shoal("plugin", "enable", "broom")).code == 0
    assert "broom" in (await shoal("plugin", "list")).text
    assert (await shoal("plugin", "disable", "broom@tools", "-s", "local")).code == 0
    assert "broom" not in (await shoal("plugin", "list")).text
    refused = await shoal("plugin", "install", "mop@tools", "--force")
    assert refused.code == 2
    assert "claude plugin install" in refused.err
