"""The paths of docs/walks.toml: drawn from the code, short, and taken by real runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import json

from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from call_trace import CallTrace, TracedCall, find_walk_problems
from draw_walks import ROOT, Walk, WalkStep, build_outputs, load_walks
from server_scripts import open_process_session, run_provider
from shoal.app.agents import backend_launcher
from team_scripts import open_session, spawn_member
from traced_member import RECORD
from web_client import serve_home

WALKS = {walk.name: walk for walk in load_walks()}

_TRACED_COMMAND_LINE = """
import sys
from pathlib import Path
from msgspec import json
from call_trace import CallTrace
from draw_walks import load_walks
from shoal.surfaces.cli.main import main
trace, status = CallTrace(load_walks()[0].places), 0
try:
    with trace.record():
        status = main()
except SystemExit as end:
    status = end.code
Path("trace.json").write_bytes(json.encode(trace.calls))
sys.exit(status)
"""


def read_calls(path: Path) -> list[TracedCall]:
    return json.decode(path.read_bytes(), type=list[TracedCall])


def test_the_drawings_and_the_lists_are_up_to_date() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, content in build_outputs().items()
        if path.read_text() != content
    ]
    assert stale == [], "run `make walks`"


@pytest.mark.parametrize(("name", "limit"), [("prompt", 14), ("teammate", 22), ("question", 14)])
def test_a_walk_passes_few_files(name: str, limit: int) -> None:
    assert len(WALKS[name].files) <= limit


@pytest.mark.slow
async def test_the_command_line_takes_the_path_of_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(monkeypatch, lead=["Hello."]):
        run = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                _TRACED_COMMAND_LINE,
                "-p",
                "Hi.",
                "--model",
                "anthropic:claude-sonnet-4-5",
            ),
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        async with asyncio.timeout(60):
            assert await run.wait() == 0
    assert find_walk_problems(WALKS["prompt"], read_calls(tmp_path / "trace.json")) == []


async def test_a_run_takes_the_paths_of_a_subagent_a_question_and_a_page(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child"), "Done."],
        child=[spawn_agent("grandchild"), "Painted."],
        grandchild=[call_tool("Bash", command="touch painted"), "It is painted."],
    )
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    walks = [WALKS[name] for name in ("subagent", "question", "page")]
    trace = CallTrace(place for walk in walks for place in walk.places)
    async with serve_home() as web, open_session(tmp_path, model, **options) as session:
        with trace.record():
            async with asyncio.TaskGroup() as tasks:
                turns = tasks.create_task(run_all_turns(session))
                async with web.open_stream("/questions/stream") as questions:
                    (asked,) = await questions.read_until(bool)
                async with web.open_stream(f"/runs/{session.id}/frames") as frames:
                    await frames.read_event()
                    answer = {"type": "allowed", "remember": "once"}
                    await web.post_json(f"/runs/{session.id}/questions/{asked['id']}", answer)
                    await turns
                    await frames.read_event()
    assert (tmp_path / "painted").exists()
    assert {walk.name: find_walk_problems(walk, trace.calls) for walk in walks} == {
        walk.name: [] for walk in walks
    }


async def test_a_teammate_takes_its_path_in_both_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_launcher, "MEMBER_ENTRY_POINT", "traced_member:main")
    lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "Ann works.", "Done.", "Done."]
    walk = WALKS["teammate"]
    trace = CallTrace(walk.places)
    async with (
        run_provider(monkeypatch, lead=lead, ann=["I am done."]),
        open_process_session(tmp_path) as session,
    ):
        with trace.record():
            await run_all_turns(session, "Go.")
    assert find_walk_problems(walk, trace.calls) == []
    assert find_walk_problems(walk, read_calls(tmp_path / RECORD), "the teammate") == []


def test_a_step_of_another_process_has_a_cause() -> None:
    for walk in WALKS.values():
        for before, step in pairwise(walk.steps):
            assert step.trigger or step.process == before.process, step.place


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ({}, "app/turns.py:run was not entered after the steps before it"),
        ({"app/turns.py:run": []}, "app/turns.py:run is not called by app/session.py:open"),
        (
            {"app/turns.py:run": ["app/session.py:open", "app/queue.py:put"]},
            "app/turns.py:run is called through app/queue.py:put, whose file is not listed",
        ),
    ],
)
def test_a_run_that_takes_another_path_is_found(calls: dict[str, list[str]], problem: str) -> None:
    steps = (WalkStep("app/session.py", "open", ""), WalkStep("app/turns.py", "run", ""))
    taken = [TracedCall("app/session.py:open", ["cli.py:main"])]
    taken += [TracedCall(function, callers) for function, callers in calls.items()]
    assert find_walk_problems(Walk("turn", "A turn", steps), taken) == [problem]


def _list_packages(layer: str) -> list[str]:
    """Return the packages of a layer that hold modules, with their paths below it."""
    top = ROOT / "src/shoal" / layer
    folders = sorted(
        {path.parent.relative_to(top) for path in top.rglob("*.py") if path.name != "__init__.py"}
    )
    return [folder.as_posix() for folder in folders if folder != Path()]


@pytest.mark.parametrize("layer", ["app", "core", "team", "stores"])
def test_the_map_names_every_package(layer: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+)`", page)}
    missing = [package for package in _list_packages(layer) if package.rpartition("/")[2] not in named]
    assert missing == []


def test_the_answers_to_where_to_look_name_code_that_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.partition("## Where to look")[2].partition("\n## ")[0]
    for name in re.findall(r"`([\w/]+\.(?:py|ts))`", table):
        root = ROOT if name.startswith("web/") else ROOT / "src/shoal"
        assert (root / name).is_file(), name
    functions = re.findall(r"`([\w/]+\.py)`: `(?:(\w+)\.)?(\w+)`", table)
    assert len(functions) >= 5
    for file, kind, function in functions:
        source = (ROOT / "src/shoal" / file).read_text()
        assert f"class {kind}" in source, f"{file} has no {kind}"
        assert f"def {function}(" in source, f"{file} has no {function}"
