"""Agents in git worktrees, with real git, a real sandbox and a scripted model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from app_session_helpers import join_results

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from git_repository import run_git
from session_helpers import open_session
from shoal.app.isolation.repository_worktrees import open_worktrees
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, AgentStarted, WorktreeWorkRetained

pytestmark = pytest.mark.needs("git", "bwrap")


@pytest.mark.spec("ISO-01", "ISO-02", "USR-06", "USR-24")
async def test_work_in_a_worktree_is_separate_reported_and_mergeable(git_project: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("You fix it", "c1", isolation="worktree"), "end"],
        You=[
            call_tool("Write", "w1", file_path="new.txt", content="new\n"),
            call_tool("Bash", "b1", command="git add -A && git commit -qm 'Add new' && pwd"),
            "committed",
        ],
    )
    async with open_session(git_project, model) as session:
        await run_all_turns(session)
        text = join_results(ModelRequest(system="", messages=session.agent.conversation.messages))
    (started,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    (ended,) = [event.completion for event in read_events(session) if isinstance(event, AgentEnded)]
    (retained,) = [event.work for event in read_events(session) if isinstance(event, WorktreeWorkRetained)]
    assert Path(started.cwd).name == f"agent-{started.agent[:8]}"
    assert not (git_project / "new.txt").exists()
    assert run_git(git_project, "log", "--format=%s") == "first"
    assert retained.commits == 1
    assert run_git(git_project, "log", "-1", "--format=%s", retained.branch) == "Add new"
    assert [commit.partition(" ")[2] for commit in ended.evidence.commits] == ["Add new"]
    worktrees = open_worktrees(
        git_project, home=Path(os.environ["SHOAL_HOME"]), environ=os.environ, clock=SystemClock()
    )
    (standing,) = await worktrees.list_worktrees()
    merged = await worktrees.merge_worktree(standing.name)
    assert (merged.into, merged.commits) == ("main", 1)
    assert (git_project / "new.txt").read_text() == "new\n"
    assert f"worktreePath: {retained.path}" in text
    assert f"worktreeBranch: {retained.branch}" in text


@pytest.mark.spec("AGT-09")
@pytest.mark.parametrize("changes", [True, False])
async def test_a_one_shot_agent_reports_its_worktree_if_it_is_retained(
    git_project: Path, changes: bool
) -> None:
    agents = {"once": {"description": "d", "prompt": "p", "oneShot": True}}
    write = [call_tool("Write", "w1", file_path="new.txt", content="new\n")] if changes else []
    model = script_agents(
        lead=[spawn_agent("You do it", subagent_type="once", isolation="worktree"), "end"],
        You=[*write, "done"],
    )
    async with open_session(git_project, model, agents=agents) as session:
        await run_all_turns(session)
    text = join_results(ModelRequest(system="", messages=session.agent.conversation.messages))
    assert text.startswith("done\n\nagentId: ") if changes else text == "done"
    assert ("worktreePath: " in text) is changes


@pytest.mark.spec("ISO-02")
async def test_a_worktree_without_changes_is_removed_with_its_branch(git_project: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("You look", "c1", isolation="worktree"), "end"],
        You=[call_tool("Bash", "b", command="ls"), "seen"],
    )
    async with open_session(git_project, model) as session:
        await run_all_turns(session)
    (started,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert not Path(started.cwd).exists()
    assert run_git(git_project, "worktree", "list").count("\n") == 0
    assert run_git(git_project, "branch", "--format=%(refname:short)") == "main"
    assert not [event for event in read_events(session) if isinstance(event, WorktreeWorkRetained)]


@pytest.mark.spec("USR-06", "ISO-01")
async def test_no_tool_of_a_worktree_agent_changes_the_main_checkout(git_project: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("You try", "c1", isolation="worktree"), "end"],
        You=[
            call_tool("Write", "1", file_path=str(git_project / "code.txt"), content="gone"),
            call_tool("Read", "2", file_path=str(git_project / "code.txt")),
            call_tool("Bash", "3", command=f"echo gone > {git_project}/code.txt"),
            call_tool("Bash", "4", command=f"git -C {git_project} commit --allow-empty -qm stolen"),
            call_tool(
                "Bash", "5", command="git update-ref refs/heads/main HEAD~0 && git branch -f main HEAD"
            ),
            "tried",
        ],
    )
    async with open_session(git_project, model) as session:
        await run_all_turns(session)
    assert (git_project / "code.txt").read_text() == "one\n"
    assert run_git(git_project, "log", "--format=%s") == "first"
    assert run_git(git_project, "status", "--porcelain") == ""


@pytest.mark.spec("CTL-02", "ISO-02")
async def test_a_resumed_agent_continues_in_its_worktree(git_project: Path) -> None:
    model = script_agents(
        lead=[
            spawn_agent("You begin", "c1", isolation="worktree", name="builder"),
            call_tool("SendMessage", "m1", to="builder", message="go on", summary="go on"),
            "wait",
            "end",
        ],
        You=[
            call_tool("Write", "w1", file_path="half.txt", content="half\n"),
            "half done",
            call_tool("Bash", "b1", command="cat half.txt"),
            join_results,
        ],
    )
    async with open_session(git_project, model) as session:
        await run_all_turns(session)
    first, second = [event.completion for event in read_events(session) if isinstance(event, AgentEnded)]
    starts = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert starts[0].cwd == starts[1].cwd
    assert second.text.endswith("half")
    assert first.agent == second.agent


async def test_an_agent_is_not_started_if_its_worktree_cannot_be_created(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("You try", "c1", isolation="worktree"), join_results], You=["never"]
    )
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session)
    assert "is not in a git repository" in text
    assert not [event for event in read_events(session) if isinstance(event, AgentStarted)]


@pytest.mark.spec("RUN-09", "CTL-06")
async def test_an_agent_stopped_concurrently_leaves_nothing_behind(git_project: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("You wait", "c1", isolation="worktree", run_in_background=True), "end"],
        You=[call_tool("Gate"), "never"],
    )
    async with open_session(git_project, model, tools=[gate.tool]) as session:
        async for _ in session.run("lead"):
            pass
        await gate.wait_until_reached()
        crew = session.supervisor
        await asyncio.gather(*(crew.stop_all_agents("enough") for _ in range(5)))
        assert not crew.has_running_agents
    (ended,) = [event.completion for event in read_events(session) if isinstance(event, AgentEnded)]
    assert (ended.status, ended.detail) == ("killed", "enough")
    assert run_git(git_project, "worktree", "list").count("\n") == 0


@pytest.mark.slow
@pytest.mark.spec("ISO-02")
@pytest.mark.parametrize(("every", "least"), [(8, 1), pytest.param(1, 10, marks=pytest.mark.exhaustive)])
async def test_a_lead_killed_at_any_worktree_step_leaves_no_worktree_after_resuming(
    tmp_path: Path, every: int, least: int
) -> None:
    program = Path(__file__).with_name("agent_tree_crashes.py")
    ran = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        str(tmp_path),
        str(every),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(600):
        out, err = await ran.communicate()
    assert (ran.returncode, err.decode()) == (0, "")
    deaths = dict(line.split() for line in out.decode().splitlines())
    assert all(int(count) > least for count in deaths.values()), deaths
    assert set(deaths) == {"die_while_creating", "die_while_returning"}
