"""Delegate mode: a person holds the lead to giving work out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cast import Gate, all_turns, recorded, use
from shoal.app.session.delegating import is_delegating
from shoal.core.events import PermissionDenied
from shoal.core.messages import ToolResult, result_text
from shoal.core.requests import Request
from shoal.runs.client import ControlClient
from shoal.wire.control import SetDelegate
from troupe import home, last_result, member, opened, tell, troupe

TOUCH = use("Bash", command="touch by-the-lead")
REMINDER = "Delegate mode is on: of your tools"


def as_it_was(request: Request) -> Request:
    """Its messages are those of the conversation, which goes on."""
    return replace(request, messages=list(request.messages))


def blocks(request: Request) -> list[Any]:
    return [block for message in request.messages for block in message.content]


@pytest.mark.spec("DLG-01", "DLG-02")
async def test_the_lead_only_gives_work_out_until_the_person_leaves_the_mode(tmp_path: Path) -> None:
    seen: list[Request] = []

    def hears(line: Any) -> Any:
        def says(request: Request) -> Any:
            seen.append(as_it_was(request))
            return line

        return says

    model = troupe(
        lead=[
            hears(TOUCH),
            hears([use("TeamCreate", team_name="crew"), use("Read", file_path="a.txt")]),
            hears(member("ann", "Make the file.")),
            hears("ann does it"),
            hears("ann has done it"),
            hears(TOUCH),
            hears("the end"),
        ],
        ann=[use("Bash", command="touch by-ann"), tell("team-lead", "it is made", "made"), "ann ends"],
    )
    async with opened(tmp_path, model) as session:
        session.delegate(on=True)
        await all_turns(session, "Make the file.")
        assert not (tmp_path / "by-the-lead").exists()
        assert (tmp_path / "by-ann").exists(), "nothing changes for teammates"
        reminded = len([b for b in blocks(seen[-1]) if REMINDER in getattr(b, "text", "")])
        session.delegate(on=False)
        await all_turns(session, "Now you.")
        assert (tmp_path / "by-the-lead").exists(), "every tool is there again at once"
    first, second, third = ([getattr(b, "text", "") for b in blocks(r)] for r in seen[:3])
    assert "has switched delegate mode on" in first[1]
    assert not any(REMINDER in text for text in first)
    assert REMINDER in second[-1]
    assert [REMINDER in text for text in third].count(True) == 2
    # Three messages with calls were answered while it was on.
    assert reminded == 3
    results = [result_text(b) for b in blocks(seen[2]) if isinstance(b, ToolResult)]
    assert results[0].startswith("Bash was not run: the person has switched delegate mode on.")
    assert results[1].startswith("You lead the team crew now.")
    assert results[2].startswith("Read was not run: ")
    last = [getattr(b, "text", "") for b in blocks(seen[-1])]
    assert "has left delegate mode" in last[-3]
    assert [REMINDER in text for text in last].count(True) == reminded, "only while the mode is on"


@pytest.mark.spec("DLG-01")
async def test_of_all_tools_those_that_start_tell_and_stop_agents_and_keep_the_board_are_left(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, troupe(lead=["hi"])) as session:
        names = tuple(session.agent.tools)
        session.agent.model = troupe(lead=[[use(name, name) for name in names], "tried"])
        session.delegate(on=True)
        await all_turns(session)
    refused = {event.tool for event in recorded(session) if isinstance(event, PermissionDenied)}
    assert set(names) - refused == {
        *("Agent", "SendMessage", "ListAgents", "TaskOutput", "TaskStop", "TeamCreate", "TeamDelete"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "AskUserQuestion"),
    }


@pytest.mark.spec("DLG-01")
async def test_the_tools_that_are_shown_stay_the_same_so_that_the_cache_holds(tmp_path: Path) -> None:
    seen: list[Request] = []

    def says(request: Request) -> str:
        seen.append(as_it_was(request))
        return "yes"

    async with opened(tmp_path, troupe(lead=[says])) as session:
        for on in (False, True, False):
            session.delegate(on=on)
            await all_turns(session, "Hello.")
    assert seen[0].tools == seen[1].tools == seen[2].tools
    assert seen[0].system == seen[1].system == seen[2].system
    for before, after in pairwise(seen):
        assert after.messages[: len(before.messages) - 1] == before.messages[:-1]


@pytest.mark.spec("DLG-02")
async def test_it_is_toggled_in_mid_turn_from_another_process_and_leaves_no_trace(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(lead=[use("Gate"), TOUCH, last_result])
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        socket = home() / "shoal" / "runs" / session.id / "control.sock"
        turn = session.run("Begin.")
        await gate.wait()
        async with await ControlClient.open(socket) as client:
            assert await client.request(SetDelegate(on=True)) == {"on": True}
        gate.opened.set()
        text = [event async for event in turn][-1].text  # type: ignore[union-attr]
        assert text.startswith("Bash was not run")
        assert is_delegating(session)
    assert any(isinstance(event, PermissionDenied) for event in recorded(session))
    kept = [path for path in home().rglob("*.json") if "delegate" in path.read_text()]
    assert kept == []
    async with opened(tmp_path, model, resume=session.id) as again:
        assert not is_delegating(again)


async def test_a_reminder_is_not_taken_for_what_the_person_last_asked(tmp_path: Path) -> None:
    seen: list[str] = []

    def lead(request: Request) -> str:
        seen.append(request.messages[0].text)
        return "a summary"

    model = troupe(lead=[use("TaskList"), "listed", lead])
    async with opened(tmp_path, model) as session:
        session.delegate(on=True)
        await all_turns(session, "Build the boat.")
        await session.compact()
        (summary,) = session.agent.conversation.messages
    assert "word for word:\nBuild the boat." in summary.text
    assert REMINDER not in summary.text
