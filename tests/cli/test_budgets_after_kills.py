"""Budgets that outlive their process, and providers that report no usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock
from shoal.surfaces.cli.exit_codes import LIMIT_REACHED
from shoal.testing import make_tool_call, messages_server
from shoal.testing.mock_replies import CutStreamFault, MockReply, RequestBody, StalledStreamFault
from shoal.testing.servers import MockServer

STALLED = ["hello", StalledStreamFault(after=2)]


def write_shoal_settings(home: Path, **settings: object) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"shoal": settings}))


async def kill_during_request(shoal: ShoalProgram, server: MockServer, request: int, *flags: str) -> None:
    """Run a prompt and kill the program with -9 while this request is in flight."""
    async with shoal.start_process("-p", "go", "--model", MODEL, *flags) as run:
        assert run.stdin is not None
        run.stdin.close()
        await server.wait_for_requests(request, within=20)
        run.kill()
        await run.wait()


@pytest.mark.spec("LIM-01")
async def test_a_request_in_flight_at_a_kill_counts_against_max_requests(
    shoal: ShoalProgram, home: Path
) -> None:
    write_shoal_settings(home, max_requests=2)
    async with messages_server([make_tool_call("Glob", pattern="*"), STALLED, "never sent"]) as server:
        shoal.use_server(server)
        await kill_during_request(shoal, server, 2)
        resumed = await shoal("-p", "on", "--model", MODEL, "--continue")
        assert server.request_count == 2
    assert resumed.code == LIMIT_REACHED
    assert "the budget of 2 requests is spent (2 requests)" in resumed.err


@pytest.mark.spec("LIM-01")
async def test_requests_of_a_killed_sub_agent_count_with_their_reservations(
    shoal: ShoalProgram, home: Path
) -> None:
    agent_call = make_tool_call("Agent", description="dig", prompt="dig", subagent_type="general-purpose")
    async with messages_server([agent_call, STALLED, "never sent"]) as server:
        shoal.use_server(server)
        await kill_during_request(shoal, server, 2)
        report = json.loads((await shoal("cost", "--json")).text)
        (unsettled,) = report["unsettled"]
        assert unsettled["agent"] != "lead"
        assert unsettled["tokens"] > 1_000
        assert unsettled["usd"] > 0
        spent = report["total"]["usage"]
        settled = spent["input_tokens"] + spent["output_tokens"]
        assert settled > 0
        resumed = await shoal(
            *("-p", "on", "--model", MODEL, "--continue"),
            *("--max-total-tokens", str(settled + unsettled["tokens"])),
        )
        assert server.request_count == 2
    assert resumed.code == LIMIT_REACHED
    listed = (await shoal("cost")).text
    assert f"counted as {unsettled['tokens']} tokens" in listed


@pytest.mark.spec("LIM-01")
@pytest.mark.parametrize("flags", [(), ("--fallback-model", "claude-opus-4-5")], ids=["alone", "fallback"])
async def test_broken_replies_are_not_requested_again_beyond_the_budget(
    shoal: ShoalProgram, home: Path, flags: tuple[str, ...]
) -> None:
    write_shoal_settings(home, max_requests=2)
    async with messages_server(lambda _: ["hello", CutStreamFault(after=3)]) as server:
        shoal.use_server(server)
        run = await shoal("-p", "go", "--model", MODEL, *flags)
        assert server.request_count == 2
        resumed = await shoal("-p", "on", "--model", MODEL, "--continue", *flags)
        assert server.request_count == 2
    assert (run.code, resumed.code) == (LIMIT_REACHED, LIMIT_REACHED)
    assert "the budget of 2 requests is spent (2 requests)" in run.err


@pytest.mark.spec("LIM-02")
@pytest.mark.parametrize(
    "reported", [Usage(), Usage(input_tokens=-50, output_tokens=-7)], ids=["zero", "negative"]
)
async def test_replies_without_a_usable_count_are_counted_by_estimate(
    shoal: ShoalProgram, reported: Usage
) -> None:
    def reply(body: RequestBody) -> MockReply:
        look = make_tool_call("Glob", pattern=f"*.{len(body['messages'])}")
        return MockReply(content=(TextBlock(text="I look again. " * 200), look), usage=reported)

    async with messages_server(reply) as server:
        shoal.use_server(server)
        run = await shoal("-p", "go", "--model", MODEL, "--max-total-tokens", "100000")
        assert 2 <= server.request_count < 100
    assert run.code == LIMIT_REACHED
    assert "reports no usage for" in run.err
    assert run.err.count("reports no usage for") == 1
    report = json.loads((await shoal("cost", "--json")).text)
    assert sum(request["tokens"] for request in report["unsettled"]) >= 100_000
    assert report["total"]["requests"] == 0
