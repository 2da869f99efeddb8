"""Commands of other processes to a session: what each does and what it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, read_events, script_agents, spawn_agent
from session_helpers import collect_events, open_session
from shoal.app.session.control_handler import handle_control_command
from shoal.app.session.lead_facts import compute_context_percent, compute_context_usage
from shoal.app.session.run_controller import LocalRunController, RemoteRunController
from shoal.app.session.session_changes import list_down_members, set_thinking_tokens
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import AgentRequestRefused, ShoalError, StateFileError
from shoal.core.events import PermissionModeChanged, QueueItemAdded
from shoal.core.permissions.questions import AllowAnswer
from shoal.wire.control_codec import (
    GetRunStatusControlCommand,
    InterruptTurnControlCommand,
    ListAgentsControlCommand,
    MoveAgentsToBackgroundControlCommand,
    RelayAgentMessageControlCommand,
    RestartMemberControlCommand,
    SendUserTextControlCommand,
    SetDelegateModeControlCommand,
    SetModelControlCommand,
    SetPermissionModeControlCommand,
    ShutDownMemberControlCommand,
    StopAgentOrShellControlCommand,
    StopAllAgentsControlCommand,
    StopRunControlCommand,
)


@pytest.fixture
def gate() -> ToolGate:
    return ToolGate()


def script_waiting_agent(**more: Any) -> Any:
    return script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True, name="kid", **more), "out", "later", "last"],
        child=[call_tool("Gate"), "done"],
    )


async def test_a_session_answers_each_command_about_itself(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path, script_agents(lead=["x"])) as session:

        async def ask(command: Any) -> Any:
            return await handle_control_command(session, command)

        status = await ask(GetRunStatusControlCommand())
        assert status == {"session": session.id, "busy": False, "turn": 0, "usd": 0.0}
        assert await ask(InterruptTurnControlCommand()) == {"interrupted": False}
        assert await ask(ListAgentsControlCommand()) == {"agents": []}
        assert await ask(StopAllAgentsControlCommand()) == {"stopped": []}
        assert await ask(MoveAgentsToBackgroundControlCommand()) == {"moved": ()}
        assert await ask(SetPermissionModeControlCommand(mode="plan")) == {"mode": "plan"}
        assert session.runtime.lead.permissions.mode == "plan"
        assert await ask(SetDelegateModeControlCommand(on=True)) == {"on": True}
        assert await ask(SetDelegateModeControlCommand(on=False)) == {"on": False}
        relayed = RelayAgentMessageControlCommand(sender="ann@other", text="hello", summary="greeting")
        assert await ask(relayed) == {"queued": True}
        queued = [event for event in read_events(session) if isinstance(event, QueueItemAdded)]
        assert [(each.by, "hello" in each.text) for each in queued] == [("agent", True)]
        with pytest.raises(ShoalError):
            await ask(SetModelControlCommand(model="no-such-model"))
        for refused in (
            ShutDownMemberControlCommand(name="ann"),
            RestartMemberControlCommand(name="ann"),
            StopAgentOrShellControlCommand(task_id="ann"),
            SendUserTextControlCommand(to="ann", text="hi"),
        ):
            with pytest.raises(AgentRequestRefused, match="ann"):
                await ask(refused)
        assert await ask(RestartMemberControlCommand()) == {"restarting": []}
        assert not session.stop_requested.is_set()
        assert await ask(StopRunControlCommand()) == {"stopping": True}
        assert session.stop_requested.is_set()
    modes = [event.mode for event in read_events(session) if isinstance(event, PermissionModeChanged)]
    assert modes[0] == "plan"


async def test_a_session_answers_each_command_about_a_working_agent(tmp_path: Path, gate: ToolGate) -> None:
    async with (
        asyncio.timeout(60),
        open_session(tmp_path, script_waiting_agent(), tools=[gate.tool]) as session,
    ):

        async def ask(command: Any) -> Any:
            return await handle_control_command(session, command)

        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        (agent,) = (await ask(ListAgentsControlCommand()))["agents"]
        assert (agent["name"], agent["status"]) == ("kid", "running")
        sent = await ask(SendUserTextControlCommand(to="kid", text="hurry"))
        assert sent["to"] == agent["agent"]
        with pytest.raises(AgentRequestRefused, match="stranger"):
            await ask(InterruptTurnControlCommand(task_id="stranger"))
        assert await ask(InterruptTurnControlCommand(task_id="lead")) == {"interrupted": False}
        (agent,) = (await ask(ListAgentsControlCommand()))["agents"]
        assert agent["status"] == "running"
        stopped = await ask(StopAgentOrShellControlCommand(task_id="kid"))
        assert stopped["stopped"] == "kid"
        assert stopped["description"] == agent["description"]
        (agent,) = (await ask(ListAgentsControlCommand()))["agents"]
        assert agent["status"] == "killed"
        assert (await ask(GetRunStatusControlCommand()))["turn"] == 1


async def test_a_turn_is_interrupted_and_all_work_is_stopped_on_command(
    tmp_path: Path, gate: ToolGate
) -> None:
    requests: list[str] = []

    def reply(request: ModelRequest) -> str:
        requests.append("\n".join(message.text for message in request.messages))
        return "done"

    model = script_agents(lead=[call_tool("Gate"), reply])
    async with asyncio.timeout(60), open_session(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        assert (await handle_control_command(session, GetRunStatusControlCommand()))["busy"] is True
        answer = await handle_control_command(session, InterruptTurnControlCommand())
        assert answer == {"interrupted": True}
        assert (await turn)[-1].reason == "interrupted"
        await collect_events(session.run("lead, go on"))
    assert "[The user interrupted this turn.]" in requests[0]


async def test_a_thinking_budget_is_set_and_then_left_to_the_options_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def reply(request: ModelRequest) -> str:
        asked.append(request.thinking_tokens)
        return "done"

    model = script_agents(lead=[reply, reply, reply])
    async with asyncio.timeout(60), open_session(tmp_path, model, thinking_tokens=5_000) as session:
        for tokens in (1_024, 0, None):
            set_thinking_tokens(session, tokens)
            await collect_events(session.run("lead"))
    assert asked == [1_024, 0, 5_000]


async def test_files_can_be_restored_during_a_turn_but_not_the_conversation(
    tmp_path: Path, gate: ToolGate
) -> None:
    write = call_tool("Write", "w1", file_path=str(tmp_path / "new.txt"), content="new")
    model = script_agents(lead=[write, "written", call_tool("Gate"), "done"])
    async with asyncio.timeout(60), open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        with pytest.raises(RuntimeError, match="A turn is already running"):
            await session.undo(conversation=True)
        assert (tmp_path / "new.txt").exists()
        assert [path.name for path in (await session.undo()).removed] == ["new.txt"]
        gate.is_open.set()
        assert (await turn)[-1].reason == "done"
    assert not (tmp_path / "new.txt").exists()


async def test_an_agent_for_one_job_ends_when_it_is_interrupted(tmp_path: Path, gate: ToolGate) -> None:
    async with (
        asyncio.timeout(60),
        open_session(tmp_path, script_waiting_agent(), tools=[gate.tool]) as session,
    ):
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        answer = await handle_control_command(session, InterruptTurnControlCommand(task_id="kid"))
        assert answer == {"interrupted": True}
        (agent,) = (await handle_control_command(session, ListAgentsControlCommand()))["agents"]
        assert agent["status"] == "killed"


async def test_a_session_without_a_team_has_no_commands_and_members_of_one(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path, script_agents(lead=["x"])) as session:
        assert list_down_members(session) == ()
        assert session.list_undoable_turns() == ()
        typed = {
            text: session.is_slash_command(text) for text in ("/no-such-command x", "/etc", "text", "/a/b")
        }
        assert typed == {"/no-such-command x": True, "/etc": False, "text": False, "/a/b": False}


async def test_a_local_and_a_remote_controller_reach_the_same_run(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path, script_agents(lead=["x"])) as session:
        local = LocalRunController(session)
        remote = RemoteRunController(local.run)
        for controller in (local, remote):
            answer = await controller.send_command(GetRunStatusControlCommand())
            assert answer["session"] == session.id
            with pytest.raises(StateFileError, match="q-9"):
                controller.answer_question("q-9", AllowAnswer())
    with pytest.raises(StateFileError, match="--resume"):
        remote.answer_question("q-9", AllowAnswer())


async def test_the_context_is_the_sum_of_its_parts_and_free_space(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path, script_agents(lead=["x" * 400])) as session:
        before = {each["name"]: each["tokens"] for each in compute_context_usage(session)["categories"]}
        await collect_events(session.run("lead"))
        usage = compute_context_usage(session)
        window = session.agent.current_model.card.window
        sizes = {each["name"]: each["tokens"] for each in usage["categories"]}
        assert list(sizes) == ["System prompt", "System tools", "MCP tools", "Messages", "Free space"]
        used = usage["totalTokens"]
        assert 0 < used < window
        assert (usage["maxTokens"], usage["rawMaxTokens"]) == (window, window)
        assert sizes["Free space"] == window - used
        assert usage["percentage"] == round(100 * used / window, 1)
        assert compute_context_percent(session) == 100 * used // window
        assert sizes["Messages"] - before["Messages"] >= 100
        assert sizes["MCP tools"] == 0
        assert sizes["System prompt"] > 100
        assert sizes["System tools"] > 1000
        assert usage["isAutoCompactEnabled"] is (session.agent.limits.compact_at < 1)
        assert usage["autoCompactThreshold"] == round(window * session.agent.limits.compact_at)
        assert usage["mcpTools"] == []
        kinds = {each["agentType"]: each for each in usage["agents"]}
        assert kinds["general-purpose"]["source"]
        assert all(each["tokens"] > 0 for each in usage["agents"])
