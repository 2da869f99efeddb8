"""The record between agents as a session and its surfaces open it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, cast, use
from shoal.core.bodies import TeammateTerminated
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids, slug
from shoal.core.mail import Mail
from shoal.core.messages import ToolUse
from shoal.core.names import LEAD_NAME, agent_name, team_name
from shoal.core.requests import Request
from shoal.core.roster import Newcomer, Team
from shoal.models.scripted import ScriptedModel


def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def newcomer(name: str, prompt: str = "Take a task.") -> Newcomer:
    return Newcomer(name=agent_name(name), agent_type="worker", model="m", cwd="/p", prompt=prompt)


@pytest.fixture
async def record():
    opened = shoal.AgentsRecord(home(), clock=SystemClock(), ids=Ids(1))
    yield opened
    await opened.aclose()


@pytest.fixture
async def team(record: shoal.AgentsRecord) -> Team:
    lead = newcomer(LEAD_NAME, "")
    return await record.rosters.create(team_name("crew"), lead=lead, session="s", description=None)


def inbox(name: str) -> Any:
    path = home() / "teams" / "crew" / "inboxes" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.spec("BOX-02")
async def test_a_teammate_finds_its_prompt_as_the_first_message(
    record: shoal.AgentsRecord, team: Team
) -> None:
    member = await record.join(team.name, newcomer("anna", "Paint the hull."))
    (first,) = inbox(member.name)
    assert (first["from"], first["text"], first["read"]) == ("team-lead", "Paint the hull.", False)
    assert not {"summary", "color"} & first.keys()


@pytest.mark.spec("BOX-02")
async def test_the_leads_inbox_is_made_by_the_first_message_to_it(
    record: shoal.AgentsRecord, team: Team
) -> None:
    assert inbox(LEAD_NAME) is None
    mail = Mail(id="1", sender=agent_name("anna"), text="done", timestamp="2026-01-01T00:00:00.000Z")
    await record.post(team.name, LEAD_NAME, mail)
    assert [entry["text"] for entry in inbox(LEAD_NAME)] == ["done"]


@pytest.mark.spec("MSG-09")
async def test_the_end_of_a_teammate_reaches_the_lead_as_a_turn_and_not_through_its_inbox(
    tmp_path: Path, record: shoal.AgentsRecord, team: Team
) -> None:
    ended = TeammateTerminated(task="7", kind="in_process_teammate", status="completed")
    heard: list[str] = []

    def mind(request: Request) -> Any:
        heard.append(request.messages[-1].text)
        if len(heard) == 1:
            session.steer(ended.text)
            return ToolUse(id="c", name="TaskList", input={})
        return "noted"

    async with shoal.open(cwd=tmp_path, name=LEAD_NAME, team=team.name, model=ScriptedModel(mind)) as session:
        async for _ in session.run("wait for the others"):
            pass
    assert "7" in heard[1]
    assert "in_process_teammate" in heard[1]
    assert "completed" in heard[1]
    assert inbox(LEAD_NAME) is None


@pytest.mark.spec("HOM-06")
async def test_what_other_programs_keep_in_the_home_is_left_as_it_is(
    tmp_path: Path, record: shoal.AgentsRecord
) -> None:
    foreign = ["session-env/a", "history.jsonl", "stats-cache.json", "hooks/x.sh", "plugins/p/plugin.json",
               "todos/1.json", "output-styles/s.md", "cache/c", "file-history/f", "teams/theirs/config.json",
               "projects/-elsewhere/0.jsonl", "tasks/theirs/1.json", "tasks/crew/1.json", "debug/0.txt",
               "plans/a-b-c.md", "shell-snapshots/snapshot-zsh-1-0123abcd.sh"]  # fmt: skip
    for name in foreign:
        (home() / name).parent.mkdir(parents=True, exist_ok=True)
        (home() / name).write_text(f"{name}, not ours")

    def seen() -> dict[str, tuple[str, int]]:
        paths = (home() / name for name in foreign)
        return {str(p): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in paths}

    before = seen()
    lead = newcomer(LEAD_NAME, "")
    crew = await record.rosters.create(team_name("crew"), lead=lead, session="s", description=None)
    await record.join(crew.name, newcomer("anna"))
    calls = [
        ToolUse(id="1", name="TaskCreate", input={"subject": "a", "description": "b"}),
        ToolUse(id="2", name="Write", input={"file_path": "x.txt", "content": "x"}),
        ToolUse(id="3", name="Bash", input={"command": "true"}),
    ]
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([calls, "done"]), skip_permissions=True, debug=True
    ) as session:
        async for _ in session.run("work"):
            pass
        await session.undo()
    await record.rosters.leave(crew.name, agent_name("anna"))
    await record.rosters.delete(crew.name)
    assert seen() == before


@pytest.mark.spec("HOM-01", "HOM-02")
async def test_all_that_is_kept_is_at_its_place_in_the_one_home(tmp_path: Path) -> None:
    lead = [
        [
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", subject="a", description="b"),
            use("Bash", command="ls $SHOAL_HOME/shell-snapshots > there.txt"),
            agent("helper"),
            agent("ann", name="ann"),
        ],
        "done",
    ]
    model = cast(lead=lead, helper=["done"], ann=["done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True, debug=True) as session:
        async for _ in session.run("lead"):
            pass
        kept = {str(path.relative_to(home())) for path in home().rglob("*") if not path.is_dir()}
    project = f"projects/{slug(str(tmp_path))}"
    run = f"shoal/runs/{session.id}"
    places = {"teams/crew/config.json", "teams/crew/inboxes/ann.json", "tasks/crew/1.json",
              "tasks/crew/.lock", f"{project}/{session.id}.jsonl", f"debug/{session.id}.txt", "debug/latest",
              f"{run}/journal.jsonl"}  # fmt: skip
    assert places <= kept
    beside = re.compile(rf"{project}/{session.id}/subagents/agent-[^/]+\.(jsonl|meta\.json)")
    rest = {name for name in kept - places if not beside.fullmatch(name)}
    assert len(kept - places - rest) == 4
    assert {name.split("/")[0] for name in rest} <= {"shoal", "tasks", "shell-snapshots"}
    assert (tmp_path / "there.txt").read_text().startswith("snapshot-")
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]
    assert list(Path(os.environ["HOME"]).iterdir()) == []
