"""`--permission-prompt-tool`: an MCP tool answers the questions of a headless run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL

from shoal.surfaces.cli.main import run_command_line
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call
from shoal.testing.servers import MockServer, run_in_thread

SERVER = Path(__file__).with_name("permission_server.py")


def run_with_prompt_tool(
    monkeypatch: pytest.MonkeyPatch, project: Path, tool: str, *commands: str, code: int = 0
) -> tuple[MockServer, list[Any]]:
    log = project.parent / "asked"
    log.touch()
    servers = {"mcpServers": {"gate": {"command": sys.executable, "args": [str(SERVER), str(log)]}}}
    replies: list[Any] = [make_tool_call("Bash", command=command) for command in commands]
    monkeypatch.chdir(project)
    with run_in_thread(messages_server([*replies, "done"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        flags = ["--mcp-config", json.dumps(servers), "--permission-prompt-tool", tool, "--model", MODEL]
        assert run_command_line(["-p", "go", *flags]) == code
    return server, [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.spec("CMP-096")
def test_an_mcp_tool_answers_permission_questions(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ("touch yes", "touch no", "touch broken")
    server, asked = run_with_prompt_tool(monkeypatch, project, "mcp__gate__approve", *commands)
    assert [(name, each["command"]) for name, each in asked] == [("Bash", command) for command in commands]
    assert sorted(path.name for path in project.iterdir()) == ["yes-checked"]
    sent = json.dumps(server.requests[-1].body["messages"])
    assert "not on Sundays" in sent
    assert "gave no usable answer" in sent


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.spec("CMP-096")
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("mcp__gate__nobody", "the MCP server gate has these tools: mcp__gate__approve"),
        ("mcp__gates__approve", "no MCP server with that name is configured. Servers: gate"),
    ],
)
def test_a_missing_prompt_tool_is_reported_before_the_first_request(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tool: str,
    reason: str,
) -> None:
    server, asked = run_with_prompt_tool(monkeypatch, project, tool, "touch yes", code=1)
    assert (asked, server.requests, list(project.iterdir())) == ([], [], [])
    assert f"There is no tool {tool} for --permission-prompt-tool: {reason}" in capsys.readouterr().err


@pytest.mark.spec("CMP-096")
def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["-p", "go", "--permission-prompt-tool", "ask-me"]) == 2
    assert "mcp__SERVER__TOOL" in capsys.readouterr().err
