"""Members with different providers, types, directories and budgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events, run_all_turns
from server_scripts import open_process_session, run_provider, script_server
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.events import AgentStarted, ModelRequestSettled
from shoal.testing import chat_server
from shoal.testing.mock_replies import RequestBody
from team_scripts import read_inbox, read_team_config, send_message, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


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
        spawn_member("ann", subagent_type="scout"),
        spawn_member("bob", model="openai:gpt-5.1", cwd=str(tmp_path / "part")),
    ]

    def look(body: RequestBody) -> ToolUseBlock:
        return call_tool("Grep", pattern=f"x{len(body['messages'])}")

    settings = json.dumps({"shoal": {"teammate_mode": place, "agent_cwd": True}})
    report = send_message("team-lead", "From the other provider.", "report")
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn, "Wait.", "Good."], ann=[look]),
        chat_server(script_server(bob=[report, "Done."])) as other,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        async with open_process_session(tmp_path, settings=settings, agents={"scout": scout}) as session:
            await run_all_turns(session)
            events = read_events(session)
    begun = {event.name: event for event in events if isinstance(event, AgentStarted)}
    assert (begun["ann"].kind, begun["bob"].model) == ("scout", "gpt-5.1")
    assert begun["bob"].cwd == str(tmp_path / "part")
    spent = [
        event.cost_usd or 0
        for event in events
        if isinstance(event, ModelRequestSettled) and event.agent == "ann@crew"
    ]
    assert 0.03 < sum(spent) < 0.08
    mail = [each["text"] for each in read_inbox("crew", "team-lead")]
    assert any("From the other provider." in text for text in mail)
    assert any("budget" in text for text in mail)
    entered = {each["name"]: each for each in read_team_config("crew")["members"]}
    backends = {name: each.get("backendType") for name, each in entered.items()}
    assert backends == {"team-lead": None, "ann": place, "bob": place}
    assert (entered["bob"]["model"], entered["bob"]["cwd"]) == ("gpt-5.1", str(tmp_path / "part"))
    assert (entered["ann"]["agentType"], entered["ann"]["cwd"]) == ("scout", str(tmp_path))
