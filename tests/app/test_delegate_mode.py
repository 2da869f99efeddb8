"""Delegate mode: the user restricts the lead to delegating."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.app.session.delegate_mode import is_in_delegate_mode
from shoal.core.conversation.messages import ToolResultBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import PermissionDenied
from shoal.runs.control_client import RunControlClient
from shoal.wire.control_codec import SetDelegateModeControlCommand
from team_scripts import get_home, get_last_result, open_session, script_team, send_message, spawn_member

TOUCH = call_tool("Bash", command="touch by-the-lead")
REMINDER = "Delegate mode is on: use only the tools"


def copy_request(request: ModelRequest) -> ModelRequest:
    """Copy a request; its message list is the live conversation."""
    return replace(request, messages=list(request.messages))


def list_blocks(request: ModelRequest) -> list[Any]:
    return [block for message in request.messages for block in message.content]


@pytest.mark.spec("DLG-01", "DLG-02")
async def test_in_delegate_mode_the_lead_can_only_delegate_until_the_mode_ends(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def record_and_reply(line: Any) -> Any:
        def choose_reply(request: ModelRequest) -> Any:
            requests.append(copy_request(request))
            return line

        return choose_reply

    model = script_team(
        lead=[
            record_and_reply(TOUCH),
            record_and_reply(
                [call_tool("TeamCreate", team_name="crew"), call_tool("Read", file_path="a.txt")]
            ),
            record_and_reply(spawn_member("ann", "Make the file.")),
            record_and_reply("ann does it"),
            record_and_reply("ann has done it"),
            record_and_reply(TOUCH),
            record_and_reply("the end"),
        ],
        ann=[
            call_tool("Bash", command="touch by-ann"),
            send_message("team-lead", "it is made", "made"),
            "ann ends",
        ],
    )
    async with open_session(tmp_path, model) as session:
        session.set_delegate_mode(enabled=True)
        await run_all_turns(session, "Make the file.")
        assert not (tmp_path / "by-the-lead").exists()
        assert (tmp_path / "by-ann").exists(), "nothing changes for teammates"
        reminded = len([b for b in list_blocks(requests[-1]) if REMINDER in getattr(b, "text", "")])
        session.set_delegate_mode(enabled=False)
        await run_all_turns(session, "Now you.")
        assert (tmp_path / "by-the-lead").exists(), "every tool is there again at once"
    first, second, third = ([getattr(b, "text", "") for b in list_blocks(r)] for r in requests[:3])
    assert "has switched delegate mode on" in first[1]
    assert not any(REMINDER in text for text in first)
    assert REMINDER in second[-1]
    assert [REMINDER in text for text in third].count(True) == 2
    # Three messages with calls were answered while it was on.
    assert reminded == 3
    results = [
        extract_tool_result_text(b) for b in list_blocks(requests[2]) if isinstance(b, ToolResultBlock)
    ]
    assert results[0].startswith("Bash was not run: the user has switched delegate mode on.")
    assert results[1].startswith("You now lead the team crew.")
    assert results[2].startswith("Read was not run: ")
    last = [getattr(b, "text", "") for b in list_blocks(requests[-1])]
    assert "has left delegate mode" in last[-3]
    assert [REMINDER in text for text in last].count(True) == reminded, "only while the mode is on"


@pytest.mark.spec("DLG-01")
async def test_delegate_mode_leaves_the_agent_and_task_board_tools(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path, script_team(lead=["hi"])) as session:
        names = tuple(session.agent.tools)
        session.agent.model = script_team(lead=[[call_tool(name, name) for name in names], "tried"])
        session.set_delegate_mode(enabled=True)
        await run_all_turns(session)
    refused = {event.tool for event in read_events(session) if isinstance(event, PermissionDenied)}
    assert set(names) - refused == {
        *("Agent", "SendMessage", "ListAgents", "TaskOutput", "TaskStop", "TeamCreate", "TeamDelete"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "AskUserQuestion"),
    }


@pytest.mark.spec("DLG-01")
async def test_delegate_mode_keeps_the_tool_list_for_the_prompt_cache(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def choose_reply(request: ModelRequest) -> str:
        requests.append(copy_request(request))
        return "yes"

    async with open_session(tmp_path, script_team(lead=[choose_reply])) as session:
        for on in (False, True, False):
            session.set_delegate_mode(enabled=on)
            await run_all_turns(session, "Hello.")
    assert requests[0].tools == requests[1].tools == requests[2].tools
    assert requests[0].system == requests[1].system == requests[2].system
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages) - 1] == before.messages[:-1]


@pytest.mark.spec("DLG-02")
async def test_delegate_mode_is_toggled_mid_turn_from_another_process_without_a_trace(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(lead=[call_tool("Gate"), TOUCH, get_last_result])
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        socket = get_home() / "shoal" / "runs" / session.id / "control.sock"
        turn = session.run("Begin.")
        await gate.wait_until_reached()
        async with await RunControlClient.open(socket) as client:
            assert await client.send_command(SetDelegateModeControlCommand(on=True)) == {"on": True}
        gate.is_open.set()
        text = [event async for event in turn][-1].text  # type: ignore[union-attr]
        assert text.startswith("Bash was not run")
        assert is_in_delegate_mode(session)
    assert any(isinstance(event, PermissionDenied) for event in read_events(session))
    stored = [path for path in get_home().rglob("*.json") if "delegate" in path.read_text()]
    assert stored == []
    async with open_session(tmp_path, model, resume=session.id) as again:
        assert not is_in_delegate_mode(again)


async def test_a_reminder_does_not_count_as_the_last_prompt(tmp_path: Path) -> None:
    prompts: list[str] = []

    def lead(request: ModelRequest) -> str:
        prompts.append(request.messages[0].text)
        return "a summary"

    model = script_team(lead=[call_tool("TaskList"), "listed", lead])
    async with open_session(tmp_path, model) as session:
        session.set_delegate_mode(enabled=True)
        await run_all_turns(session, "Build the boat.")
        await session.compact()
        (summary,) = session.agent.conversation.messages
    assert "word for word:\nBuild the boat." in summary.text
    assert REMINDER not in summary.text
