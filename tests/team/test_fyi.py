"""Words for a teammate's information: they are read with the next thing that comes, and wake nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cast import Gate, all_turns, recorded, use
from shoal.core.events import MemberWoken
from shoal.core.requests import Request
from troupe import inbox, last_result, last_words, member, opened, tell, troupe

CREATE = use("TeamCreate", team_name="crew")


def fyi(to: str, text: str) -> Any:
    return use("SendMessage", to=to, message={"type": "fyi", "text": text}, summary="news")


def woken(session: Any, name: str) -> int:
    return sum(isinstance(e, MemberWoken) and e.agent == f"{name}@crew" for e in recorded(session))


async def test_an_idle_member_and_the_lead_read_it_with_the_next_thing_that_wakes_them(
    tmp_path: Path,
) -> None:
    seen: dict[str, Any] = {}

    def lead_hears(request: Request) -> str:
        seen["lead"] = last_words(request)
        return "heard"

    def ann_goes(request: Request) -> str:
        seen["ann"] = last_words(request)
        return "ann went"

    def bob_sent(request: Request) -> str:
        seen["result"] = last_result(request)
        return "bob ends"

    model = troupe(
        lead=[
            CREATE,
            member("ann"),
            "wait for ann",
            member("bob"),
            "wait for bob",
            lead_hears,
            tell("ann", "go on", "go"),
            "told ann",
            "the end",
        ],
        ann=["ready", ann_goes],
        bob=[fyi("ann", "the port is 8081"), fyi("team-lead", "the port has changed"), bob_sent],
    )
    async with opened(tmp_path, model) as session:
        assert await all_turns(session) == "heard"
        assert woken(session, "ann") == 1
        entry = inbox("crew", "ann")[1]
        # A reader that knows nothing of it finds a plain message.
        assert {entry["from"], entry["text"], entry["summary"]} == {"bob", "the port is 8081", "news"}
        assert (entry["read"], entry["fyi"]) == (False, True)
        await all_turns(session, "Let ann go on.")
        assert [each["read"] for each in inbox("crew", "ann")[1:]] == [True, True]
    assert "It wakes nobody." in seen["result"]
    # The lead was woken by the team's rest, not by the words; they came along.
    assert "bob is idle" in seen["lead"]
    assert "the port has changed" in seen["lead"]
    assert "the port is 8081" in seen["ann"]
    assert seen["ann"].index("go on") < seen["ann"].index("the port is 8081")
    assert woken(session, "ann") == 2


async def test_one_at_work_reads_it_at_its_next_step(tmp_path: Path) -> None:
    gate = Gate()
    seen: list[str] = []

    def ann(request: Request) -> str:
        seen.append("\n".join(message.text for message in request.messages))
        return "ann ends"

    model = troupe(
        lead=[CREATE, member("ann"), use("Until"), fyi("*", "lunch is at one"), use("Open"), "wait", "end"],
        ann=[use("Gate"), ann],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
    assert "lunch is at one" in seen[0]
    assert woken(session, "ann") == 1


async def test_what_was_not_read_waits_through_a_restart_and_still_wakes_nobody(tmp_path: Path) -> None:
    model = troupe(
        lead=[CREATE, member("ann"), "wait", fyi("ann", "the key is under the mat"), "told her"],
        ann=["ready"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    seen: list[str] = []

    def ann(request: Request) -> str:
        seen.append(last_words(request))
        return "in"

    waiting = troupe(lead=["hello"], ann=[ann])
    async with opened(tmp_path, waiting, resume=session.id) as again:
        await all_turns(again, "Hello.")
        assert not seen
    parts: list[Any] = [tell("ann", "go in", "go"), "end"]
    later = troupe(lead=[lambda _: parts.pop(0) if parts else "end"], ann=[ann])
    async with opened(tmp_path, later, resume=session.id) as again:
        await all_turns(again, "Let her in.")
    (heard,) = seen
    assert "go in" in heard
    assert "the key is under the mat" in heard


async def test_it_is_for_teammates_alone_and_must_say_something(tmp_path: Path) -> None:
    said: list[str] = []

    def then(request: Request) -> str:
        said.append(last_result(request))
        return "end"

    model = troupe(lead=[fyi("joe", "hello"), lambda r: [then(r), fyi("joe", "")], then])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    assert "'joe' is in no team of yours" in said[0]
    assert "none of the protocol's" in said[1]
