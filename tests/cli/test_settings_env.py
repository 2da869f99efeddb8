"""The key `env` of settings files: values replace those of the shell, and empty values unset variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from agent_scripts import call_tool
from hook_helpers import list_results
from shoal.testing import messages_server


@pytest.mark.spec("CMP-006")
async def test_an_empty_value_unsets_a_variable_for_commands_hooks_and_models(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    show = 'echo "[${FOO-unset}] [${BAR-unset}]"'
    hook = {"hooks": [{"type": "command", "command": f"{show} >hook.txt"}]}
    env = {"FOO": "", "BAR": "own", "ANTHROPIC_MODEL": "", "ANTHROPIC_CUSTOM_HEADERS": ""}
    settings = {"env": env, "model": "haiku", "hooks": {"PreToolUse": [hook]}}
    (home / "settings.json").write_text(json.dumps(settings))
    shell = {"FOO": "x", "BAR": "x", "ANTHROPIC_MODEL": "opus", "ANTHROPIC_CUSTOM_HEADERS": "X-A: b"}
    async with messages_server([call_tool("Bash", command=show), "done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--allowedTools", "Bash", **shell)
        listed = await shoal("config", "get", "model", **shell)
    assert ran.code == 0, ran.err
    assert "[unset] [own]" in list_results(server.requests[-1].body)[0]
    assert (project / "hook.txt").read_text() == "[unset] [own]\n"
    assert "haiku" in server.requests[0].body["model"]
    assert "x-a" not in server.requests[0].headers
    assert "haiku" in listed.text


@pytest.mark.spec("CMP-006")
async def test_a_model_in_env_replaces_that_of_the_shell(shoal: ShoalProgram, home: Path) -> None:
    (home / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_MODEL": "haiku"}}))
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        await shoal("-p", "go", ANTHROPIC_MODEL="opus")
    assert "haiku" in server.requests[0].body["model"]


@pytest.mark.spec("CMP-069")
async def test_notes_are_turned_off_by_the_variable_in_env(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    directory = home / "notes"
    directory.mkdir()
    (directory / "MEMORY.md").write_text("remember the tide")
    settings = {"autoMemoryDirectory": str(directory)}
    seen = []
    for env in ({}, {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}):
        (home / "settings.json").write_text(json.dumps({**settings, "env": env}))
        async with messages_server(["done"]) as server:
            shoal.use_server(server)
            await shoal("-p", "go", "--model", MODEL)
        seen.append("remember the tide" in json.dumps(server.requests[0].body))
    assert seen == [True, False]
