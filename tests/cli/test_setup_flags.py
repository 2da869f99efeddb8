"""`--init`, `--init-only` and `--maintenance` run Setup hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.surfaces.cli.main import run_command_line
from shoal.testing import messages_server
from shoal.testing.servers import run_in_thread


@pytest.fixture
def log(project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Log of the hooks for Setup and SessionStart; the process works in the project and has no model."""
    log = tmp_path / "hooks.jsonl"
    hook = [{"hooks": [{"type": "command", "command": f"cat >> '{log}'; echo >> '{log}'"}]}]
    (home / "settings.json").write_text(json.dumps({"hooks": {"Setup": hook, "SessionStart": hook}}))
    monkeypatch.chdir(project)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    return log


def read_inputs(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.strip()]


@pytest.mark.spec("CMP-045")
def test_init_only_runs_the_start_hooks_without_a_model(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["--init-only"]) == 0
    assert "model" not in capsys.readouterr().err
    setup, start = read_inputs(log)
    assert (setup["hook_event_name"], setup["trigger"]) == ("Setup", "init")
    assert (start["hook_event_name"], start["source"]) == ("SessionStart", "startup")
    assert run_command_line(["-p", "hi", "--init"]) == 1
    assert "No model is configured" in capsys.readouterr().err


@pytest.mark.spec("CMP-045")
def test_init_only_uses_a_configured_model_without_asking_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
    with run_in_thread(messages_server(["never"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run_command_line(["--init-only", "--model", "opus"]) == 0
        assert not server.requests
    assert "opus" in read_inputs(log)[1]["model"]


@pytest.mark.spec("CMP-045")
@pytest.mark.parametrize(("flag", "trigger"), [("--init", "init"), ("--maintenance", "maintenance")])
def test_a_run_with_the_flag_runs_setup_hooks_before_its_session(
    log: Path, monkeypatch: pytest.MonkeyPatch, flag: str, trigger: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
    with run_in_thread(messages_server(["one", "two"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run_command_line(["-p", "hi", flag]) == 0
        assert run_command_line(["-p", "hi"]) == 0
        assert len(server.requests) == 2
    assert [(each["hook_event_name"], each.get("trigger")) for each in read_inputs(log)] == [
        ("Setup", trigger),
        ("SessionStart", None),
        ("SessionStart", None),
    ]
