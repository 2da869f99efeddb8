"""`shoal --assistant`: the run stays open and accepts input within a second."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, TIMEOUT, ShoalProgram, wait_for_result
from stream_driver import StreamDriver, make_control_request, make_prompt, start_driver

from shoal.core.events import QueueItemAdded
from shoal.runs.control_client import RunControlClient
from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_tool_call
from shoal.wire.control_codec import (
    SendUserTextControlCommand,
    StopRunControlCommand,
    SubscribeToEventsControlCommand,
)

TAKEN_WITHIN = 1.0
"""Seconds that are promised."""


async def open_control_client(driver: StreamDriver) -> RunControlClient:
    """Connect to the run whose init message the driver has received."""
    init = next(line for line in driver.received_lines if line.get("subtype") == "init")
    home = Path(os.environ["SHOAL_HOME"])
    client = await RunControlClient.open(home / "shoal" / "runs" / init["session_id"] / "control.sock")
    await client.send_command(SubscribeToEventsControlCommand())
    return client


async def wait_until_queued(client: RunControlClient, text: str) -> None:
    """Wait until the run has queued this text for its lead."""
    async for event in client.read_events():
        if isinstance(event, QueueItemAdded) and event.text == text:
            return


def get_last_texts(body: Any) -> list[str]:
    return [block["text"] for block in body["messages"][-1]["content"] if block["type"] == "text"]


@pytest.mark.spec("MOD-02", "USR-07")
async def test_input_is_accepted_within_a_second_while_a_tool_hangs(
    shoal: ShoalProgram, project: Path
) -> None:
    hangs = make_tool_call("Bash", command="while [ ! -e go ]; do sleep 0.01; done")
    async with messages_server([hangs, "heard you"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--assistant", "--allowedTools", "Bash") as driver:
            await driver.send_lines(make_prompt("wait"))
            await driver.wait_for_line("assistant")
            async with await open_control_client(driver) as client:
                await driver.send_lines(make_prompt("and hurry"))
                async with asyncio.timeout(TAKEN_WITHIN):
                    await wait_until_queued(client, "and hurry")
            (project / "go").touch()
            assert (await driver.wait_for_line("result"))["result"] == "heard you"
            assert (await wait_for_result(driver.process)).code == 0
    assert any("and hurry" in text for text in get_last_texts(server.requests[1].body))


@pytest.mark.spec("MOD-02", "USR-07")
async def test_input_is_accepted_within_a_second_while_the_model_hangs(shoal: ShoalProgram) -> None:
    async with messages_server([["never", DelayedReplyFault(seconds=60)], "heard you"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--assistant") as driver:
            await driver.send_lines(make_prompt("think"))
            await server.wait_for_requests(1)
            await driver.wait_for_line("system", subtype="init")
            async with await open_control_client(driver) as client:
                await driver.send_lines(make_prompt("and hurry"))
                async with asyncio.timeout(TAKEN_WITHIN):
                    await wait_until_queued(client, "and hurry")
                await driver.send_lines(make_control_request("r1", "interrupt"))
            await driver.wait_for_line("result", result="heard you")
            assert (await wait_for_result(driver.process)).code == 0
    assert any("and hurry" in text for text in get_last_texts(server.requests[1].body))


@pytest.mark.spec("MOD-02")
async def test_an_assistant_run_stays_open_until_it_is_stopped(shoal: ShoalProgram) -> None:
    async with messages_server(["first", "second"]) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "hello", "--assistant", "--model", MODEL) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            async with asyncio.timeout(TIMEOUT):
                assert await process.stdout.readline() == b"first\n"
                (socket,) = (Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs").glob("*/control.sock")
                async with await RunControlClient.open(socket) as client:
                    await client.send_command(SendUserTextControlCommand(to="lead", text="still there?"))
                    assert await process.stdout.readline() == b"second\n"
                    await client.send_command(StopRunControlCommand())
                assert await process.wait() == 0
    assert json.dumps(server.requests[1].body["messages"][-1]).count("still there?") == 1


async def test_assistant_mode_refuses_a_single_result_format(shoal: ShoalProgram) -> None:
    ran = await shoal("-p", "hi", "--assistant", "--output-format", "json")
    assert ran.code == 2
    assert "--assistant keeps the session open" in ran.err
