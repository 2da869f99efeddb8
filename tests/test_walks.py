"""The paths of docs/walks.toml: drawn from the code, short, and taken by real runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from call_trace import CallTrace
from draw_walks import ROOT, Walk, build_outputs, load_walks
from server_scripts import open_process_session, run_provider
from shoal.app.agents import backend_launcher
from team_scripts import open_session, spawn_member
from traced_member import RECORD
from web_client import serve_home

WALKS = {walk.name: walk for walk in load_walks()}

_TRACED_COMMAND_LINE = """
import json, sys
from pathlib import Path
from call_trace import CallTrace
from shoal.surfaces.cli.main import main
trace, status = CallTrace(), 0
try:
    with trace.record():
        status = main()
except SystemExit as end:
    status = end.code
Path("trace.json").write_text(json.dumps(trace.steps))
sys.exit(status)
"""


def list_steps(walk: Walk, process: str = "") -> list[str]:
    return [f"{step.file}:{step.function}" for step in walk.steps if step.process == process]


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
    trace = CallTrace()
    trace.steps = json.loads((tmp_path / "trace.json").read_text())
    assert trace.find_missing_step(list_steps(WALKS["prompt"])) == ""


async def test_a_run_takes_the_paths_of_a_subagent_a_question_and_a_page(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child"), "Done."],
        child=[spawn_agent("grandchild"), "Painted."],
        grandchild=[call_tool("Bash", command="touch painted"), "It is painted."],
    )
    options = {"skip_permissions": False, "attended": True, "mode": "default"}
    trace = CallTrace()
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
    for name in ("subagent", "question", "page"):
        assert trace.find_missing_step(list_steps(WALKS[name])) == "", name


async def test_a_teammate_takes_its_path_in_both_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_launcher, "MEMBER_ENTRY_POINT", "traced_member:main")
    lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "Ann works.", "Done.", "Done."]
    lead_trace, member_trace = CallTrace(), CallTrace()
    async with (
        run_provider(monkeypatch, lead=lead, ann=["I am done."]),
        open_process_session(tmp_path) as session,
    ):
        with lead_trace.record():
            await run_all_turns(session, "Go.")
    member_trace.steps = json.loads((tmp_path / RECORD).read_text())
    walk = WALKS["teammate"]
    assert lead_trace.find_missing_step(list_steps(walk)) == ""
    assert member_trace.find_missing_step(list_steps(walk, "the teammate")) == ""


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
    methods = re.findall(r"`([\w/]+\.py)`: `(\w+)\.(\w+)`", table)
    assert len(methods) >= 5
    for file, kind, method in methods:
        source = (ROOT / "src/shoal" / file).read_text()
        assert f"class {kind}" in source, f"{file} has no {kind}"
        assert f"def {method}(" in source, f"{file} has no {kind}.{method}"
