"""Asks each library in turn, so that other load affects all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.children import SOURCES, run
from bench.peers.environments import Environment

_HERE = Path(__file__).parent
_PATIENCE = 8.0
"""Seconds after which a library that has answered a question is not asked the same again."""
_DEADLINE = 240.0
_QUIET = {
    "AGNO_TELEMETRY": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""Turns off tracing and telemetry."""


class Subject(Struct, frozen=True, kw_only=True):
    """A library, or none, and how it is asked."""

    name: str
    python: Path
    script: str
    imports: str
    environment: Mapping[str, str] = {}
    missing: str = ""


_IMPORTS = {
    "agno": "from agno.agent import Agent",
    "smolagents": "from smolagents import Model, ToolCallingAgent, tool",
    "autogen": "from autogen_agentchat.agents import AssistantAgent",
    "langgraph": "from langchain.agents import create_agent; from langchain_core.tools import tool",
    "pydantic-ai": "from pydantic_ai import Agent",
    "openai-agents": "from agents import Agent, Runner, function_tool",
}
_OURS = {"PYTHONPATH": SOURCES}
_PYTHON = Path(sys.executable)
SHOAL = Subject(
    name="Shoal",
    python=_PYTHON,
    script="shoal",
    # Its names are loaded when they are first used: an import alone would show nothing.
    imports="import shoal; shoal.open, shoal.tool, shoal.events",
    environment=_OURS,
)
KEEPING = Subject(
    name="Shoal on disk",
    python=_PYTHON,
    script="shoal",
    imports=SHOAL.imports,
    environment={**_OURS, "SHOAL_BENCH_KEEP": "1"},
)
BARE = Subject(
    name="bare", python=_PYTHON, script="bare", imports="import asyncio, json, httpx", environment=_OURS
)


def subject(environment: Environment) -> Subject:
    peer = environment.peer
    return Subject(
        name=peer.name,
        python=environment.python,
        script=peer.name.replace("-", "_"),
        imports=_IMPORTS[peer.name],
        missing=environment.missing,
    )


class Failed(Exception):
    """A library that gave no answer."""


def answer(who: Subject, question: str, **given: object) -> dict[str, Any]:
    options = [f"--{name}={value}" for name, value in given.items()]
    argv = [str(who.python), str(_HERE / f"with_{who.script}.py"), question, *options]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as home:
        try:
            ran = subprocess.run(
                argv,
                env=surroundings(who, home),
                cwd=home,
                check=False,
                capture_output=True,
                text=True,
                timeout=_DEADLINE,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no answer within {_DEADLINE:.0f} s") from None
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines:
        raise Failed((ran.stderr.strip().splitlines() or [f"ended with {ran.returncode}"])[-1])
    said: dict[str, Any] = json.loads(lines[-1])
    return said


def surroundings(who: Subject, home: str, **more: str) -> dict[str, str]:
    """Build a clean environment: no keys or settings of the person, and no tracing."""
    path = {"PATH": os.environ.get("PATH", ""), "HOME": home}
    return {**path, **_QUIET, **who.environment, **more}


class Answers(Struct, frozen=True):
    """Answers by subject, one for each time it was asked, and the reasons of those who failed."""

    said: dict[str, list[dict[str, Any]]]
    failed: dict[str, str]


def in_turn(subjects: Sequence[Subject], times: int, ask: Callable[[Subject], dict[str, Any]]) -> Answers:
    answers = Answers({}, {})
    patience = dict.fromkeys((who.name for who in subjects), True)
    for _ in range(times):
        for who in subjects:
            if who.missing or who.name in answers.failed or not patience[who.name]:
                continue
            since = time.monotonic()
            try:
                answers.said.setdefault(who.name, []).append(ask(who))
            except Failed as failure:
                answers.failed[who.name] = str(failure)
                answers.said.pop(who.name, None)
            patience[who.name] = time.monotonic() - since < _PATIENCE
    return answers


_TIMED = (
    "import time; w, c = time.perf_counter(), time.process_time(); {}; "
    "print(time.process_time() - c, time.perf_counter() - w)"
)


def imported(who: Subject) -> dict[str, Any]:
    """Measure an import in a fresh interpreter."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as home:
        argv = [str(who.python), "-W", "ignore", "-c", _TIMED.format(who.imports)]
        ran = run(argv, env=surroundings(who, home), cwd=Path(home))
    if ran.status:
        raise Failed((ran.output.strip().splitlines() or ["the import failed"])[-1])
    cpu, wall = map(float, ran.output.splitlines()[-1].split())
    return {"spent": [(cpu, wall)], "peak": ran.megabytes}


def script_that_starts(who: Subject) -> list[str]:
    return [str(who.python), "-W", "ignore", str(_HERE / f"start_{who.script}.py")]
