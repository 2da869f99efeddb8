from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message, ToolResultBlock, user_message
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import (
    Event,
    MessageAdded,
    NoteAdded,
    RunFinished,
    SessionEnded,
    TextStreamed,
    ToolOutputReturned,
)
from shoal.core.ids import LEAD_ID
from shoal.runs import control_server
from shoal.runs.control_client import RunControlClient
from shoal.runs.control_server import MAX_CONNECTIONS, MAX_LINE_BYTES, RunControlServer
from shoal.wire.control_codec import (
    EventSubscriptionGap,
    GetRunStatusControlCommand,
    InterruptTurnControlCommand,
    RunControlCommand,
    SetModelControlCommand,
    SetPermissionModeControlCommand,
    StopRunControlCommand,
    SubscribeToEventsControlCommand,
)


class Run:
    """Stub of a run with a control server."""

    def __init__(self, path: Path):
        self.commands: list[RunControlCommand] = []
        self.said: list[Message] = []
        self.offset = 0
        self.is_interrupting, self.may_interrupt = asyncio.Event(), asyncio.Event()
        self.may_interrupt.set()
        self.server = RunControlServer(
            path, handle=self.handle, steer=self.said.append, position=self.position
        )

    def position(self) -> int:
        return self.offset

    async def handle(self, command: RunControlCommand) -> Any:
        self.commands.append(command)
        match command:
            case GetRunStatusControlCommand():
                return {"turn": 3}
            case InterruptTurnControlCommand():
                self.is_interrupting.set()
                await self.may_interrupt.wait()
            case SetModelControlCommand(model="broken"):
                raise RuntimeError("no such thing")
            case SetModelControlCommand():
                raise ShoalError(f"{command.model} is not offered")
        return None

    def tell(self, event: Event, size: int = 10):
        self.offset += size
        self.server.publish_event(event)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    run = Run(tmp_path / "control.sock")
    async with run.server:
        run.server.start_serving()
        yield run


async def test_a_client_that_connects_early_is_served_once_the_run_is_complete(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    async with run.server, await RunControlClient.open(run.server.path) as client:
        request = asyncio.ensure_future(client.send_command(GetRunStatusControlCommand()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert run.commands == []
        run.server.start_serving()
        assert await request == {"turn": 3}


async def test_a_run_that_is_never_complete_ends_although_a_client_waits(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    async with run.server:
        client = await RunControlClient.open(run.server.path)
    async with client:
        with pytest.raises(ShoalError):
            await client.send_command(GetRunStatusControlCommand())
    assert run.commands == []


async def test_the_end_of_a_run_does_not_wait_for_a_client_that_wants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(control_server, "DRAIN_SECONDS", 1000)
    run = Run(tmp_path / "control.sock")
    async with asyncio.timeout(30):
        async with run.server:
            run.server.start_serving()
            client = await RunControlClient.open(run.server.path)
            assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
            await client.send_command(SubscribeToEventsControlCommand())
            run.tell(make_note("last"))
        async with client:
            assert [event async for event in client.read_events()] == [make_note("last")]


def make_note(text: str) -> NoteAdded:
    return NoteAdded(agent=LEAD_ID, text=text)


@contextmanager
def shorten_path(path: Path) -> Iterator[str]:
    """Provide a name that a socket may have: the directory of temporary files may have a long one."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/dev/fd/{directory}/{path.name}" if Path("/proc/self/fd").is_dir() else str(path)
    finally:
        os.close(directory)


async def open_raw_connection(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with shorten_path(path) as name:
        return await asyncio.open_unix_connection(name)


async def test_commands_are_answered_and_refusals_carry_their_reason(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
        for command in (
            InterruptTurnControlCommand(),
            SetPermissionModeControlCommand(mode="plan"),
            StopRunControlCommand(),
        ):
            assert await client.send_command(command) is None
        with pytest.raises(ShoalError, match="x is not offered"):
            await client.send_command(SetModelControlCommand(model="x"))
        with pytest.raises(ShoalError, match="RuntimeError: no such thing"):
            await client.send_command(SetModelControlCommand(model="broken"))
        assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
    assert run.commands[1:4] == [
        InterruptTurnControlCommand(),
        SetPermissionModeControlCommand(mode="plan"),
        StopRunControlCommand(),
    ]


async def test_the_late_answer_to_a_command_that_was_given_up_is_not_that_of_the_next(run: Run):
    async with asyncio.timeout(30), await RunControlClient.open(run.server.path) as client:
        run.may_interrupt.clear()
        given_up = asyncio.create_task(client.send_command(InterruptTurnControlCommand()))
        await run.is_interrupting.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        run.may_interrupt.set()
        assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}


async def test_the_socket_is_private_and_removed_with_the_run(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    async with run.server:
        run.server.start_serving()
        mode = run.server.path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not run.server.path.exists()
    with pytest.raises(StateFileError, match="No live run"):
        await RunControlClient.open(run.server.path)


async def test_a_user_message_is_passed_to_the_run(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        await client.send_steering_message(user_message("look at the tests first"))
    assert run.said == [user_message("look at the tests first")]


async def test_a_subscriber_gets_every_typed_event_until_the_run_ends(tmp_path: Path):
    run = Run(tmp_path / "control.sock")
    run.offset = 70
    published = [
        make_note("é \udcff"),
        TextStreamed(agent=LEAD_ID, kind="text", text="hel"),
        MessageAdded(agent=LEAD_ID, entry="e", message=user_message("hi")),
        ToolOutputReturned(
            agent=LEAD_ID,
            call="t",
            tool="Bash",
            result=ToolResultBlock(tool_use_id="t"),
            data={"p": object()},
        ),
        SessionEnded(agent=LEAD_ID),
    ]
    async with asyncio.timeout(20):
        async with run.server:
            run.server.start_serving()
            client = await RunControlClient.open(run.server.path)
            run.tell(make_note("before"))
            assert await client.send_command(SubscribeToEventsControlCommand()) == {"offset": 80}
            for event in published:
                run.tell(event)
        received = [event async for event in client.read_events()]
        await client.__aexit__()
    assert received[:3] == published[:3]
    assert received[3].data["p"].startswith("<object object")
    assert received[4:] == published[4:]


async def test_a_run_result_with_an_exception_can_be_published(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        await client.send_command(SubscribeToEventsControlCommand())
        run.tell(
            RunFinished(
                agent=LEAD_ID,
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
        assert (await anext(client.read_events())).error == "boom"


async def test_an_event_longer_than_the_command_limit_arrives_whole(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        await client.send_command(SubscribeToEventsControlCommand())
        run.tell(make_note("x" * 6_000_000))
        assert await anext(client.read_events()) == make_note("x" * 6_000_000)


async def test_events_received_while_waiting_for_an_answer_are_not_lost(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        await client.send_command(SubscribeToEventsControlCommand())
        run.tell(make_note("one"))
        assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
        assert await anext(client.read_events()) == make_note("one")


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
    (b"x" * (3 * MAX_LINE_BYTES), "a line may have"),
]


async def test_garbage_is_answered_with_an_error_and_the_connection_stays_open(run: Run):
    reader, writer = await open_raw_connection(run.server.path)
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


async def test_a_last_line_without_an_end_is_answered_and_then_the_connection_ends(run: Run):
    reader, writer = await open_raw_connection(run.server.path)
    writer.write(b'{"type":"control_request","request_id":"r1","request":{"subtype":"status"}}')
    writer.write_eof()
    async with asyncio.timeout(60):
        (line,) = (await reader.read(-1)).splitlines()
    assert json.loads(line)["response"] == {
        "subtype": "success",
        "request_id": "r1",
        "response": {"turn": 3},
    }
    writer.close()


async def test_a_subscriber_that_does_not_read_is_cut_off_with_a_resume_offset(run: Run):
    idle = await RunControlClient.open(run.server.path)
    eager = await RunControlClient.open(run.server.path)
    await idle.send_command(SubscribeToEventsControlCommand())
    await eager.send_command(SubscribeToEventsControlCommand())
    async with eager, idle:
        for number in range(30):
            run.tell(make_note(f"{number} " + "x" * 400_000), size=100)
            # The eager subscriber gets every event although the idle one does not read.
            received = await anext(eager.read_events())
            assert received.text.startswith(f"{number} ")
        got = [event async for event in idle.read_events()]
    assert isinstance(got[-1], EventSubscriptionGap)
    numbers = [int(event.text.split()[0]) for event in got[:-1]]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 30
    # The offset is right after the last received event.
    assert got[-1].offset == len(numbers) * 100


async def test_the_resume_offset_is_correct_when_answers_are_queued_too(run: Run):
    reader, writer = await open_raw_connection(run.server.path)
    writer.write(b'{"type":"control_request","request_id":"s","request":{"subtype":"subscribe"}}\n')
    await reader.readuntil(b"\n")
    run.tell(make_note("x" * 1_000_000), size=100)
    asked = b'{"type":"control_request","request_id":"r","request":{"subtype":"status"}}\n'
    while run.commands.count(GetRunStatusControlCommand()) < 3:
        writer.write(asked)
        await asyncio.sleep(0)
    for _ in range(8):
        run.tell(make_note("x" * 1_000_000), size=100)
    lines = [json.loads(line) for line in (await reader.read(-1)).splitlines()]
    writer.close()
    assert lines[-1] == {"type": "gap", "offset": 100}


async def test_a_slow_subscriber_loses_text_deltas_first(run: Run):
    async with await RunControlClient.open(run.server.path) as client:
        await client.send_command(SubscribeToEventsControlCommand())
        for _ in range(500):
            run.tell(TextStreamed(agent=LEAD_ID, kind="text", text="x" * 10_000))
        run.tell(make_note("kept"))
        received = []
        async for event in client.read_events():
            received.append(event)
            if isinstance(event, NoteAdded):
                break
    assert received[-1] == make_note("kept")
    assert 0 < len(received) < 400


async def test_a_connection_beyond_the_limit_is_closed_and_a_later_one_is_served(run: Run):
    async with asyncio.timeout(30):
        clients = [await RunControlClient.open(run.server.path) for _ in range(MAX_CONNECTIONS)]
        for client in clients:
            assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
        reader, writer = await open_raw_connection(run.server.path)
        assert await reader.read() == b""
        writer.close()
        assert await clients[0].send_command(GetRunStatusControlCommand()) == {"turn": 3}
        for client in clients:
            await client.__aexit__(None, None, None)
        answer = None
        while answer is None:
            async with await RunControlClient.open(run.server.path) as client:
                # Refused until the server has noticed that the others are gone.
                with suppress(ShoalError):
                    answer = await client.send_command(GetRunStatusControlCommand())
        assert answer == {"turn": 3}


async def test_a_client_that_disconnects_does_not_disturb_the_run(run: Run):
    for _ in range(50):
        connection = socket.socket(socket.AF_UNIX)
        with shorten_path(run.server.path) as name:
            connection.connect(name)
        connection.send(b'{"type":"control_request","request_id":"r","request":{"subtype":"subscribe"}}\n')
        connection.close()
        run.tell(make_note("x"))
        await asyncio.sleep(0)
    async with await RunControlClient.open(run.server.path) as client:
        assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}


async def test_exceptions_of_the_run_reach_the_caller_unchanged(tmp_path: Path):
    run = Run(tmp_path / "control.sock")

    async def serve():
        async with run.server, await RunControlClient.open(run.server.path) as client:
            run.server.start_serving()
            await client.send_command(SubscribeToEventsControlCommand())
            raise StateFileError("full", path=tmp_path)

    with pytest.raises(StateFileError, match="full"):
        await serve()
    assert not run.server.path.exists()


async def test_a_cancelled_run_closes_its_socket_and_stays_cancelled(tmp_path: Path):
    run = Run(tmp_path / "control.sock")

    async def serve():
        async with run.server:
            run.server.start_serving()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serve())
        await asyncio.sleep(0)
        client = await RunControlClient.open(run.server.path)
        await client.send_command(SubscribeToEventsControlCommand())
        task.cancel()
        assert [event async for event in client.read_events()] == []
        await client.__aexit__()
    assert task.cancelled()
    assert not run.server.path.exists()


async def test_the_socket_of_a_dead_run_is_replaced_and_that_of_a_live_one_is_not(tmp_path: Path):
    path = tmp_path / "control.sock"
    dead = socket.socket(socket.AF_UNIX)
    with shorten_path(path) as name:
        dead.bind(name)
    dead.close()
    async with Run(path).server as server:
        server.start_serving()
        with pytest.raises(StateFileError, match="is already listening"):
            async with Run(path).server:
                pass
        async with await RunControlClient.open(path) as client:
            assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}


async def test_a_path_too_long_for_a_socket_works(tmp_path: Path):
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    path = directory / "control.sock"
    fds = len(list(os.scandir("/proc/self/fd")))
    for _ in range(2):
        async with Run(path).server as server:
            server.start_serving()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with await RunControlClient.open(path) as client:
                assert await client.send_command(GetRunStatusControlCommand()) == {"turn": 3}
        assert not path.exists()
    await asyncio.sleep(0)
    assert len(list(os.scandir("/proc/self/fd"))) == fds


async def test_a_missing_directory_is_an_error_with_its_path(tmp_path: Path):
    with pytest.raises(StateFileError, match="nowhere"):
        async with Run(tmp_path / "nowhere" / "control.sock").server:
            pass
