"""`shoal --assistant`: it stays open, and what a person says is taken within a second whatever runs."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, PATIENCE, Program, ended
from test_cli_stream_input import Driver, driven, request, user

from shoal.core.events import Queued
from shoal.runs.client import ControlClient
from shoal.testing import messages_server
from shoal.testing.replies import Delay, call
from shoal.wire.control import Send, Stop, Subscribe

TAKEN_WITHIN = 1.0
"""Seconds that are promised."""


async def client_of(driver: Driver) -> ControlClient:
    """Of the run that the driver has heard the beginning of."""
    init = next(line for line in driver.heard if line.get("subtype") == "init")
    home = Path(os.environ["SHOAL_HOME"])
    client = await ControlClient.open(home / "shoal" / "runs" / init["session_id"] / "control.sock")
    await client.request(Subscribe())
    return client


async def taken(client: ControlClient, text: str) -> None:
    """Until the run has written down that this waits for its lead."""
    async for event in client.events():
        if isinstance(event, Queued) and event.text == text:
            return


def last_texts(body: Any) -> list[str]:
    return [block["text"] for block in body["messages"][-1]["content"] if block["type"] == "text"]


@pytest.mark.spec("MOD-02", "USR-07")
async def test_input_is_taken_within_a_second_while_a_tool_hangs(shoal: Program, project: Path) -> None:
    hangs = call("Bash", command="while [ ! -e go ]; do sleep 0.01; done")
    async with messages_server([hangs, "heard you"]) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--assistant", "--allowedTools", "Bash") as driver:
            await driver.say(user("wait"))
            await driver.until("assistant")
            async with await client_of(driver) as client:
                await driver.say(user("and hurry"))
                async with asyncio.timeout(TAKEN_WITHIN):
                    await taken(client, "and hurry")
            (project / "go").touch()
            assert (await driver.until("result"))["result"] == "heard you"
            assert (await ended(driver.process)).code == 0
    assert any("and hurry" in text for text in last_texts(server.requests[1].body))


@pytest.mark.spec("MOD-02", "USR-07")
async def test_input_is_taken_within_a_second_while_the_model_hangs(shoal: Program) -> None:
    async with messages_server([["never", Delay(seconds=60)], "heard you"]) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--assistant") as driver:
            await driver.say(user("think"))
            await server.arrived(1)
            await driver.until("system", subtype="init")
            async with await client_of(driver) as client:
                await driver.say(user("and hurry"))
                async with asyncio.timeout(TAKEN_WITHIN):
                    await taken(client, "and hurry")
                await driver.say(request("r1", "interrupt"))
            await driver.until("result", result="heard you")
            assert (await ended(driver.process)).code == 0
    assert any("and hurry" in text for text in last_texts(server.requests[1].body))


@pytest.mark.spec("MOD-02")
async def test_it_stays_open_after_its_prompt_until_it_is_stopped(shoal: Program) -> None:
    async with messages_server(["first", "second"]) as server:
        shoal.talks_to(server)
        async with shoal.started("-p", "hello", "--assistant", "--model", MODEL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            async with asyncio.timeout(PATIENCE):
                assert await process.stdout.readline() == b"first\n"
                (socket,) = (Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs").glob("*/control.sock")
                async with await ControlClient.open(socket) as client:
                    await client.request(Send(to="lead", text="still there?"))
                    assert await process.stdout.readline() == b"second\n"
                    await client.request(Stop())
                assert await process.wait() == 0
    assert json.dumps(server.requests[1].body["messages"][-1]).count("still there?") == 1


async def test_one_result_at_the_end_is_refused(shoal: Program) -> None:
    ran = await shoal("-p", "hi", "--assistant", "--output-format", "json")
    assert ran.code == 2
    assert "--assistant stays open" in ran.err
