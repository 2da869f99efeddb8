from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import Event, Finished, Heard, MessageAdded, Noted, SessionEnded, ToolReturned
from shoal.core.ids import LEAD
from shoal.core.messages import Message, ToolResult, user
from shoal.core.usage import Usage
from shoal.runs.client import ControlClient
from shoal.runs.control import LONGEST_LINE, ControlServer
from shoal.wire.control import Command, Gap, Interrupt, SetModel, SetPermissionMode, Status, Stop, Subscribe


class Run:
    """The part of a run that its door reaches."""

    def __init__(self, path: Path):
        self.commands: list[Command] = []
        self.said: list[Message] = []
        self.offset = 0
        self.server = ControlServer(path, handle=self.handle, steer=self.said.append, position=self.position)

    def position(self) -> int:
        return self.offset

    async def handle(self, command: Command) -> Any:
        self.commands.append(command)
        match command:
            case Status():
                return {"turn": 3}
            case SetModel(model="broken"):
                raise RuntimeError("no such thing")
            case SetModel():
                raise ShoalError(f"{command.model} is not offered")
        return None

    def tell(self, event: Event, size: int = 10):
        self.offset += size
        self.server.publish(event)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    run = Run(tmp_path / "control.sock")
    async with run.server:
        yield run


def noted(text: str) -> Noted:
    return Noted(agent=LEAD, text=text)


async def raw_connection(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(str(path))


async def test_commands_are_answered_and_refusals_carry_their_reason(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        assert await client.request(Status()) == {"turn": 3}
        for command in (Interrupt(), SetPermissionMode(mode="plan"), Stop()):
            assert await client.request(command) is None
        with pytest.raises(ShoalError, match="x is not offered"):
            await client.request(SetModel(model="x"))
        with pytest.raises(ShoalError, match="RuntimeError: no such thing"):
            await client.request(SetModel(model="broken"))
        assert await client.request(Status()) == {"turn": 3}
    assert run.commands[1:4] == [Interrupt(), SetPermissionMode(mode="plan"), Stop()]


async def test_the_socket_is_for_this_user_alone_and_goes_with_the_run(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    async with run.server:
        mode = run.server.path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not run.server.path.exists()
    with pytest.raises(StoreError, match="No live run"):
        await ControlClient.open(run.server.path)


async def test_what_a_person_says_is_handed_to_the_run(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        await client.say(user("look at the tests first"))
    assert run.said == [user("look at the tests first")]


async def test_a_subscriber_hears_every_event_typed_until_the_run_ends(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    run.offset = 70
    told = [
        noted("é \udcff"),
        Heard(agent=LEAD, kind="text", text="hel"),
        MessageAdded(agent=LEAD, entry="e", message=user("hi")),
        ToolReturned(
            agent=LEAD, call="t", tool="Bash", result=ToolResult(tool_use_id="t"), data={"p": object()}
        ),
        SessionEnded(agent=LEAD),
    ]
    async with asyncio.timeout(20):
        async with run.server:
            client = await ControlClient.open(run.server.path)
            run.tell(noted("before"))
            assert await client.request(Subscribe()) == {"offset": 80}
            for event in told:
                run.tell(event)
        heard = [event async for event in client.events()]
        await client.__aexit__()
    assert heard[:3] == told[:3]
    assert heard[3].data["p"].startswith("<object object")
    assert heard[4:] == told[4:]


async def test_the_end_of_a_run_with_an_error_object_can_be_told(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        await client.request(Subscribe())
        run.tell(
            Finished(
                agent=LEAD,
                reason="model_error",
                text="",
                detail="d",
                requests=1,
                usage=Usage(),
                cost_usd=None,
                duration_ms=1,
                duration_api_ms=1,
                error=ValueError("boom"),
            )
        )
        assert (await anext(client.events())).error == "boom"


async def test_an_event_longer_than_any_command_may_be_arrives_whole(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        await client.request(Subscribe())
        run.tell(noted("x" * 6_000_000))
        assert await anext(client.events()) == noted("x" * 6_000_000)


async def test_events_heard_while_waiting_for_an_answer_are_not_lost(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        await client.request(Subscribe())
        run.tell(noted("one"))
        assert await client.request(Status()) == {"turn": 3}
        assert await anext(client.events()) == noted("one")


GARBAGE = [
    (b"nonsense", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 50_000, "not JSON"),
    (b"[1]", "not a JSON object"),
    (b"{}", "unknown type None"),
    (b'{"type":"control_request"}', "request_id is missing"),
    (b'{"type":"control_request","request_id":"r","request":{"subtype":"explode"}}', "explode"),
    (b'{"type":"control_request","request_id":"r","request":{"subtype":"set_model"}}', "model"),
    (b'{"type":"control_request","request_id":"r","request":7}', "request"),
    (
        b'{"type":"control_request","request_id":"r","request":{"subtype":"set_permission_mode","mode":"x"}}',
        "x",
    ),
    (b'{"type":"user","message":"hi"}', "message must be an object"),
    (b'{"type":"user","message":{"role":"user","content":7}}', "content"),
    (b'{"type":"user","message":{"role":"user","content":[{"type":"hologram"}]}}', "hologram"),
    (b'{"type":"user","message":{"role":"assistant","content":"x"}}', "role"),
    (b"x" * (3 * LONGEST_LINE), "a line may have"),
]


async def test_garbage_is_answered_with_an_error_and_the_door_stays_open(run: Run):
    reader, writer = await raw_connection(run.server.path)
    for line, why in GARBAGE:
        writer.write(line + b"\n")
        answer = json.loads(await reader.readuntil(b"\n"))
        assert answer["type"] == "control_response"
        assert answer["response"]["subtype"] == "error"
        assert why in answer["response"]["error"]
    assert answer["response"]["request_id"] == ""
    writer.write(b'{"type":"control_request","request_id":"r9","request":{"subtype":"status"}}\n')
    answer = json.loads(await reader.readuntil(b"\n"))
    assert answer["response"] == {"subtype": "success", "request_id": "r9", "response": {"turn": 3}}
    writer.write(b'{"half a li')
    writer.close()
    await writer.wait_closed()
    assert run.said == []


async def test_a_subscriber_that_does_not_read_is_cut_and_told_where_to_go_on(run: Run):
    idle = await ControlClient.open(run.server.path)
    eager = await ControlClient.open(run.server.path)
    await idle.request(Subscribe())
    await eager.request(Subscribe())
    async with eager, idle:
        for number in range(30):
            run.tell(noted(f"{number} " + "x" * 400_000), size=100)
            # The one that reads hears everything although the other one does not.
            heard = await anext(eager.events())
            assert heard.text.startswith(f"{number} ")
        got = [event async for event in idle.events()]
    assert isinstance(got[-1], Gap)
    numbers = [int(event.text.split()[0]) for event in got[:-1]]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 30
    # It goes on exactly after the last event that it got.
    assert got[-1].offset == len(numbers) * 100


async def test_where_to_go_on_is_not_the_beginning_because_an_answer_waited_too(run: Run):
    reader, writer = await raw_connection(run.server.path)
    writer.write(b'{"type":"control_request","request_id":"s","request":{"subtype":"subscribe"}}\n')
    await reader.readuntil(b"\n")
    run.tell(noted("x" * 1_000_000), size=100)
    asked = b'{"type":"control_request","request_id":"r","request":{"subtype":"status"}}\n'
    while run.commands.count(Status()) < 3:
        writer.write(asked)
        await asyncio.sleep(0)
    for _ in range(8):
        run.tell(noted("x" * 1_000_000), size=100)
    lines = [json.loads(line) for line in (await reader.read(-1)).splitlines()]
    writer.close()
    assert lines[-1] == {"type": "gap", "offset": 100}


async def test_a_crowded_subscriber_loses_deltas_before_anything_else(run: Run):
    async with await ControlClient.open(run.server.path) as client:
        await client.request(Subscribe())
        for _ in range(500):
            run.tell(Heard(agent=LEAD, kind="text", text="x" * 10_000))
        run.tell(noted("kept"))
        heard = []
        async for event in client.events():
            heard.append(event)
            if isinstance(event, Noted):
                break
    assert heard[-1] == noted("kept")
    assert 0 < len(heard) < 400


async def test_a_client_that_vanishes_does_not_disturb_the_run(run: Run):
    for _ in range(50):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(run.server.path))
        connection.send(b'{"type":"control_request","request_id":"r","request":{"subtype":"subscribe"}}\n')
        connection.close()
        run.tell(noted("x"))
        await asyncio.sleep(0)
    async with await ControlClient.open(run.server.path) as client:
        assert await client.request(Status()) == {"turn": 3}


async def test_what_the_run_raises_reaches_its_caller_as_it_is(tmp_path: Path):
    run = Run(tmp_path / "control.sock")

    async def serve():
        async with run.server, await ControlClient.open(run.server.path) as client:
            await client.request(Subscribe())
            raise StoreError("full", path=tmp_path)

    with pytest.raises(StoreError, match="full"):
        await serve()
    assert not run.server.path.exists()


async def test_a_cancelled_run_closes_its_door_and_stays_cancelled(tmp_path: Path):
    run = Run(tmp_path / "control.sock")

    async def serve():
        async with run.server:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serve())
        await asyncio.sleep(0)
        client = await ControlClient.open(run.server.path)
        await client.request(Subscribe())
        task.cancel()
        assert [event async for event in client.events()] == []
        await client.__aexit__()
    assert task.cancelled()
    assert not run.server.path.exists()


async def test_the_socket_of_a_dead_run_is_replaced_and_that_of_a_live_one_is_not(tmp_path: Path):
    path = tmp_path / "control.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with Run(path).server:
        with pytest.raises(StoreError, match="already answers"):
            async with Run(path).server:
                pass
        async with await ControlClient.open(path) as client:
            assert await client.request(Status()) == {"turn": 3}


async def test_a_path_too_long_for_a_socket_works_all_the_same(tmp_path: Path):
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    path = directory / "control.sock"
    fds = len(list(os.scandir("/proc/self/fd")))
    for _ in range(2):
        async with Run(path).server:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with await ControlClient.open(path) as client:
                assert await client.request(Status()) == {"turn": 3}
        assert not path.exists()
    await asyncio.sleep(0)
    assert len(list(os.scandir("/proc/self/fd"))) == fds


async def test_a_directory_that_is_not_there_is_an_error_with_its_place(tmp_path: Path):
    with pytest.raises(StoreError, match="nowhere"):
        async with Run(tmp_path / "nowhere" / "control.sock").server:
            pass
