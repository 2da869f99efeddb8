"""Members on one machine of a real cluster, each of which changes only its own checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import (
    CREATE,
    assert_no_member_process_is_left,
    open_cluster_session,
    report_done,
    run_git,
    run_turns,
)

from agent_scripts import call_tool
from ray_machines import RayMachines
from server_scripts import join_conversation, list_requests_of, run_provider
from team_scripts import spawn_member

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg", "bwrap")]
_IDENTITY = "-c user.name=a -c user.email=a@localhost"


@pytest.mark.spec("USR-06")
@pytest.mark.parametrize("members_per_process", [1, 10])
async def test_a_member_without_permission_questions_changes_only_its_own_checkout(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    members_per_process: int,
) -> None:
    project, granted = tmp_path / "project", tmp_path.parent / f"{tmp_path.name}-granted"
    project.mkdir()
    granted.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    found: dict[str, Any] = {}

    def find_places() -> tuple[Path, Path]:
        """Return the checkout of another member on the machine that runs Ben, and its repository."""
        (own,) = (at for each in machines.nodes for at in each.home.glob("shoal/cluster/checkouts/*-ben"))
        (repository,) = own.parent.parent.glob("repositories/*.git")
        return next(at for at in own.parent.iterdir() if at.is_dir() and at != own), repository

    def write_with_tools(_: Any) -> Any:
        found["places"] = places = find_places()
        return [call_tool("Write", f"w-{at.name}", file_path=f"{at}/made", content="x") for at in places]

    def write_with_commands(_: Any) -> Any:
        other, repository = found["places"]
        commands = (
            f"echo x > {other}/made || echo refused-1",
            f"git {_IDENTITY} -C {other} commit -q --allow-empty -m x || echo refused-2",
            f"echo x > {repository}/made || echo refused-3",
            f"git push -q {repository} HEAD:refs/heads/mine || echo refused-4",
            f"echo x > {granted}/made && echo granted-5",
            f"echo x >> notes.txt && git {_IDENTITY} commit -qam mine && git log --format=%s && echo done-6",
        )
        return call_tool("Bash", "b", command="\n".join(commands))

    def look_and_report(_: Any) -> Any:
        other, repository = found["places"]
        found["log"] = run_git(other, "log", "--format=%s")
        found["made"] = [at for at in found["places"] if (at / "made").exists()]
        found["heads"] = run_git(repository, "for-each-ref", "refs/heads")
        return report_done("ben")

    # Members without resources are spread over the processes of both machines.
    placed = {"resources": {"labels": {"n": "1"}}} if members_per_process == 1 else {}
    names = ("ann", "ben") if members_per_process == 1 else ("ann", "cat", "ben")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, *(spawn_member(name, **placed) for name in names), "They work.", "Heard."],
        ann=["I am ready."],
        cat=["I am ready."],
        ben=[write_with_tools, write_with_commands, look_and_report, "Done."],
    ) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git", members_per_process=members_per_process)
        async with open_cluster_session(
            project, machines, cluster_database, settings=settings, add_dirs=[granted]
        ) as session:
            await run_turns(session)
        told = join_conversation(list_requests_of(server, "ben")[-1])
    assert told.count("is outside your checkout") == 2, told
    for text in ("refused-1", "refused-2", "refused-3", "refused-4", "granted-5", "mine\nfirst\ndone-6"):
        assert text in told, told
    assert (found["log"], found["made"], found["heads"]) == ("first", [], "")
    assert (granted / "made").read_text() == "x\n"
    ref = f"refs/shoal/cluster/{session.id}/ben"
    assert run_git(project, "log", "--format=%s", ref).split("\n") == ["mine", "first"]
    await assert_no_member_process_is_left(machines)
