"""A recorded run is played again: in another directory, on another day, in another home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, use
from shoal.core.events import Finished, MessageAdded, ToolReturned
from shoal.core.messages import ToolUse, result_text
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel
from shoal.testing import messages_server
from shoal.testing.clock import START, FakeClock
from troupe import member, tell

NEXT_YEAR = START + 365 * 24 * 3_600_000
ANN = member("ann")


def mind(project: Path) -> list[Any]:
    """Names files by their whole path, as models do, and gets a result too large for the conversation."""
    where = str(project / "a.txt")
    return [
        ToolUse(id="c1", name="Read", input={"file_path": where}),
        ToolUse(id="c2", name="Edit", input={"file_path": where, "old_string": "one", "new_string": "two"}),
        ToolUse(id="c3", name="Bash", input={"command": "seq 100000"}),
        ToolUse(id="c4", name="Bash", input={"command": "pwd"}),
        f"changed {where}",
    ]


async def run(project: Path, **options: Any) -> tuple[Finished, str]:
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    async with shoal.open(cwd=project, skip_permissions=True, **options) as session:
        events = [event async for event in session.run("make it two")]
    assert isinstance(events[-1], Finished)
    results = [result_text(event.result) for event in events if isinstance(event, ToolReturned)]
    return events[-1], results[-1]


@pytest.mark.spec("USR-30")
async def test_a_recorded_run_is_played_elsewhere_on_another_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "run.jsonl"
    here, there = tmp_path / "here", tmp_path / "somewhere-else"
    first, _ = await run(here, model=ScriptedModel(mind(here)), record=recording, clock=FakeClock())
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    again, printed = await run(there, model=f"replay:{recording}", clock=FakeClock(start=NEXT_YEAR))
    assert again.detail == ""
    assert first.text == f"changed {here}/a.txt"
    assert again.text == f"changed {there}/a.txt"
    assert (there / "a.txt").read_text() == "two\n"
    assert printed == str(there)
    assert str(here) not in recording.read_text()


@pytest.mark.spec("USR-30")
async def test_a_seeded_session_draws_the_same_ids_live_again_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "run.jsonl"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")

    async def drawn(**options: Any) -> list[str]:
        monkeypatch.setenv("SHOAL_HOME", str(tmp_path / f"home-{len(homes)}"))
        homes.append(1)
        async with shoal.open(cwd=tmp_path, seed=7, clock=clock, **options) as session:
            events = [event async for event in session.run("hi")]
        return [event.entry for event in events if isinstance(event, MessageAdded)]

    homes: list[int] = []
    clock = FakeClock()
    async with messages_server(["hello", "hello"]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        first = await drawn(model="anthropic:claude-haiku-5-5", record=recording)
        second = await drawn(model="anthropic:claude-haiku-5-5")
    replayed = await drawn(model=f"replay:{recording}")
    assert first == second == replayed
    assert len(first) == 2


@pytest.mark.spec("USR-30")
async def test_the_same_seed_gives_the_same_journal_and_transcripts_with_agents_and_teammates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    monkeypatch.setenv("SHOAL_HOME", str(home))
    project.mkdir()
    look = use("Glob", "g1", pattern="*")

    def mind(request: Request) -> Any:
        """Of the lead, of its agent, and of its teammate."""
        who = "ann" if "You are ann" in request.system else request.messages[0].text.split()[0]
        spoken = sum(message.role == "assistant" for message in request.messages)
        part = {
            "go": [agent("child looks", "c1"), use("TeamCreate", "c2", team_name="crew"), ANN, "wait", "end"],
            "child": [look, "seen"],
            "ann": [tell("team-lead", "I am here."), "that is all"],
        }[who]
        return part[min(spoken, len(part) - 1)]

    async def played(name: str) -> dict[str, bytes]:
        clock = FakeClock()
        model = ScriptedModel(mind, clock=clock)
        async with shoal.open(
            cwd=project, model=model, skip_permissions=True, seed=42, clock=clock
        ) as session:
            await all_turns(session, "go")
        kept = home.rename(tmp_path / name)
        files = [*kept.glob("projects/**/*.jsonl"), *kept.glob("shoal/runs/*/journal.jsonl")]
        return {str(path.relative_to(kept)): path.read_bytes() for path in files}

    first, second = await played("first"), await played("second")
    assert len(first) == 4
    assert first == second
