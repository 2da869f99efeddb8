"""Session options of the team demo: one script for all its processes, and the permission rules."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from shoal.app.demo.stage import DEADLINE
from shoal.app.options import Options

KILLED = "cleo"
"""Member whose process the demo kills."""
CALLS_BEFORE = 3
"""Number of calls the member has made before it is killed."""
_FAST = 0.1
"""Factor on the script's delays: slow enough to find the killed member at work."""
_OWN = {"teammate_mode": "process", "plan_approver": "lead", "sandbox": {"enabled": "auto"}}
_PERMISSIONS = {
    "allow": ["Bash(python3 -m unittest:*)"],
    "ask": ["Bash(git:*)"],
}


def write_mind(path: Path, *, fast: bool) -> None:
    """Write the script to a file that every process of the team can read."""
    script: dict[str, Any] = msgspec.toml.decode((files("shoal.app.demo") / "team.toml").read_bytes())
    if fast:
        script["pace"] = 0.0
        for step in script["steps"]:
            step["delay"] = step.get("delay", 0.0) * _FAST
    path.write_bytes(msgspec.json.encode(script))


def team_options(project: Path, mind: Path) -> Options:
    settings = {"shoal": _OWN, "permissions": _PERMISSIONS}
    return Options(
        cwd=project,
        model=f"scripted:{mind}",
        mode="acceptEdits",
        settings=msgspec.json.encode(settings).decode(),
        attended=True,
        deadline=DEADLINE,
    )
