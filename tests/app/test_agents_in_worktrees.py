"""Agents that work in a git worktree of their own: real git, a real sandbox, a scripted mind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from shoal.app.quarters.worktrees import worktrees_of
from shoal.core.clock import SystemClock
from shoal.core.events import AgentEnded, AgentStarted, WorkKept
from shoal.core.messages import ToolResult, result_text
from shoal.core.requests import Request

pytestmark = pytest.mark.needs("git", "bwrap")


def git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "user.email", "a@example.org")
    git(place, "config", "user.name", "A")
    (place / "code.txt").write_text("one\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    return place


def opened(project: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=project, model=model, skip_permissions=True, **options)


def outcomes(request: Request) -> str:
    blocks = [block for message in request.messages for block in message.content]
    return "\n--\n".join(result_text(block) for block in blocks if isinstance(block, ToolResult))


@pytest.mark.spec("ISO-01", "ISO-02", "USR-06", "USR-24")
async def test_work_in_a_worktree_is_kept_apart_and_told_and_can_be_merged(project: Path) -> None:
    model = cast(
        lead=[agent("You fix it", "c1", isolation="worktree"), "end"],
        You=[
            use("Write", "w1", file_path="new.txt", content="new\n"),
            use("Bash", "b1", command="git add -A && git commit -qm 'Add new' && pwd"),
            "committed",
        ],
    )
    async with opened(project, model) as session:
        await all_turns(session)
        text = outcomes(Request(system="", messages=session.agent.conversation.messages))
    (started,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    (ended,) = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    (kept,) = [event.work for event in recorded(session) if isinstance(event, WorkKept)]
    assert Path(started.cwd).name == f"agent-{started.agent[:8]}"
    assert not (project / "new.txt").exists()
    assert git(project, "log", "--format=%s") == "first"
    assert kept.commits == 1
    assert git(project, "log", "-1", "--format=%s", kept.branch) == "Add new"
    assert [commit.partition(" ")[2] for commit in ended.evidence.commits] == ["Add new"]
    worktrees = worktrees_of(
        project, home=Path(os.environ["SHOAL_HOME"]), environ=os.environ, clock=SystemClock()
    )
    (standing,) = await worktrees.list()
    merged = await worktrees.merge(standing.name)
    assert (merged.into, merged.commits) == ("main", 1)
    assert (project / "new.txt").read_text() == "new\n"
    assert f"worktreePath: {kept.path}" in text
    assert f"worktreeBranch: {kept.branch}" in text


@pytest.mark.spec("AGT-09")
@pytest.mark.parametrize("changes", [True, False])
async def test_a_one_shot_agent_tells_of_its_worktree_where_it_is_kept(project: Path, changes: bool) -> None:
    agents = {"once": {"description": "d", "prompt": "p", "oneShot": True}}
    write = [use("Write", "w1", file_path="new.txt", content="new\n")] if changes else []
    model = cast(
        lead=[agent("You do it", subagent_type="once", isolation="worktree"), "end"], You=[*write, "done"]
    )
    async with opened(project, model, agents=agents) as session:
        await all_turns(session)
    text = outcomes(Request(system="", messages=session.agent.conversation.messages))
    assert text.startswith("done\n\nagentId: ") if changes else text == "done"
    assert ("worktreePath: " in text) is changes


@pytest.mark.spec("ISO-02")
async def test_a_worktree_without_changes_goes_with_its_branch(project: Path) -> None:
    model = cast(
        lead=[agent("You look", "c1", isolation="worktree"), "end"],
        You=[use("Bash", "b", command="ls"), "seen"],
    )
    async with opened(project, model) as session:
        await all_turns(session)
    (started,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert not Path(started.cwd).exists()
    assert git(project, "worktree", "list").count("\n") == 0
    assert git(project, "branch", "--format=%(refname:short)") == "main"
    assert not [event for event in recorded(session) if isinstance(event, WorkKept)]


@pytest.mark.spec("USR-06", "ISO-01")
async def test_no_tool_of_the_agent_reaches_the_main_checkout(project: Path) -> None:
    model = cast(
        lead=[agent("You try", "c1", isolation="worktree"), "end"],
        You=[
            use("Write", "1", file_path=str(project / "code.txt"), content="gone"),
            use("Read", "2", file_path=str(project / "code.txt")),
            use("Bash", "3", command=f"echo gone > {project}/code.txt"),
            use("Bash", "4", command=f"git -C {project} commit --allow-empty -qm stolen"),
            use("Bash", "5", command="git update-ref refs/heads/main HEAD~0 && git branch -f main HEAD"),
            "tried",
        ],
    )
    async with opened(project, model) as session:
        await all_turns(session)
    assert (project / "code.txt").read_text() == "one\n"
    assert git(project, "log", "--format=%s") == "first"
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.spec("CTL-02", "ISO-02")
async def test_a_resumed_agent_goes_on_in_the_worktree_it_left(project: Path) -> None:
    model = cast(
        lead=[
            agent("You begin", "c1", isolation="worktree", name="builder"),
            use("SendMessage", "m1", to="builder", message="go on", summary="go on"),
            "wait",
            "end",
        ],
        You=[
            use("Write", "w1", file_path="half.txt", content="half\n"),
            "half done",
            use("Bash", "b1", command="cat half.txt"),
            outcomes,
        ],
    )
    async with opened(project, model) as session:
        await all_turns(session)
    first, second = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    starts = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert starts[0].cwd == starts[1].cwd
    assert second.text.endswith("half")
    assert first.agent == second.agent


async def test_where_no_worktree_can_be_the_agent_is_not_started(tmp_path: Path) -> None:
    model = cast(lead=[agent("You try", "c1", isolation="worktree"), outcomes], You=["never"])
    async with opened(tmp_path, model) as session:
        text = await all_turns(session)
    assert "is not in a git repository" in text
    assert not [event for event in recorded(session) if isinstance(event, AgentStarted)]


@pytest.mark.spec("RUN-09", "CTL-06")
async def test_an_agent_stopped_by_several_at_once_still_leaves_nothing_behind(project: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("You wait", "c1", isolation="worktree", run_in_background=True), "end"],
        You=[use("Gate"), "never"],
    )
    async with opened(project, model, tools=[gate.tool]) as session:
        async for _ in session.run("lead"):
            pass
        await gate.wait()
        crew = session.parts.crew
        await asyncio.gather(*(crew.stop_all("enough") for _ in range(5)))
        assert not crew.working
    (ended,) = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    assert (ended.status, ended.detail) == ("killed", "enough")
    assert git(project, "worktree", "list").count("\n") == 0


@pytest.mark.spec("ISO-02")
async def test_a_lead_killed_at_any_step_of_an_agent_s_worktree_leaves_none_behind_when_it_goes_on(
    tmp_path: Path,
) -> None:
    program = Path(__file__).with_name("agent_tree_crashes.py")
    ran = await asyncio.create_subprocess_exec(
        sys.executable, str(program), str(tmp_path), "2", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(120):
        out, err = await ran.communicate()
    assert (ran.returncode, err.decode()) == (0, "")
    deaths = dict(line.split() for line in out.decode().splitlines())
    assert all(int(count) > 5 for count in deaths.values()), deaths
    assert set(deaths) == {"making", "giving_back"}
