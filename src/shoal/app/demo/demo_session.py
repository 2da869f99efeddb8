"""Session options of the demo: a scripted model, three agents and their sandbox."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.options import Options
from shoal.backends.sandbox.sandbox_selection import detect_sandbox_driver, list_sandbox_drivers
from shoal.core.budgets.usage import ModelCard, TokenPrice
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.models.scripted_model import ReplyLike, ScriptedModel, ScriptedReply, build_script_match_context
from shoal.wire.model_script_codec import ModelScriptStep, RemainingModelScriptSteps, read_model_script

DEADLINE = 120
"""Seconds after which a demo that is still running is stopped."""
AGENTS = {"berths": "cyan", "fees": "yellow", "tides": "purple"}
"""Name and color of each agent; the name is also the module that it repairs."""
_MODEL_OVERRIDES = ("SHOAL_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Variables that would replace the scripted model."""
SECONDS_PER_WORD = 0.06
DEMO_CARD = ModelCard(
    id="scripted",
    provider="scripted",
    price=TokenPrice(input=3.0, output=15.0),
    window=200_000,
    max_output=8_192,
)
"""Model card with an invented price, so that the demo shows costs."""
_END_NOTIFICATION = re.compile(r"<status>(\w+)</status>\s*<summary>Agent .*?\((\w+)\)")
KILLED_MEMBER = "cleo"
"""Member whose process the demo kills."""
CALLS_BEFORE_KILL = 3
"""Number of calls the member has made before it is killed."""
_FAST_FACTOR = 0.1
"""Factor for the script's delays, slow enough that the kill interrupts work."""
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


class _DemoInstantClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def create_demo_model(agents: tuple[str, ...], *, fast: bool) -> ScriptedModel:
    """Create the model. `agents` are the agents that the script starts."""
    with as_file(files("shoal.app.demo") / "script.toml") as script:
        steps = RemainingModelScriptSteps(read_model_script(script, ModelScriptStep))

    def reply_to_request(request: ModelRequest) -> ReplyLike:
        step = steps.take_matching_step(build_script_match_context(request))
        if step is None:
            return _compose_demo_lead_answer(request, agents)
        return ScriptedReply(content=step.content, delay=step.delay)

    if fast:
        return ScriptedModel(reply_to_request, card=DEMO_CARD, clock=_DemoInstantClock())
    return ScriptedModel(reply_to_request, card=DEMO_CARD, pace=SECONDS_PER_WORD)


def _compose_demo_lead_answer(request: ModelRequest, agents: tuple[str, ...]) -> str:
    """Return the lead's answer to the notifications it has received so far."""
    statuses = {
        kind: status
        for message in request.messages
        for status, kind in _END_NOTIFICATION.findall(message.text)
    }
    if not statuses:
        return "Something went wrong, so I am stopping."
    if failed := [name for name in statuses if statuses[name] != "completed"]:
        return f"{_join_names(failed)} did not finish."
    working = [name for name in agents if name not in statuses]
    if not working:
        return "All three are repaired, tested and committed, each on its own branch."
    newest = [kind for _, kind in _END_NOTIFICATION.findall(request.messages[-1].text)]
    return f"{_join_names(newest)} done, {' and '.join(working)} still working."


def _join_names(agents: list[str]) -> str:
    return " and ".join(agents).capitalize()


class DemoSessionOptions(Struct, frozen=True, kw_only=True):
    options: Options
    sandbox_problem: str
    """Reason why no sandbox confines the agents to their worktrees; empty if one does."""


def isolate_demo_environment(environ: MutableMapping[str, str], home: Path, empty_home: Path) -> None:
    """Point everything the demo starts to its own home and away from the user's settings.

    `empty_home` exists and contains no shell startup files.
    """
    for name in [*_MODEL_OVERRIDES, *(name for name in environ if name.startswith("GIT_"))]:
        environ.pop(name, None)
    environ.update(
        SHOAL_HOME=str(home),
        # Python 3.13 and later colors test output if the environment forces it.
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
        "prompt": f"You look after the {name} of a small harbour. Fix what fails, test it, and commit it.",
        "tools": ["Read", "Edit", "Bash"],
        "color": color,
    }


def _find_sandbox_problem(project: Path, environ: Mapping[str, str]) -> str:
    """Return why the sandbox cannot seal the checkout, which is below the writable temporary directory."""
    detected = detect_sandbox_driver(list_sandbox_drivers(environ.get("PATH", os.defpath)))
    if detected.driver is None:
        return "; ".join(detected.problems) or "none is available for this system"
    unsupported = detected.driver.find_unsupported_policy_part(
        SandboxPolicy(writable=(Path(tempfile.gettempdir()),), always_read_only=(project,))
    )
    return "" if unsupported is None else "; ".join((unsupported, *detected.problems))
