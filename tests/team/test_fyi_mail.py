"""FYI mail: read with the next message, wakes nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import MemberWoken
from team_scripts import (
    get_last_result,
    get_last_text,
    open_session,
    read_inbox,
    script_team,
    send_message,
    spawn_member,
)

CREATE = call_tool("TeamCreate", team_name="crew")


def send_fyi(to: str, text: str) -> Any:
    return call_tool("SendMessage", to=to, message={"type": "fyi", "text": text}, summary="news")


def count_wakes(session: Any, name: str) -> int:
    return sum(isinstance(e, MemberWoken) and e.agent == f"{name}@crew" for e in read_events(session))


async def test_fyi_mail_is_read_with_the_next_message_that_wakes_a_member(
    tmp_path: Path,
) -> None:
    seen: dict[str, Any] = {}

    def lead_hears(request: ModelRequest) -> str:
        seen["lead"] = get_last_text(request)
        return "heard"

    def ann_goes(request: ModelRequest) -> str:
        seen["ann"] = get_last_text(request)
        return "ann went"

    def bob_sent(request: ModelRequest) -> str:
        seen["result"] = get_last_result(request)
        return "bob ends"

    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            "wait for ann",
            spawn_member("bob"),
            "wait for bob",
            lead_hears,
            send_message("ann", "go on", "go"),
            "told ann",
            "the end",
        ],
        ann=["ready", ann_goes],
        bob=[send_fyi("ann", "the port is 8081"), send_fyi("team-lead", "the port has changed"), bob_sent],
    )
    async with open_session(tmp_path, model) as session:
        assert await run_all_turns(session) == "heard"
        assert count_wakes(session, "ann") == 1
        entry = read_inbox("crew", "ann")[1]
        # A reader that knows nothing of it finds a plain message.
        assert {entry["from"], entry["text"], entry["summary"]} == {"bob", "the port is 8081", "news"}
        assert (entry["read"], entry["fyi"]) == (False, True)
        await run_all_turns(session, "Let ann go on.")
        assert [each["read"] for each in read_inbox("crew", "ann")[1:]] == [True, True]
    assert "It does not wake anyone." in seen["result"]
    # The lead was woken by the team's rest, not by the words; they came along.
    assert "bob is idle" in seen["lead"]
    assert "the port has changed" in seen["lead"]
    assert "the port is 8081" in seen["ann"]
    assert seen["ann"].index("go on") < seen["ann"].index("the port is 8081")
    assert count_wakes(session, "ann") == 2


async def test_a_working_member_reads_fyi_mail_at_its_next_step(tmp_path: Path) -> None:
    gate = ToolGate()
    seen: list[str] = []

    def ann(request: ModelRequest) -> str:
        seen.append("\n".join(message.text for message in request.messages))
        return "ann ends"

    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            call_tool("Until"),
            send_fyi("*", "lunch is at one"),
            call_tool("Open"),
            "wait",
            "end",
        ],
        ann=[call_tool("Gate"), ann],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
    assert "lunch is at one" in seen[0]
    assert count_wakes(session, "ann") == 1


async def test_unread_fyi_mail_survives_a_restart_and_wakes_nobody(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait", send_fyi("ann", "the key is under the mat"), "told her"],
        ann=["ready"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    seen: list[str] = []

    def ann(request: ModelRequest) -> str:
        seen.append(get_last_text(request))
        return "in"

    waiting = script_team(lead=["hello"], ann=[ann])
    async with open_session(tmp_path, waiting, resume=session.id) as again:
        await run_all_turns(again, "Hello.")
        assert not seen
    parts: list[Any] = [send_message("ann", "go in", "go"), "end"]
    later = script_team(lead=[lambda _: parts.pop(0) if parts else "end"], ann=[ann])
    async with open_session(tmp_path, later, resume=session.id) as again:
        await run_all_turns(again, "Let her in.")
    (heard,) = seen
    assert "go in" in heard
    assert "the key is under the mat" in heard


async def test_fyi_mail_needs_a_member_and_a_text(tmp_path: Path) -> None:
    said: list[str] = []

    def then(request: ModelRequest) -> str:
        said.append(get_last_result(request))
        return "end"

    model = script_team(lead=[send_fyi("joe", "hello"), lambda r: [then(r), send_fyi("joe", "")], then])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    assert "'joe' is not in your team" in said[0]
    assert "object is invalid" in said[1]
