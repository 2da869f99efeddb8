"""Failures of a run: a message with advice, and no lost work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.core.budgets.usage import Usage
from shoal.testing import chat_server, messages_server
from shoal.testing.mock_replies import make_tool_call, make_unauthorized_fault, make_unknown_model_fault


async def test_a_run_without_a_model_shows_three_ways_to_configure_one(shoal: ShoalProgram) -> None:
    ran = await shoal("-p", "hi", OLLAMA_HOST="127.0.0.1:9")
    assert (ran.code, ran.out) == (1, b"")
    for way in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ollama pull", "shoal demo", "shoal doctor"):
        assert way in ran.err


async def test_programs_get_a_result_even_when_nothing_could_start(shoal: ShoalProgram) -> None:
    ran = await shoal("-p", "hi", "--output-format", "json", OLLAMA_HOST="127.0.0.1:9")
    assert ran.code == 1
    assert (ran.result["type"], ran.result["is_error"]) == ("result", True)
    assert "shoal demo" in ran.result["result"]


async def test_a_wrong_key_names_the_variable_to_set(shoal: ShoalProgram) -> None:
    async with messages_server([make_unauthorized_fault()]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, "--output-format", "json")
    assert ran.code == 1
    assert (ran.result["subtype"], ran.result["is_error"]) == ("success", True)
    assert ran.result["api_error_status"] == 401
    assert "invalid x-api-key. Check ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN." in ran.err
    assert "sk-for-tests" not in ran.err


async def test_a_wrong_key_of_the_other_protocol_names_its_own_variable(shoal: ShoalProgram) -> None:
    async with chat_server([make_unauthorized_fault()]) as server:
        env = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": f"{server.url}/v1"}
        ran = await shoal("-p", "hi", "--model", "openai:gpt-6-luna", **env)
    assert ran.code == 1
    assert "OPENAI_API_KEY" in ran.err


async def test_an_unknown_model_suggests_known_ones(shoal: ShoalProgram) -> None:
    async with messages_server([make_unknown_model_fault()]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", "anthropic:claude-haiku-5-4")
    assert ran.code == 1
    assert "claude-haiku-5-5" in ran.err
    assert "--model" in ran.err


async def test_an_unwritable_home_is_reported_with_advice(shoal: ShoalProgram, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, SHOAL_HOME=str(tmp_path / "file" / "home"))
    assert ran.code == 1
    assert str(tmp_path / "file") in ran.err
    assert "SHOAL_HOME" in ran.err


@pytest.mark.spec("TRN-01")
async def test_a_missing_working_directory_is_reported(shoal: ShoalProgram, project: Path) -> None:
    leaving = ("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh")
    ran = await shoal("-p", "hi", prefix=leaving)
    assert ran.code == 1
    assert ran.err.startswith("shoal: The directory that Shoal was started in is gone.")


async def test_a_full_disk_stops_the_turn_and_keeps_what_was_written(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    (project / "a.txt").write_text("line\n" * 4000)
    async with messages_server(["first", make_tool_call("Read", file_path="a.txt"), "never"]) as server:
        shoal.use_server(server)
        session = (await shoal("-p", "q1", "--model", MODEL, "--output-format", "json")).result["session_id"]
        (path,) = home.glob(f"projects/*/{session}.jsonl")
        before = path.read_bytes()
        full = ("sh", "-c", 'ulimit -f 24; exec "$0" "$@"')
        ran = await shoal("-p", "q2", "-c", "--model", MODEL, "--output-format", "json", prefix=full)
    assert ran.code == 1
    assert (ran.result["subtype"], ran.result["is_error"]) == ("error_during_execution", True)
    assert "Cannot write" in ran.err
    after = path.read_bytes()
    assert after.startswith(before)
    assert after.endswith(b"\n")
    assert all(json.loads(line) for line in after.splitlines())


async def test_a_broken_settings_file_is_named_with_its_line(shoal: ShoalProgram, project: Path) -> None:
    settings = project / "mine.json"
    settings.write_text('{\n  "model": \n}\n')
    ran = await shoal("-p", "hi", "--settings", str(settings))
    assert ran.code == 1
    assert f"{settings}:3" in ran.err


async def test_an_unknown_session_is_reported_with_recent_ones(shoal: ShoalProgram) -> None:
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        known = (await shoal("-p", "first words", "--model", MODEL, "--output-format", "json")).result
        ran = await shoal("-p", "hi", "--model", MODEL, "-r", "zzzz")
    assert ran.code == 1
    assert "zzzz" in ran.err
    assert known["session_id"] in ran.err
    assert "first words" in ran.err


async def test_a_budget_for_a_model_without_a_price_is_refused(shoal: ShoalProgram) -> None:
    async with chat_server([]) as server:
        env = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": f"{server.url}/v1"}
        ran = await shoal("-p", "hi", "--model", "openai:mystery", "--max-budget-usd", "1", **env)
    assert ran.code == 1
    assert server.request_count == 0
    assert "mystery" in ran.err
    assert "price" in ran.err


async def test_output_that_cannot_be_written_is_an_error(shoal: ShoalProgram) -> None:
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        to_full = ("sh", "-c", 'exec "$0" "$@" >/dev/full')
        ran = await shoal("-p", "hi", "--model", MODEL, prefix=to_full)
    assert ran.code == 1
    assert "Cannot write to standard output" in ran.err


async def test_closed_standard_streams_do_no_harm(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        closed = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-')
        ran = await shoal("-p", "hi", "--model", MODEL, prefix=closed)
    assert ran.code == 0
    (path,) = home.glob("projects/*/*.jsonl")
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


async def test_usage_survives_a_failing_turn(shoal: ShoalProgram, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    async with messages_server(
        [make_tool_call("Read", file_path="a.txt"), make_unauthorized_fault()]
    ) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, "--output-format", "json")
    assert ran.code == 1
    assert ran.result["usage"]["input_tokens"] == server.reported_usage.input_tokens > Usage().input_tokens
