"""`allowRead` shows paths inside those that `denyRead` hides from commands."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.errors import SettingsError
from shoal.core.events import ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel

pytestmark = [pytest.mark.needs("bwrap"), pytest.mark.spec("CMP-027")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home with a project, keys, start-up files and notes."""
    person = tmp_path / "person"
    files = {
        ".ssh/id": "KEY", ".bashrc": "# STARTUP", ".gitconfig": "[user]\nname = NAME", "notes/n": "NOTES",
        "shared/lib/x": "SHARED", "shared/lib/private/p": "PRIVATE",
        "project/a": "A", "project/secrets/s": "S",
    }  # fmt: skip
    for name, text in files.items():
        (person / name).parent.mkdir(parents=True, exist_ok=True)
        (person / name).write_text(f"{text}\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return person / "project"


def write_settings(path: Path, **filesystem: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"sandbox": {"enabled": True, "filesystem": filesystem}}))


def get_user_file() -> Path:
    return Path(os.environ["SHOAL_HOME"]) / "settings.json"


async def run_command(project: Path, command: str) -> str:
    replies = [ToolUseBlock(id="c", name="Bash", input={"command": command}), "end"]
    async with shoal.open(cwd=project, model=ScriptedModel(replies), skip_permissions=True) as session:
        events = [event async for event in session.run("go")]
    (result,) = [event.result for event in events if isinstance(event, ToolOutputReturned)]
    return extract_tool_result_text(result)


READ_ALL = "cat a secrets/s ~/notes/n ~/.ssh/id ~/.bashrc ~/.gitconfig ~/shared/lib/x ~/shared/lib/private/p"


async def read_all(project: Path) -> set[str]:
    """Return the words of the files that a command can read."""
    output = await run_command(project, f"{READ_ALL} 2>/dev/null; ls -a ~; echo new > b && cat b")
    assert "new" in output
    words = ("KEY", "STARTUP", "NAME", "NOTES", "SHARED", "PRIVATE", "A", "S")
    return {word for word in words if any(word in line.split() for line in output.splitlines())}


async def test_a_project_hides_the_home_and_shows_itself(project: Path) -> None:
    write_settings(project / ".claude/settings.json", denyRead=["~/"], allowRead=["."])
    assert await read_all(project) == {"A", "S"}


async def test_a_user_shows_a_directory_in_the_home_but_not_what_is_hidden_inside(project: Path) -> None:
    write_settings(
        get_user_file(),
        denyRead=["~/", "~/shared/lib/private"],
        allowRead=[str(project), "~/shared/lib", "~/.ssh/id"],
    )
    assert await read_all(project) == {"A", "S", "SHARED"}


async def test_a_hidden_directory_in_the_project_stays_hidden(project: Path) -> None:
    write_settings(project / ".claude/settings.json", denyRead=["~/", "secrets"], allowRead=["."])
    assert await read_all(project) == {"A"}


async def test_a_project_does_not_show_what_the_user_hides(project: Path) -> None:
    write_settings(get_user_file(), denyRead=["~/notes", "~/shared"])
    write_settings(
        project / ".claude/settings.json",
        denyRead=["~/"],
        allowRead=[".", "~/notes", "~/shared/lib", "~/.ssh/id", "~/.bashrc"],
    )
    assert await read_all(project) == {"A", "S", "STARTUP"}


async def test_a_project_shows_nothing_that_it_does_not_hide_itself(project: Path) -> None:
    write_settings(project / ".claude/settings.json", denyRead=["~/notes"], allowRead=["~/.ssh", "~/.ssh/id"])
    assert "KEY" not in await read_all(project)


async def test_a_project_does_not_show_what_a_rule_forbids_to_read(project: Path) -> None:
    denied = ["Read(~/notes/**)", "Read(~/shared/lib/private/**)", "Read(~/shared/lib/x)"]
    settings = {"sandbox": {"enabled": True}, "permissions": {"deny": denied}}
    get_user_file().parent.mkdir(parents=True, exist_ok=True)
    get_user_file().write_text(json.dumps(settings))
    write_settings(
        project / ".claude/settings.json",
        denyRead=["~/notes", "~/shared"],
        allowRead=["~/notes", "~/notes/n", "~/shared/lib", "~/shared/lib/private/p", "~/shared/lib/x"],
    )
    # From a script, whose commands the rules do not see.
    (project / "script").write_text(f"{READ_ALL} 2>/dev/null")
    output = await run_command(project, "sh ./script; ls ~/shared/lib")
    assert not {"NOTES", "PRIVATE", "SHARED"} & set(output.split())
    assert {"A", "S"} <= set(output.split())


async def test_a_hidden_project_is_refused_with_what_to_do(project: Path) -> None:
    for denied in (
        {"denyRead": ["~/"]},
        {"denyRead": ["~/"], "allowRead": ["secrets"]},
        {"denyRead": ["~/"], "allowRead": ["~/notes"]},
    ):
        write_settings(project / ".claude/settings.json", **denied)
        with pytest.raises(SettingsError, match=r"contains the project.*add the project's path to allowRead"):
            await run_command(project, "true")
    (project / ".claude/settings.json").unlink()
    # In the user's file, a relative path starts at the directory of the file.
    write_settings(get_user_file(), denyRead=["~/"], allowRead=["."])
    with pytest.raises(SettingsError, match="contains the project"):
        await run_command(project, "true")


async def test_managed_files_can_limit_what_is_shown(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = tmp_path / "managed/managed-settings.json"
    monkeypatch.setattr("shoal.app.settings.settings_files.MANAGED_FILES", (managed,))
    write_settings(managed, denyRead=["~/"], allowRead=[str(project)], allowManagedReadPathsOnly=True)
    write_settings(get_user_file(), allowRead=["~/notes"])
    assert await read_all(project) == {"A", "S"}
    write_settings(managed, denyRead=["~/"], allowRead=[str(project)], allowManagedReadPathsOnly="yes")
    with pytest.raises(SettingsError, match="expected true or false"):
        await run_command(project, "true")
    write_settings(managed, denyRead=["~/"], allowRead=[str(project)])
    assert await read_all(project) == {"A", "S", "NOTES"}
