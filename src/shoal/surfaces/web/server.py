"""Server of the web view."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

import uvicorn
from msgspec import Struct

from shoal.core.clock import SystemClock
from shoal.core.errors import SettingsError
from shoal.core.ids import Ids
from shoal.surfaces.web.application import application
from shoal.surfaces.web.guard import Gate
from shoal.surfaces.web.showing import Showing

GRACE = 3
"""Seconds for running requests when the server stops."""


class Place(Struct, frozen=True, kw_only=True):
    """Host, port and token of the server."""

    host: str
    port: int
    token: str
    ticket: str = ""
    """Lets one browser in, once."""

    def address(self, port: int) -> str:
        host = socket.gethostname() if _is_any(self.host) else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={quote(self.token, safe='')}"


class _Server(uvicorn.Server):
    """Leaves signals to its caller, and does not wait for open event streams when it stops."""

    def __init__(self, config: uvicorn.Config, showing: Showing, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._showing = showing
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._showing.stopping.set()
        await super().shutdown(sockets)


async def serve(home: Path, place: Place, *, ready: Callable[[str], None], ended: asyncio.Event) -> None:
    """Serve until `ended` is set; `on_ready` is called with the URL."""
    listener = _listener(place)
    port = listener.getsockname()[1]
    names = () if is_loopback(place.host) else (place.host.lower(), socket.gethostname().lower())
    tickets = {place.ticket} if place.ticket else set()
    gate = Gate(token=place.token, port=port, names=names, tickets=tickets, any_number=_is_any(place.host))
    with listener:
        async with Showing(home, clock=SystemClock(), ids=Ids()) as showing:
            config = uvicorn.Config(
                application(showing, gate),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=GRACE,
            )
            server = _Server(config, showing, lambda: ready(place.address(port)))
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(server.serve(sockets=[listener]))
                waiting = tasks.create_task(_end(server, ended))
                await serving
                waiting.cancel()


async def _end(server: uvicorn.Server, ended: asyncio.Event) -> None:
    await ended.wait()
    server.should_exit = True


def _listener(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((place.host, place.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        where = f"{place.host}:{place.port}"
        raise SettingsError(
            f"{where} cannot be listened on: {error.strerror}. Try another --port."
        ) from error
    return listener


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
