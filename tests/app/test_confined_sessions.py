"""The sandbox as a session has it: on by default, by the settings, with git, and with what cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from processes_in import processes_in
from shoal.core.errors import SettingsError
from shoal.core.events import Event, Noted, ToolReturned
from shoal.core.messages import ToolUse, result_text
from shoal.models.scripted import ScriptedModel

pytestmark = pytest.mark.needs("bwrap")
HOME = "SHOAL_HOME"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Away from TMPDIR, which commands may write."""
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


def configure(**sandbox: Any) -> None:
    path = Path(os.environ[HOME]) / "settings.json"
    path.write_text(json.dumps({"shoal": {"sandbox": sandbox}}))


async def commands(project: Path, *lines: str, **options: Any) -> tuple[list[str], list[Event]]:
    """What each command said, and all that was told."""
    mind = [
        *(ToolUse(id=f"c{at}", name="Bash", input={"command": line}) for at, line in enumerate(lines)),
        "end",
    ]
    async with shoal.open(
        cwd=project, model=ScriptedModel(mind), skip_permissions=True, **options
    ) as session:
        events = [event async for event in session.run("go")]
    results = [event.result for event in events if isinstance(event, ToolReturned)]
    return [result_text(result) for result in results], events


def git(directory: Path, *words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True)
    return ran.stdout


async def test_by_default_a_session_confines_its_commands_and_says_nothing(
    project: Path, tmp_path: Path
) -> None:
    (wrote, hidden, outside, temporary), events = await commands(
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
    assert not [event for event in events if isinstance(event, Noted)]


async def test_a_command_that_meets_the_wall_is_told_of_it(project: Path) -> None:
    (met, other, fine), _ = await commands(
        project, "touch ~/.cache-of-a-tool", "false", "touch ~/x; echo went on"
    )
    assert '"writable"' in met
    assert "sandbox" not in other
    assert "sandbox:" not in fine


async def test_a_command_reaches_neither_the_socket_nor_the_questions_of_its_own_run(project: Path) -> None:
    home = os.environ[HOME]
    (found, results), _ = await commands(
        project, f"find {home}/shoal -name '*.sock' -o -name journal.jsonl -o -name questions", "seq 30000"
    )
    assert found == "(no output)"
    assert "cut out" in results or "left out" in results


async def test_a_command_can_read_the_results_kept_for_it(project: Path) -> None:
    home = os.environ[HOME]
    (_, count), _ = await commands(project, "seq 60000", f"cat {home}/shoal/runs/*/results/*.txt | wc -l")
    assert int(count) >= 60000


async def test_the_next_command_starts_where_the_last_one_ended(project: Path) -> None:
    (project / "sub").mkdir()
    said, _ = await commands(project, "cd sub", "pwd", "exit 3", "sleep 0.2 & echo started")
    assert str(project / "sub") in said[0]
    assert said[1] == str(project / "sub")
    assert said[2].endswith("[Exit code 3.]")
    assert said[3] == "started"


async def test_commits_work_and_hooks_and_settings_of_git_cannot_be_written(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".claude").mkdir()
    said, _ = await commands(
        project,
        "echo a > a; git add a; git commit -qm first && git log --format=%s",
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; mv .git g; ls .git/hooks",
        "echo '{}' > .claude/settings.json",
        "cd /; git -C $OLDPWD checkout -qb branch && git -C $OLDPWD branch --show-current",
    )
    assert said[0] == "first"
    assert not (project / ".git/hooks/pre-commit").exists()
    assert "fsmonitor" not in (project / ".git/config").read_text()
    assert not (project / ".claude/settings.json").exists()
    assert said[3].startswith("branch")


async def test_in_a_worktree_commits_work_and_the_main_checkout_cannot_be_touched(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "start")
    git(project, "worktree", "add", "-q", str(project.parent / "tree"))
    said, _ = await commands(
        project.parent / "tree",
        "echo a > a; git add a; git commit -qm second && git log --format=%s | head -1",
        f"cd {project}; git commit --allow-empty -m evil; echo x > evil; echo x > .git/hooks/h",
        f"echo gitdir: /elsewhere > .git; echo / > {project}/.git/worktrees/tree/commondir",
    )
    assert said[0] == "second"
    assert git(project, "log", "--format=%s").strip() == "start"
    assert not (project / "evil").exists()
    assert not (project / ".git/hooks/h").exists()
    assert git(project.parent / "tree", "status", "--short") == ""


async def test_a_directory_inside_a_repository_can_commit_too(project: Path) -> None:
    git(project, "init", "-q")
    (project / "part").mkdir()
    (said, _), _ = await commands(
        project / "part",
        "echo a > a; git add a; git commit -qm inner && git log --format=%s",
        "echo x > ../x",
    )
    assert said == "inner"
    assert not (project / "x").exists()


async def test_a_git_file_that_names_anothers_repository_opens_nothing(project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    (project / ".git").write_text(f"gitdir: {other}/.git\n")
    await commands(project, f"echo x > {other}/.git/x")
    assert not (other / ".git/x").exists()


async def test_granted_and_writable_directories_are_written_and_hidden_ones_not_seen(project: Path) -> None:
    for name in ("granted", "cache", "private"):
        (project.parent / name).mkdir()
        (project.parent / name / "file").write_text(name)
    configure(writable=[str(project.parent / "cache")], hidden=["~/code/private"], network=False)
    (wrote, seen), _ = await commands(
        project,
        "echo x > ../granted/new && echo x > ../cache/new && echo wrote",
        "cat ../private/file ../granted/file",
        add_dirs=[project.parent / "granted"],
    )
    assert wrote == "wrote"
    assert seen.startswith("cat: ")
    assert "granted" in seen
    assert "private\n" not in seen


async def test_a_directory_that_the_person_names_is_no_longer_hidden(project: Path) -> None:
    configure(writable=["~/.ssh"])
    (said,), _ = await commands(project, "cat ~/.ssh/id")
    assert said == "secret"


async def test_turned_off_commands_run_as_the_person_would_run_them(project: Path) -> None:
    configure(enabled=False)
    (said,), _ = await commands(project, "cat ~/.ssh/id; echo $$ ")
    assert said.startswith("secret")
    assert int(said.split()[1]) > 10


async def test_a_sandbox_asked_for_by_name_that_cannot_hold_refuses_the_command(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(network=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    (said,), _ = await commands(project, "echo x > made")
    assert "bwrap is not installed" in said
    assert '"enabled": false' in said
    assert not (project / "made").exists()


async def made_by(project: Path, command: str, **options: Any) -> bool:
    """Whether a command that writes `made` ran, with nobody there to ask."""
    mind = [ToolUse(id="c1", name="Bash", input={"command": command}), "end"]
    async with shoal.open(cwd=project, model=ScriptedModel(mind), **options) as session:
        assert [event async for event in session.run("go")]
    return (project / "made").exists()


async def test_by_setting_a_confined_command_is_not_asked_about(project: Path) -> None:
    assert not await made_by(project, 'python3 -c \'open("made", "w")\'')
    configure(autoAllow=True)
    assert not await made_by(project, "touch made", disallowed_tools=["Bash(touch:*)"])
    assert not await made_by(project, "touch made", mode="plan")
    # It cannot give itself more than that: settings of the project that allow more are not its to write.
    await made_by(project, "echo '{}' > .claude/settings.local.json; mkdir .claude/agents; mv .claude c")
    assert list((project / ".claude").iterdir()) == []
    assert await made_by(project, 'python3 -c \'open("made", "w")\'')


async def test_background_commands_end_with_the_session(project: Path) -> None:
    line = {"command": "echo up > up; sleep 300", "run_in_background": True}
    mind = [ToolUse(id="c1", name="Bash", input=line), "end"]
    async with shoal.open(cwd=project, model=ScriptedModel(mind), skip_permissions=True) as session:
        assert [event async for event in session.run("go")]
        async with asyncio.timeout(10):
            while not (project / "up").exists():
                await asyncio.sleep(0.01)
        assert processes_in(project)
    assert processes_in(project) == []


@pytest.mark.parametrize(
    ("sandbox", "why"),
    [
        ({"enabled": False, "network": False}, "network: false needs the sandbox"),
        ({"enabled": False, "autoAllow": True}, "autoAllow: true needs the sandbox"),
        ({"writable": ["~/x"], "hidden": ["~/x"]}, "both writable and hidden"),
        ({"hidden": ["~"]}, "holds the project"),
        ({"enabled": "yes"}, "settings.json:1: shoal.sandbox.enabled"),
        ({"writable": "~/x"}, "settings.json:1: shoal.sandbox.writable"),
    ],
)
async def test_settings_that_contradict_themselves_are_refused(
    project: Path, sandbox: dict[str, Any], why: str
) -> None:
    configure(**sandbox)
    with pytest.raises(SettingsError, match=why):
        async with shoal.open(cwd=project, model=ScriptedModel([])):
            pass


async def test_unknown_keys_and_missing_directories_are_said(project: Path) -> None:
    configure(newtork=False, writable=["~/absent"])
    async with shoal.open(cwd=project, model=ScriptedModel([])) as session:
        notes = session.notes
    assert [note for note in notes if "shoal.sandbox.newtork is not a setting" in note and "network" in note]
    assert [note for note in notes if "absent does not exist" in note]


async def test_a_project_makes_the_sandbox_tighter_and_never_opens_it(project: Path) -> None:
    (project / ".claude").mkdir()
    wish = {"enabled": False, "autoAllow": True, "writable": ["/"], "hidden": ["mine"]}
    (project / ".claude/settings.json").write_text(json.dumps({"shoal": {"sandbox": wish}}))
    (project / "mine").write_text("mine")
    async with shoal.open(cwd=project, model=ScriptedModel([])) as session:
        held = session.parts.settings.own.sandbox
        assert [note for note in session.notes if "would open the sandbox" in note]
    assert (held.enabled, held.auto_allow, held.writable, held.hidden) == ("auto", False, (), ("mine",))
    (said,), _ = await commands(project, "cat mine; echo x > ../x")
    assert "mine\n" not in said
    assert not (project.parent / "x").exists()
