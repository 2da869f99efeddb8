"""A team that nobody asked for by name: made where an agent with a name is started, if that is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, all_turns, use
from shoal.core.requests import Request
from troupe import config, home, last_words, member, opened, results, tell, troupe

ON = json.dumps({"shoal": {"implicit_team": True}})


@pytest.mark.spec("AGT-09")
async def test_named_agents_of_one_message_make_one_team_and_join_it(tmp_path: Path) -> None:
    heard: list[str] = []

    def ann(request: Request) -> str:
        heard.append(last_words(request))
        return "ann ends"

    def lead(request: Request) -> Any:
        if request.messages[0].text.startswith("nameless"):
            return "a report"
        return [member("ann"), member("bob"), agent("nameless", "n1")]

    model = troupe(
        lead=[lead, "wait", use("TeamDelete"), "end"],
        ann=[ann],
        bob=[tell("ann", "hello from bob", "hello"), "bob ends"],
    )
    async with opened(tmp_path, model, settings=ON) as session:
        name = f"session-{session.id[:8]}"
        async for _ in session.run("Begin."):
            pass
        roster = config(name)
        while (turn := await session.next_turn()) is not None:
            async for _ in turn:
                pass
        texts = [str(each.content) for each in results(session.agent.conversation.messages)]
    assert [each["name"] for each in roster["members"]] == ["team-lead", "ann", "bob"]
    assert roster["leadSessionId"] == session.id
    assert f"ann has joined the team {name}" in texts[0]
    assert f"teammate_id: ann@{name}" in texts[0]
    assert f"bob has joined the team {name}" in texts[1]
    assert texts[2].startswith("a report"), "one without a name is an agent for one job"
    assert "hello from bob" in "".join(heard)
    assert texts[3] == f"The team {name} is deleted."
    assert not (home() / "teams" / name).exists()


async def test_it_is_off_unless_wanted_and_where_teams_cannot_be_had(tmp_path: Path) -> None:
    async def first_result(**options: Any) -> str:
        def lead(request: Request) -> Any:
            return "a report" if request.messages[0].text == "Begin." else member("ann")

        model = troupe(lead=[lead, "end"], ann=["ready"])
        async with opened(tmp_path, model, **options) as session:
            await all_turns(session, "Go.")
            return str(results(session.agent.conversation.messages)[0].content)

    assert (await first_result()).startswith("a report")
    assert (await first_result(settings=ON, disallowed_tools=["TeamCreate"])).startswith("a report")
    assert "has joined the team session-" in await first_result(settings=ON)


async def test_a_team_that_is_there_is_joined_and_no_other_is_made(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), use("Until"), use("Open"), "end"],
        ann=[use("Gate"), "end"],
    )
    tools = [gate.tool, gate.until, gate.open]
    async with opened(tmp_path, model, settings=ON, tools=tools) as session:
        await all_turns(session)
        assert [each.name for each in (home() / "teams").iterdir()] == ["crew"]
