"""`shoal doctor --claude` with one key in several files: only the file whose value applies is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram


@pytest.mark.parametrize(
    ("of_project", "own", "uses"),
    [
        ({"cleanupPeriodDays": 5}, {"cleanupPeriodDays": 60}, ("not used", "used")),
        (
            {"permissions": {"defaultMode": "bypassPermissions"}},
            {"permissions": {"defaultMode": "acceptEdits"}},
            ("not used", "used"),
        ),
        (
            {"permissions": {"defaultMode": "plan"}},
            {"permissions": {"defaultMode": "acceptEdits"}},
            ("used", "not used"),
        ),
        ({"language": "Dutch"}, {"language": "French"}, ("used", "not used")),
    ],
)
async def test_an_ignored_value_of_a_project_takes_no_precedence(
    shoal: ShoalProgram,
    project: Path,
    home: Path,
    of_project: dict[str, Any],
    own: dict[str, Any],
    uses: tuple[str, str],
) -> None:
    files = [project / ".claude/settings.json", home / "settings.json"]
    files[0].parent.mkdir(exist_ok=True)
    for path, content in zip(files, (of_project, own), strict=True):
        path.write_text(json.dumps(content))
    items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    found = {each["file"]: each["use"] for each in items}
    assert tuple(found[str(path)] for path in files) == uses
    mode = json.loads((await shoal("permissions", "ls", "--json")).out)
    if "permissions" in own:
        used = files[uses.index("used")]
        assert (mode["mode"], mode["mode_source"].rpartition(":")[0]) == (
            (of_project if used == files[0] else own)["permissions"]["defaultMode"],
            str(used),
        )
