"""Files that make other programs run something cannot be created by a command, or are reported."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from git_repository import run_git
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.backends.sandbox.placeholders import SandboxPlaceholders
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.events import NoteAdded, ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel

CONTROL_FILES = (".git", ".claude", ".mcp.json", ".envrc")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text("[user]\nname = a\nemail = a@b\n[init]\ndefaultBranch = main\n")
    made = tmp_path / "project"
    made.mkdir()
    return made


async def run_commands(project: Path, *lines: str) -> tuple[list[str], list[str]]:
    """Run the commands; return the output of each and the notes of the session."""
    calls = [ToolUseBlock(id=f"c{at}", name="Bash", input={"command": line}) for at, line in enumerate(lines)]
    model = ScriptedModel([*calls, "end"])
    async with shoal.open(cwd=project, model=model, skip_permissions=True) as session:
        events = [event async for event in session.run("go")]
    results = [event.result for event in events if isinstance(event, ToolOutputReturned)]
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    return [extract_tool_result_text(result) for result in results], notes


@pytest.mark.needs("bwrap")
async def test_a_command_cannot_create_control_files_at_the_top_and_leaves_none(project: Path) -> None:
    output, notes = await run_commands(
        project,
        "git init -q .",
        "mkdir .claude; echo '{}' > .claude/settings.json; echo evil > .mcp.json; echo evil > .envrc",
        "rm -rf .git .claude .mcp.json .envrc; mv .git g; mv g .git; touch made",
    )
    assert "Read-only file system" in output[0]
    assert "cannot create" in output[0]
    assert [path.name for path in project.iterdir()] == ["made"]
    assert notes == []


@pytest.mark.needs("bwrap")
async def test_placeholders_left_by_a_killed_session_are_removed_by_the_next_command(project: Path) -> None:
    program = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from shoal.backends.sandbox.placeholders import SandboxPlaceholders\n"
        "asyncio.run(SandboxPlaceholders().acquire(map(Path, sys.argv[1:]))); os._exit(0)"
    )
    subprocess.run(
        [sys.executable, "-c", program, *(str(project / name) for name in CONTROL_FILES)], check=True
    )
    assert {path.name for path in project.iterdir()} == set(CONTROL_FILES)
    await run_commands(project, "git init -q .; true")
    assert list(project.iterdir()) == []


async def test_the_event_loop_runs_while_a_placeholder_waits_for_its_directory(project: Path) -> None:
    placeholders, held = SandboxPlaceholders(), os.open(project, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    commands = [asyncio.create_task(placeholders.acquire([project / ".mcp.json"])) for _ in range(2)]
    await asyncio.sleep(0)
    assert list(project.iterdir()) == []
    os.close(held)  # nothing would release it if the wait blocked the loop
    await asyncio.gather(*commands)
    assert [path.name for path in project.iterdir()] == [".mcp.json"]
    placeholders.release()
    assert list(project.iterdir()) != []
    placeholders.release()
    assert list(project.iterdir()) == []


@pytest.mark.needs("bwrap")
async def test_a_settings_directory_that_gets_content_while_a_command_runs_stays(project: Path) -> None:
    first, second = SandboxPlaceholders(), SandboxPlaceholders()
    paths = [project / name for name in CONTROL_FILES]
    await first.acquire(paths)
    await second.acquire(paths)
    (project / ".claude/settings.json").write_text("{}")
    first.release()
    assert (project / ".git").is_dir(), "the other one still has a command"
    second.release()
    assert [path.name for path in project.iterdir()] == [".claude"]


@pytest.mark.needs("bwrap")
async def test_a_command_in_a_subdirectory_of_a_repository_still_commits(project: Path) -> None:
    run_git(project, "init", "-q")
    (project / "sub").mkdir()
    output, _ = await run_commands(
        project / "sub", "echo a > a; git add a; git commit -qm first && git log --format=%s", "git init -q ."
    )
    assert output[0] == "first"
    assert "Read-only file system" in output[1]
    assert sorted(path.name for path in (project / "sub").iterdir()) == ["a"]


@pytest.mark.needs("bwrap")
async def test_a_commit_of_everything_holds_no_placeholder(project: Path) -> None:
    run_git(project, "init", "-q")
    output, _ = await run_commands(
        project, "echo a > a; git add -A && git commit -qm first && git ls-files && git status --porcelain"
    )
    assert output == ["a"]


@pytest.mark.needs("bwrap")
async def test_the_configuration_of_a_submodule_and_of_a_worktree_is_read_only(project: Path) -> None:
    run_git(project, "init", "-q")
    run_git(project, "config", "extensions.worktreeConfig", "true")
    (project / ".git/modules/libs").mkdir(parents=True)
    run_git(project, "init", "-q", "--separate-git-dir", str(project / ".git/modules/libs/a"), "lib")
    output, _ = await run_commands(
        project,
        "git -C lib config core.fsmonitor evil",
        "git config --worktree core.fsmonitor evil",
        "echo evil > .git/modules/libs/a/hooks/post-checkout",
    )
    assert all("Read-only" in text or "could not" in text for text in output), output
    assert not (project / ".git/config.worktree").exists()
    assert "fsmonitor" not in (project / ".git/modules/libs/a/config").read_text()


@pytest.mark.needs("bwrap")
async def test_a_control_file_created_elsewhere_is_reported_once(project: Path) -> None:
    (project / "old").mkdir()
    run_git(project / "old", "init", "-q")
    (project / "deep/er").mkdir(parents=True)
    output, notes = await run_commands(
        project,
        "echo nothing new",
        "git init -q deep/er/inner",
        "echo evil > deep/.envrc",
        "git init -q --bare deep/store",
        "echo again",
    )
    assert "A command created" not in output[0] + output[4]
    assert f"A command created {project}/deep/er/inner/.git" in output[1]
    assert f"A command created {project}/deep/.envrc" in output[2]
    assert f"A command created {project}/deep/store/HEAD" in output[3]
    assert len([note for note in notes if "A command created" in note]) == 3


async def test_landlock_reports_control_files_at_the_top(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem := LandlockSandboxDriver().explain_unavailable():
        pytest.skip(problem)
    programs = project.parent / "bin"
    programs.mkdir()
    for name in ("git", "bash", "sh"):
        found = next(Path(p) / name for p in os.environ["PATH"].split(":") if (Path(p) / name).exists())
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    output, notes = await run_commands(project, "git init -q . && git init -q .")
    assert f"A command created {project}/.git" in output[0]
    assert any("Commands run in Landlock because" in note for note in notes)
