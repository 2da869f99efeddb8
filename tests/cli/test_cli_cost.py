"""`shoal cost`: to the token, over every run of a session, with what was cut in flight."""

from __future__ import annotations

import json

import pytest
from shoal_process import MODEL, Program

from shoal.testing import call, messages_server
from shoal.testing.replies import Stall


@pytest.mark.spec("USR-19")
async def test_the_cost_of_a_session_is_what_the_provider_reported_over_all_its_runs(shoal: Program) -> None:
    async with messages_server([call("Glob", pattern="*"), "one", "two"]) as server:
        shoal.talks_to(server)
        await shoal("-p", "first", "--model", MODEL)
        await shoal("-p", "second", "--model", MODEL, "--continue")
        told = json.loads((await shoal("cost", "--json")).text)
        assert told["total"]["requests"] == 3
        assert told["total"]["usage"]["input_tokens"] == server.reported.input_tokens
        assert told["total"]["usage"]["output_tokens"] == server.reported.output_tokens
        assert told["total"]["usd"] > 0
        assert told["unsettled"] == []
        for_people = (await shoal("cost", told["session"][:8])).text
    assert "in all  3 requests" in for_people


@pytest.mark.spec("USR-19")
async def test_a_request_cut_by_kill_9_is_listed_as_unsettled(shoal: Program) -> None:
    async with messages_server([["hello", Stall(after=2)]]) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "go", "--model", MODEL) as run:
            assert run.stdin is not None
            run.stdin.close()
            await server.arrived(1)
            run.kill()
            await run.wait()
        told = json.loads((await shoal("cost", "--json")).text)
    assert [lost["model"] for lost in told["unsettled"]] == [MODEL.partition(":")[2]]
    assert told["total"]["requests"] == 0


async def test_a_directory_without_sessions_says_so(shoal: Program) -> None:
    ran = await shoal("cost")
    assert ran.code == 1
    assert "There is no session in" in ran.err
