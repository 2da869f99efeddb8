"""What a session reports about its work, and what a person can stop, queue and take back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, read_events, script_agents, spawn_agent
from session_helpers import collect_events, open_session
from shoal.app.config.undo_history import NothingToUndoError
from shoal.app.session.session_changes import (
    interrupt_agent,
    list_down_members,
    list_unfinished_tasks,
    rewind_files_to_before_message,
    set_thinking_tokens,
)
from shoal.app.session.turn import LastWorkingPermissionModeTracker
from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, TextBlock, user_message
from shoal.core.errors import AgentRequestRefused, NoModelConfigured, ShoalError
from shoal.core.events import (
    MessageAdded,
    PermissionModeChanged,
    QueueItemAdded,
    QueueItemWithdrawn,
    RunFinished,
    TurnEnded,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import FakeClock


async def test_a_session_that_did_nothing_has_nothing_to_report_or_to_stop(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel([])) as session:
        assert (session.turn, session.is_busy, session.chosen_model) == (0, False, None)
        assert not session.has_running_subagents
        assert not session.has_working_agents
        assert not session.has_live_agents
        assert session.count_waking_items() == 0
        assert [*session.list_members(), *session.list_subagents(), *session.list_running_subagents()] == []
        assert [*session.list_shells(), *session.list_hooks(), *session.list_mcp_servers()] == []
        assert (session.led_team_name, session.key_source) == ("", "none")
        assert (session.budget_seconds_left, session.seconds_until_deadline) == (None, float("inf"))
        assert not session.is_past_deadline
        assert list_down_members(session) == ()
        assert await list_unfinished_tasks(session) == ()
        assert session.list_undoable_turns() == ()
        assert session.move_to_background() == ()
        assert await session.stop_agents() == ()
        assert tuple(await session.stop_shells()) == ()
        assert (await session.stop_all()).ids == []
        assert session.withdraw_queued_prompts() == ()
        assert await session.interrupt() is False
        assert await interrupt_agent(session, "main") is False
        assert await session.suggest_prompt() == ""
        assert await session.next_turn() is None
        for name in ("nobody", "agent-0"):
            with pytest.raises(AgentRequestRefused):
                await session.stop_task(name)
            with pytest.raises(AgentRequestRefused):
                await interrupt_agent(session, name)


@pytest.mark.parametrize(("attended", "expected"), [(True, [True, False]), (False, [False, False])])
async def test_only_a_session_that_expects_input_or_has_working_agents_can_be_woken(
    tmp_path: Path, attended: bool, expected: list[bool]
) -> None:
    async with open_session(tmp_path, ScriptedModel([]), attended=attended) as session:
        found = [session.can_be_woken]
        session.expect_no_input()
        found.append(session.can_be_woken)
        assert found == expected
        session.expect_input()
        assert session.can_be_woken


@pytest.mark.spec("CTL-05")
async def test_each_kind_of_background_work_is_stopped_by_its_name(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            [
                spawn_agent("scout", "c1", run_in_background=True, name="scout"),
                call_tool("Bash", "b1", command="sleep 1000", run_in_background=True),
            ],
            "started",
        ],
        scout=[call_tool("Gate"), "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        assert session.has_working_agents
        assert session.has_live_agents
        assert session.has_running_subagents
        assert session.can_be_woken
        (shell,) = session.list_shells()
        (agent,) = session.list_running_subagents()
        assert (agent.description, shell.status) == ("scout", "running")
        assert await session.stop_task(shell.id) == "sleep 1000"
        assert shell.status != "running"
        assert session.has_working_agents
        assert await session.stop_task("scout") == "scout"
        assert not session.has_working_agents
        await session.wait_agents_idle()
        assert not session.has_running_subagents
        assert not session.can_be_woken
        for ended in (shell.id, agent.agent):
            with pytest.raises(AgentRequestRefused):
                await session.stop_task(ended)


async def test_everything_that_works_is_stopped_at_once_and_the_lead_continues(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            [
                spawn_agent("scout", "c1", run_in_background=True),
                call_tool("Bash", "b1", command="sleep 1000", run_in_background=True),
            ],
            "started",
        ],
        next=["continued"],
        scout=[call_tool("Gate"), "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        (shell,) = session.list_shells()
        stopped = await session.stop_all()
        assert [each.description for each in stopped.agents] == ["scout"]
        assert [each.command for each in stopped.commands] == ["sleep 1000"]
        assert stopped.ids == [stopped.agents[0].agent, shell.id]
        assert shell.status != "running"
        assert (await session.stop_all()).ids == []


async def test_an_interrupted_agent_ends_and_an_interrupted_lead_ends_its_turn(tmp_path: Path) -> None:
    gate, lead_gate = ToolGate(), ToolGate("LeadGate")
    model = script_agents(
        lead=[
            spawn_agent("scout", "c1", run_in_background=True, name="scout"),
            call_tool("LeadGate"),
            "unheard",
        ],
        scout=[call_tool("Gate"), "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, lead_gate.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        await lead_gate.wait_until_reached()
        with pytest.raises(RuntimeError, match="A turn is already running"):
            session.run("another")
        assert await interrupt_agent(session, "scout") is True
        assert not session.has_working_agents
        assert session.is_busy
        assert await interrupt_agent(session, "lead") is True
        assert not session.is_busy
        ended = (await turn)[-1]
        assert isinstance(ended, RunFinished)
        assert (ended.reason, ended.detail, ended.requests) == ("interrupted", "interrupted by the user", 2)
        assert session.messages[-1].text == "[The user interrupted this turn.]"
        assert await session.interrupt() is False


async def test_queued_messages_are_counted_taken_back_and_kept_with_their_content(tmp_path: Path) -> None:
    image = ImageBlock(source=Base64ImageSource(media_type="image/png", data="aGk="))
    async with open_session(tmp_path, ScriptedModel([])) as session:
        session.steer("one")
        quiet = session.queue_message(user_message("quiet"), by="runtime", wakes=False)
        assert session.count_waking_items() == 1
        session.steer(shoal.Message(role="user", content=(TextBlock(text="two"), image)))
        named = session.queue_message(user_message("named"), by="runtime", identity="my-id")
        assert (named, session.count_waking_items()) == ("my-id", 3)
        session.queue_message_from_other_session("elsewhere", "hello", "a greeting")
        receipt = await session.send("main", "three")
        assert (receipt.to, receipt.name, receipt.how) == (LEAD_ID, "lead", "queued")
        added = [event for event in read_events(session) if isinstance(event, QueueItemAdded)]
        assert [event.by for event in added] == ["person", "runtime", "person", "runtime", "agent", "person"]
        assert [event.quiet for event in added] == [False, True, False, False, False, False]
        assert [bool(event.content_file) for event in added] == [False, False, True, False, False, False]
        assert b"aGk=" in Path(added[2].content_file).read_bytes()
        taken = session.withdraw_queued_prompts()
        assert [message.text for message in taken] == ["one", "two", "three"]
        assert taken[1].content[1] == image
        withdrawn = [event.item for event in read_events(session) if isinstance(event, QueueItemWithdrawn)]
        assert withdrawn == [added[0].item, added[2].item, added[5].item]
        assert session.withdraw_queued_prompts() == ()
        assert session.count_waking_items() == 2
        assert quiet not in withdrawn


async def test_a_wanted_id_of_a_prompt_is_used_once(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(["one", "two"])) as session:
        prompt = user_message("first")
        assert session.assign_prompt_id(prompt, "wanted") == "wanted"
        await collect_events(session.run(prompt))
        other = session.assign_prompt_id(user_message("second"), "wanted")
        assert other not in ("", "wanted")
        assert session.assign_prompt_id(user_message("third")) not in ("", "wanted", other)
    async with open_session(tmp_path, ScriptedModel([]), resume=session.id) as again:
        assert again.assign_prompt_id(user_message("fourth"), "wanted") != "wanted"
        assert again.assign_prompt_id(user_message("fifth"), "free") == "free"


async def test_thinking_tokens_return_to_those_of_the_start(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel([]), thinking_tokens=3_000) as session:
        found = []
        for tokens in (2_000, None, 5_000):
            set_thinking_tokens(session, tokens)
            found.append(session.agent.limits.thinking_tokens)
        assert found == [2_000, 3_000, 5_000]


@pytest.mark.parametrize("turn", [0, 1, 2])
async def test_files_are_restored_to_before_the_turn_of_any_message(tmp_path: Path, turn: int) -> None:
    write = [call_tool("Write", f"w{n}", file_path="a.txt", content=f"turn {n}") for n in range(3)]
    model = ScriptedModel([reply for call in write for reply in (call, "ok")])
    prompts: list[str] = []
    async with open_session(tmp_path, model) as session:
        for n in range(3):
            events = await collect_events(session.run(f"Write {n}."))
            prompts += [
                str(event.entry)
                for event in events
                if isinstance(event, MessageAdded) and event.by == "person"
            ]
        await rewind_files_to_before_message(session, prompts[turn])
        if turn == 0:
            assert not (tmp_path / "a.txt").exists()
        else:
            assert (tmp_path / "a.txt").read_text() == f"turn {turn - 1}"
        with pytest.raises(NothingToUndoError, match="no-such-message"):
            await rewind_files_to_before_message(session, "no-such-message")


async def test_a_session_without_stored_files_cannot_restore_them(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(["one"]), persist=False) as session:
        await collect_events(session.run("go"))
        assert session.list_undoable_turns() == ()
        with pytest.raises(ShoalError, match="stores nothing on disk"):
            await rewind_files_to_before_message(session, "any")


@pytest.mark.parametrize("reset", [True, False])
async def test_a_chosen_model_is_reported_until_the_first_one_is_used_again(
    tmp_path: Path, reset: bool
) -> None:
    async with open_session(tmp_path, ScriptedModel(["one"])) as session:
        first = session.model_card.id
        if reset:
            await session.set_model(None)
            (changed,) = [event for event in read_events(session) if isinstance(event, PermissionModeChanged)]
            assert (changed.model, changed.mode) == (first, session.permission_mode)
        else:
            with pytest.raises((ShoalError, NoModelConfigured)):
                await session.set_model("no-such-model")
        assert (session.chosen_model, session.model_card.id) == (None, first)


@pytest.mark.parametrize(
    ("seconds", "left", "is_past"), [(9.0, 1.0, False), (10.0, 0.0, True), (12.0, -2.0, True)]
)
async def test_the_time_until_the_deadline_counts_from_the_start(
    tmp_path: Path, seconds: float, left: float, is_past: bool
) -> None:
    clock = FakeClock()
    async with open_session(tmp_path, ScriptedModel([]), clock=clock, deadline=10.0) as session:
        await clock.advance(seconds)
        assert (session.seconds_until_deadline, session.is_past_deadline) == (left, is_past)


async def test_the_end_of_a_turn_has_its_time_and_requests(tmp_path: Path) -> None:
    clock = FakeClock()

    async def wait() -> str:
        await clock.advance(1.5)
        return "waited"

    model = ScriptedModel([call_tool("wait"), "done", "again"])
    tool = shoal.tool(wait, description="Waits.", name="wait")
    async with open_session(tmp_path, model, tools=[tool], clock=clock) as session:
        first = (await collect_events(session.run("go")))[-1]
        second = (await collect_events(session.run("go")))[-1]
        assert isinstance(first, RunFinished)
        assert isinstance(second, RunFinished)
        assert [each.requests for each in (first, second)] == [2, 1]
        assert [each.duration_ms for each in (first, second)] == [1_500, 0]
        assert first.usage.output_tokens + second.usage.output_tokens == session.spending.usage.output_tokens
        ends = [event for event in read_events(session) if isinstance(event, TurnEnded)]
        assert [(end.turn, end.requests, end.duration_ms) for end in ends] == [(1, 2, 1_500), (2, 1, 0)]
        assert session.turn == 2


MODES: dict[str, list[tuple[PermissionMode, int, PermissionMode | None]]] = {
    "plan is left for the mode of the last work": [
        ("acceptEdits", 1, "acceptEdits"),
        ("plan", 1, "acceptEdits"),
    ],
    "a mode that was only cycled through does not count": [
        ("default", 1, "default"),
        ("acceptEdits", 1, "default"),
        ("plan", 1, "default"),
    ],
    "work in plan mode keeps the mode from before": [
        ("acceptEdits", 1, "acceptEdits"),
        ("plan", 2, "acceptEdits"),
    ],
    "only plan mode was used": [("plan", 0, None), ("plan", 3, None)],
    "a bypass that was left is not restored": [
        ("bypassPermissions", 1, "bypassPermissions"),
        ("plan", 1, "default"),
    ],
    "work after the bypass counts": [
        ("bypassPermissions", 1, "bypassPermissions"),
        ("dontAsk", 2, "dontAsk"),
    ],
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_after_a_plan_is_the_one_in_which_the_agent_worked(name: str) -> None:
    tracker = LastWorkingPermissionModeTracker()
    steps: list[Any] = [
        (mode, replies, tracker.resolve_mode_before_plan(mode, replies)) for mode, replies, _ in MODES[name]
    ]
    assert steps == MODES[name]
