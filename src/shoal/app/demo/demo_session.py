"""Session options of the demo: a scripted model, three agents and their sandbox."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.app.demo.demo_model import create_demo_model
from shoal.app.options import Options
from shoal.backends.sandbox.sandbox_selection import detect_sandbox_driver, list_sandbox_drivers
from shoal.core.sandbox import SandboxPolicy

DEADLINE = 120
"""Seconds after which a demo that is still running is stopped."""
AGENTS = {"berths": "cyan", "fees": "yellow", "tides": "purple"}
"""Name and colour of each agent; the name is also the module that it repairs."""
_MODEL_OVERRIDES = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Variables that would replace the scripted model."""


class DemoSessionOptions(Struct, frozen=True, kw_only=True):
    options: Options
    sandbox_problem: str
    """Reason why no sandbox confines the agents to their worktrees; empty if one does."""


def isolate_demo_environment(environ: MutableMapping[str, str], home: Path, empty_home: Path) -> None:
    """Point everything the demo starts to its own home and away from the user's settings.

    `empty_home` exists and contains no shell start-up files.
    """
    for name in [*_MODEL_OVERRIDES, *(name for name in environ if name.startswith("GIT_"))]:
        environ.pop(name, None)
    environ.update(
        SHOAL_HOME=str(home),
        # Python 3.13 and later colours test output if the environment forces it.
        PYTHON_COLORS="0",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
    )
    if _can_run_python({**environ, "HOME": str(empty_home)}):
        environ["HOME"] = str(empty_home)
    for role in ("AUTHOR", "COMMITTER"):
        environ.update({f"GIT_{role}_NAME": "Shoal demo", f"GIT_{role}_EMAIL": "demo@localhost"})


def _can_run_python(environ: Mapping[str, str]) -> bool:
    """Return True if Python runs with this environment; some installations need the user's home."""
    try:
        result = subprocess.run(("python3", "-c", ""), env=environ, capture_output=True, check=False)
    except OSError:
        return False
    return result.returncode == 0


def build_demo_setup(project: Path, environ: Mapping[str, str], *, fast: bool) -> DemoSessionOptions:
    sandbox_problem = _find_sandbox_problem(project, environ)
    shoal_settings = {
        "sandbox": {"enabled": "auto"},
        "worktree_guard": "weak" if sandbox_problem else "sandbox",
    }
    options = Options(
        cwd=project,
        model=create_demo_model(tuple(AGENTS), fast=fast),
        mode="acceptEdits",
        allowed_tools=("Bash(python3 -m unittest:*)", "Bash(git commit:*)", "Bash(git log:*)"),
        agents={name: _build_demo_agent(name, color) for name, color in AGENTS.items()},
        settings=msgspec.json.encode({"shoal": shoal_settings}).decode(),
        deadline=DEADLINE,
    )
    return DemoSessionOptions(options=options, sandbox_problem=sandbox_problem)


def _build_demo_agent(name: str, color: str) -> dict[str, object]:
    return {
        "description": f"Repairs harbour/{name}.py.",
        "prompt": f"You look after the {name} of a small harbour. Repair what fails, test it, commit it.",
        "tools": ["Read", "Edit", "Bash"],
        "color": color,
    }


def _find_sandbox_problem(project: Path, environ: Mapping[str, str]) -> str:
    """Return why the sandbox cannot seal the checkout, which is below the writable temporary directory."""
    detected = detect_sandbox_driver(list_sandbox_drivers(environ.get("PATH", os.defpath)))
    if detected.driver is None:
        return "; ".join(detected.problems) or "there is none for this system"
    unsupported = detected.driver.find_unsupported_policy_part(
        SandboxPolicy(writable=(Path(tempfile.gettempdir()),), always_read_only=(project,))
    )
    return "" if unsupported is None else "; ".join((unsupported, *detected.problems))
