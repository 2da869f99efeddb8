"""Session options of the team demo: one script for all its processes, and the permission rules."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from shoal.app.demo.demo_session import DEADLINE
from shoal.app.options import Options

KILLED_MEMBER = "cleo"
"""Member whose process the demo kills."""
CALLS_BEFORE_KILL = 3
"""Number of calls the member has made before it is killed."""
_FAST_FACTOR = 0.1
"""Factor on the script's delays: slow enough to find the killed member at work."""
_SHOAL_SETTINGS = {"teammate_mode": "process", "plan_approver": "lead", "sandbox": {"enabled": "auto"}}
_PERMISSIONS = {
    "allow": ["Bash(python3 -m unittest:*)"],
    "ask": ["Bash(git:*)"],
}


def write_team_demo_script(path: Path, *, fast: bool) -> None:
    """Write the script to a file that every process of the team can read."""
    script: dict[str, Any] = msgspec.toml.decode((files("shoal.app.demo") / "team.toml").read_bytes())
    if fast:
        script["pace"] = 0.0
        for step in script["steps"]:
            step["delay"] = step.get("delay", 0.0) * _FAST_FACTOR
    path.write_bytes(msgspec.json.encode(script))


def build_team_demo_options(project: Path, script: Path) -> Options:
    settings = {"shoal": _SHOAL_SETTINGS, "permissions": _PERMISSIONS}
    return Options(
        cwd=project,
        model=f"scripted:{script}",
        mode="acceptEdits",
        settings=msgspec.json.encode(settings).decode(),
        attended=True,
        deadline=DEADLINE,
    )
