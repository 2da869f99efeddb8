"""A teammate that works in a git worktree of its own: real git, a real sandbox, a scripted mind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cast import all_turns, recorded, use
from shoal.core.events import WorkKept
from shoal.core.messages import ToolUse
from shoal.core.requests import Request
from troupe import approve_shutdown, config, last_words, member, opened, tell, troupe

pytestmark = pytest.mark.needs("git", "bwrap")


def git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.spec("ISO-02", "TEAM-02")
async def test_a_member_s_work_in_a_worktree_is_kept_and_the_lead_is_told_where(tmp_path: Path) -> None:
    places: list[str] = []

    def write(_: Request) -> ToolUse:
        places.append(config("crew")["members"][1]["cwd"])
        return use("Write", file_path="new.txt", content="new\n")

    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.email", "a@example.org")
    git(project, "config", "user.name", "A")
    (project / "code.txt").write_text("one\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            member("ann", isolation="worktree"),
            "wait",
            tell("ann", {"type": "shutdown_request"}),
            "asked",
            last_words,
        ],
        ann=[write, "written", approve_shutdown],
    )
    async with opened(project, model) as session:
        await all_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
    (kept,) = [event.work for event in recorded(session) if isinstance(event, WorkKept)]
    assert places == [kept.path]
    assert not (project / "new.txt").exists()
    assert (Path(kept.path) / "new.txt").read_text() == "new\n"
    assert f"worktreePath: {kept.path}" in told
    assert kept.branch in told
