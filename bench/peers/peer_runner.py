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

from bench.child_process import SOURCES, run_child
from bench.peers.environments import PeerEnvironment

_HERE = Path(__file__).parent
_REPEAT_LIMIT = 8.0
"""Seconds after which a library that has answered a question is not asked the same again."""
_DEADLINE = 240.0
_TRACING_OFF = {
    "AGNO_TELEMETRY": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""Turns off tracing and telemetry."""


class BenchSubject(Struct, frozen=True, kw_only=True):
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
SHOAL = BenchSubject(
    name="Shoal",
    python=_PYTHON,
    script="shoal",
    # Its names are loaded when they are first used: an import alone would show nothing.
    imports="import shoal; shoal.open, shoal.tool, shoal.events",
    environment=_OURS,
)
SHOAL_ON_DISK = BenchSubject(
    name="Shoal on disk",
    python=_PYTHON,
    script="shoal",
    imports=SHOAL.imports,
    environment={**_OURS, "SHOAL_BENCH_KEEP": "1"},
)
BARE = BenchSubject(
    name="bare", python=_PYTHON, script="bare", imports="import asyncio, json, httpx", environment=_OURS
)


def make_subject(environment: PeerEnvironment) -> BenchSubject:
    peer = environment.peer
    return BenchSubject(
        name=peer.name,
        python=environment.python,
        script=peer.name.replace("-", "_"),
        imports=_IMPORTS[peer.name],
        missing=environment.missing,
    )


class PeerFailed(Exception):
    """A library that gave no answer."""


def ask_subject(subject: BenchSubject, question: str, **parameters: object) -> dict[str, Any]:
    options = [f"--{name}={value}" for name, value in parameters.items()]
    argv = [str(subject.python), str(_HERE / f"with_{subject.script}.py"), question, *options]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as home:
        try:
            result = subprocess.run(
                argv,
                env=build_environment(subject, home),
                cwd=home,
                check=False,
                capture_output=True,
                text=True,
                timeout=_DEADLINE,
            )
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"no answer within {_DEADLINE:.0f} s") from None
    lines = result.stdout.splitlines()
    if result.returncode or not lines:
        raise PeerFailed((result.stderr.strip().splitlines() or [f"ended with {result.returncode}"])[-1])
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def build_environment(subject: BenchSubject, home: str, **more: str) -> dict[str, str]:
    """Build a clean environment: no keys or settings of the user, and no tracing."""
    path = {"PATH": os.environ.get("PATH", ""), "HOME": home}
    return {**path, **_TRACING_OFF, **subject.environment, **more}


class CollectedAnswers(Struct, frozen=True):
    """Answers by subject, one for each time it was asked, and the reasons of those who failed."""

    answers: dict[str, list[dict[str, Any]]]
    failures: dict[str, str]


def ask_in_turn(
    subjects: Sequence[BenchSubject], times: int, ask: Callable[[BenchSubject], dict[str, Any]]
) -> CollectedAnswers:
    answers = CollectedAnswers({}, {})
    is_fast = dict.fromkeys((who.name for who in subjects), True)
    for _ in range(times):
        for who in subjects:
            if who.missing or who.name in answers.failures or not is_fast[who.name]:
                continue
            started = time.monotonic()
            try:
                answers.answers.setdefault(who.name, []).append(ask(who))
            except PeerFailed as failure:
                answers.failures[who.name] = str(failure)
                answers.answers.pop(who.name, None)
            is_fast[who.name] = time.monotonic() - started < _REPEAT_LIMIT
    return answers


_TIMED_IMPORT = (
    "import time; w, c = time.perf_counter(), time.process_time(); {}; "
    "print(time.process_time() - c, time.perf_counter() - w)"
)


def time_import(subject: BenchSubject) -> dict[str, Any]:
    """Measure an import in a fresh interpreter."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as home:
        argv = [str(subject.python), "-W", "ignore", "-c", _TIMED_IMPORT.format(subject.imports)]
        result = run_child(argv, env=build_environment(subject, home), cwd=Path(home))
    if result.status:
        raise PeerFailed((result.output.strip().splitlines() or ["the import failed"])[-1])
    cpu, wall = map(float, result.output.splitlines()[-1].split())
    return {"spent": [(cpu, wall)], "peak": result.megabytes}


def get_start_script(subject: BenchSubject) -> list[str]:
    return [str(subject.python), "-W", "ignore", str(_HERE / f"start_{subject.script}.py")]
