"""Connection to one MCP server through the official SDK; no other layer sees the SDK's types."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
import mcp_types
from mcp.client import Client, ClientRequestContext, IncomingMessage, InputRequiredRoundsExceededError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext, ToolOutput
from shoal.core.extensions.mcp_servers import (
    McpHttpConfig,
    McpPrompt,
    McpPromptArgument,
    McpServerConfig,
    McpStdioConfig,
    format_mcp_tool_name,
)
from shoal.core.tls_contexts import TlsVariables, get_tls_context
from shoal.tools.mcp.client_context import (
    ListedMcpTool,
    McpConnectionLost,
    McpLoginRequired,
    McpRequestRefused,
    McpServerFeatures,
    McpTokenStore,
    limit_server_instructions,
)
from shoal.tools.mcp.elicitation import handle_mcp_elicitation
from shoal.tools.mcp.filtering_transport import McpToolFilterTransport
from shoal.tools.mcp.oauth import McpOAuthCallbackServer, create_mcp_oauth_provider
from shoal.tools.mcp.result_content import (
    convert_mcp_call_result,
    convert_mcp_resource_result,
    format_mcp_prompt_result,
)
from shoal.tools.mcp.stdio_transport import McpStdioTransport
from shoal.tools.tool_texts import format_tool_text
from shoal.wire.json_codec import encode_json
from shoal.wire.mcp_codec import InvalidMcpChannelMessageError, parse_mcp_channel_message

if TYPE_CHECKING:
    from shoal.tools.mcp.managed_server import ManagedMcpServer

MAX_PAGES = 50
MAX_TOOLS = 500
MAX_SCHEMA_CHARACTERS = 100_000
MAX_DESCRIPTION_CHARACTERS = 10_000
T = TypeVar("T")
Page = TypeVar("Page", bound=mcp_types.PaginatedResult)

# SDK log records go to configured handlers only, never to the terminal by default.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
MAX_BODY_BYTES = 16 << 20
CONNECT_TIMEOUT, READ_TIMEOUT = 30.0, 3600.0
"""Seconds; each call has its own deadline."""
CHANNEL_CAPABILITY = "claude/channel"
MAX_BUFFERED = 20
"""Messages that may arrive before the server has declared its capabilities."""


class McpPushReceiver:
    """Receiver of the pushed messages of one connection."""

    def __init__(self, managed: ManagedMcpServer) -> None:
        self._managed = managed
        self._buffered: list[Any] = []
        self._is_declared: bool | None = None

    def forward_or_buffer_push(self, params: Any) -> None:
        if self._is_declared is not None:
            self._forward_push(params)
        elif len(self._buffered) < MAX_BUFFERED:
            self._buffered.append(params)
        else:
            self._managed.note_once(
                f"it sent more than {MAX_BUFFERED} channel messages before Shoal was ready; the rest were "
                f"dropped."
            )

    def release_buffered_pushes(self, *, declared: bool) -> None:
        self._is_declared = declared
        buffered, self._buffered = self._buffered, []
        for params in buffered:
            self._forward_push(params)

    def _forward_push(self, params: Any) -> None:
        if not self._is_declared:
            self._managed.note_once(
                "its channel messages are dropped because it does not declare the capability "
                f"{CHANNEL_CAPABILITY}."
            )
            return
        try:
            push = parse_mcp_channel_message(params)
        except InvalidMcpChannelMessageError as error:
            self._managed.note_once(f"a message from its channel was dropped: {error}.")
            return
        self._managed.deliver_push(push)


@asynccontextmanager
async def open_mcp_http_transport(
    address: McpHttpConfig,
    *,
    auth: httpx2.Auth | None,
    proxy: str | None,
    tls: TlsVariables,
    on_error_status: Callable[[int], None],
) -> AsyncIterator[Any]:
    """Open the transport; `on_error_status` receives the status of each error response."""

    async def check_http_response(response: httpx2.Response) -> None:
        if response.status_code >= 400 and str(response.request.url).startswith(address.url):
            on_error_status(response.status_code)
        if "json" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _SizeLimitedResponseStream(response.stream)

    def create_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = auth,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=dict(address.headers),
            timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT),
            auth=auth,
            trust_env=False,
            proxy=proxy,
            verify=get_tls_context(tls),
            event_hooks={"response": [check_http_response]},
        )

    if address.transport == "sse":
        async with sse_client(address.url, httpx_client_factory=create_client, auth=auth) as streams:
            yield streams
        return
    async with (
        create_client() as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_BODY_BYTES) as streams,
    ):
        yield streams


class _SizeLimitedResponseStream(httpx2.AsyncByteStream):
    """Response body with a length limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise httpx2.StreamError(f"The answer is longer than {MAX_BODY_BYTES >> 20} MB.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def open_mcp_connection(
    server: McpServerConfig, managed: ManagedMcpServer
) -> AsyncIterator[McpConnection]:
    """Open the connection. Raises `McpLoginRequired`, and whatever else keeps the server from starting."""
    error_statuses: list[int] = []
    if isinstance(server.connection, McpStdioConfig):
        transport: Any = McpStdioTransport(
            server.connection,
            managed.client_context,
            log=managed.log_path,
            on_ended=managed.mark_connection_lost,
            note=managed.note_once,
        )
    else:
        transport = open_mcp_http_transport(
            server.connection,
            auth=_create_mcp_http_auth(server, server.connection, managed),
            proxy=managed.client_context.find_proxy(server.connection.url),
            tls=managed.client_context.tls,
            on_error_status=error_statuses.append,
        )

    async def answer_elicitation(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        return await handle_mcp_elicitation(managed, params)

    async def list_roots(context: ClientRequestContext) -> mcp_types.ListRootsResult:
        uri = managed.client_context.root.as_uri()
        return mcp_types.ListRootsResult.model_validate(
            {"roots": [{"uri": uri, "name": managed.client_context.root.name}]}
        )

    change_watcher, push_receiver = _McpListChangeWatcher(managed), McpPushReceiver(managed)
    client = Client(
        McpToolFilterTransport(transport, managed.note_once, push_receiver.forward_or_buffer_push),
        client_info=mcp_types.Implementation(name="shoal", version=managed.client_context.version or "0"),
        elicitation_callback=answer_elicitation,
        list_roots_callback=list_roots,
        message_handler=change_watcher.handle_message,
        cache=None,
    )
    try:
        async with client, anyio.create_task_group() as group:
            push_receiver.release_buffered_pushes(
                declared=CHANNEL_CAPABILITY in (client.server_capabilities.experimental or {})
            )
            group.start_soon(_listen_for_mcp_list_changes, client, change_watcher)
            yield McpConnection(client, server)
            group.cancel_scope.cancel()
    except Exception as error:
        if 401 in error_statuses or _contains_error_type(error, McpLoginRequired):
            raise McpLoginRequired from error
        raise _unwrap_exception_group(error) from error


def _create_mcp_http_auth(server: McpServerConfig, config: McpHttpConfig, managed: ManagedMcpServer) -> Any:
    if any(name.lower() == "authorization" for name in config.headers):
        return None
    tokens = managed.client_context.tokens(server.name, config.url)
    return create_mcp_oauth_provider(config.url, tokens, client_id=config.oauth.client_id)


async def log_in_to_mcp_server(
    address: McpHttpConfig,
    tokens: McpTokenStore,
    show_url: Callable[[str], Awaitable[None]],
    *,
    proxy: str | None,
    tls: TlsVariables,
) -> tuple[str, ...]:
    """Run the login; `show_url` gives the user the address to open. Return the names of the tools."""
    tokens.write(b"")  # an older registration has another redirect URL
    async with McpOAuthCallbackServer(address.oauth.callback_port) as callback_server:
        auth = create_mcp_oauth_provider(
            address.url,
            tokens,
            client_id=address.oauth.client_id,
            redirect_url=callback_server.url,
            show_url=show_url,
            wait_for_code=callback_server.wait_for_code,
        )
        transport = open_mcp_http_transport(
            address, auth=auth, proxy=proxy, tls=tls, on_error_status=lambda _: None
        )
        async with Client(transport, cache=None) as client:
            return tuple(tool.name for tool in (await client.list_tools()).tools)


class McpConnection:
    """Open connection to a server. All methods raise `McpConnectionLost` and `McpRequestRefused`."""

    def __init__(self, client: Client, server: McpServerConfig) -> None:
        self._client = client
        self._server = server

    async def list_features(self) -> McpServerFeatures:
        capabilities = self._client.server_capabilities
        tools, notes = await self._list_tools() if capabilities.tools is not None else ((), ())
        prompts = await self._list_prompts() if capabilities.prompts is not None else []
        names = {format_mcp_tool_name(self._server.name, prompt.name): prompt for prompt in prompts}
        return McpServerFeatures(
            tools=tools,
            prompts=tuple(_convert_mcp_prompt(name, prompt) for name, prompt in names.items()),
            prompt_names={name: prompt.name for name, prompt in names.items()},
            resources=capabilities.resources is not None,
            instructions=limit_server_instructions(self._client.instructions or ""),
            version=self._client.protocol_version,
            notes=notes,
        )

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        context: ToolContext,
        on_progress: Callable[[str], Awaitable[None]],
    ) -> ToolOutput:
        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            await on_progress(f"{amount}: {message[:500]}" if message else amount)

        result = await _await_translating_mcp_errors(
            self._client.call_tool(tool, dict(arguments), progress_callback=report_progress)
        )
        return convert_mcp_call_result(result, context)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        return format_mcp_prompt_result(
            await _await_translating_mcp_errors(self._client.get_prompt(name, dict(arguments)))
        )

    async def list_resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for page in _iter_mcp_list_pages(self._client.list_resources):
            found += (_convert_mcp_resource(each) for each in page.resources)
        return found

    async def read_resource(self, uri: str, context: ToolContext) -> ToolOutput:
        return convert_mcp_resource_result(
            await _await_translating_mcp_errors(self._client.read_resource(uri)), context
        )

    async def _list_tools(self) -> tuple[tuple[ListedMcpTool, ...], tuple[str, ...]]:
        listed: dict[str, ListedMcpTool] = {}
        notes: list[str] = []
        async with aclosing(_iter_mcp_list_pages(self._client.list_tools)) as pages:
            async for page in pages:
                for tool in page.tools:
                    name = format_mcp_tool_name(self._server.name, tool.name)
                    if (problem := _find_mcp_tool_limit_problem(listed, name, tool)) is not None:
                        notes.append(problem)
                    else:
                        listed[name] = _convert_mcp_tool(name, tool)
                if len(listed) >= MAX_TOOLS:
                    break
        return tuple(listed.values()), tuple(notes[:10])

    async def _list_prompts(self) -> list[mcp_types.Prompt]:
        found: list[mcp_types.Prompt] = []
        async for page in _iter_mcp_list_pages(self._client.list_prompts):
            found += page.prompts
        return found[:MAX_TOOLS]


class _McpListChangeWatcher:
    """Reloads the server's features when it reports changes; merges overlapping reports."""

    def __init__(self, managed: ManagedMcpServer) -> None:
        self._managed = managed
        self._refreshing = self._refresh_again = False

    async def handle_message(self, message: IncomingMessage) -> None:
        """Handle list-changed notifications of servers from before 2026."""
        change_types = mcp_types.ToolListChangedNotification | mcp_types.PromptListChangedNotification
        if isinstance(message, change_types):
            await self.refresh_features()

    async def refresh_features(self) -> None:
        self._refresh_again = True
        if self._refreshing:
            return
        self._refreshing = True
        try:
            while self._refresh_again:
                self._refresh_again = False
                await self._managed.refresh_features()
        except (McpConnectionLost, McpRequestRefused) as error:
            self._managed.note_once(f"it reported that its tools changed, but does not list them: {error}")
        finally:
            self._refreshing = False


async def _listen_for_mcp_list_changes(client: Client, change_watcher: _McpListChangeWatcher) -> None:
    """Listen for change events of newer servers; without them the tools stay as they are."""
    capabilities = client.server_capabilities
    reports_changes = bool(
        (capabilities.tools and capabilities.tools.list_changed)
        or (capabilities.prompts and capabilities.prompts.list_changed)
    )
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not reports_changes:
        return
    try:
        async with client.listen(tools_list_changed=True, prompts_list_changed=True) as events:
            async for _ in events:
                await change_watcher.refresh_features()
    except (MCPError, RuntimeError, TimeoutError):
        return


async def _iter_mcp_list_pages(list_page: Callable[..., Awaitable[Page]]) -> AsyncGenerator[Page, None]:
    """Yield the pages of a list, up to a limit."""
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await _await_translating_mcp_errors(list_page(cursor=cursor))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


async def _await_translating_mcp_errors(request: Awaitable[T]) -> T:
    try:
        return await request
    except MCPError as error:
        message = error.message.lower()
        # Over HTTP one response may break off and the next one succeed.
        is_closed = error.code == mcp_types.CONNECTION_CLOSED and not message.startswith("sse stream")
        if is_closed or "session terminated" in message:
            raise McpConnectionLost(error.message) from error
        raise McpRequestRefused(error.message[:2_000]) from error
    except ValidationError as error:
        detail = str(error)[:500]
        raise McpRequestRefused(format_tool_text("mcp", "invalid_answer", detail=detail)) from error
    except InputRequiredRoundsExceededError as error:
        raise McpRequestRefused(str(error)) from error


def _find_mcp_tool_limit_problem(
    listed: Mapping[str, ListedMcpTool], name: str, tool: mcp_types.Tool
) -> str | None:
    if name in listed:
        other = listed[name].name
        return f"its tool {tool.name!r} is ignored: {other!r} has the same name in Shoal ({name})."
    if len(listed) >= MAX_TOOLS:
        return f"it has more than {MAX_TOOLS} tools; Shoal ignores the rest."
    if len(encode_json(tool.input_schema)) > MAX_SCHEMA_CHARACTERS:
        return (
            f"its tool {tool.name!r} is ignored: "
            f"its schema is longer than {MAX_SCHEMA_CHARACTERS:,} characters."
        )
    return None


def _convert_mcp_tool(name: str, tool: mcp_types.Tool) -> ListedMcpTool:
    description = tool.description or tool.title or f"The tool {tool.name}."
    return ListedMcpTool(
        name=tool.name,
        schema=ToolSchema(
            name=name,
            description=description[:MAX_DESCRIPTION_CHARACTERS],
            input_schema=dict(tool.input_schema),
        ),
        reads_only=bool(tool.annotations and tool.annotations.read_only_hint),
    )


def _convert_mcp_prompt(name: str, prompt: mcp_types.Prompt) -> McpPrompt:
    return McpPrompt(
        name=name,
        description=prompt.description or prompt.title or "",
        arguments=tuple(
            McpPromptArgument(
                name=argument.name,
                description=argument.description or "",
                required=bool(argument.required),
            )
            for argument in prompt.arguments or ()
        ),
    )


def _convert_mcp_resource(resource: mcp_types.Resource) -> dict[str, Any]:
    fields = {
        "uri": str(resource.uri),
        "name": resource.name,
        "mimeType": resource.mime_type,
        "description": resource.description,
    }
    return {key: value for key, value in fields.items() if value}


def _unwrap_exception_group(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _contains_error_type(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_contains_error_type(each, kind) for each in error.exceptions)
    return isinstance(error, kind) or (
        error.__cause__ is not None and _contains_error_type(error.__cause__, kind)
    )
