"""Headless runs whose agents never stop by themselves: the runtime ends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from server_scripts import find_speaker, join_conversation, script_server
from shoal.surfaces.cli.exit_codes import STOPPED
from shoal.testing import make_tool_call, messages_server
from shoal.testing.mock_replies import ReplyLike, RequestBody
from team_scripts import spawn_member

LOOK = make_tool_call("Glob", pattern="*.md")


@pytest.mark.spec("LIM-04")
async def test_a_lead_in_a_loop_ends_the_run_with_code_4(shoal: ShoalProgram) -> None:
    async with messages_server(lambda _: LOOK) as server:
        shoal.use_server(server)
        run = await shoal("-p", "go", "--model", MODEL)
        assert server.request_count == 6
    assert run.code == STOPPED
    assert "it was in a loop: it called Glob 6 times in a row" in run.err


@pytest.mark.spec("LIM-04")
async def test_a_sub_agent_in_a_loop_ends_alone_and_the_run_ends_with_code_4(shoal: ShoalProgram) -> None:
    def reply(body: RequestBody) -> ReplyLike:
        if "You dig." in join_conversation({"messages": body["messages"][:1]}):
            return LOOK
        results = len(body["messages"]) > 1
        agent = make_tool_call("Agent", description="dig", prompt="You dig.", subagent_type="general-purpose")
        return "It did not work." if results else agent

    async with messages_server(reply) as server:
        shoal.use_server(server)
        run = await shoal("-p", "go", "--model", MODEL, "--quiet")
        assert server.request_count == 8
        as_json = await shoal("-p", "go", "--model", MODEL, "--output-format", "json")
    assert run.text.strip() == "It did not work."
    assert run.code == STOPPED
    assert run.err.startswith("shoal: Stopped because of a loop:\n  ")
    assert "it called Glob 6 times in a row" in run.err
    assert (as_json.code, as_json.result["is_error"]) == (STOPPED, True)
    assert "it called Glob 6 times in a row" in str(as_json.result["errors"])


@pytest.mark.slow
@pytest.mark.spec("LIM-05")
@pytest.mark.parametrize("mode", ["in-process", "process"])
async def test_members_that_only_talk_to_each_other_are_ended(
    shoal: ShoalProgram, home: Path, mode: str
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"shoal": {"teammate_mode": mode}}))
    numbers = count()

    def talk_to(name: str) -> Callable[[RequestBody], ReplyLike]:
        def reply(body: RequestBody) -> ReplyLike:
            if body["messages"][-1]["role"] == "user" and "tool_result" in str(body["messages"][-1]):
                return "I wait."
            return make_tool_call("SendMessage", to=name, message=f"ping {next(numbers)}", summary="ping")

        return reply

    members = [spawn_member(name, team_name="crew") for name in ("ann", "bob")]
    lead = [make_tool_call("TeamCreate", team_name="crew"), *members, "Waiting."]
    script = script_server(lead=lead, ann=[talk_to("bob")], bob=[talk_to("ann")])
    speakers: list[str] = []

    def reply(body: RequestBody) -> ReplyLike:
        speakers.append(find_speaker(body))
        return script(body)

    async with messages_server(reply) as server:
        shoal.use_server(server)
        run = await shoal("-p", "go", "--model", MODEL, "--dangerously-skip-permissions")
    assert run.code == STOPPED
    assert "and no task or file changed in the meantime" in run.err
    # Two requests per message: 21 messages of each at most.
    assert 20 < speakers.count("ann") <= 2 * 22
    assert 20 < speakers.count("bob") <= 2 * 22
