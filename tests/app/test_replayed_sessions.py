"""A recorded session is replayed in another directory, at another time and in another home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, spawn_agent
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import MessageAdded, RunFinished, ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import messages_server
from shoal.testing.fake_clock import START, FakeClock
from team_scripts import send_message, spawn_member

NEXT_YEAR = START + 365 * 24 * 3_600_000
ANN = spawn_member("ann")


def build_replies(project: Path) -> list[Any]:
    """Build calls with absolute paths, as models make them, and one result too large for the conversation."""
    where = str(project / "a.txt")
    return [
        ToolUseBlock(id="c1", name="Read", input={"file_path": where}),
        ToolUseBlock(
            id="c2", name="Edit", input={"file_path": where, "old_string": "one", "new_string": "two"}
        ),
        ToolUseBlock(id="c3", name="Bash", input={"command": "seq 100000"}),
        ToolUseBlock(id="c4", name="Bash", input={"command": "pwd"}),
        f"changed {where}",
    ]


async def run_in_project(project: Path, **options: Any) -> tuple[RunFinished, str]:
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    async with shoal.open(cwd=project, skip_permissions=True, **options) as session:
        events = [event async for event in session.run("make it two")]
    assert isinstance(events[-1], RunFinished)
    results = [
        extract_tool_result_text(event.result) for event in events if isinstance(event, ToolOutputReturned)
    ]
    return events[-1], results[-1]


@pytest.mark.spec("USR-30")
async def test_a_recorded_run_replays_in_another_directory_at_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "run.jsonl"
    here, there = tmp_path / "here", tmp_path / "somewhere-else"
    first, _ = await run_in_project(
        here, model=ScriptedModel(build_replies(here)), record=recording, clock=FakeClock()
    )
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    again, printed = await run_in_project(
        there, model=f"replay:{recording}", clock=FakeClock(start=NEXT_YEAR)
    )
    assert again.detail == ""
    assert first.text == f"changed {here}/a.txt"
    assert again.text == f"changed {there}/a.txt"
    assert (there / "a.txt").read_text() == "two\n"
    assert printed == str(there)
    assert str(here) not in recording.read_text()


@pytest.mark.spec("USR-30")
async def test_a_seeded_session_generates_the_same_ids_live_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "run.jsonl"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")

    async def list_generated_ids(**options: Any) -> list[str]:
        monkeypatch.setenv("SHOAL_HOME", str(tmp_path / f"home-{len(homes)}"))
        homes.append(1)
        async with shoal.open(cwd=tmp_path, seed=7, clock=clock, **options) as session:
            events = [event async for event in session.run("hi")]
        return [event.entry for event in events if isinstance(event, MessageAdded)]

    homes: list[int] = []
    clock = FakeClock()
    async with messages_server(["hello", "hello"]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        first = await list_generated_ids(model="anthropic:claude-haiku-5-5", record=recording)
        second = await list_generated_ids(model="anthropic:claude-haiku-5-5")
    replayed = await list_generated_ids(model=f"replay:{recording}")
    assert first == second == replayed
    assert len(first) == 2


@pytest.mark.spec("USR-30")
async def test_the_same_seed_gives_the_same_journal_and_transcripts_with_agents_and_teammates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    monkeypatch.setenv("SHOAL_HOME", str(home))
    project.mkdir()
    look = call_tool("Glob", "g1", pattern="*")

    def choose_reply(request: ModelRequest) -> Any:
        """Reply for the lead, its sub-agent and its member."""
        agent_name = "ann" if "You are ann" in request.system else request.messages[0].text.split()[0]
        reply_count = sum(message.role == "assistant" for message in request.messages)
        part = {
            "go": [
                spawn_agent("child looks", "c1"),
                call_tool("TeamCreate", "c2", team_name="crew"),
                ANN,
                "wait",
                "end",
            ],
            "child": [look, "seen"],
            "ann": [send_message("team-lead", "I am here."), "that is all"],
        }[agent_name]
        return part[min(reply_count, len(part) - 1)]

    async def run_and_read_files(name: str) -> dict[str, bytes]:
        clock = FakeClock()
        model = ScriptedModel(choose_reply, clock=clock)
        async with shoal.open(
            cwd=project, model=model, skip_permissions=True, seed=42, clock=clock
        ) as session:
            await run_all_turns(session, "go")
        moved_home = home.rename(tmp_path / name)
        files = [*moved_home.glob("projects/**/*.jsonl"), *moved_home.glob("shoal/runs/*/journal.jsonl")]
        return {str(path.relative_to(moved_home)): path.read_bytes() for path in files}

    first, second = await run_and_read_files("first"), await run_and_read_files("second")
    assert len(first) == 4
    assert first == second
