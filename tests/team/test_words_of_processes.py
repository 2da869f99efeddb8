"""What members in processes of their own write to each other and to their lead."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cast import all_turns, use
from fleet import once, opened, provider, request_id
from shoal.testing.replies import Body
from troupe import inbox, member, tell

ASK = tell("ann", {"type": "shutdown_request", "reason": "done"})


def refuse(body: Body) -> Any:
    answer = {"type": "shutdown_response", "request_id": request_id(body), "approve": False}
    return use("SendMessage", "no", to="team-lead", message={**answer, "reason": "I am not done"})


@pytest.mark.spec("BOX-03", "MSG-02", "MSG-04", "SND-04")
async def test_they_write_to_all_and_to_one_and_refuse_as_members_in_the_lead_s_process_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [use("TeamCreate", team_name="crew"), member("bob"), member("ann"), once(ASK, when="End it.")]
    to_all = use("SendMessage", "m1", to="*", message="stop", summary="halt")
    ann = [to_all, tell("bob", "hello", "greets him"), "Rest.", refuse, "I go on."]
    async with (
        provider(monkeypatch, lead=lead, ann=ann, bob=["Rest."]),
        opened(tmp_path) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        await all_turns(session, "End it.")
        boxes = {name: inbox("crew", name) for name in ("team-lead", "ann", "bob")}
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
