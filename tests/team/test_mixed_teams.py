"""Teammates that differ: in their provider and model, their type, where they work and what they may spend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cast import all_turns, recorded, use
from fleet import mind, opened, provider
from shoal.core.events import AgentStarted, RequestSettled
from shoal.testing import chat_server
from troupe import config, inbox, member, tell

CREATE = use("TeamCreate", team_name="crew")


@pytest.mark.spec("TEAM-02")
@pytest.mark.parametrize("place", ["in-process", "process"])
async def test_each_member_has_its_own_provider_type_directory_and_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "part").mkdir()
    scout = {
        "description": "Looks.",
        "prompt": "You look.",
        "tools": ["Read", "Grep"],
        "maxBudgetUsd": 0.05,
    }
    spawn = [
        member("ann", subagent_type="scout"),
        member("bob", model="openai:gpt-5.1", cwd=str(tmp_path / "part")),
    ]
    look = use("Grep", pattern="x")
    settings = json.dumps({"shoal": {"teammate_mode": place, "agent_cwd": True}})
    report = tell("team-lead", "From the other provider.", "report")
    async with (
        provider(monkeypatch, lead=[CREATE, spawn, "Wait.", "Good."], ann=[look]),
        chat_server(mind(bob=[report, "Done."])) as other,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        async with opened(tmp_path, settings=settings, agents={"scout": scout}) as session:
            await all_turns(session)
            events = recorded(session)
    begun = {event.name: event for event in events if isinstance(event, AgentStarted)}
    assert (begun["ann"].kind, begun["bob"].model) == ("scout", "gpt-5.1")
    assert begun["bob"].cwd == str(tmp_path / "part")
    spent = [
        event.cost_usd or 0
        for event in events
        if isinstance(event, RequestSettled) and event.agent == "ann@crew"
    ]
    assert 0.03 < sum(spent) < 0.08
    mail = [each["text"] for each in inbox("crew", "team-lead")]
    assert any("From the other provider." in text for text in mail)
    assert any("budget" in text for text in mail)
    entered = {each["name"]: each for each in config("crew")["members"]}
    backends = {name: each.get("backendType") for name, each in entered.items()}
    assert backends == {"team-lead": None, "ann": place, "bob": place}
    assert (entered["bob"]["model"], entered["bob"]["cwd"]) == ("gpt-5.1", str(tmp_path / "part"))
    assert (entered["ann"]["agentType"], entered["ann"]["cwd"]) == ("scout", str(tmp_path))
