"""Session options of the demo: a scripted model, three agents and their sandbox."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.app.demo.mind import mind
from shoal.app.options import Options
from shoal.backends.sandbox.choosing import found_among, kinds_here
from shoal.core.sandbox import Confines

DEADLINE = 120
"""Seconds after which a demo that is still running is stopped."""
AGENTS = {"berths": "cyan", "fees": "yellow", "tides": "purple"}
"""Name and colour of each agent; the name is also the module that it repairs."""
_FOREIGN = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Variables that would replace the scripted model."""


class Stage(Struct, frozen=True, kw_only=True):
    options: Options
    unguarded: str
    """Reason why no sandbox confines the agents to their worktrees; empty if one does."""


def prepare(environ: MutableMapping[str, str], home: Path, place: Path) -> None:
    """Point everything the demo starts to its own home and away from the user's settings.

    `empty_home` exists and contains no shell start-up files.
    """
    for name in [*_FOREIGN, *(name for name in environ if name.startswith("GIT_"))]:
        environ.pop(name, None)
    environ.update(
        SHOAL_HOME=str(home),
        # Python 3.13 and later colours test output if the environment forces it.
        PYTHON_COLORS="0",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
    )
    if _works({**environ, "HOME": str(place)}):
        environ["HOME"] = str(place)
    for who in ("AUTHOR", "COMMITTER"):
        environ.update({f"GIT_{who}_NAME": "Shoal demo", f"GIT_{who}_EMAIL": "demo@localhost"})


def _works(environ: Mapping[str, str]) -> bool:
    """Return True if Python runs with this environment; some installations need the user's home."""
    try:
        found = subprocess.run(("python3", "-c", ""), env=environ, capture_output=True, check=False)
    except OSError:
        return False
    return found.returncode == 0


def stage(project: Path, environ: Mapping[str, str], *, fast: bool) -> Stage:
    unguarded = _trouble(project, environ)
    own = {"sandbox": {"enabled": "auto"}, "worktree_guard": "weak" if unguarded else "sandbox"}
    options = Options(
        cwd=project,
        model=mind(tuple(AGENTS), fast=fast),
        mode="acceptEdits",
        allowed_tools=("Bash(python3 -m unittest:*)", "Bash(git commit:*)", "Bash(git log:*)"),
        agents={name: _definition(name, color) for name, color in AGENTS.items()},
        settings=msgspec.json.encode({"shoal": own}).decode(),
        deadline=DEADLINE,
    )
    return Stage(options=options, unguarded=unguarded)


def _definition(name: str, color: str) -> dict[str, object]:
    return {
        "description": f"Repairs harbour/{name}.py.",
        "prompt": f"You look after the {name} of a small harbour. Repair what fails, test it, commit it.",
        "tools": ["Read", "Edit", "Bash"],
        "color": color,
    }


def _trouble(project: Path, environ: Mapping[str, str]) -> str:
    """Return why the sandbox cannot seal the checkout, which is below the writable temporary directory."""
    found = found_among(kinds_here(environ.get("PATH", os.defpath)))
    if found.kind is None:
        return "; ".join(found.troubles) or "there is none for this system"
    lack = found.kind.lack(Confines(writable=(Path(tempfile.gettempdir()),), sealed=(project,)))
    return "" if lack is None else "; ".join((lack, *found.troubles))
