"""One MCP server of a session: started, restarted once when lost, stopped with its owner."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shoal.core.conversation.tools import ProgressCallback, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import MissingPackageExtra, ShoalError
from shoal.core.extensions.mcp_servers import (
    McpChannelMessage,
    McpHttpConfig,
    McpServerConfig,
    McpServerState,
    McpServerStatus,
    McpStdioConfig,
)
from shoal.core.ports import ProcessLaunchSpec
from shoal.core.user_environment import get_user_environment
from shoal.tools.mcp.client_context import (
    MAX_DEADLINE_FACTOR,
    ActiveMcpCall,
    ListedMcpTool,
    McpClientContext,
    McpConnectionLost,
    McpLoginRequired,
    McpRequestRefused,
    McpServerFeatures,
)
from shoal.tools.tool_texts import format_tool_text, load_tool_text
from shoal.wire.json_codec import decode_json
from shoal.wire.mcp_codec import InvalidMcpServerConfigError, expand_mcp_server_variables

if TYPE_CHECKING:
    from types import ModuleType

    from shoal.tools.mcp.sdk_connection import McpConnection

LOG_HINT = ". Its output is in "
MAX_RESTARTS = 1
STABLE_SECONDS = 60.0
"""Seconds after which a connection to an address counts as stable."""
STOP_TIMEOUT = 5.0
_active_call: ContextVar[ActiveMcpCall | None] = ContextVar("caller", default=None)
_HELPER_TIMEOUT = 10.0
"""Seconds that the command of `headersHelper` may take."""
_MAX_HELPER_BYTES = 64 * 1024


class McpTool:
    deadline: float | None = None
    """None: each call has its own deadline, which progress and questions to the user extend."""

    def __init__(self, managed: ManagedMcpServer, listed: ListedMcpTool) -> None:
        self.managed = managed
        self.listed = listed
        self.schema = listed.schema
        # The server's read-only hint only affects call order; permission is still required.
        self.is_read_only = listed.reads_only
        self.is_concurrent = listed.reads_only

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self.managed.call_tool(self.listed.name, arguments, context)


class ManagedMcpServer:
    """Manages the connection to one MCP server inside its owner's task group."""

    def __init__(
        self,
        server: McpServerConfig,
        client_context: McpClientContext,
        on_change: Callable[[], None],
        on_push: Callable[[str, McpChannelMessage], None] | None = None,
        wait_for_start: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`on_push` receives what the server pushes; if None, it is dropped with a note.

        `wait_for_start` returns when it may start; until then it is pending and costs nothing.
        """
        self.server = server
        self.client_context = client_context
        self.status: McpServerState = "pending"
        self.detail = ""
        self.features = McpServerFeatures()
        self.tools: tuple[McpTool, ...] = ()
        self._on_change = on_change
        self._on_push = on_push
        self._wait_for_start = wait_for_start
        self._connection: McpConnection | None = None
        self._wake = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._loss_reason = ""
        self._calls: list[ActiveMcpCall] = []
        self._noted: set[str] = set()

    @property
    def status_info(self) -> McpServerStatus:
        return McpServerStatus(
            name=self.server.name,
            status=self.status,
            kind=self.server.transport_type,
            origin=self.server.origin,
            scope=self.server.scope,
            detail=self.detail,
            version=self.features.version,
            tools=tuple(tool.schema.name for tool in self.tools),
            prompts=tuple(prompt.name for prompt in self.features.prompts),
            resources=self.features.resources,
            instructions=self.features.instructions,
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._run_server())

    async def _run_server(self) -> None:
        name = self.server.name
        try:
            server = expand_mcp_server_variables(self.server, self.client_context.env)
            if self._wait_for_start is not None:
                await self._wait_for_start()
            await self._run_with_restarts(await _load_sdk_connection(), server)
        except McpLoginRequired:
            self._set_status("needs-auth", f"it needs a login: run `shoal mcp login {name}`")
            self.client_context.note(f"The MCP server {name} needs a login. Run: shoal mcp login {name}")
        except (InvalidMcpServerConfigError, ShoalError) as error:
            self._set_failed_status(str(error).removesuffix("."))
        except TimeoutError:
            self._set_failed_status(f"it did not start within {self.client_context.connect_timeout:g} s")
        except Exception as error:  # noqa: BLE001 - a failing server must not affect the others
            self._set_failed_status(_describe_innermost_error(error))
        finally:
            self._connection = None
            if self.status == "pending":
                self._set_status("failed", "it was stopped")

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._connection is None and self._task is not None:
            # Still starting, and nobody waits for it any more.
            self.cancel()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self) -> None:
        """Wait a bounded time until the server has stopped."""
        if self._task is None or self._task.done():
            return
        try:
            async with self.client_context.clock.deadline(STOP_TIMEOUT):
                await asyncio.wait([self._task])
        except TimeoutError:
            self.cancel()

    def mark_connection_lost(self, why: str) -> None:
        """Mark the connection as unusable."""
        self._loss_reason = self._loss_reason or why
        if self._connection is not None and not self._stopping:
            # From now on calls wait for the next connection.
            self._connection = None
            self._set_status("pending", why)
        self._wake.set()

    def note_once(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < 20:
            self._noted.add(text)
            self.client_context.note(f"The MCP server {self.server.name}: {text}")

    def deliver_push(self, push: McpChannelMessage) -> None:
        if self._on_push is not None:
            self._on_push(self.server.name, push)
            return
        self.note_once(
            f"it pushes messages, but Shoal drops them because the server is not a channel. To accept them, "
            f"use --channels server:{self.server.name} or shoal.channels in your own settings."
        )

    async def refresh_features(self) -> None:
        """Reload the features after the server reported a change."""
        if self._connection is None:
            return
        seconds = self.client_context.deadline
        try:
            async with self.client_context.clock.deadline(seconds):
                self._set_features(await self._connection.list_features())
        except TimeoutError:
            self.note_once(
                f"it reported that its tools changed, but did not list them within {seconds:g} s. Shoal "
                "uses the old list."
            )
        self._on_change()

    @property
    def current_call(self) -> ActiveMcpCall | None:
        """Call that a server's question belongs to; if unknown, the latest one."""
        return _active_call.get() or (self._calls[-1] if self._calls else None)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        async def call_on_connection(connection: McpConnection, call: ActiveMcpCall) -> ToolOutput:
            return await connection.call_tool(
                tool, arguments, context, _build_throttled_progress_reporter(call, context.report_progress)
            )

        return await self.run_on_connection(
            format_tool_text("mcp", "call", tool=tool), context, call_on_connection
        )

    async def run_on_connection(
        self, what: str, context: ToolContext, work: Callable[[McpConnection, ActiveMcpCall], Any]
    ) -> ToolOutput:
        """Run work on the connection for an agent; failures become tool output the model can act on."""
        seconds, setting = self._choose_call_timeout(context)
        name, connection = self.server.name, None
        try:
            async with context.clock.deadline(seconds) as deadline:
                latest_end = context.clock.monotonic() + seconds * MAX_DEADLINE_FACTOR
                call = ActiveMcpCall(
                    context=context, deadline=deadline, seconds=seconds, latest_end=latest_end
                )
                with self._track_call(call):
                    connection = await self.wait_for_connection()
                    output: ToolOutput = await work(connection, call)
                    return output
        except TimeoutError:
            text = format_tool_text(
                "mcp", "timed_out", what=what, server=name, seconds=f"{seconds:g}", setting=setting
            )
            return create_tool_error_output(text)
        except McpConnectionLost as error:
            if connection is not None and connection is self._connection:
                self.mark_connection_lost(str(error))
            return create_tool_error_output(self._describe_connection_loss(what, str(error)))
        except McpRequestRefused as refusal:
            return create_tool_error_output(
                format_tool_text("mcp", "refused", what=what, server=name, reason=refusal)
            )

    def _choose_call_timeout(self, context: ToolContext) -> tuple[float, str]:
        """Return the seconds that a call may take, and the name of the setting that says so."""
        if self.server.timeout is not None:
            return self.server.timeout, "the server's timeout"
        if context.call_timeout is not None:
            return context.call_timeout, "the hook's timeout"
        return self.client_context.deadline, self.client_context.deadline_setting

    async def _run_with_restarts(self, sdk: ModuleType, server: McpServerConfig) -> None:
        restarts_left = MAX_RESTARTS
        while True:
            started = self.client_context.clock.monotonic()
            await self._run_connection(sdk, server)
            if self._stopping:
                return
            if (
                isinstance(server.connection, McpHttpConfig)
                and self.client_context.clock.monotonic() - started > STABLE_SECONDS
            ):
                # A remote server may drop an idle session without having failed.
                restarts_left = MAX_RESTARTS
            if not restarts_left:
                raise McpConnectionLost(format_tool_text("mcp", "ended_twice", reason=self._loss_reason))
            restarts_left -= 1
            self._set_status("pending", self._loss_reason)
            self.client_context.note(
                f"The MCP server {server.name} ended ({self._loss_reason}). It is being restarted."
            )

    async def _run_connection(self, sdk: ModuleType, server: McpServerConfig) -> None:
        """Run one connection from start to end. Raises if the server does not start."""
        self._wake.clear()
        self._loss_reason, has_connected = "", False
        try:
            async with AsyncExitStack() as stack:
                async with self.client_context.clock.deadline(self.client_context.connect_timeout):
                    if isinstance(server.connection, McpHttpConfig):
                        address = await _add_helper_headers(
                            server.connection, server.name, self.client_context
                        )
                        server = replace(server, connection=address)
                    connection: McpConnection = await stack.enter_async_context(
                        sdk.open_mcp_connection(server, self)
                    )
                    self._set_features(await connection.list_features())
                self._connection, has_connected = connection, True
                self._set_status("connected", "")
                await self._wake.wait()
                self._connection = None
        except Exception as error:
            if not has_connected:
                raise self._explain_start_failure(error) from error
            self._loss_reason = self._loss_reason or _describe_innermost_error(error)
        finally:
            self._connection = None

    def _explain_start_failure(self, error: Exception) -> Exception:
        if isinstance(error, ShoalError) and not isinstance(error, McpConnectionLost):
            return error
        if self._loss_reason:
            return McpConnectionLost(self._loss_reason)
        if isinstance(error, McpConnectionLost | TimeoutError):
            return error
        return McpConnectionLost(_describe_innermost_error(error))

    def _set_features(self, features: McpServerFeatures) -> None:
        self.features = features
        self.tools = tuple(McpTool(self, listed) for listed in features.tools)
        for note in features.notes:
            self.note_once(note)

    def _set_status(self, status: McpServerState, detail: str) -> None:
        self.status, self.detail = status, detail
        event, self._status_changed = self._status_changed, asyncio.Event()
        event.set()
        self._on_change()

    def _set_failed_status(self, reason: str) -> None:
        log_hint = ""
        if (
            isinstance(self.server.connection, McpStdioConfig)
            and self.log_path.is_file()
            and self.log_path.stat().st_size
        ):
            log_hint = f"{LOG_HINT}{self.log_path}"
        self._set_status("failed", f"{reason}{log_hint}")
        self.client_context.note(
            f"The MCP server {self.server.name} ({self.server.origin}) is not available: {reason}{log_hint}."
        )

    @property
    def log_path(self) -> Path:
        return self.client_context.logs / f"{self.server.tool_name_prefix[5:-2]}.log"

    async def wait_for_connection(self) -> McpConnection:
        while self.status == "pending":
            await self._status_changed.wait()
        if self._connection is None:
            raise McpConnectionLost(self.detail or load_tool_text("mcp", "closed"))
        return self._connection

    @contextmanager
    def _track_call(self, call: ActiveMcpCall) -> Iterator[None]:
        self._calls.append(call)
        token = _active_call.set(call)
        try:
            yield
        finally:
            _active_call.reset(token)
            self._calls.remove(call)

    def _describe_connection_loss(self, what: str, reason: str) -> str:
        name = self.server.name
        if self.status == "failed":
            return format_tool_text("mcp", "lost", what=what, server=name, reason=self.detail)
        reason = self._loss_reason or reason
        return format_tool_text("mcp", "restarting", what=what, server=name, reason=reason)


async def _load_sdk_connection() -> ModuleType:
    """Import the SDK in a thread that does not keep a session open if it has ended in the meantime."""
    loop = asyncio.get_running_loop()
    imported: asyncio.Future[ModuleType] = loop.create_future()

    def settle(module: ModuleType | None, error: BaseException | None) -> None:
        if imported.done():
            return
        if module is None:
            imported.set_exception(error or RuntimeError("nothing was imported"))
        else:
            imported.set_result(module)

    def import_and_settle() -> None:
        module, error = None, None
        try:
            module = _import_sdk_connection()
        except BaseException as failure:  # noqa: BLE001 - raised again where it is awaited
            error = failure
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, module, error)

    Thread(target=import_and_settle, name="mcp-import", daemon=True).start()
    return await imported


def _import_sdk_connection() -> ModuleType:
    """Import the module that uses the SDK, which takes a second. Raises `MissingPackageExtra`."""
    try:
        from shoal.tools.mcp import sdk_connection
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "httpx2"):
            raise
        raise MissingPackageExtra("Using MCP servers", "mcp") from error
    return sdk_connection


def _build_throttled_progress_reporter(call: ActiveMcpCall, report: ProgressCallback) -> Callable[[str], Any]:
    """Report only the newest progress, so that a fast server cannot fill a queue."""
    newest: str | None = None
    is_reporting = False

    async def report_latest(text: str) -> None:
        nonlocal newest, is_reporting
        call.extend_deadline()
        newest = text
        if is_reporting:
            return
        is_reporting = True
        try:
            while newest is not None:
                text, newest = newest, None
                await report(text)
        finally:
            is_reporting = False

    return report_latest


def _describe_innermost_error(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _add_helper_headers(config: McpHttpConfig, name: str, context: McpClientContext) -> McpHttpConfig:
    """Return the server with the headers that its command prints. Raises `McpConnectionLost`."""
    if not config.headers_helper:
        return config
    env = {
        **context.env,
        "CLAUDE_CODE_MCP_SERVER_NAME": name,
        "CLAUDE_CODE_MCP_SERVER_URL": config.url,
    }
    from tempfile import TemporaryFile

    temporary = get_user_environment(context.env).temporary_directory
    with TemporaryFile(dir=temporary) as output, open(os.devnull, "wb") as nowhere:  # noqa: ASYNC230, PTH123 - local files
        launch = ProcessLaunchSpec(
            argv=("/bin/sh", "-c", config.headers_helper),
            cwd=context.root,
            env=env,
            stdout=output.fileno(),
            stderr=nowhere.fileno(),
        )
        process = await context.processes.start_process(launch)
        try:
            async with context.clock.deadline(_HELPER_TIMEOUT):
                status = await process.wait()
        except (TimeoutError, asyncio.CancelledError) as error:
            await process.stop()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise McpConnectionLost(
                format_tool_text("mcp", "headers_slow", seconds=f"{_HELPER_TIMEOUT:g}")
            ) from None
        if status != 0:
            raise McpConnectionLost(format_tool_text("mcp", "headers_failed", status=status))
        output.seek(0)
        text = output.read(_MAX_HELPER_BYTES)
    try:
        headers = decode_json(text)
    except ValueError as error:
        raise McpConnectionLost(format_tool_text("mcp", "headers_not_object")) from error
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise McpConnectionLost(format_tool_text("mcp", "headers_not_text"))
    return replace(config, headers={**config.headers, **headers})
