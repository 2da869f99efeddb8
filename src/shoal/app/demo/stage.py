"""What the demo's session is opened with: a scripted mind, three agents, and what guards them."""

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
"""Seconds after which a demo that does not end by itself is ended."""
AGENTS = {"berths": "cyan", "fees": "yellow", "tides": "purple"}
"""Who repairs what, and the colour of each."""
_FOREIGN = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Would put another model in the place of the scripted one."""


class Stage(Struct, frozen=True, kw_only=True):
    options: Options
    unguarded: str
    """Why no sandbox holds the agents in their worktrees; empty where one does."""


def prepare(environ: MutableMapping[str, str], home: Path, place: Path) -> None:
    """Have everything that the demo starts find its own home, and none of the person's settings.

    `place` is there, and has no start-up files for shells.
    """
    for name in [*_FOREIGN, *(name for name in environ if name.startswith("GIT_"))]:
        environ.pop(name, None)
    environ.update(
        SHOAL_HOME=str(home),
        # Python 3.13 and later colours what its tests write when the surroundings force it to.
        PYTHON_COLORS="0",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
    )
    if _works({**environ, "HOME": str(place)}):
        environ["HOME"] = str(place)
    for who in ("AUTHOR", "COMMITTER"):
        environ.update({f"GIT_{who}_NAME": "Shoal demo", f"GIT_{who}_EMAIL": "demo@localhost"})


def _works(environ: Mapping[str, str]) -> bool:
    """Whether Python is found there: some installations find it by the person's own home alone."""
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
    """The checkout lies among temporary files, which commands may write: it has to be sealed in there."""
    found = found_among(kinds_here(environ.get("PATH", os.defpath)))
    if found.kind is None:
        return "; ".join(found.troubles) or "there is none for this system"
    lack = found.kind.lack(Confines(writable=(Path(tempfile.gettempdir()),), sealed=(project,)))
    return "" if lack is None else "; ".join((lack, *found.troubles))
