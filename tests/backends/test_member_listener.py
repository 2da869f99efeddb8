"""Connections between a lead and processes on other machines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shoal.backends import member_listener
from shoal.backends.member_listener import MemberListener, connect_to_lead, find_own_address, read_tls_files
from shoal.core.clock import SystemClock
from shoal.core.errors import ProcessError
from tls_files import create_tls_files

CLOCK = SystemClock()


@pytest.fixture
async def listener() -> AsyncIterator[MemberListener]:
    listener = MemberListener("127.0.0.1", CLOCK)
    listener.open()
    yield listener
    await listener.aclose()


async def test_an_expected_process_connects_and_both_sides_talk(listener: MemberListener) -> None:
    address, connection = listener.expect_connection()
    async with asyncio.timeout(10):
        member = await connect_to_lead(address, CLOCK)
        lead = await connection
        lead.send(b"to the member")
        member.send(b"to the lead")
        assert await member.receive() == b"to the member"
        assert await lead.receive() == b"to the lead"
        member.close()
        assert await lead.receive() is None
        lead.close()


async def test_a_process_without_the_secret_is_turned_away(listener: MemberListener) -> None:
    address, connection = listener.expect_connection()
    with pytest.raises(ProcessError, match="Cannot reach the lead"):
        await connect_to_lead(replace(address, secret="00" * 32), CLOCK)
    with pytest.raises(ProcessError, match="Cannot reach the lead"):
        await connect_to_lead(replace(address, key="00" * 16), CLOCK)
    assert not connection.done()


async def test_a_secret_admits_one_process(listener: MemberListener) -> None:
    address, connection = listener.expect_connection()
    member = await connect_to_lead(address, CLOCK)
    lead = await connection
    with pytest.raises(ProcessError, match="Cannot reach the lead"):
        await connect_to_lead(address, CLOCK)
    for channel in (member, lead):
        channel.close()


async def test_a_program_in_the_place_of_the_lead_is_noticed() -> None:
    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(32))
        await reader.readexactly(80)
        writer.write(bytes(32))
        await reader.read()
        writer.close()

    real = MemberListener("127.0.0.1", CLOCK)
    real.open()
    address, _ = real.expect_connection()
    async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ProcessError, match="is not the lead"):
            await connect_to_lead(replace(address, port=port), CLOCK)
    await real.aclose()


async def test_a_silent_connection_does_not_keep_others_out(
    listener: MemberListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_listener, "HANDSHAKE_TIMEOUT", 0.2)
    address, connection = listener.expect_connection()
    with socket.create_connection((address.host, address.port)) as silent:
        member = await connect_to_lead(address, CLOCK)
        lead = await connection
        assert len(silent.recv(64)) == 32
        # It is closed once its time is over.
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(silent.recv, 64) == b""
    for channel in (member, lead):
        channel.close()


async def test_an_unreachable_lead_is_an_error() -> None:
    listener = MemberListener("127.0.0.1", CLOCK)
    listener.open()
    address, _ = listener.expect_connection()
    await listener.aclose()
    with pytest.raises(ProcessError, match=r"Cannot reach the lead at 127\.0\.0\.1"):
        await connect_to_lead(address, CLOCK)


def test_an_address_that_is_not_of_this_machine_is_explained() -> None:
    with pytest.raises(ProcessError, match=r"shoal\.cluster\.lead_host"):
        MemberListener("192.0.2.77", CLOCK).open()


def test_the_own_address_is_the_one_that_reaches_the_head() -> None:
    assert find_own_address("127.0.0.1:6379") == "127.0.0.1"
    with pytest.raises(ProcessError, match="cannot be used"):
        find_own_address("not an address")


@pytest.mark.needs("openssl")
async def test_encrypted_connections_carry_large_messages_that_nobody_else_can_read(tmp_path: Path) -> None:
    tls = create_tls_files(tmp_path)
    listener = MemberListener("127.0.0.1", CLOCK, tls)
    listener.open()
    address, connection = listener.expect_connection()
    seen = bytearray()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            seen.extend(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(address.host, address.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(forward(reader, there[1]))
            group.create_task(forward(there[0], writer))

    async with asyncio.timeout(30), await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        member = await connect_to_lead(replace(address, port=port), CLOCK, tls)
        lead = await connection
        message = b"a key that stays secret " * 200_000
        lead.send(message)
        member.send(message)
        assert await member.receive() == message
        assert await lead.receive() == message
        assert len(seen) > 2 * len(message)
        assert b"stays secret" not in seen
        member.close()
        assert await lead.receive() is None
        lead.close()
    await listener.aclose()


@pytest.mark.needs("openssl")
async def test_a_machine_without_a_certificate_of_the_authority_gets_no_connection(tmp_path: Path) -> None:
    tls, other = create_tls_files(tmp_path / "own"), create_tls_files(tmp_path / "other")
    listener = MemberListener("127.0.0.1", CLOCK, tls)
    listener.open()
    address, connection = listener.expect_connection()
    with pytest.raises(ProcessError, match="RAY_USE_TLS=1"):
        await connect_to_lead(address, CLOCK)
    with pytest.raises(ProcessError, match="certificate verify failed"):
        await connect_to_lead(address, CLOCK, other)
    # It trusts the lead, but the lead does not trust it.
    stranger = await connect_to_lead(address, CLOCK, replace(other, authority=tls.authority))
    async with asyncio.timeout(10):
        assert await stranger.receive() is None
    assert not connection.done()
    stranger.close()
    await listener.aclose()


def test_the_files_are_those_of_ray_and_must_exist(tmp_path: Path) -> None:
    assert read_tls_files({}) is None
    assert read_tls_files({"RAY_USE_TLS": "0"}) is None
    with pytest.raises(ProcessError, match="RAY_TLS_SERVER_CERT"):
        read_tls_files({"RAY_USE_TLS": "1"})
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    missing = read_tls_files({"RAY_USE_TLS": "1"} | dict.fromkeys(names, str(tmp_path / "missing")))
    with pytest.raises(ProcessError, match="Cannot use the TLS files"):
        MemberListener("127.0.0.1", CLOCK, missing)
