"""`--agents`: definitions for one run, checked before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import messages_server

MINE = {"mine": {"description": "d", "prompt": "p", "tool": "Read"}}


@pytest.mark.spec("CMP-082")
@pytest.mark.spec("DEF-03")
@pytest.mark.parametrize("as_file", [False, True])
async def test_agents_of_the_agents_flag_are_available_in_the_run(
    shoal: ShoalProgram, project: Path, as_file: bool
) -> None:
    (project / "agents.json").write_text(json.dumps(MINE))
    agents_argument = "agents.json" if as_file else json.dumps(MINE)
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal(
            "-p", "go", "--model", MODEL, "--output-format", "stream-json", "--agents", agents_argument
        )
    assert ran.code == 0
    assert ran.lines[0]["agents"][0] == "mine"
    assert "general-purpose" in ran.lines[0]["agents"]
    assert "mine.tool: unknown field; it is ignored; did you mean tools?" in ran.err


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        ("{", "not valid JSON"),
        ('{"a": {"description": "d", "prompt": "p", "maxTurns": 0}}', "a.maxTurns: expected an integer"),
        ('{"a": {"prompt": "p"}}', "a.description: it is missing"),
        ("nothing.json", "No such file"),
    ],
)
async def test_an_invalid_definition_is_reported_before_anything_starts(
    shoal: ShoalProgram, definitions: str, message: str
) -> None:
    ran = await shoal("-p", "go", "--model", MODEL, "--agents", definitions)
    assert (ran.code, ran.out) == (2, b"")
    assert message in ran.err
    assert ran.err.startswith("shoal: --agents:")
    assert ran.err.count("--agents") == 1


async def test_a_session_accepts_a_mapping_and_reports_unusable_files(tmp_path: Path) -> None:
    directory = tmp_path / ".claude" / "agents"
    directory.mkdir(parents=True)
    (directory / "bad.md").write_text("---\nname: bad\n---\n")
    options = Options(cwd=tmp_path, model=ScriptedModel(["done"]), agents=MINE, persist=False)
    async with Session(options) as session:
        assert session.runtime.config.definitions.find("mine").source.kind == "flag"
        notes = "\n".join(session.notes)
    assert f"{directory / 'bad.md'}:1: description: it is missing" in notes
    assert "shoal agents validate" in notes


@pytest.mark.spec("MOD-01")
async def test_a_flag_selects_coordinator_mode(shoal: ShoalProgram) -> None:
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, "--output-format", "stream-json", "--coordinator")
    assert ran.code == 0
    tools = ran.lines[0]["tools"]
    assert "SendMessage" in tools
    assert not {"Bash", "Read", "Edit", "CronCreate"} & set(tools)
