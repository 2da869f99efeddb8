"""`shoal doctor`: configuration, missing parts and advice; and `shoal sessions`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.app.doctor.health_checks import run_health_checks
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.surfaces.cli.main import run_command_line
from shoal.surfaces.terminal.listings import format_diagnostic_lines
from shoal.testing import chat_server, messages_server

NO_OLLAMA = {"OLLAMA_HOST": "127.0.0.1:9"}


def run_checks(
    home: Path, *, model: str | None = None, settings: str | None = None, **env: str
) -> dict[str, DoctorDiagnostic]:
    environ = {"SHOAL_HOME": str(home), **NO_OLLAMA, **env}
    facts = run_health_checks(environ, home, model=model, settings=settings)
    return {f"{fact.area}: {fact.name}": fact for fact in facts}


def test_doctor_without_a_model_lists_three_ways_to_configure_one(home: Path) -> None:
    fact = run_checks(home)["models: model"]
    assert fact.state == "bad"
    for way in ("ANTHROPIC_API_KEY", "ollama pull", "shoal demo"):
        assert way in fact.advice


def test_a_key_is_named_by_its_variable_and_never_shown(home: Path) -> None:
    facts = run_checks(home, ANTHROPIC_API_KEY="sk-very-secret", ANTHROPIC_BASE_URL="http://gate:1")
    assert facts["models: anthropic"].state == facts["models: model"].state == "ok"
    assert "$ANTHROPIC_API_KEY" in facts["models: anthropic"].value
    assert "http://gate:1" in facts["models: anthropic"].value
    assert facts["models: price"].value.startswith("$")
    assert "secret" not in str(facts)


def test_a_model_whose_provider_has_no_key_is_bad(home: Path) -> None:
    fact = run_checks(home, model="openai:gpt-6-luna")["models: model"]
    assert (fact.state, fact.advice) == ("bad", "Set OPENAI_API_KEY.")


def test_a_model_without_a_price_is_a_warning_with_the_setting_to_write(home: Path) -> None:
    facts = run_checks(home, model="openai:mystery", OPENAI_API_KEY="k")
    assert facts["models: price"].state == "warn"
    assert '"mystery": {"input"' in facts["models: price"].advice


def test_an_agent_file_that_cannot_be_used_is_a_warning(home: Path) -> None:
    file = home / "agents" / "bad.md"
    file.parent.mkdir()
    file.write_text("---\nname: bad\ndescription: d\nmaxTurns: 0\n---\nx\n")
    facts = run_health_checks({"SHOAL_HOME": str(home)}, home)
    (fact,) = [fact for fact in facts if fact.name == "agent"]
    assert (fact.state, fact.value) == (
        "warn",
        f"{file}:4: maxTurns: expected an integer greater than 0, got '0'",
    )
    assert "shoal agents validate" in fact.advice


@pytest.mark.needs("bwrap")
def test_doctor_reports_the_sandbox_or_why_there_is_none(home: Path) -> None:
    path = os.environ["PATH"]
    assert run_checks(home, PATH=path)["settings: sandbox"].value == "bubblewrap, network"
    off = run_checks(home, PATH=path, settings='{"shoal": {"sandbox": {"enabled": false}}}')
    assert (off["settings: sandbox"].state, off["settings: sandbox"].value[:10]) == ("none", "turned off")
    cut = run_checks(home, PATH="/nowhere", settings='{"shoal": {"sandbox": {"network": false}}}')
    assert cut["settings: sandbox"].state == "bad"
    assert "bwrap is not installed" in cut["settings: sandbox"].value
    odd = run_checks(
        home, PATH=path, settings='{"shoal": {"sandbox": {"enabled": false, "autoAllow": true}}}'
    )
    assert odd["settings: sandbox"].state == "bad"


def test_a_broken_settings_file_is_bad_and_the_rest_is_still_examined(home: Path) -> None:
    (home / "settings.json").write_text('{\n"shoal": 7}\n')
    facts = run_checks(home, ANTHROPIC_API_KEY="k")
    assert facts["settings: files"].state == "bad"
    assert "settings.json:2" in facts["settings: files"].value
    assert "programs: git" in facts


def test_an_unknown_setting_is_a_warning(home: Path) -> None:
    (home / "settings.json").write_text('{"shoal": {"compact_att": 0.5}}')
    facts = run_checks(home, ANTHROPIC_API_KEY="k")
    assert "compact_at" in facts["settings: problem"].value
    assert str(home / "settings.json") in facts["settings: file"].value


async def test_a_local_model_is_found_and_used(shoal: ShoalProgram) -> None:
    async with chat_server([], models=("tiny:1b", "other:2b")) as server:
        ran = await shoal("doctor", "--json", OLLAMA_HOST=server.url)
    report = json.loads(ran.out)
    facts = {fact["name"]: fact for fact in report["facts"]}
    assert (ran.code, report["ok"]) == (0, True)
    assert "tiny:1b, other:2b" in facts["ollama"]["value"]
    assert "ollama:tiny:1b" in facts["model"]["value"]


async def test_doctor_exits_1_when_nothing_can_run_and_prints_no_codes_to_a_pipe(shoal: ShoalProgram) -> None:
    ran = await shoal("doctor", **NO_OLLAMA)
    assert ran.code == 1
    assert "BAD   model" in ran.text
    assert "→ Set ANTHROPIC_API_KEY" in ran.text
    assert "Shoal cannot run yet because of models: model." in ran.text
    assert b"\x1b" not in ran.out


def test_doctor_marks_states_with_colours_on_request() -> None:
    facts = [DoctorDiagnostic(area="home", name="directory", state="bad", value="x", advice="do")]
    assert any("\x1b[31mBAD " in line for line in format_diagnostic_lines(facts, colours=True))


async def test_sessions_are_listed_newest_first(shoal: ShoalProgram, tmp_path: Path) -> None:
    async with messages_server(["a", "b"]) as server:
        shoal.use_server(server)
        first = (await shoal("-p", "first question", "--model", MODEL, "--output-format", "json")).result
        second = (await shoal("-p", "second question", "--model", MODEL, "--output-format", "json")).result
    ran = await shoal("sessions")
    first_line, second_line = ran.text.splitlines()[:2]
    assert first_line.startswith(second["session_id"])
    assert first_line.endswith("second question")
    assert second_line.startswith(first["session_id"])
    ran = await shoal("sessions", "--json", "--all", "-n", "1")
    (latest,) = json.loads(ran.out)
    assert (latest["session"], latest["prompt"]) == (second["session_id"], "second question")
    assert Path(latest["transcript"]).exists()
    shoal.project = tmp_path
    assert "There are no sessions in" in (await shoal("sessions")).text


def test_resume_without_an_id_needs_sessions_to_choose_from(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert run_command_line(["--resume"]) == 2
    assert "There are no sessions in" in capsys.readouterr().err
