"""The sandbox of a session: defaults, settings, git, and unavailable sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from git_repository import run_git
from process_search import find_processes_in
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.events import Event, NoteAdded, ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel

pytestmark = pytest.mark.needs("bwrap")
HOME = "SHOAL_HOME"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the project outside of TMPDIR, which commands may write."""
    person = tmp_path / "person"
    (person / ".ssh").mkdir(parents=True)
    (person / ".ssh/id").write_text("secret\n")
    (person / ".bashrc").write_text("true\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(person / ".gitconfig"))
    (person / ".gitconfig").write_text("[user]\nname = a\nemail = a@b\n[init]\ndefaultBranch = main\n")
    made = person / "code/project"
    made.mkdir(parents=True)
    return made


def write_sandbox_settings(**sandbox: Any) -> None:
    path = Path(os.environ[HOME]) / "settings.json"
    path.write_text(json.dumps({"shoal": {"sandbox": sandbox}}))


async def run_commands(project: Path, *lines: str, **options: Any) -> tuple[list[str], list[Event]]:
    """Run the commands; return the output of each and all events."""
    replies = [
        *(ToolUseBlock(id=f"c{at}", name="Bash", input={"command": line}) for at, line in enumerate(lines)),
        "end",
    ]
    async with shoal.open(
        cwd=project, model=ScriptedModel(replies), skip_permissions=True, **options
    ) as session:
        events = [event async for event in session.run("go")]
    results = [event.result for event in events if isinstance(event, ToolOutputReturned)]
    return [extract_tool_result_text(result) for result in results], events


async def test_a_session_sandboxes_its_commands_by_default_without_a_note(
    project: Path, tmp_path: Path
) -> None:
    (wrote, hidden, outside, temporary), events = await run_commands(
        project,
        "echo hello > made; cat made",
        "cat ~/.ssh/id",
        f"echo x > {project.parent}/made; echo x >> ~/.bashrc",
        "echo t > $TMPDIR/t; cat $TMPDIR/t",
    )
    assert (wrote, temporary) == ("hello", "t")
    assert "secret" not in hidden
    assert outside.count("Read-only file system") == 2
    assert not (project.parent / "made").exists()
    assert not [event for event in events if isinstance(event, NoteAdded)]


async def test_a_command_blocked_by_the_sandbox_gets_a_hint(project: Path) -> None:
    (met, other, fine), _ = await run_commands(
        project, "touch ~/.cache-of-a-tool", "false", "touch ~/x; echo went on"
    )
    assert '"writable"' in met
    assert "sandbox" not in other
    assert "sandbox:" not in fine


async def test_a_command_cannot_access_the_socket_or_questions_of_its_run(project: Path) -> None:
    home = os.environ[HOME]
    (found, results), _ = await run_commands(
        project, f"find {home}/shoal -name '*.sock' -o -name journal.jsonl -o -name questions", "seq 30000"
    )
    assert found == "(no output)"
    assert "characters are omitted here" in results


async def test_a_command_can_read_the_stored_results(project: Path) -> None:
    home = os.environ[HOME]
    (_, count), _ = await run_commands(project, "seq 60000", f"cat {home}/shoal/runs/*/results/*.txt | wc -l")
    assert int(count) >= 60000


async def test_a_command_starts_in_the_directory_of_the_previous_one(project: Path) -> None:
    (project / "sub").mkdir()
    output, _ = await run_commands(project, "cd sub", "pwd", "exit 3", "sleep 0.2 & echo started")
    assert str(project / "sub") in output[0]
    assert output[1] == str(project / "sub")
    assert output[2].endswith("[Exit code 3.]")
    assert output[3] == "started"


async def test_commits_work_but_git_hooks_and_config_are_read_only(project: Path) -> None:
    run_git(project, "init", "-q")
    (project / ".claude").mkdir()
    output, _ = await run_commands(
        project,
        "echo a > a; git add a; git commit -qm first && git log --format=%s",
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; mv .git g; ls .git/hooks",
        "echo '{}' > .claude/settings.json",
        "cd /; git -C $OLDPWD checkout -qb branch && git -C $OLDPWD branch --show-current",
    )
    assert output[0] == "first"
    assert not (project / ".git/hooks/pre-commit").exists()
    assert "fsmonitor" not in (project / ".git/config").read_text()
    assert not (project / ".claude/settings.json").exists()
    assert output[3].startswith("branch")


async def test_commits_work_in_a_worktree_and_the_main_checkout_is_read_only(project: Path) -> None:
    run_git(project, "init", "-q")
    run_git(project, "commit", "-q", "--allow-empty", "-m", "start")
    run_git(project, "worktree", "add", "-q", str(project.parent / "tree"))
    output, _ = await run_commands(
        project.parent / "tree",
        "echo a > a; git add a; git commit -qm second && git log --format=%s | head -1",
        f"cd {project}; git commit --allow-empty -m evil; echo x > evil; echo x > .git/hooks/h",
        f"echo gitdir: /elsewhere > .git; echo / > {project}/.git/worktrees/tree/commondir",
    )
    assert output[0] == "second"
    assert run_git(project, "log", "--format=%s").strip() == "start"
    assert not (project / "evil").exists()
    assert not (project / ".git/hooks/h").exists()
    assert run_git(project.parent / "tree", "status", "--short") == ""


async def test_commits_work_in_a_subdirectory_of_a_repository(project: Path) -> None:
    run_git(project, "init", "-q")
    (project / "part").mkdir()
    (output, _), _ = await run_commands(
        project / "part",
        "echo a > a; git add a; git commit -qm inner && git log --format=%s",
        "echo x > ../x",
    )
    assert output == "inner"
    assert not (project / "x").exists()


@pytest.mark.spec("CMP-126")
async def test_commands_cannot_change_the_settings_of_git_and_the_result_says_why(project: Path) -> None:
    run_git(project, "init", "-q")
    run_git(project, "commit", "-q", "--allow-empty", "-m", "start")
    run_git(project, "init", "-q", "--bare", "remote.git")
    lines = (
        "git remote add origin ./remote.git",
        "git config user.name other",
        "git push -q -u ./remote.git main",
        "git checkout -q -b side --track main",
        "git branch --set-upstream-to=main side",
    )
    outputs, _ = await run_commands(project, *lines, "git status --short")
    for output in outputs[:-1]:
        assert "cannot change .git/config, because its entries can make git run programs" in output
        assert '{"shoal": {"sandbox": {"writable": [".git/config"]}}}' in output
    assert "git/config" not in outputs[-1]
    assert run_git(project, "branch", "--show-current") == "side"
    write_sandbox_settings(writable=[".git/config"])
    outputs, _ = await run_commands(project, *lines[:3], lines[4], "touch .git/hooks/pre-commit")
    assert not any("cannot change .git/config" in output for output in outputs[:-1])
    assert "Read-only file system" in outputs[-1]
    assert run_git(project, "config", "remote.origin.url") == "./remote.git"
    assert run_git(project, "config", "branch.side.merge") == "refs/heads/main"


@pytest.mark.spec("CMP-074")
async def test_a_remark_about_the_sandbox_is_not_part_of_a_skill(project: Path) -> None:
    run_git(project, "init", "-q")
    (project / "package-lock.json").write_text("{}")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-q", "-m", "start")
    # Commands cannot change a repository with a hidden file and a split index.
    run_git(project, "update-index", "--split-index")
    skill = Path(os.environ["SHOAL_HOME"]) / "skills/look/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: look\ndescription: d\nallowed-tools: Bash(git log:*), Bash(git commit:*)\n---\n"
        "Last: !`git log -1 --format=%s` end. Next: !`git commit -qm x --allow-empty` end.\n"
    )
    requests: list[str] = []

    def reply(request: ModelRequest) -> str:
        requests.append("\n".join(message.text for message in request.messages))
        return "done"

    settings = {"permissions": {"deny": ["Read(package-lock.json)"]}}
    async with shoal.open(cwd=project, model=ScriptedModel(reply), settings=settings) as session:
        async for _ in session.run(session.parse_slash_command("/look")):
            pass
    (text,) = requests
    assert "Last: start end." in text
    # A command that failed is reported with its reason.
    assert "Read-only file system" in text


async def test_a_git_file_that_names_another_repository_grants_no_access(project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    run_git(other, "init", "-q")
    (project / ".git").write_text(f"gitdir: {other}/.git\n")
    await run_commands(project, f"echo x > {other}/.git/x")
    assert not (other / ".git/x").exists()


async def test_granted_directories_are_writable_and_hidden_ones_invisible(project: Path) -> None:
    for name in ("granted", "cache", "private"):
        (project.parent / name).mkdir()
        (project.parent / name / "file").write_text(name)
    write_sandbox_settings(writable=[str(project.parent / "cache")], hidden=["~/code/private"], network=False)
    (wrote, cat_output), _ = await run_commands(
        project,
        "echo x > ../granted/new && echo x > ../cache/new && echo wrote",
        "cat ../private/file ../granted/file",
        add_dirs=[project.parent / "granted"],
    )
    assert wrote == "wrote"
    assert cat_output.startswith("cat: ")
    assert "granted" in cat_output
    assert "private\n" not in cat_output


async def test_a_directory_that_the_user_names_is_not_hidden(project: Path) -> None:
    write_sandbox_settings(writable=["~/.ssh"])
    (output,), _ = await run_commands(project, "cat ~/.ssh/id")
    assert output == "secret"


async def test_commands_run_unconfined_when_the_sandbox_is_off(project: Path) -> None:
    write_sandbox_settings(enabled=False)
    (output,), _ = await run_commands(project, "cat ~/.ssh/id; echo $$ ")
    assert output.startswith("secret")
    assert int(output.split()[1]) > 10


async def test_an_unavailable_sandbox_requested_by_name_refuses_the_command(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sandbox_settings(network=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    (output,), _ = await run_commands(project, "echo x > made")
    assert "bwrap is not installed" in output
    assert '"enabled": false' in output
    assert not (project / "made").exists()


async def is_command_run(project: Path, command: str, **options: Any) -> bool:
    """Return True if an unattended command that writes `made` was run."""
    replies = [ToolUseBlock(id="c1", name="Bash", input={"command": command}), "end"]
    async with shoal.open(cwd=project, model=ScriptedModel(replies), **options) as session:
        assert [event async for event in session.run("go")]
    return (project / "made").exists()


async def test_a_setting_allows_sandboxed_commands_without_asking(project: Path) -> None:
    assert not await is_command_run(project, 'python3 -c \'open("made", "w")\'')
    write_sandbox_settings(autoAllow=True)
    assert not await is_command_run(project, "touch made", disallowed_tools=["Bash(touch:*)"])
    assert not await is_command_run(project, "touch made", mode="plan")
    # It cannot give itself more than that: settings of the project that allow more are not its to write.
    await is_command_run(
        project, "echo '{}' > .claude/settings.local.json; mkdir .claude/agents; mv .claude c"
    )
    assert not (project / ".claude").exists()
    assert await is_command_run(project, 'python3 -c \'open("made", "w")\'')


async def test_background_commands_end_with_the_session(project: Path) -> None:
    line = {"command": "echo up > up; sleep 300", "run_in_background": True}
    replies = [ToolUseBlock(id="c1", name="Bash", input=line), "end"]
    async with shoal.open(cwd=project, model=ScriptedModel(replies), skip_permissions=True) as session:
        assert [event async for event in session.run("go")]
        async with asyncio.timeout(10):
            while not (project / "up").exists():
                await asyncio.sleep(0.01)
        assert find_processes_in(project)
    assert find_processes_in(project) == []


@pytest.mark.parametrize(
    ("sandbox", "why"),
    [
        ({"enabled": False, "network": False}, "network: false needs the sandbox"),
        ({"enabled": False, "autoAllow": True}, "autoAllow: true needs the sandbox"),
        ({"writable": ["~/x"], "hidden": ["~/x"]}, "is in both `writable` and `hidden`"),
        ({"hidden": ["~"]}, "contains the project"),
        ({"enabled": "yes"}, "settings.json:1: shoal.sandbox.enabled"),
        ({"writable": "~/x"}, "settings.json:1: shoal.sandbox.writable"),
    ],
)
async def test_contradictory_sandbox_settings_are_refused(
    project: Path, sandbox: dict[str, Any], why: str
) -> None:
    write_sandbox_settings(**sandbox)
    with pytest.raises(SettingsError, match=why):
        async with shoal.open(cwd=project, model=ScriptedModel([])):
            pass


async def test_unknown_sandbox_keys_and_missing_directories_are_noted(project: Path) -> None:
    write_sandbox_settings(newtork=False, writable=["~/absent"])
    async with shoal.open(cwd=project, model=ScriptedModel([])) as session:
        notes = session.notes
    assert [note for note in notes if "shoal.sandbox.newtork is not a setting" in note and "network" in note]
    assert [note for note in notes if "absent does not exist" in note]


async def test_a_project_can_tighten_the_sandbox_but_never_loosen_it(project: Path) -> None:
    (project / ".claude").mkdir()
    wish = {"enabled": False, "autoAllow": True, "writable": ["/"], "hidden": ["mine"]}
    (project / ".claude/settings.json").write_text(json.dumps({"shoal": {"sandbox": wish}}))
    (project / "mine").write_text("mine")
    async with shoal.open(cwd=project, model=ScriptedModel([])) as session:
        policy = session.runtime.settings.own.sandbox
        assert [note for note in session.notes if "would weaken the sandbox" in note]
    assert (policy.enabled, policy.auto_allow, policy.writable, policy.hidden) == (
        "auto",
        False,
        (),
        ("mine",),
    )
    (output,), _ = await run_commands(project, "cat mine; echo x > ../x")
    assert "mine\n" not in output
    assert not (project.parent / "x").exists()
