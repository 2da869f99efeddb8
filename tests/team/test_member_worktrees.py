"""Members in git worktrees, with real git and a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events, run_all_turns
from git_repository import run_git
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import WorktreeWorkRetained
from team_scripts import (
    approve_shutdown,
    get_last_text,
    open_session,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

pytestmark = pytest.mark.needs("git", "bwrap")


@pytest.mark.spec("ISO-02", "TEAM-02")
async def test_the_work_of_a_member_in_a_worktree_is_kept_and_reported_to_the_lead(tmp_path: Path) -> None:
    places: list[str] = []

    def write(_: ModelRequest) -> ToolUseBlock:
        places.append(read_team_config("crew")["members"][1]["cwd"])
        return call_tool("Write", file_path="new.txt", content="new\n")

    project = tmp_path / "project"
    project.mkdir()
    run_git(project, "init", "-q", "-b", "main")
    run_git(project, "config", "user.email", "a@example.org")
    run_git(project, "config", "user.name", "A")
    (project / "code.txt").write_text("one\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "first")
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann", isolation="worktree"),
            "wait",
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            get_last_text,
        ],
        ann=[write, "written", approve_shutdown],
    )
    async with open_session(project, model) as session:
        await run_all_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
    (kept,) = [event.work for event in read_events(session) if isinstance(event, WorktreeWorkRetained)]
    assert places == [kept.path]
    assert not (project / "new.txt").exists()
    assert (Path(kept.path) / "new.txt").read_text() == "new\n"
    assert f"worktreePath: {kept.path}" in told
    assert kept.branch in told
