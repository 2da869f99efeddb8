"""Hooks that make the places that agents work in, and hear that one is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from crew_rig import texts
from git_rig import git
from hook_rig import Log, settings
from shoal.core.events import AgentStarted, WorkKept

pytestmark = pytest.mark.needs("git", "bwrap")
SPAWN = agent("child works", "c1", isolation="worktree")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """No repository: there is nothing that git could make a worktree of."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "code.txt").write_text("one\n")
    return place


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "told.jsonl")


@pytest.mark.spec("HOK-01", "ISO-02")
async def test_a_hook_makes_the_place_and_what_it_made_is_always_kept(
    project: Path, tmp_path: Path, log: Log
) -> None:
    copy = tmp_path / "copies" / "one"
    makes = log.keeping(
        f"mkdir -p '{copy}' && cp '{project}/code.txt' '{copy}' && echo busy && echo '{copy}'"
    )
    model = cast(
        lead=[SPAWN, "end"],
        You=[
            use("Read", "r1", file_path="code.txt"),
            use("Write", "w1", file_path="code.txt", content="two\n"),
            use("Write", "w2", file_path=str(project / "code.txt"), content="three\n"),
            use("Bash", "b1", command=f"echo four > made; echo five > {project}/code.txt; cat made"),
            "done",
        ],
    )
    given = settings({"WorktreeCreate": makes, "WorktreeRemove": log.keeping()})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await all_turns(session)
        (started,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
        (kept,) = [event.work for event in recorded(session) if isinstance(event, WorkKept)]
        assert f"worktreePath: {copy}" in texts(session)[-1]
    (told,) = log.lines()
    assert told["name"] == f"agent-{started.agent[:8]}"
    assert (started.cwd, kept.path) == (str(copy), str(copy))
    assert (copy / "code.txt").read_text() == "two\n"
    assert (copy / "made").read_text() == "four\n"
    assert (project / "code.txt").read_text() == "one\n"


@pytest.mark.spec("HOK-01")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "named no directory"),
        ("exit 1", "named no directory"),
        ("echo disk full >&2; exit 2", "disk full"),
        ("echo relative", "no directory"),
        ("echo /nowhere/at/all", "no directory"),
        ("pwd", "where the lead works"),
        ("dirname $PWD", "where the lead works"),
    ],
)
async def test_a_hook_that_gives_no_place_lets_no_agent_start(project: Path, script: str, why: str) -> None:
    model = cast(lead=[SPAWN, "end"], You=["never"])
    given = settings({"WorktreeCreate": script})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await all_turns(session)
        assert why in texts(session)[-1]
        assert not any(isinstance(event, AgentStarted) for event in recorded(session))


@pytest.mark.spec("HOK-01")
async def test_hooks_hear_that_a_worktree_is_gone(project: Path, log: Log) -> None:
    git(project, "init", "-q", "-b", "main")
    git(
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
    model = cast(lead=[SPAWN, "end"], You=["nothing to do"])
    given = settings({"WorktreeRemove": log.keeping()})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await all_turns(session)
    (told,) = log.lines()
    assert told["name"].startswith("agent-")
    assert Path(told["worktree_path"]).name == told["name"]
    assert not Path(told["worktree_path"]).exists()


async def test_one_that_goes_on_does_so_in_the_place_it_had(project: Path, tmp_path: Path, log: Log) -> None:
    copy = tmp_path / "copy"
    again = use("SendMessage", "m1", to="bob", message="go on", summary="go on")
    model = cast(
        lead=[agent("child works", "c1", isolation="worktree", name="bob"), again, "waiting", "end"],
        You=["one", use("Bash", "b1", command="pwd > where"), "two"],
    )
    given = settings({"WorktreeCreate": log.keeping(f"mkdir '{copy}'; echo '{copy}'")})
    async with shoal.open(cwd=project, model=model, skip_permissions=True, settings=given) as session:
        await all_turns(session)
    assert len(log.lines()) == 1
    assert (copy / "where").read_text() == f"{copy}\n"
