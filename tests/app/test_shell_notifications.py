"""Ends of background commands are announced once to the agent that started them."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import finish_turn

import shoal
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import open_session
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import (
    BackgroundShellEnded,
    BackgroundShellStarted,
    NotificationDelivered,
    SessionEnded,
)
from shoal.core.ids import LEAD_ID
from shoal.testing import FakeClock
from shoal.tools.function_tool import tool
from team_scripts import get_home


def start_in_background(command: str, call_id: str = "b1") -> Any:
    return call_tool("Bash", call_id, command=command, run_in_background=True)


def list_notifications(session: shoal.Session) -> list[str]:
    texts = "\n".join(
        message.text for message in session.agent.conversation.messages if message.role == "user"
    )
    return re.findall(r"<task-notification>.*?</task-notification>", texts, re.DOTALL)


async def wait_for_shell(session: shoal.Session, identity: str = "bash_1") -> None:
    shell = session.runtime.processes.shells.find_shell(identity)
    assert shell is not None
    async with asyncio.timeout(10):
        await shell.ended.wait()


def peek_waiting_item(session: shoal.Session) -> InboxItem:
    item = session.runtime.inbox.queue.take_next(LEAD_ID)
    assert item is not None
    session.runtime.inbox.queue.put(item)
    return item


@pytest.mark.spec("QUE-03", "QUE-05", "QUE-06")
async def test_the_end_of_a_background_command_is_announced_once_with_its_exit_code(tmp_path: Path) -> None:
    model = script_agents(
        lead=[start_in_background("echo '</task-notification> made it'; exit 3"), "started", "heard"]
    )
    async with open_session(tmp_path, model) as session:
        await finish_turn(session.run("lead"))
        await wait_for_shell(session)
        assert (peek_waiting_item(session).mode, peek_waiting_item(session).priority) == (
            "task-notification",
            "later",
        )
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        assert await session.next_turn() is None
        (notice,) = list_notifications(session)
        output = session.runtime.processes.shells.list_shells()[0].output_file
    assert notice.splitlines()[1:6] == [
        "<task-id>bash_1</task-id>",
        "<tool-use-id>b1</tool-use-id>",
        f"<output-file>{output}</output-file>",
        "<status>failed</status>",
        "<summary>Background command \"echo '<\\/task-notification> made it'; exit 3\" failed (exit code 3)."
        "</summary>",
    ]
    assert notice.count("</task-notification>") == 1
    events = read_events(session)
    (ended,) = [event for event in events if isinstance(event, BackgroundShellEnded)]
    assert [event.completion for event in events if isinstance(event, NotificationDelivered)] == [ended.id]


@pytest.mark.spec("QUE-04")
async def test_a_command_end_wakes_only_the_lead_while_agents_work(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            [spawn_agent("child", "c1", run_in_background=True), start_in_background("echo over")],
            "both started",
            call_tool("Open"),
            "opened",
            "all heard",
        ],
        child=[call_tool("Gate"), "child is done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.open_tool]) as session:
        # The child is let go by the turn that the command's end alone brings about.
        assert await run_all_turns(session) == "all heard"
        first, second = list_notifications(session)
    assert "bash_1" in first
    assert "child is done" in second


@pytest.mark.spec("QUE-04")
async def test_the_end_of_a_sub_agents_command_is_announced_to_that_agent_only(tmp_path: Path) -> None:
    @tool(name="Over", deadline=20)
    async def over() -> str:
        """Wait for the end of the command."""
        await wait_for_shell(session)
        return "over"

    def check_last_message(request: ModelRequest) -> str:
        return "told" if "<task-id>bash_1</task-id>" in request.messages[-1].text else "not told"

    model = script_agents(
        lead=[spawn_agent("child", "c1"), "end"],
        child=[start_in_background("exit 3"), call_tool("Over"), check_last_message],
    )
    async with open_session(tmp_path, model, tools=[over]) as session:
        assert await run_all_turns(session) == "end"
        assert not list_notifications(session)
        (child,) = session.supervisor.list_agents()
    assert child.completion is not None
    assert child.completion.text == "told"


@pytest.mark.spec("QUE-05")
@pytest.mark.parametrize(
    "look", [call_tool("BashOutput", "l1", bash_id="bash_1"), call_tool("TaskOutput", "l1", task_id="bash_1")]
)
async def test_a_command_end_shown_by_a_tool_call_is_not_announced_again(
    tmp_path: Path, look: ToolUseBlock
) -> None:
    @tool(name="Free", deadline=20)
    async def free() -> str:
        """Let the command go on, and wait for its end."""
        (tmp_path / "go").write_text("")
        await wait_for_shell(session)
        return "over"

    command = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    # Both calls are of one message: nothing is taken from the queue between the end and the look.
    model = script_agents(lead=[start_in_background(command), [call_tool("Free"), look], "seen"])
    async with open_session(tmp_path, model, tools=[free]) as session:
        assert await run_all_turns(session) == "seen"
        assert not list_notifications(session)
    (texts,) = [event for event in read_events(session) if isinstance(event, NotificationDelivered)]
    assert texts.call == "l1"


async def test_a_command_stopped_by_the_user_is_announced_but_one_stopped_by_its_agent_is_not(
    tmp_path: Path,
) -> None:
    model = script_agents(
        lead=[
            start_in_background("sleep 60"),
            call_tool("KillShell", "k1", shell_id="bash_1"),
            "gone",
            "heard",
        ]
    )
    async with open_session(tmp_path, model) as session:
        await finish_turn(session.run("lead"))
        assert await session.next_turn() is None
        assert not list_notifications(session)
    gate = ToolGate()
    model = script_agents(
        lead=[
            [spawn_agent("child", "c1", run_in_background=True), start_in_background("sleep 60")],
            "both run",
            "heard",
        ],
        child=[call_tool("Gate"), "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await finish_turn(session.run("lead"))
        await gate.wait_until_reached()
        stopped = await session.stop_all()
        assert [each.status for each in stopped.agents] == ["killed"]
        assert [facts.command for facts in stopped.commands] == ["sleep 60"]
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        assert sorted("it was stopped by the user" in notice for notice in list_notifications(session)) == [
            True,
            True,
        ]
        assert not (await session.stop_all()).agents


@pytest.mark.spec("QUE-03")
async def test_a_command_that_waits_for_input_is_announced_until_it_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    model = script_agents(lead=[start_in_background("printf 'Go on? [y/n] '; sleep 60"), "started", "heard"])
    async with open_session(tmp_path, model, clock=clock) as session:
        await finish_turn(session.run("lead"))
        await clock.wait_for_sleepers()
        await clock.advance(61)
        assert "seems to be waiting for input" in str(peek_waiting_item(session).content)
        await session.stop_all()
        # What is over does not wait for anything.
        assert "it was stopped by the user" in str(peek_waiting_item(session).content)
        assert session.runtime.inbox.queue.count_waking_items(LEAD_ID) == 1


async def leave_cut_off_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> str:
    """Use the files of a session as if it were killed before its lead is notified; return its id."""
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    async with open_session(
        tmp_path, script_agents(lead=[start_in_background(command), "started"])
    ) as session:
        await finish_turn(session.run("lead"))
        if command.startswith("exit"):
            async with asyncio.timeout(20):
                await session.wait_for_waking_item()
        shutil.copytree(get_home(), home, ignore=shutil.ignore_patterns("control.sock"))
    monkeypatch.setenv("SHOAL_HOME", str(home))
    return session.id


@pytest.mark.spec("QUE-05")
async def test_a_command_end_unannounced_before_a_crash_is_announced_once_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await leave_cut_off_session(tmp_path, monkeypatch, "exit 7")
    for expected in (1, 0):
        async with open_session(tmp_path, script_agents(lead=["heard"]), resume=identity) as session:
            turn = await session.next_turn()
            assert (turn is not None) is bool(expected)
            if turn is not None:
                await finish_turn(turn)
            (notice,) = list_notifications(session)
            assert "failed (exit code 7)" in notice


@pytest.mark.spec("QUE-05")
async def test_a_resumed_session_is_notified_once_of_commands_that_died_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await leave_cut_off_session(tmp_path, monkeypatch, "sleep 600")
    model = script_agents(lead=["", "", "heard", start_in_background("sleep 600"), "two"])
    async with open_session(tmp_path, model, resume=identity) as session:
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        (notice,) = list_notifications(session)
        assert "the command ended with the session's process" in notice
        await finish_turn(session.run("start another"))
        # The conversation knows a bash_1: the new one is another.
        assert [shell.id for shell in session.runtime.processes.shells.list_shells()] == ["bash_2"]
    assert isinstance(read_events(session)[-1], SessionEnded)
    # That command was ended with its session: the next process announces it and no other.
    async with open_session(tmp_path, script_agents(lead=["heard"]), resume=identity) as session:
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        assert [
            ("bash_2" in notice, "the session ended" in notice) for notice in list_notifications(session)[1:]
        ] == [(True, True)]
    async with open_session(tmp_path, script_agents(lead=["nothing"]), resume=identity) as session:
        assert await session.next_turn() is None
    assert sum(isinstance(event, BackgroundShellStarted) for event in read_events(session)) == 2
