"""Flags and first words of a run as Claude Code has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from msgspec.structs import replace
from reply_scripts import get_prompt_text

from shoal.app.agents.backend_launcher import BackendMemberLauncher
from shoal.app.session.session import Session
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.cli.flags import options_from_flags
from shoal.surfaces.cli.main import root_command, run_command_line
from shoal.testing import messages_server
from shoal.testing.servers import MockServer, run_in_thread


@pytest.fixture
def server(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MockServer]:
    """A provider, and the project as the working directory of this process."""
    monkeypatch.chdir(project)
    with run_in_thread(messages_server(lambda _: "done")) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        yield running


def list_tools(server: MockServer) -> list[str]:
    return [tool["name"] for tool in server.requests[-1].body["tools"]]


@pytest.mark.spec("CMP-092")
def test_lists_take_all_words_up_to_the_next_flag(server: MockServer, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    arguments = ["-p", "look", "--add-dir", *directories, "--tools", "Read", "Bash", "--model", "haiku"]
    assert run_command_line(arguments) == 0
    assert sorted(list_tools(server)) == ["Bash", "Read"]
    assert all(directory in json.dumps(server.requests[-1].body) for directory in directories)
    assert run_command_line(["--allowedTools", "Read", "Bash(git log:*)", "-p", "--", "second"]) == 0
    assert "second" in get_prompt_text(server, -1)


@pytest.mark.spec("CMP-092")
def test_a_prompt_in_a_list_is_explained(server: MockServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["-p", "--tools", "Read", "hello"]) == 2
    assert "put the prompt before it, or after --" in capsys.readouterr().err
    assert not server.requests


@pytest.mark.spec("CMP-094")
def test_a_session_is_resumed_by_its_name(
    server: MockServer, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert run_command_line(["-p", "first words", "-n", "night shift"]) == 0
    assert run_command_line(["-p", "other session"]) == 0
    assert run_command_line(["-p", "second words", "--resume", "night shift"]) == 0
    assert "first words" in json.dumps(server.requests[-1].body["messages"])
    assert "other session" not in json.dumps(server.requests[-1].body["messages"])
    capsys.readouterr()
    assert run_command_line(["sessions", "--json"]) == 0
    assert "night shift" in [row["prompt"] for row in json.loads(capsys.readouterr().out)]
    assert run_command_line(["-p", "third", "--resume", "night shift", "--name", "day shift"]) == 0
    assert run_command_line(["-p", "fourth", "--resume", "night shift"]) == 1
    assert run_command_line(["-p", "fourth", "--resume", "day shift"]) == 0


@pytest.mark.spec("CMP-094")
def test_the_debug_log_can_be_filtered_and_moved(server: MockServer, tmp_path: Path, home: Path) -> None:
    log = tmp_path / "debug.txt"
    assert run_command_line(["-p", "look", "--debug-file", str(log), "--debug=api"]) == 0
    kinds = {json.loads(line.partition(" ")[2])["type"] for line in log.read_text().splitlines()}
    assert kinds
    assert all("request" in kind or "model" in kind for kind in kinds), kinds
    assert run_command_line(["-p", "look", "--debug=!api"]) == 0
    (other,) = (home / "debug").glob("*-*.txt")
    assert '"request_sent"' not in other.read_text()
    assert other.read_text()


@pytest.mark.spec("CMP-094")
def test_the_short_flag_shows_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["-v"]) == 0
    assert capsys.readouterr().out.startswith("shoal ")


@pytest.mark.spec("CMP-094")
async def test_the_teammate_mode_of_the_flag_overrides_the_setting(project: Path) -> None:
    with click.Context(root_command) as context:
        settings = json.dumps({"shoal": {"teammate_mode": "process"}})
        root_command.parse_args(context, ["--teammate-mode", "in-process", "--settings", settings])
        options = options_from_flags(context.params, attended=False)
    async with Session(replace(options, cwd=project, model=ScriptedModel(["done"]))) as session:
        assert await BackendMemberLauncher(session.runtime).choose_backend("general-purpose") == "in-process"


@pytest.mark.spec("CMP-098")
@pytest.mark.parametrize("flag", ["--bg", "--chrome", "--cloud", "--from-pr"])
def test_flags_of_another_program_are_refused_by_name(
    server: MockServer, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert run_command_line(["-p", "hello", flag]) == 2
    assert f"Shoal has no {flag}" in capsys.readouterr().err
    assert not server.requests


@pytest.mark.spec("CMP-098")
@pytest.mark.parametrize("flag", ["--ide", "--no-chrome"])
def test_a_flag_that_changes_nothing_here_is_accepted(server: MockServer, flag: str) -> None:
    assert run_command_line(["-p", "hello", flag]) == 0


@pytest.mark.spec("CMP-099")
@pytest.mark.parametrize(
    "words", [["update"], ["setup-token"], ["logs"], ["auto-mode", "defaults"], ["frobnicate"]]
)
def test_a_first_word_that_is_no_command_is_never_sent_to_a_model(
    server: MockServer, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run_command_line([*words, "-p"]) == 2
    assert run_command_line(words) == 2
    assert repr(words[0]) in capsys.readouterr().err
    assert not server.requests


@pytest.mark.spec("CMP-099")
def test_several_words_that_are_no_command_are_quoted_in_the_hint(
    server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["repair", "the", "user's", "bug", "--model", "opus"]) == 2
    assert """shoal -p 'repair the user'"'"'s bug'""" in capsys.readouterr().err
    assert not server.requests
