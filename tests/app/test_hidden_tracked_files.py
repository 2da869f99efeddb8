"""Git in the sandbox while a rule hides tracked files from commands."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

import shoal
from git_repository import run_git
from shoal.app.doctor.health_checks import run_health_checks
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.events import Event, NoteAdded, ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel
from shoal.workspaces.hidden_file_marks import (
    HiddenFileMarks,
    can_mark_hidden_files,
    remove_leftover_marks,
)

pytestmark = [pytest.mark.needs("bwrap"), pytest.mark.spec("CMP-121")]
DENIED = {"permissions": {"deny": ["Read(./.env.*)", "Read(./secrets/**)"]}}
HIDDEN = (".env.example", "secrets/key", "secrets/deep/other key")


@pytest.fixture(params=["2", "4"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository outside of TMPDIR, with branches that change hidden files and others."""
    person = tmp_path / "person"
    made = person / "project"
    made.mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(person / ".gitconfig"))
    (person / ".gitconfig").write_text("[user]\nname = a\nemail = a@b\n[init]\ndefaultBranch = main\n")
    run_git(made, "init", "-q")
    run_git(made, "config", "index.version", request.param)
    for name in (*HIDDEN, "a", "b", "src/code.py"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"SECRET of {name}\n" if name in HIDDEN else f"{name}\n")
    run_git(made, "add", "-A")
    run_git(made, "commit", "-q", "-m", "start")
    make_branch(made, "plain", {"b": "b of plain\n"})
    make_branch(made, "changing", {"a": "a2\n", ".env.example": "S2\n", "secrets/key": "K2\n"})
    make_branch(made, "adding", {"secrets/new": "N\n", "c": "c\n"})
    make_branch(made, "removing", {".env.example": None, "secrets/key": None, "d": "d\n"})
    return made


def make_branch(project: Path, name: str, files: dict[str, str | None]) -> None:
    run_git(project, "checkout", "-q", "-b", name, "main")
    for path, text in files.items():
        if text is None:
            (project / path).unlink()
        else:
            (project / path).write_text(text)
    run_git(project, "add", "-A")
    run_git(project, "commit", "-q", "-m", name)
    run_git(project, "checkout", "-q", "main")


async def run_commands(
    project: Path, *lines: str, settings: dict[str, Any] = DENIED
) -> tuple[list[str], list[Event]]:
    """Run each line from a script, whose commands the rules do not see; return the outputs and all events."""
    replies: list[Any] = []
    for at, line in enumerate(lines):
        (project.parent / f"script{at}").write_text(line)
        command = f"sh ../script{at}"
        replies.append(ToolUseBlock(id=f"c{at}", name="Bash", input={"command": command}))
    async with shoal.open(
        cwd=project, model=ScriptedModel([*replies, "end"]), skip_permissions=True, settings=settings
    ) as session:
        events = [event async for event in session.run("go")]
    results = [event.result for event in events if isinstance(event, ToolOutputReturned)]
    return [extract_tool_result_text(result) for result in results], events


def list_hidden_entries(project: Path, tree: str = "HEAD") -> str:
    return run_git(project, "ls-tree", "-r", tree, "--", ".env.example", "secrets")


def list_marks(project: Path) -> list[str]:
    """Return the entries of the index that have another mark than usual."""
    lines = run_git(project, "ls-files", "-v").splitlines()
    return [line for line in lines if not line.startswith("H ")]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "line",
    [
        "echo x > new && git add new && git commit -qm x",
        "echo x >> a; git add -A && git commit -qm x",
        "echo x >> a; git add . && git commit -qm x",
        "echo x >> a; git commit -qam x",
        "git checkout -qb side && echo x >> a && git add -u && git commit -qm x",
        "echo x >> a; git stash -q && git stash pop -q && git commit -qam x",
        "git rm -rq --cached . ; git add . ; git commit -qm x --allow-empty",
        "git merge -q plain",
        "echo x >> a; git commit -qam x; git rebase -q plain",
        "git cherry-pick plain",
        "git checkout -q -- . && git restore . && git reset -q --hard && git commit -qm x --allow-empty",
        "git clean -qfdx; git commit -qm x --allow-empty",
        "git checkout -q plain && git checkout -q main && git commit -qm x --allow-empty",
        "echo x >> a; git commit -qm x -- a; git commit -q --amend -m y",
    ],
)
async def test_ordinary_git_commands_work_and_keep_hidden_files(project: Path, line: str) -> None:
    entries = list_hidden_entries(project)
    (output, status), _ = await run_commands(project, f"{line} && echo done", "git status --short")
    assert "done" in output.splitlines(), output
    assert status in ("(no output)", ""), status
    assert run_git(project, "log", "--format=%s", "-1").strip() != "start"
    assert list_hidden_entries(project) == entries
    assert run_git(project, "status", "--short") == ""
    assert list_marks(project) == []
    assert all(f"SECRET of {name}" in (project / name).read_text() for name in HIDDEN)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("branch", ["changing", "adding", "removing"])
@pytest.mark.parametrize(
    "line",
    [
        "git checkout -q {} && echo x >> b && git commit -qam x",
        "git merge -q {} && git commit -q --allow-empty -m x",
        "echo x >> b; git commit -qam y; git merge -q {} -m x",
        "echo x >> b; git commit -qam y; git rebase -q {} && git commit -q --allow-empty -m x",
        "git cherry-pick {} && git commit -q --allow-empty -m x",
        "git reset -q --hard {} && git commit -q --allow-empty -m x",
    ],
)
async def test_branches_that_differ_in_hidden_files_are_committed_exactly(
    project: Path, branch: str, line: str
) -> None:
    (output, again), events = await run_commands(
        project, f"{line.format(branch)} && echo done; git status --short; cat .env.example secrets/*", "true"
    )
    assert "done" in output.splitlines(), output
    assert "SECRET" not in output
    assert run_git(project, "log", "--format=%s", "-1").strip() == "x"
    assert list_hidden_entries(project) == list_hidden_entries(project, branch)
    # The files on the disk are the user's: they did not change, and both sides are told.
    assert all(f"SECRET of {name}" in (project / name).read_text() for name in HIDDEN)
    changed = run_git(project, "diff", "--name-only", "HEAD") + "\n" + run_git(project, "ls-files", "-o")
    names = sorted(changed.split())
    assert (
        names
        == {
            "changing": [".env.example", "secrets/key"],
            "adding": ["secrets/new"],
            "removing": [".env.example", "secrets/key"],
        }[branch]
    )
    (notice,) = [each for each in output.splitlines() if "Git now has other versions of files" in each]
    assert all(name in notice for name in names)
    assert "Git now has" not in again
    assert any("Git now has" in event.text for event in events if isinstance(event, NoteAdded))
    assert list_marks(project) == []


async def test_a_command_that_runs_at_the_same_time_keeps_the_marks(project: Path) -> None:
    entries = list_hidden_entries(project)
    waiting = "while [ ! -e go ]; do sleep 0.05; done; rm go; echo x >> a; git add -A; git commit -qm late"
    (project.parent / "waiting").write_text(waiting)
    replies = [
        ToolUseBlock(
            id="c0", name="Bash", input={"command": "sh ../waiting; touch ../end", "run_in_background": True}
        ),
        ToolUseBlock(id="c1", name="Bash", input={"command": "git status --short"}),
        ToolUseBlock(
            id="c2",
            name="Bash",
            input={"command": "touch go; while [ -e go ]; do sleep 0.05; done; git log -1 >/dev/null"},
        ),
        ToolUseBlock(
            id="c3",
            name="Bash",
            input={"command": "while [ $(git log --format=%s -1) != late ]; do sleep 0.05; done"},
        ),
        "end",
    ]
    async with shoal.open(
        cwd=project, model=ScriptedModel(replies), skip_permissions=True, settings=DENIED
    ) as session:
        async for _ in session.run("go"):
            pass
    assert run_git(project, "log", "--format=%s", "-1").strip() == "late"
    assert list_hidden_entries(project) == entries
    assert list_marks(project) == []


async def test_marks_that_a_killed_process_left_are_removed_and_those_of_the_user_stay(project: Path) -> None:
    run_git(project, "update-index", "--skip-worktree", "secrets/key")
    marks = HiddenFileMarks(Path(os.environ["SHOAL_HOME"]) / "shoal/git-marks")
    paths = [project / ".env.example", project / "secrets"]
    assert await marks.acquire({project / ".git": paths}) == ()
    assert len(list_marks(project)) == 3
    for lock in marks._locks.values():
        os.close(lock)
    # Nothing is hidden any more, so only the record of the marks leads to them.
    await run_commands(project, "true", settings={"cleanupPeriodDays": 30})
    assert list_marks(project) == ["S secrets/key"]
    await run_commands(project, "echo x >> a; git add -A; git commit -qm x")
    assert list_marks(project) == ["S secrets/key"]


@pytest.mark.parametrize("cleaner", ["session", "doctor"])
async def test_marks_of_a_killed_run_are_removed_at_the_next_start(project: Path, cleaner: str) -> None:
    run_git(project, "update-index", "--skip-worktree", "secrets/key")
    home = Path(os.environ["SHOAL_HOME"])
    marks = HiddenFileMarks(home / "shoal/git-marks")
    assert await marks.acquire({project / ".git": [project / ".env.example", project / "secrets"]}) == ()
    # A command merges another version, and Shoal is killed before it can say so.
    version = run_git(project, "rev-parse", "HEAD:src/code.py")
    run_git(project, "update-index", "--cacheinfo", f"100644,{version},.env.example")
    for lock in marks._locks.values():
        os.close(lock)
    assert len(list_marks(project)) > 1
    if cleaner == "session":
        async with shoal.open(cwd=project, model=ScriptedModel(["hello"])) as session:
            notes = list(session.notes)
    else:
        checks = await asyncio.to_thread(run_health_checks, os.environ, project)
        notes = [each.value for each in checks]
    assert list_marks(project) == ["S secrets/key"]
    assert any("Git now has other versions" in each and ".env.example" in each for each in notes), notes
    assert not any((home / "shoal/git-marks").iterdir())


async def test_the_record_of_marks_stays_while_its_repository_is_missing(project: Path) -> None:
    records = Path(os.environ["SHOAL_HOME"]) / "shoal/git-marks"
    marks = HiddenFileMarks(records)
    assert await marks.acquire({project / ".git": [project / ".env.example"]}) == ()
    for lock in marks._locks.values():
        os.close(lock)
    away = project.rename(project.with_name("away"))
    assert remove_leftover_marks(records) == ()
    away.rename(project)
    assert list_marks(project) == ["S .env.example"]
    assert remove_leftover_marks(records) == ()
    assert list_marks(project) == []
    assert not any(records.iterdir())


async def test_marks_that_git_of_the_user_writes_back_are_removed(project: Path) -> None:
    run_git(project, "update-index", "--skip-worktree", "secrets/key")
    before = run_git(project, "ls-files", "--debug")
    marks = HiddenFileMarks(Path(os.environ["SHOAL_HOME"]) / "shoal/git-marks")
    paths = [project / ".env.example", project / "secrets"]
    assert await marks.acquire({project / ".git": paths}) == ()
    # As a rebase does that read the index while a command ran, and ends after it.
    index = (project / ".git/index").read_bytes()
    assert await marks.release() == ()
    assert list_marks(project) == ["S secrets/key"]
    (project / ".git/index").write_bytes(index)
    run_git(project, "update-index", "--force-write-index")
    assert len(list_marks(project)) == 3
    await run_commands(project, "git status")
    assert list_marks(project) == ["S secrets/key"]
    assert [line for line in run_git(project, "ls-files", "--debug").splitlines() if "flags" not in line] == [
        line for line in before.splitlines() if "flags" not in line
    ]


@pytest.mark.parametrize(
    "line", ["git add --sparse -A", "git update-index .env.example", "git commit -qam x"]
)
async def test_a_conflict_in_a_hidden_file_makes_the_repository_read_only(project: Path, line: str) -> None:
    make_branch(project, "other", {".env.example": "other\n"})
    (project / ".env.example").write_text("mine\n")
    run_git(project, "commit", "-qam", "mine")
    with pytest.raises(CalledProcessError):
        run_git(project, "merge", "other")
    entries = run_git(project, "ls-files", "-s")
    (output,), _ = await run_commands(project, f"{line}; git commit -qm x")
    assert "Commands cannot change the git repository: a rule or setting hides" in output
    assert "Git now has other versions" not in output
    assert run_git(project, "ls-files", "-s") == entries
    (project / ".env.example").write_text("both\n")
    run_git(project, "commit", "-qam", "resolved")
    (output,), _ = await run_commands(project, "echo x >> a; git add -A && git commit -qm x && echo done")
    assert "done" in output.splitlines()
    assert run_git(project, "show", "HEAD:.env.example") == "both"
    assert list_marks(project) == []


@pytest.mark.parametrize(
    "line",
    [
        "git merge -q changing",
        "git checkout -q plain; git checkout -q main",
        "echo x >> src/code.py; git stash -q",
        "echo x >> src/code.py; git reset -q --hard",
        "git checkout -q plain; git add -A; git commit -qm x",
    ],
)
async def test_a_file_that_the_user_marked_stays_marked_and_unchanged(project: Path, line: str) -> None:
    local = project / "local #1 [x]!"
    local.write_text("of the team\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-q", "-m", "local")
    run_git(project, "checkout", "-q", "plain")
    run_git(project, "merge", "-q", "main")
    run_git(project, "checkout", "-q", "main")
    run_git(project, "update-index", "--skip-worktree", local.name)
    local.write_text("changed by the user\n")
    await run_commands(project, line)
    assert list_marks(project) == [f"S {local.name}"]
    assert local.read_text() == "changed by the user\n"
    assert run_git(project, "show", f"HEAD:{local.name}") == "of the team"


async def test_another_repository_does_not_become_a_sparse_checkout(project: Path) -> None:
    """`git sparse-checkout disable` leaves the patterns, which have no effect until they are enabled."""
    other = project / "other [1]"
    run_git(project, "clone", "-q", ".", other.name)
    run_git(other, "sparse-checkout", "set", "--no-cone", "/*", "!/src")
    run_git(other, "sparse-checkout", "disable")
    (output,), _ = await run_commands(
        project, f"git merge -q changing; cd '{other.name}'; git checkout -q origin/plain; git reset --hard"
    )
    assert "HEAD is now at" in output
    assert (other / "src/code.py").exists()
    assert list_marks(other) == []
    assert (project / ".env.example").read_text() == "SECRET of .env.example\n"


async def test_a_changed_hidden_file_stays_changed_and_is_not_committed(project: Path) -> None:
    (project / ".env.example").write_text("changed by the user\n")
    entries = list_hidden_entries(project)
    await run_commands(project, "echo x >> a; git add -A; git commit -qam x; git stash; git status")
    assert list_hidden_entries(project) == entries
    assert run_git(project, "status", "--short") == "M .env.example"


async def test_an_untracked_hidden_file_is_not_committed_as_an_empty_file(project: Path) -> None:
    (project / ".env.local").write_text("SECRET\n")
    (output,), _ = await run_commands(
        project, "echo x > new; git add -A; git commit -qm x; git status --short"
    )
    assert ".env.local" not in output
    assert run_git(project, "ls-files", ".env.local") == ""
    assert run_git(project, "status", "--short") == "?? .env.local"


@pytest.mark.parametrize("kind", ["split", "sparse"])
async def test_a_repository_whose_index_cannot_be_marked_is_read_only(project: Path, kind: str) -> None:
    if kind == "split":
        run_git(project, "update-index", "--split-index")
    else:
        run_git(project, "sparse-checkout", "set", "--no-cone", "/*", "!/b")
    entries = list_hidden_entries(project)
    (output,), _ = await run_commands(project, "echo x >> a; git add -A; git commit -qm x")
    assert "Read-only file system" in output
    assert "Commands cannot change the git repository: a rule or setting hides" in output
    assert list_hidden_entries(project) == entries
    assert run_git(project, "log", "--format=%s", "-1").strip() == "start"


@pytest.mark.parametrize(
    ("text", "can_mark"),
    [
        ("[core]\n\tsparseCheckout = false\n", True),
        ("[core]\n\tsparseCheckout = off ; no longer\n", True),
        ("[core]\n\tsparseCheckoutCone = true\n", True),
        ("[core]\n\tsparseCheckout = true\n", False),
        ("[core] sparseCheckout = true\n", False),
        ("[core]\n\tsparseCheckout # on\n", False),
        ("[core]\n\tsparseCheckout = 00x\n", False),
    ],
)
async def test_only_an_active_sparse_checkout_cannot_be_marked(
    project: Path, text: str, *, can_mark: bool
) -> None:
    with (project / ".git/config").open("a") as file:
        file.write(text)
    assert can_mark_hidden_files(project / ".git") is can_mark


async def test_a_full_disk_does_not_damage_the_record_of_marks(project: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    killed = HiddenFileMarks(records)
    assert await killed.acquire({project / ".git": [project / ".env.example"]}) == ()
    for lock in killed._locks.values():
        os.close(lock)
    marks = HiddenFileMarks(records)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    (record,) = records.iterdir()
    # The system writes only a part of the new record, as on a full disk.
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (record.stat().st_size + 2, limits[1]))
    try:
        failed = await marks.acquire({project / ".git": [project / "secrets"]})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert failed == (project / ".git",)
    assert await marks.release() == ()
    assert list_marks(project) == []


@pytest.mark.slow
async def test_a_locked_index_makes_the_repository_read_only(project: Path) -> None:
    (project / ".git/index.lock").touch()
    (output,), _ = await run_commands(project, "rm .git/index.lock; echo x >> a; git commit -qam x")
    assert "Commands cannot change the git repository" in output
    assert "Git now has other versions" not in output
    assert run_git(project, "log", "--format=%s", "-1").strip() == "start"


@pytest.mark.parametrize("target", ["link", "pipe", "text"])
async def test_a_damaged_index_harms_nothing(project: Path, target: str) -> None:
    damage = {"link": "ln -s ../a .git/index", "pipe": "mkfifo .git/index", "text": "echo x > .git/index"}
    await run_commands(project, f"rm .git/index; {damage[target]}", "true")
    assert (project / "a").read_text() == "a\n"
    (project / ".git/index").unlink()
    run_git(project, "reset", "-q")
    assert run_git(project, "status", "--short") == ""


async def test_links_in_the_repository_do_not_lead_to_other_files(project: Path) -> None:
    (project.parent / "private").mkdir()
    (project.parent / "private/exclude").write_text("PRIVATE\n")
    settings = {**DENIED, "sandbox": {"filesystem": {"denyRead": [str(project.parent / "private")]}}}
    outputs, _ = await run_commands(
        project,
        "rm -rf .git/info; ln -s ../../private .git/info",
        "cat .git/info/* /dev/null",
        settings=settings,
    )
    assert "PRIVATE" not in "".join(outputs)


@pytest.mark.parametrize("kept", ["linked", "subdirectory"])
async def test_worktrees_and_subdirectories_work_too(project: Path, kept: str) -> None:
    entries = list_hidden_entries(project)
    settings: dict[str, Any] = DENIED
    if kept == "linked":
        run_git(project, "worktree", "add", "-q", str(project.parent / "tree"), "-b", "tree")
        project = place = project.parent / "tree"
    else:
        place = project / "src"
        settings = {"permissions": {"deny": [f"Read(/{project}/.env.*)", f"Read(/{project}/secrets/**)"]}}
    (output,), _ = await run_commands(
        place, "echo x > new; git add -A; git commit -qam x && echo done", settings=settings
    )
    assert "done" in output.splitlines(), output
    assert list_hidden_entries(project) == entries
    assert run_git(project, "status", "--short") == ""
    assert list_marks(project) == []
