"""Server of the web view."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import quote

import uvicorn
from msgspec import Struct

from shoal.app.run_access.stored_runs import StoredRuns
from shoal.core.clock import SystemClock
from shoal.core.errors import SettingsError
from shoal.core.ids import IdGenerator
from shoal.surfaces.web.access_guard import WebAccessPolicy
from shoal.surfaces.web.application import create_web_application
from shoal.surfaces.web.web_context import WebContext

GRACE = 3
"""Seconds allowed for running requests when the server stops."""


class WebServerAddress(Struct, frozen=True, kw_only=True):
    """Host, port and token of the server."""

    host: str
    port: int
    token: str
    ticket: str = ""
    """Lets one browser in, once."""

    def build_url(self, port: int) -> str:
        host = socket.gethostname() if _is_any_address(self.host) else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={quote(self.token, safe='')}"


class _UvicornWebServer(uvicorn.Server):
    """Leaves signals to its caller, and does not wait for open event streams when it stops."""

    def __init__(self, config: uvicorn.Config, context: WebContext, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._context = context
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.stopping.set()
        await super().shutdown(sockets)


async def serve_web_view(
    runs: StoredRuns, address: WebServerAddress, *, on_ready: Callable[[str], None], ended: asyncio.Event
) -> None:
    """Serve until `ended` is set; `on_ready` is called with the URL."""
    listener = _open_listening_socket(address)
    port = listener.getsockname()[1]
    names = () if is_loopback_host(address.host) else (address.host.lower(), socket.gethostname().lower())
    tickets = {address.ticket} if address.ticket else set()
    policy = WebAccessPolicy(
        token=address.token,
        port=port,
        names=names,
        tickets=tickets,
        any_address=_is_any_address(address.host),
    )
    with listener:
        async with WebContext(runs, clock=SystemClock(), ids=IdGenerator()) as context:
            config = uvicorn.Config(
                create_web_application(context, policy),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=GRACE,
            )
            server = _UvicornWebServer(config, context, lambda: on_ready(address.build_url(port)))
            async with asyncio.TaskGroup() as tasks:
                serve_task = tasks.create_task(server.serve(sockets=[listener]))
                stop_task = tasks.create_task(_stop_server_when_set(server, ended))
                await serve_task
                stop_task.cancel()


async def _stop_server_when_set(server: uvicorn.Server, stop_event: asyncio.Event) -> None:
    await stop_event.wait()
    server.should_exit = True


def _open_listening_socket(address: WebServerAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        address_text = f"{address.host}:{address.port}"
        raise SettingsError(
            f"Cannot listen on {address_text}: {error.strerror}. Try another --port."
        ) from error
    return listener


def is_loopback_host(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_any_address(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
