"""What the connections to MCP servers stand on, and where the tokens of their logins are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import shoal
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.errors import StoreError
from shoal.core.ports import Processes
from shoal.stores.files.places import write_whole
from shoal.tools.mcp.host import Host


class FileTokens:
    """In the home, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}.", path=self._path) from error

    def write(self, content: bytes) -> None:
        write_whole(self._path, content)


def tokens_in(home: Path, server: str, url: str) -> FileTokens:
    """By the address too: a server that moved must not be sent what another gave."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:60]
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    # Beside Shoal's own keys, which no tool may reach; no team can have a name with a dot.
    return FileTokens(home / "shoal" / "keys" / "mcp.auth" / f"{name}-{digest}.json")


def host_for(
    settings: Settings,
    *,
    root: Path,
    logs: Path,
    processes: Processes,
    clock: Clock,
    note: Callable[[str], None],
) -> Host:
    return Host(
        processes=processes,
        clock=clock,
        root=root,
        env=settings.tool_environment,
        logs=logs,
        deadline=settings.own.mcp_deadline,
        note=note,
        tokens=lambda name, url: tokens_in(settings.home, name, url),
        version=shoal.__version__,
    )
