"""Messages of process members to each other and to their lead."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns
from server_scripts import call_once_after, find_request_id, open_process_session, run_provider
from shoal.testing.mock_replies import RequestBody
from team_scripts import read_inbox, send_message, spawn_member

ASK = send_message("ann", {"type": "shutdown_request", "reason": "done"})


def reject_shutdown_request(body: RequestBody) -> Any:
    answer = {"type": "shutdown_response", "request_id": find_request_id(body), "approve": False}
    return call_tool("SendMessage", "no", to="team-lead", message={**answer, "reason": "I am not done"})


@pytest.mark.spec("BOX-03", "MSG-02", "MSG-04", "SND-04")
async def test_process_members_broadcast_message_and_reject_like_in_process_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [
        call_tool("TeamCreate", team_name="crew"),
        spawn_member("bob"),
        spawn_member("ann"),
        call_once_after(ASK, text="End it."),
    ]
    to_all = call_tool("SendMessage", "m1", to="*", message="stop", summary="halt")
    ann = [to_all, send_message("bob", "hello", "greets him"), "Rest.", reject_shutdown_request, "I go on."]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann, bob=["Rest."]),
        open_process_session(tmp_path) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        await run_all_turns(session, "End it.")
        boxes = {name: read_inbox("crew", name) for name in ("team-lead", "ann", "bob")}
        asked = json.loads(boxes["ann"][-1]["text"])
    assert {name: [mail["text"] for mail in box].count("stop") for name, box in boxes.items()} == {
        "team-lead": 1,
        "ann": 0,
        "bob": 1,
    }
    heard = [(mail["from"], mail["text"], mail["summary"], mail["color"]) for mail in boxes["bob"][1:]]
    assert heard == [("ann", "stop", "halt", "green"), ("ann", "hello", "greets him", "green")]
    of_ann = [mail for mail in boxes["team-lead"] if mail["from"] == "ann" and mail["text"] != "stop"]
    assert {(mail["color"], "summary" in mail) for mail in of_ann} == {("green", False)}
    first, refused, last = (json.loads(mail["text"]) for mail in of_ann)
    assert (first["type"], first["idleReason"]) == ("idle_notification", "available")
    assert (first["summary"], first["result"]) == ("[to bob] greets him", "Rest.")
    assert "summary" not in last
    assert (refused["type"], refused["from"]) == ("shutdown_rejected", "ann")
    assert (refused["requestId"], refused["reason"]) == (asked["requestId"], "I am not done")
