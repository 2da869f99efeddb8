"""Hooks that create and remove the workspaces of agents."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from git_repository import run_git
from hook_helpers import HookInputLog, make_settings
from session_helpers import list_lead_results
from shoal.core.events import AgentStarted, WorktreeWorkRetained

pytestmark = pytest.mark.needs("git", "bwrap")
SPAWN = spawn_agent("child works", "c1", isolation="worktree")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project without git, so that git cannot make a worktree."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "code.txt").write_text("one\n")
    return place


@pytest.mark.spec("HOK-01", "ISO-02")
async def test_a_hook_creates_the_workspace_and_it_is_always_retained(
    project: Path, tmp_path: Path, hook_log: HookInputLog
) -> None:
    copy = tmp_path / "copies" / "one"
    makes = hook_log.build_logging_command(
        f"mkdir -p '{copy}' && cp '{project}/code.txt' '{copy}' && echo busy && echo '{copy}'"
    )
    model = script_agents(
        lead=[SPAWN, "end"],
        You=[
            call_tool("Read", "r1", file_path="code.txt"),
            call_tool("Write", "w1", file_path="code.txt", content="two\n"),
            call_tool("Write", "w2", file_path=str(project / "code.txt"), content="three\n"),
            call_tool("Bash", "b1", command=f"echo four > made; echo five > {project}/code.txt; cat made"),
            "done",
        ],
    )
    given = make_settings({"WorktreeCreate": makes, "WorktreeRemove": hook_log.build_logging_command()})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await run_all_turns(session)
        (started,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
        (retained,) = [
            event.work for event in read_events(session) if isinstance(event, WorktreeWorkRetained)
        ]
        assert f"worktreePath: {copy}" in list_lead_results(session)[-1]
    (hook_input,) = hook_log.read_inputs()
    assert hook_input["name"] == f"agent-{started.agent[:8]}"
    assert (started.cwd, retained.path) == (str(copy), str(copy))
    assert (copy / "code.txt").read_text() == "two\n"
    assert (copy / "made").read_text() == "four\n"
    assert (project / "code.txt").read_text() == "one\n"


@pytest.mark.spec("HOK-01")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "did not print a directory path"),
        ("exit 1", "did not print a directory path"),
        ("echo disk full >&2; exit 2", "disk full"),
        ("echo relative", "is not a directory"),
        ("echo /nowhere/at/all", "is not a directory"),
        ("pwd", "the lead's working directory"),
        ("dirname $PWD", "the lead's working directory"),
    ],
)
async def test_an_agent_does_not_start_if_its_hook_returns_no_workspace(
    project: Path, script: str, why: str
) -> None:
    model = script_agents(lead=[SPAWN, "end"], You=["never"])
    given = make_settings({"WorktreeCreate": script})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await run_all_turns(session)
        assert why in list_lead_results(session)[-1]
        assert not any(isinstance(event, AgentStarted) for event in read_events(session))


@pytest.mark.spec("HOK-01")
async def test_hooks_run_when_a_worktree_is_removed(project: Path, hook_log: HookInputLog) -> None:
    run_git(project, "init", "-q", "-b", "main")
    run_git(
        project,
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    )
    model = script_agents(lead=[SPAWN, "end"], You=["nothing to do"])
    given = make_settings({"WorktreeRemove": hook_log.build_logging_command()})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await run_all_turns(session)
    (hook_input,) = hook_log.read_inputs()
    assert hook_input["name"].startswith("agent-")
    assert Path(hook_input["worktree_path"]).name == hook_input["name"]
    assert not Path(hook_input["worktree_path"]).exists()


async def test_a_resumed_agent_continues_in_the_workspace_of_its_hook(
    project: Path, tmp_path: Path, hook_log: HookInputLog
) -> None:
    copy = tmp_path / "copy"
    again = call_tool("SendMessage", "m1", to="bob", message="go on", summary="go on")
    model = script_agents(
        lead=[spawn_agent("child works", "c1", isolation="worktree", name="bob"), again, "waiting", "end"],
        You=["one", call_tool("Bash", "b1", command="pwd > where"), "two"],
    )
    given = make_settings(
        {"WorktreeCreate": hook_log.build_logging_command(f"mkdir '{copy}'; echo '{copy}'")}
    )
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await run_all_turns(session)
    assert len(hook_log.read_inputs()) == 1
    assert (copy / "where").read_text() == f"{copy}\n"
