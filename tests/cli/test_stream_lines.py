"""Lines of stream-json that the public SDK reads: results of tools, retries, and its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL

from shoal.surfaces.cli.main import run_command_line
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_overloaded_fault, make_tool_call
from shoal.testing.servers import MockServer, run_in_thread


def run_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replies: Any, *flags: str
) -> tuple[int, list[dict[str, Any]], MockServer]:
    with run_in_thread(messages_server(replies)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        stream = ("--output-format", "stream-json", "--verbose", "--model", MODEL)
        code = run_command_line(["-p", "go", *stream, *flags])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()], server


def test_user_lines_have_the_result_of_the_tool_and_the_time(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    replies = [
        make_tool_call("Write", file_path="a.txt", content="one\n"),
        make_tool_call("Bash", command="nope"),
        "ok",
    ]
    flags = ("--dangerously-skip-permissions",)
    _, lines, _ = run_stream(monkeypatch, capfdbinary, replies, *flags)
    written, failed = [line for line in lines if line["type"] == "user"]
    assert written["tool_use_result"]["added"] == 1
    assert written["tool_use_result"]["type"] == "create"
    assert written["tool_use_result"]["filePath"] == "a.txt"
    assert written["timestamp"].endswith("Z")
    assert failed["tool_use_result"]
    assert lines[-1]["type"] == "result"


def test_retries_are_reported_and_limited(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("CLAUDE_CODE_MAX_RETRIES", "1")
    code, lines, server = run_stream(monkeypatch, capfdbinary, lambda _: make_overloaded_fault())
    assert code != 0
    assert len(server.requests) == 2
    (retry,) = [line for line in lines if line.get("subtype") == "api_retry"]
    assert (retry["attempt"], retry["max_retries"]) == (1, 1)
    assert retry["retry_delay_ms"] > 0
    assert retry["error_status"] == 529
    assert lines[-1]["is_error"]


@pytest.mark.spec("CMP-056")
@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "apiKeyHelper"])
def test_the_init_line_names_the_source_of_the_key(
    project: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[str],
    variable: str,
) -> None:
    monkeypatch.chdir(project)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if variable == "apiKeyHelper":
        (home / "settings.json").write_text(json.dumps({"apiKeyHelper": "echo sk-for-tests"}))
    else:
        monkeypatch.setenv(variable, "sk-for-tests")
    with run_in_thread(messages_server(["hello"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        stream = ("--output-format", "stream-json", "--verbose", "--model", MODEL)
        assert run_command_line(["-p", "go", *stream]) == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    (init,) = [line for line in lines if line.get("subtype") == "init"]
    assert init["apiKeySource"] == variable
