"""Entry point of a process on a machine of a cluster that runs a member of a team whose lead is elsewhere."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.app.agents.member_bootstrap import MemberBootstrap, decode_member_bootstrap
from shoal.app.session.member_main import run_member_session
from shoal.backends.member_listener import LeadAddress, connect_to_lead
from shoal.backends.ray_backend import MemberHello
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import SystemClock
from shoal.core.errors import ShoalError
from shoal.core.teams.member_backends import AGENT_ENVIRONMENT_MARKS


def main(order: Mapping[str, Any]) -> None:
    """Run the process that Ray started for one member."""
    os.environ.update(AGENT_ENVIRONMENT_MARKS)
    asyncio.run(_run_ordered_member(order))


async def _run_ordered_member(order: Mapping[str, Any]) -> None:
    clock = SystemClock()
    orders = await connect_to_lead(msgspec.convert(order["orders"], LeadAddress), clock)
    channel = await connect_to_lead(msgspec.convert(order["member"], LeadAddress), clock)
    member = asyncio.ensure_future(_run_member(channel))
    end = asyncio.ensure_future(orders.receive())
    try:
        await asyncio.wait((member, end), return_when=asyncio.FIRST_COMPLETED)
        if not member.done():
            os.kill(os.getpid(), 15)
        await member
    finally:
        end.cancel()
        orders.close()


async def _run_member(channel: SocketChannel) -> None:
    message = await channel.receive()
    if message is None:
        return
    try:
        bootstrap = _adapt_to_machine(decode_member_bootstrap(message))
        hello = MemberHello(
            epoch=await asyncio.to_thread(_open_lease, bootstrap), pid=os.getpid(), node=socket.gethostname()
        )
    except ShoalError as error:
        channel.send(msgspec.json.encode(MemberHello(refusal=str(error))))
    else:
        channel.send(msgspec.json.encode(hello))
        await run_member_session(channel, bootstrap)
    await channel.wait_until_sent()
    channel.close()


def _open_lease(bootstrap: MemberBootstrap) -> int:
    """Return the epoch of this process in the store, which all its stores share."""
    from shoal.stores.postgres.database_client import get_shared_client

    assert bootstrap.opened.store is not None
    return get_shared_client(bootstrap.opened.store).epoch


def _adapt_to_machine(bootstrap: MemberBootstrap) -> MemberBootstrap:
    """Leave out what exists only on the lead's machine. Raises `ShoalError`."""
    cwd = Path(bootstrap.opened.cwd)
    if not cwd.is_dir():
        raise ShoalError(f"The directory {cwd} does not exist on the machine {socket.gethostname()}.")
    with suppress(OSError):
        os.chdir(cwd)
    return replace(bootstrap, run="", transcript="", snapshot="")
