"""Host of MCP connections, and the files with login tokens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import shoal
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.ports import ProcessLauncher
from shoal.core.tls_contexts import read_tls_variables
from shoal.stores.files.home.home_paths import read_state_file, write_file_atomically
from shoal.tools.mcp.client_context import CONNECT_TIMEOUT, McpClientContext


class McpOAuthTokenFile:
    """Login tokens of one server, in a file in the home that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return read_state_file(self._path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StateFileError(f"Cannot read {self._path}: {error.strerror}.", path=self._path) from error

    def write(self, content: bytes) -> None:
        write_file_atomically(self._path, content, durable=True)

    def remove(self) -> bool:
        """Remove the tokens; return True if there were any. Raises `StateFileError`."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateFileError(f"Cannot remove {self._path}: {error.strerror}.", path=self._path) from error
        return True


def open_mcp_token_file(home: Path, server: str, url: str) -> McpOAuthTokenFile:
    """Open the token file of a server. It depends on the URL, so no other server gets the tokens."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:60]
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    # This directory also holds Shoal's keys, which no tool can read. No team name contains a dot.
    return McpOAuthTokenFile(home / "shoal" / "keys" / "mcp.auth" / f"{name}-{digest}.json")


def create_mcp_client_context(
    settings: Settings,
    *,
    root: Path,
    logs: Path,
    processes: ProcessLauncher,
    clock: Clock,
    note: Callable[[str], None],
) -> McpClientContext:
    has_default_deadline = settings.foreign.tools.mcp_call_timeout is None
    return McpClientContext(
        processes=processes,
        clock=clock,
        root=root,
        env=settings.tool_environment,
        find_proxy=settings.proxies.find_proxy,
        tls=read_tls_variables(settings.environ),
        logs=logs,
        deadline=settings.own.mcp_deadline,
        deadline_setting="shoal.mcp_deadline" if has_default_deadline else "MCP_TOOL_TIMEOUT",
        connect_timeout=settings.foreign.tools.mcp_start_timeout or CONNECT_TIMEOUT,
        note=note,
        tokens=lambda name, url: open_mcp_token_file(settings.home, name, url),
        version=shoal.__version__,
    )
