"""Machines as network namespaces with their own addresses, and relays to servers on the lead's machine."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

NETWORK = "198.18.77"
"""Addresses that are reserved for tests of networks."""
LEAD_ADDRESS = f"{NETWORK}.1"
"""Address of the lead and of the head."""
SERVICE_ADDRESS = f"{NETWORK}.2"
"""Address of the database and of the model, which a partition may leave reachable."""
_CLONE_NEWNET = 0x40000000
_OWN_NETWORK = Path("/proc/self/ns/net")

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def explain_no_namespaces() -> str:
    """Return why namespaces cannot be used here; empty if they can."""
    if shutil.which("ip") is None:
        return "the program ip is not installed (Debian package iproute2)"
    name = f"shoal-probe-{os.getpid()}"
    try:
        _run_ip("netns", "add", name)
        _run_ip("-n", name, "link", "add", "bridge0", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


class NamespaceNetwork:
    """The lead's machine with a bridge, and other machines on it. `close` removes everything."""

    def __init__(self, machines: int) -> None:
        self._prefix = f"shoal-{os.getpid()}"
        self.lead = f"{self._prefix}-lead"
        self.machines = [f"{self._prefix}-{number}" for number in range(machines)]
        self._created: list[str] = []

    def open(self) -> None:
        self._create(self.lead)
        self._run(self.lead, "link", "add", "bridge0", "type", "bridge")
        for address in (LEAD_ADDRESS, SERVICE_ADDRESS):
            self._run(self.lead, "addr", "add", f"{address}/24", "dev", "bridge0")
        self._run(self.lead, "link", "set", "bridge0", "up")
        for number, name in enumerate(self.machines):
            self._create(name)
            port = self._get_port(number)
            self._run(self.lead, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            self._run(self.lead, "link", "set", port, "master", "bridge0", "up")
            self._run(name, "addr", "add", f"{self.get_address(number)}/24", "dev", "eth0")
            self._run(name, "link", "set", "eth0", "up")

    def close(self) -> None:
        for name in reversed(self._created):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self._created.clear()

    def get_address(self, number: int) -> str:
        return f"{NETWORK}.{10 + number}"

    def get_prefix(self, number: int) -> tuple[str, ...]:
        """Return the command that runs another one on a machine."""
        return ("ip", "netns", "exec", self.machines[number])

    def get_namespace(self, number: int) -> Path:
        """Return the file of the namespace of a machine."""
        return Path("/run/netns") / self.machines[number]

    def cut_off(self, number: int) -> None:
        """Cut a machine off from all others."""
        self._run(self.lead, "link", "set", self._get_port(number), "down")

    def reconnect(self, number: int) -> None:
        self._run(self.lead, "link", "set", self._get_port(number), "up")

    def cut_off_from_lead(self, number: int) -> None:
        """Cut a machine off from the lead and the head; it still reaches the database and the model."""
        self._run(self.machines[number], "route", "add", "blackhole", f"{LEAD_ADDRESS}/32")

    def reconnect_to_lead(self, number: int) -> None:
        self._run(self.machines[number], "route", "del", "blackhole", f"{LEAD_ADDRESS}/32")

    def limit_rate(self, number: int, rate: str) -> None:
        """Limit what a machine receives and sends, with a token bucket."""
        bucket = ("root", "tbf", "rate", rate, "burst", "16kbit", "latency", "400ms")
        for name, device in ((self.lead, self._get_port(number)), (self.machines[number], "eth0")):
            _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, *bucket)

    def lift_rate_limit(self, number: int) -> None:
        for name, device in ((self.lead, self._get_port(number)), (self.machines[number], "eth0")):
            _run("ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", device, "root")

    @contextlib.contextmanager
    def enter_lead(self) -> Iterator[None]:
        """Move this thread, and what it starts, to the lead's machine."""
        before = os.open(_OWN_NETWORK, os.O_RDONLY)
        try:
            _set_namespace(Path("/run/netns") / self.lead)
            yield
        finally:
            _set_namespace(before)
            os.close(before)

    def _get_port(self, number: int) -> str:
        return f"port{number}"

    def _create(self, name: str) -> None:
        _run_ip("netns", "add", name)
        self._created.append(name)
        self._run(name, "link", "set", "lo", "up")

    def _run(self, name: str, *arguments: str) -> None:
        _run_ip("-n", name, *arguments)


class Relay:
    """Forwards connections to a server; it runs in a thread of the lead's machine."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._connect = connect
        self.port = 0
        self.delay = 0.0
        """Seconds by which each piece of data is late, in both directions."""
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, SERVICE_ADDRESS, 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(server.wait_closed())
        self._loop.run_until_complete(asyncio.sleep(0))  # sockets are closed one step later
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await self._connect()
        except OSError:
            writer.close()
            return
        # asyncio reports a cancelled connection handler as a failure; `stop` cancels these.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._forward(reader, target_writer), self._forward(target_reader, writer))
        writer.transport.abort()
        target_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()


def relay_to_port(port: int) -> Relay:
    return Relay(lambda: asyncio.open_connection("127.0.0.1", port))


def relay_to_socket(path: Path) -> Relay:
    return Relay(lambda: asyncio.open_unix_connection(path))


def _set_namespace(place: Path | int) -> None:
    """Move this thread to a namespace, given by its file or an open descriptor."""
    descriptor = os.open(place, os.O_RDONLY) if isinstance(place, Path) else place
    library = ctypes.CDLL(None, use_errno=True)
    try:
        if library.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {place}")
    finally:
        if isinstance(place, Path):
            os.close(descriptor)


def _run_ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
