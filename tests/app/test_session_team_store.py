"""The team store as a session and the user interfaces open it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, script_agents, spawn_agent
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import IdGenerator, slugify_project_path
from shoal.core.names import LEAD_NAME, parse_agent_name, parse_team_name
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import TeammateTerminatedNotice
from shoal.core.teams.roster import NewMember, TeamRoster
from shoal.models.scripted_model import ScriptedModel
from team_scripts import get_home


def make_new_member(name: str, prompt: str = "Take a task.") -> NewMember:
    return NewMember(name=parse_agent_name(name), agent_type="worker", model="m", cwd="/p", prompt=prompt)


@pytest.fixture
async def team_store():
    opened = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator(1))
    yield opened
    await opened.aclose()


@pytest.fixture
async def team(team_store: TeamStore) -> TeamRoster:
    lead = make_new_member(LEAD_NAME, "")
    return await team_store.rosters.create_team(
        parse_team_name("crew"), lead=lead, session="s", description=None
    )


def read_inbox(name: str) -> Any:
    path = get_home() / "teams" / "crew" / "inboxes" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.spec("BOX-02")
async def test_the_prompt_of_a_member_is_its_first_mail(team_store: TeamStore, team: TeamRoster) -> None:
    member = await team_store.add_member(team.name, make_new_member("anna", "Paint the hull."))
    (first,) = read_inbox(member.name)
    assert (first["from"], first["text"], first["read"]) == ("team-lead", "Paint the hull.", False)
    assert not {"summary", "color"} & first.keys()


@pytest.mark.spec("BOX-02")
async def test_the_leads_inbox_is_created_by_the_first_mail_to_it(
    team_store: TeamStore, team: TeamRoster
) -> None:
    assert read_inbox(LEAD_NAME) is None
    mail = MailMessage(
        id="1", sender=parse_agent_name("anna"), text="done", timestamp="2026-01-01T00:00:00.000Z"
    )
    await team_store.post_mail(team.name, LEAD_NAME, mail)
    assert [entry["text"] for entry in read_inbox(LEAD_NAME)] == ["done"]


@pytest.mark.spec("MSG-09")
async def test_a_members_end_reaches_the_lead_as_a_turn_and_not_as_mail(
    tmp_path: Path, team_store: TeamStore, team: TeamRoster
) -> None:
    ended = TeammateTerminatedNotice(task="7", kind="in_process_teammate", status="completed")
    received: list[str] = []

    def choose_reply(request: ModelRequest) -> Any:
        received.append(request.messages[-1].text)
        if len(received) == 1:
            session.steer(ended.text)
            return ToolUseBlock(id="c", name="TaskList", input={})
        return "noted"

    async with shoal.open(
        cwd=tmp_path, name=LEAD_NAME, team=team.name, model=ScriptedModel(choose_reply)
    ) as session:
        async for _ in session.run("wait for the others"):
            pass
    assert "7" in received[1]
    assert "in_process_teammate" in received[1]
    assert "completed" in received[1]
    assert read_inbox(LEAD_NAME) is None


@pytest.mark.spec("HOM-06")
async def test_foreign_files_in_the_home_are_left_unchanged(tmp_path: Path, team_store: TeamStore) -> None:
    foreign = ["session-env/a", "history.jsonl", "stats-cache.json", "hooks/x.sh", "plugins/p/plugin.json",
               "todos/1.json", "output-styles/s.md", "cache/c", "file-history/f", "teams/theirs/config.json",
               "projects/-elsewhere/0.jsonl", "tasks/theirs/1.json", "tasks/crew/1.json", "debug/0.txt",
               "plans/a-b-c.md", "shell-snapshots/snapshot-zsh-1-0123abcd.sh"]  # fmt: skip
    for name in foreign:
        (get_home() / name).parent.mkdir(parents=True, exist_ok=True)
        (get_home() / name).write_text(f"{name}, not ours")

    def describe_foreign_files() -> dict[str, tuple[str, int]]:
        paths = (get_home() / name for name in foreign)
        return {str(p): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in paths}

    before = describe_foreign_files()
    lead = make_new_member(LEAD_NAME, "")
    crew = await team_store.rosters.create_team(
        parse_team_name("crew"), lead=lead, session="s", description=None
    )
    await team_store.add_member(crew.name, make_new_member("anna"))
    calls = [
        ToolUseBlock(id="1", name="TaskCreate", input={"subject": "a", "description": "b"}),
        ToolUseBlock(id="2", name="Write", input={"file_path": "x.txt", "content": "x"}),
        ToolUseBlock(id="3", name="Bash", input={"command": "true"}),
    ]
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([calls, "done"]), skip_permissions=True, debug=True
    ) as session:
        async for _ in session.run("work"):
            pass
        await session.undo()
    await team_store.rosters.remove_member(crew.name, parse_agent_name("anna"))
    await team_store.rosters.delete_team(crew.name)
    assert describe_foreign_files() == before


@pytest.mark.spec("HOM-01", "HOM-02")
async def test_every_stored_file_has_its_documented_place_in_the_home(tmp_path: Path) -> None:
    lead = [
        [
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="a", description="b"),
            call_tool("Bash", command="ls $SHOAL_HOME/shell-snapshots > there.txt"),
            spawn_agent("helper"),
            spawn_agent("ann", name="ann"),
        ],
        "done",
    ]
    model = script_agents(lead=lead, helper=["done"], ann=["done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True, debug=True) as session:
        async for _ in session.run("lead"):
            pass
        stored = {str(path.relative_to(get_home())) for path in get_home().rglob("*") if not path.is_dir()}
    project = f"projects/{slugify_project_path(str(tmp_path))}"
    run = f"shoal/runs/{session.id}"
    places = {"teams/crew/config.json", "teams/crew/inboxes/ann.json", "teams/crew/inboxes/.lock",
              "tasks/crew/1.json",
              "tasks/crew/.lock", f"{project}/{session.id}.jsonl", f"debug/{session.id}.txt", "debug/latest",
              f"{run}/journal.jsonl"}  # fmt: skip
    assert places <= stored
    beside = re.compile(rf"{project}/{session.id}/subagents/agent-[^/]+\.(jsonl|meta\.json)")
    rest = {name for name in stored - places if not beside.fullmatch(name)}
    assert len(stored - places - rest) == 4
    assert {name.split("/")[0] for name in rest} <= {"shoal", "tasks", "shell-snapshots"}
    assert (tmp_path / "there.txt").read_text().startswith("snapshot-")
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]
    assert list(Path(os.environ["HOME"]).iterdir()) == []


@pytest.mark.spec("TRN-04")
@pytest.mark.parametrize("durable", [True, False])
async def test_the_durable_setting_covers_the_whole_store_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    flushed: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.add(os.fstat(fd).st_ino))
    calls = [
        ToolUseBlock(id="1", name="TeamCreate", input={"team_name": "crew"}),
        ToolUseBlock(id="2", name="TaskCreate", input={"subject": "a", "description": "b"}),
    ]
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel([calls[:1], calls[1:], "done"]),
        settings=json.dumps({"shoal": {"durable": durable}}),
    ) as session:
        async for _ in session.run("work"):
            pass
    home = get_home()
    (transcript,) = home.glob("projects/*/*.jsonl")
    (journal,) = home.glob("shoal/runs/*/journal.jsonl")
    directories = [home / "teams" / "crew", home / "tasks" / "crew", transcript.parent, journal.parent]
    assert [each.stat().st_ino in flushed for each in directories] == [durable] * len(directories)
