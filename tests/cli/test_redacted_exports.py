"""Exports contain no secrets, and what commands print cannot control a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.surfaces.cli.main import run_command_line
from team_scripts import open_session, script_team, spawn_member

KEY = "sk-ant-api03-" + "A" * 40
PASSWORD = "open-sesame-1"
HOSTILE = "\x9b2J\u202eabc\u2066\x85"
FORBIDDEN = "\x80\x85\x9b\u202e\u2066"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    monkeypatch.setenv("DOOR_PASSWORD", PASSWORD)
    monkeypatch.chdir(made)
    return made


async def run_team(project: Path) -> None:
    text = f"{KEY} and {PASSWORD} {HOSTILE}"
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew", description=text),
            call_tool("TaskCreate", subject=f"Dig {text}", description=text),
            spawn_member("ann", f"Begin {text}"),
            f"They work: {text}",
        ],
        ann=[call_tool("SendMessage", to="team-lead", message=text, summary=text), f"dug {text}"],
    )
    async with open_session(project, model) as session:
        await run_all_turns(session, f"Dig {text}")


@pytest.mark.parametrize(
    "words",
    [
        ("team", "export", "crew"),
        ("team", "export", "crew", "--format", "md"),
        ("export",),
        ("export", "--html", "-o", "-"),
    ],
)
async def test_an_export_contains_no_secrets(
    project: Path, words: tuple[str, ...], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    await run_team(project)
    capsysbinary.readouterr()
    assert await asyncio.to_thread(run_command_line, list(words)) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "Dig" in text
    assert "[redacted" in text
    assert PASSWORD not in text
    assert "A" * 40 not in text


async def test_secrets_of_the_projects_own_settings_are_redacted_from_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    await run_team(project)
    monkeypatch.delenv("DOOR_PASSWORD")
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"env": {"DOOR_PASSWORD": PASSWORD}}))
    monkeypatch.chdir(tmp_path)
    capsysbinary.readouterr()
    assert await asyncio.to_thread(run_command_line, ["team", "export", "crew"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "Dig" in text
    assert PASSWORD not in text


@pytest.mark.parametrize(
    "words",
    [
        ("team", "export", "crew"),
        ("team", "export", "crew", "--format", "md"),
        ("export",),
        ("team", "show", "crew", "--json"),
        ("task", "ls", "--team", "crew", "--json"),
        ("team", "show", "crew"),
    ],
)
async def test_no_command_writes_control_or_bidi_characters_to_a_terminal(
    project: Path, words: tuple[str, ...]
) -> None:
    await run_team(project)
    said = await asyncio.to_thread(run_at_terminal, words)
    assert "crew" in said or "Dig" in said
    assert not set(said) & set(FORBIDDEN), ascii(said)


def run_at_terminal(words: tuple[str, ...]) -> str:
    """Run the command with a terminal as output; return what it wrote."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *words], stdin=subprocess.DEVNULL, stdout=inner, stderr=inner
    )
    os.close(inner)
    content = b""
    try:
        while chunk := os.read(outer, 65_536):
            content += chunk
    except OSError:
        pass  # the other end is closed
    finally:
        os.close(outer)
    assert process.wait(30) == 0, content
    return content.decode()
