"""Ray processes of one machine: started, watched and ended together."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.member_listener import limit_silence
from shoal.backends.program_directory import ProgramDirectory
from shoal.backends.ray_settings import RAY_ENVIRONMENT
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec
from shoal.core.task_groups import open_task_group

DEFAULT_PORT = 6379
START_TIMEOUT = 60.0
STOP_GRACE = 4.0
_RETRY_PAUSE = 1.0
_NODE_ADDRESS = re.compile(r"Local node IP: (\S+)")


class RayNodeSpec(Struct, frozen=True, kw_only=True):
    """Ray processes to start on this machine; a node without an address is the head."""

    address: str | None = None
    """Head of the cluster to join, as HOST:PORT."""
    port: int = DEFAULT_PORT
    """Port of a head."""
    host: str | None = None
    """Address at which the other machines reach this one; None to let Ray choose."""
    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    labels: Mapping[str, str] = {}
    object_store_memory: int = 80_000_000
    """Bytes of shared memory. Shoal stores nothing there, so it is the smallest size that Ray accepts."""
    env: Mapping[str, str] = {}
    """Variables in addition to those of this process."""


class RayNode:
    """Node that runs until `stop`, or until its processes end on their own."""

    stop_grace: ClassVar[float] = STOP_GRACE

    def __init__(self, spec: RayNodeSpec, processes: ProcessLauncher, clock: Clock) -> None:
        self._spec = spec
        self._processes = processes
        self._clock = clock
        self._process: ChildProcessHandle | None = None
        self._directory = ProgramDirectory("ray")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start the processes and wait until Ray reports that they are running. Raises `ProcessError`."""
        self._process = await self._processes.start_process(
            ProcessLaunchSpec(
                argv=build_ray_start_command(self._spec, self._directory.path),
                cwd=Path("/"),
                env={**os.environ, **RAY_ENVIRONMENT, **self._spec.env},
                stdout=self._directory.output,
                stderr=self._directory.output,
            )
        )
        try:
            async with self._clock.deadline(START_TIMEOUT):
                await self._wait_until_started()
        except TimeoutError:
            await self.stop()
            raise ProcessError(
                format_backend_notice(
                    "ray_too_slow", seconds=f"{START_TIMEOUT:g}", output=self.read_last_output()
                )
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def _wait_until_started(self) -> None:
        async with open_task_group() as tasks:
            ended = tasks.create_task(self.wait())
            while "Ray runtime started" not in self._directory.read_output():
                await asyncio.wait((ended,), timeout=0.1)
                if ended.done():
                    raise ProcessError(
                        format_backend_notice("ray_not_started", output=self.read_last_output())
                    )
            ended.cancel()

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """End all processes of the node, and remove its directory."""
        if self._process is not None:
            with suppress(ProcessError):
                await self._process.stop(grace=self.stop_grace)
        await asyncio.to_thread(self._directory.remove)

    def find_address(self) -> str:
        """Return the address that Ray gave this machine; empty if its output does not name it."""
        found = _NODE_ADDRESS.search(self._directory.read_output())
        return found[1] if found else ""

    def read_last_output(self) -> str:
        return self._directory.read_last_output()


def build_ray_start_command(spec: RayNodeSpec, directory: Path) -> list[str]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    # Nobody reads the output of members through Ray.
    command.append("--include-log-monitor=false")
    if spec.address is None:
        # In a directory of its own, because Ray refuses the address of an earlier head in the same one.
        command += ["--head", f"--port={spec.port}", "--include-dashboard=false", f"--temp-dir={directory}"]
    else:
        command += [f"--address={spec.address}", f"--temp-dir={directory}"]
    command.append(f"--object-store-memory={spec.object_store_memory}")
    if spec.host is not None:
        command.append(f"--node-ip-address={spec.host}")
    if spec.cpus is not None:
        command.append(f"--num-cpus={spec.cpus:g}")
    if spec.gpus is not None:
        command.append(f"--num-gpus={spec.gpus:g}")
    if spec.memory is not None:
        command.append(f"--memory={spec.memory}")
    if spec.labels:
        command.append("--labels=" + ",".join(f"{name}={value}" for name, value in spec.labels.items()))
    return command


class RayNodeKeeper:
    """Keeps a machine in a cluster: it joins again when the head was replaced."""

    def __init__(
        self,
        spec: RayNodeSpec,
        processes: ProcessLauncher,
        clock: Clock,
        *,
        read_cluster_id: Callable[[str], str],
        report: Callable[[str], None],
    ) -> None:
        """`read_cluster_id` returns the id of the cluster at an address; empty if there is none."""
        self._spec = spec
        self._processes = processes
        self._clock = clock
        self._read_cluster_id = read_cluster_id
        self._report = report

    async def run(self) -> None:
        """Join the cluster again and again, until this is canceled."""
        assert self._spec.address is not None
        while True:
            cluster_id = await self._wait_for_head(self._spec.address)
            node = RayNode(self._spec, self._processes, self._clock)
            try:
                await node.start()
                self._report(f"This machine is part of the cluster at {self._spec.address}.")
                reason = await self._wait_until_left(node, cluster_id)
                self._report(f"{reason} Joining again.")
            except ProcessError as error:
                self._report(f"{error} Trying again.")
                await self._clock.sleep(_RETRY_PAUSE)
            finally:
                await node.stop()

    async def _wait_for_head(self, address: str) -> str:
        has_reported = False
        while not (cluster_id := await asyncio.to_thread(self._read_cluster_id, address)):
            if not has_reported:
                self._report(f"There is no head at {address}. Waiting for it.")
                has_reported = True
            await self._clock.sleep(_RETRY_PAUSE)
        return cluster_id

    async def _wait_until_left(self, node: RayNode, cluster_id: str) -> str:
        assert self._spec.address is not None
        async with open_task_group() as tasks:
            ended = tasks.create_task(node.wait())
            replaced = tasks.create_task(self._wait_for_other_head(self._spec.address, cluster_id))
            await asyncio.wait((ended, replaced), return_when=asyncio.FIRST_COMPLETED)
            has_ended = ended.done()
            ended.cancel()
            replaced.cancel()
        return "Ray's processes on this machine have ended." if has_ended else "The head was replaced."

    async def _wait_for_other_head(self, address: str, cluster_id: str) -> None:
        """Wait until another head answers. Until then, this machine's processes continue without one."""
        while True:
            await self._wait_for_broken_connection(address)
            found = await asyncio.to_thread(self._read_cluster_id, address)
            if found and found != cluster_id:
                return
            if not found:
                await self._clock.sleep(_RETRY_PAUSE)

    async def _wait_for_broken_connection(self, address: str) -> None:
        """Hold a connection to the head without sending anything; it breaks with the head."""
        host, _, port = address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            return
        try:
            limit_silence(writer.get_extra_info("socket"))
            while await reader.read(1024):
                pass
        except OSError:
            pass
        finally:
            writer.close()
