"""What the whole tree of a session may spend and start, as its agents run into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, all_turns, cast, recorded, use
from crew_rig import ends, opened, results, starts
from shoal.core.events import Finished, RequestSettled
from shoal.core.messages import result_text


@pytest.mark.spec("USR-01")
async def test_the_lead_its_agents_and_theirs_spend_from_one_budget(tmp_path: Path) -> None:
    look = use("Glob", pattern="*")
    model = cast(lead=[agent("one", "c1"), "end"], one=[agent("two", "c2"), "end"], two=[look])
    async with opened(tmp_path, model, own={"max_requests": 6}) as session:
        finished = [event async for event in session.run("lead") if isinstance(event, Finished)]
        asked = [event.agent for event in recorded(session) if isinstance(event, RequestSettled)]
    one, two = (started.agent for started in starts(session))
    assert asked == ["lead", one, *[two] * 4]
    assert ["the budget of 6 requests is spent" in ends(session)[each].detail for each in ("one", "two")] == [
        True,
        True,
    ]
    assert (finished[-1].reason, finished[-1].limit) == ("budget", "requests")


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("own", "options", "sentence"),
    [
        ({"max_agents": 2}, {}, "2 of the 2 agents of this run were started"),
        ({}, {"max_agents": 2}, "2 of the 2 agents of this run were started"),
        ({"max_concurrent": 2}, {}, "2 may run at once"),
    ],
)
async def test_a_call_for_more_agents_than_may_be_fails_and_says_why(
    tmp_path: Path, own: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    gate = Gate()
    calls = [agent(f"child {n}", f"c{n}", run_in_background=True) for n in range(5)]
    model = cast(lead=[calls, use("Open"), "end"], child=[use("Gate"), "done"])
    tools = [gate.tool, gate.open]
    async with opened(
        tmp_path, model, own={**own, "fan_out_preview": None}, tools=tools, **options
    ) as session:
        await all_turns(session)
        answers = results(session.agent.conversation.messages)[:5]
    assert len(starts(session)) == 2
    refused = [result_text(answer) for answer in answers if answer.is_error]
    assert len(refused) == 3
    assert all("The agent was not started" in each and sentence in each for each in refused), refused


@pytest.mark.spec("USR-19")
async def test_an_agent_whose_model_has_no_price_is_not_started_under_a_budget_in_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    model = cast(lead=[agent("child", "c1", model="openai:mine:1b"), "end"])
    async with opened(tmp_path, model, max_budget_usd=1.0) as session:
        await all_turns(session)
        (answer,) = results(session.agent.conversation.messages)
    assert answer.is_error
    assert "A budget of $1 cannot be kept: the price of mine:1b is not known." in result_text(answer)
    assert starts(session) == []
