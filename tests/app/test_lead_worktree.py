"""EnterWorktree and ExitWorktree: the lead works in a worktree and returns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns, script_agents
from session_helpers import list_lead_results, open_session


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "a.txt").write_text("a\n")
    for arguments in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    return root


@pytest.mark.spec("CMP-112")
async def test_the_lead_works_in_a_new_worktree_and_returns(repository: Path) -> None:
    worktree = repository / ".claude" / "worktrees" / "try"
    calls = [
        call_tool("EnterWorktree", name="try"),
        call_tool("Write", file_path="b.txt", content="b"),
        call_tool("Bash", "pwd1", command="pwd"),
        call_tool("ExitWorktree", "x1", action="remove"),
        call_tool("ExitWorktree", "x2", action="remove", discard_changes=True),
        call_tool("Bash", "pwd2", command="pwd"),
    ]
    async with open_session(repository, script_agents(lead=[*calls, "done"])) as session:
        await run_all_turns(session)
    entered, written, inside, refused, removed, outside = list_lead_results(session)
    assert f"You now work in {worktree} on the branch worktree-try." in entered
    assert str(worktree) in written
    assert inside.strip() == str(worktree)
    assert "1 changed file and 0 commits" in refused
    assert "was removed" in removed
    assert outside.strip() == str(repository)
    assert not worktree.exists()
    branches = subprocess.run(["git", "branch"], cwd=repository, capture_output=True, text=True, check=True)
    assert "worktree-try" not in branches.stdout


@pytest.mark.spec("CMP-112")
async def test_a_refusal_to_enter_a_worktree_says_how_to_enter_it(repository: Path, tmp_path: Path) -> None:
    existing, outside = repository / ".claude/worktrees/try", tmp_path / "outside"
    for path in (existing, outside):
        subprocess.run(["git", "worktree", "add", "-q", str(path)], cwd=repository, check=True)
    calls = [
        call_tool("EnterWorktree", "e1", name="try"),
        call_tool("EnterWorktree", "e2", path=str(outside)),
    ]
    async with open_session(repository, script_agents(lead=[*calls, "done"])) as session:
        await run_all_turns(session)
    by_name, by_path = list_lead_results(session)
    assert by_name.endswith(f"Enter it by its path: {existing}")
    assert by_path.endswith(f"The user can add it: shoal --add-dir {outside}")


@pytest.mark.spec("CMP-112")
async def test_entering_another_worktree_and_discarding_work_are_asked(repository: Path) -> None:
    other = repository / "other"
    subprocess.run(["git", "worktree", "add", "-q", str(other)], cwd=repository, check=True)
    calls = [
        call_tool("EnterWorktree", "e1", path=str(other)),
        call_tool("EnterWorktree", "e2", name="try"),
        call_tool("ExitWorktree", "x1", action="remove", discard_changes=True),
        call_tool("ExitWorktree", "x2", action="keep"),
    ]
    model = script_agents(lead=[*calls, "done"])
    async with open_session(repository, model, skip_permissions=False) as session:
        await run_all_turns(session)
    by_path, entered, discarded, kept = list_lead_results(session)
    assert "was not run" in by_path
    assert "You now work in" in entered
    assert "was not run" in discarded
    assert "is kept" in kept


@pytest.mark.spec("CMP-112")
async def test_outside_a_repository_there_is_no_such_tool(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_agents(lead=["done"])) as session:
        assert "EnterWorktree" not in session.agent.tools


@pytest.mark.spec("CMP-112", "CMP-020")
async def test_rules_about_the_project_apply_in_an_entered_worktree(repository: Path) -> None:
    (repository / ".env").write_text("KEY=secret\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (("add", "."), ("commit", "-qm", "y")):
        subprocess.run([*git, *arguments], cwd=repository, check=True)
    (repository / ".claude").mkdir()
    (repository / ".claude/settings.json").write_text(
        '{"permissions": {"deny": ["Read(./.env)", "Edit(/a.txt)"]}}'
    )
    calls = [
        call_tool("EnterWorktree", name="try"),
        call_tool("Read", "r", file_path=".env"),
        call_tool("Bash", "b", command="cat .env"),
        call_tool("Bash", "s", command="cat *; cat .[e]nv; grep -r KEY ."),
        call_tool("Edit", "e", file_path="a.txt", old_string="a", new_string="b"),
    ]
    async with open_session(repository, script_agents(lead=[*calls, "done"])) as session:
        await run_all_turns(session)
    assert (repository / ".claude/worktrees/try/.env").exists()
    results = list_lead_results(session)
    assert "secret" not in str(results)
    assert (repository / ".claude/worktrees/try/a.txt").read_text() == "a\n"


@pytest.mark.spec("CMP-112")
@pytest.mark.needs("bwrap")
async def test_sandboxed_commands_write_in_an_entered_worktree_only(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The project must not be below the directory for temporary files, which commands may write.
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    worktrees = repository / ".claude/worktrees"
    other = worktrees / "other"
    subprocess.run(["git", "worktree", "add", "-q", str(other)], cwd=repository, check=True)
    commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm work && git log --format=%s -1"
    calls = [
        call_tool("EnterWorktree", name="try"),
        call_tool("Bash", "b", command=f"echo b > b.txt && {commit}"),
        call_tool("Bash", "c", command="mkdir -p d && cd d && echo c > c.txt; echo x > ../../other/x"),
        call_tool("Bash", "d", command="echo x > .git; echo x > ../../settings.json"),
        call_tool("ExitWorktree", "x", action="keep"),
        call_tool("Bash", "e", command="echo x > .claude/worktrees/try/late; echo m > main.txt"),
    ]
    async with open_session(
        repository, script_agents(lead=[*calls, "done"]), shoal_settings={"sandbox": {"enabled": True}}
    ) as session:
        await run_all_turns(session)
    results = list_lead_results(session)
    assert results[1].strip() == "work"
    assert (worktrees / "try/d/c.txt").exists()
    assert (repository / "main.txt").exists()
    refused = (other / "x", repository / ".claude/settings.json", worktrees / "try/late")
    assert [path.exists() for path in refused] == [False] * 3
    assert (worktrees / "try/.git").read_text().startswith("gitdir:")
