"""Files that a new worktree gets from the checkout, and rules that name a former tool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import list_lead_results, open_session
from shoal.core.events import NoteAdded


def make_repository(root: Path, ignored: str = "vendor") -> Path:
    root.mkdir()
    (root / ".gitignore").write_text(f"*.env\n{ignored}\n")
    (root / ".worktreeinclude").write_text("*.env\nnotes.txt\n")
    (root / "vendor").mkdir()
    (root / "vendor" / "lib.py").write_text("x = 1\n")
    (root / "local.env").write_text("PORT=1\n")
    (root / "secret.env").write_text("hunter2\n")
    settings = {"worktree": {"symlinkDirectories": ["vendor", "absent"], "baseRef": "fresh"}}
    (root / ".claude").mkdir()
    (root / ".claude" / "settings.json").write_text(json.dumps(settings))
    for arguments in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    (root / "notes.txt").write_text("untracked but not ignored\n")
    return root


@pytest.mark.spec("CMP-115")
@pytest.mark.parametrize("ignored", ["vendor", "vendor/"])
async def test_a_worktree_gets_included_files_and_links(tmp_path: Path, ignored: str) -> None:
    root = make_repository(tmp_path / "repository", ignored)
    look = call_tool("Bash", command="ls -A; cat vendor/lib.py local.env")
    model = script_agents(
        lead=[spawn_agent("child", isolation="worktree"), "done"],
        You=[look, lambda request: str(request.messages[-1].content)],
    )
    async with open_session(
        root,
        model,
        disallowed_tools=["Read(secret.env)"],
        shoal_settings={"worktree_guard": "weak"},
    ) as session:
        await run_all_turns(session)
        events = read_events(session)
    sentence = (
        "Files listed in .worktreeinclude are not copied because a rule forbids reading them: secret.env."
    )
    assert [event.text for event in events if isinstance(event, NoteAdded)].count(sentence) == 1
    (result,) = list_lead_results(session)
    assert "x = 1" in result
    assert "PORT=1" in result
    assert "secret.env" not in result
    assert "notes.txt" not in result
    assert not list(tmp_path.glob("home*/worktrees/*/agent-*/"))


@pytest.mark.spec("CMP-115")
async def test_work_in_a_sparse_worktree_deletes_no_file_outside_it(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository")
    for name in ("inside", "outside"):
        (root / name).mkdir()
        (root / name / "file").write_text(name)
    for arguments in (("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "y")):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    model = script_agents(
        lead=[spawn_agent("child", isolation="worktree"), "done"],
        You=[
            call_tool("Bash", command="ls; echo new > inside/new"),
            lambda request: str(request.messages[-1].content),
        ],
    )
    settings = json.dumps({"worktree": {"sparsePaths": ["inside"]}, "shoal": {"worktree_guard": "weak"}})
    async with open_session(root, model, settings=settings) as session:
        await run_all_turns(session)
    assert "outside" not in list_lead_results(session)[0].split("inside")[0]
    (ref,) = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)", "refs/shoal/kept"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    changed = subprocess.run(
        ["git", "diff", "--name-status", "HEAD", ref], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    assert changed.split() == ["A", "inside/new"]


@pytest.mark.spec("CMP-114")
@pytest.mark.parametrize(
    ("rule", "refusal"),
    [
        ("SlashCommand(/deploy:*)", "was not run"),
        ("SlashCommand(/deploy)", "was not run"),
        ("SlashCommand", "There is no tool named 'Skill'"),
    ],
)
async def test_a_rule_about_slash_command_applies_to_skills(tmp_path: Path, rule: str, refusal: str) -> None:
    path = tmp_path / ".claude" / "skills" / "deploy"
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text("---\nname: deploy\ndescription: d\n---\nDo.\n")
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"permissions": {"deny": [rule]}}))
    model = script_agents(lead=[call_tool("Skill", skill="deploy"), "done"])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    assert refusal in list_lead_results(session)[0]
