"""Connection to one MCP server through the official SDK; no other layer sees the SDK's types."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from mcp.client import Client, ClientRequestContext, IncomingMessage, InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from shoal.core.mcp import Address, OfferedPrompt, Program, PromptArgument, Server, tool_name
from shoal.core.requests import ToolSchema
from shoal.core.tools import Outcome, Site
from shoal.tools.mcp.auth import Loopback, provider
from shoal.tools.mcp.ear import CAPABILITY, Ear
from shoal.tools.mcp.elicitation import elicited
from shoal.tools.mcp.host import LinkLost, LinkRefused, ListedTool, NeedsLogin, Offer, Tokens
from shoal.tools.mcp.http import address_transport
from shoal.tools.mcp.results import outcome, prompt_text, resource_outcome
from shoal.tools.mcp.sifting import Sifted
from shoal.tools.mcp.stdio import ProgramTransport
from shoal.wire.content import dump

if TYPE_CHECKING:
    from shoal.tools.mcp.life import ServerLife

PAGES = 50
MOST_TOOLS = 500
LONGEST_SCHEMA = 100_000
LONGEST_DESCRIPTION = 10_000
T = TypeVar("T")
Page = TypeVar("Page", bound=types.PaginatedResult)

# SDK log records go to configured handlers only, never to the terminal by default.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


@asynccontextmanager
async def opened(server: Server, life: ServerLife) -> AsyncIterator[Link]:
    """Open the connection. Raises `McpLoginRequired`, and whatever else keeps the server from starting."""
    refused: list[int] = []
    if isinstance(server.reach, Program):
        transport: Any = ProgramTransport(
            server.reach, life.host, log=life.log, ended=life.lose, note=life.note_once
        )
    else:
        transport = address_transport(
            server.reach, auth=_auth(server, server.reach, life), answered=refused.append
        )

    async def ask(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return await elicited(life, params)

    async def roots(context: ClientRequestContext) -> types.ListRootsResult:
        uri = life.host.root.as_uri()
        return types.ListRootsResult.model_validate({"roots": [{"uri": uri, "name": life.host.root.name}]})

    changes, ear = _Changes(life), Ear(life)
    client = Client(
        Sifted(transport, life.note_once, ear.hear),
        client_info=types.Implementation(name="shoal", version=life.host.version or "0"),
        elicitation_callback=ask,
        list_roots_callback=roots,
        message_handler=changes.hear,
        cache=None,
    )
    try:
        async with client, anyio.create_task_group() as group:
            ear.open(declared=CAPABILITY in (client.server_capabilities.experimental or {}))
            group.start_soon(_listen, client, changes)
            yield Link(client, server)
            group.cancel_scope.cancel()
    except Exception as error:
        if 401 in refused or _holds(error, NeedsLogin):
            raise NeedsLogin from error
        raise _plain(error) from error


def _auth(server: Server, address: Address, life: ServerLife) -> Any:
    if any(name.lower() == "authorization" for name in address.headers):
        return None
    return provider(address.url, life.host.tokens(server.name, address.url))


async def log_in(address: Address, tokens: Tokens, show: Callable[[str], Awaitable[None]]) -> tuple[str, ...]:
    """Run the login; `show_url` gives the user the address to open. Return the names of the tools."""
    tokens.write(b"")  # an older registration has another redirect URL
    async with Loopback() as loopback:
        auth = provider(address.url, tokens, redirect=loopback.url, show=show, answer=loopback.answer)
        transport = address_transport(address, auth=auth, answered=lambda _: None)
        async with Client(transport, cache=None) as client:
            return tuple(tool.name for tool in (await client.list_tools()).tools)


class Link:
    """Open connection to a server. All methods raise `McpConnectionLost` and `McpRequestRefused`."""

    def __init__(self, client: Client, server: Server) -> None:
        self._client = client
        self._server = server

    async def offer(self) -> Offer:
        has = self._client.server_capabilities
        tools, notes = await self._tools() if has.tools is not None else ((), ())
        listed = await self._prompts() if has.prompts is not None else []
        names = {tool_name(self._server.name, prompt.name): prompt for prompt in listed}
        return Offer(
            tools=tools,
            prompts=tuple(_offered(name, prompt) for name, prompt in names.items()),
            prompt_names={name: prompt.name for name, prompt in names.items()},
            resources=has.resources is not None,
            version=self._client.protocol_version,
            notes=notes,
        )

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        site: Site,
        hear: Callable[[str], Awaitable[None]],
    ) -> Outcome:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            await hear(f"{share}: {message[:500]}" if message else share)

        result = await _sent(self._client.call_tool(tool, dict(arguments), progress_callback=tell))
        return outcome(result, site)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        return prompt_text(await _sent(self._client.get_prompt(name, dict(arguments))))

    async def resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for page in _pages(self._client.list_resources):
            found += (_shown_resource(each) for each in page.resources)
        return found

    async def read(self, uri: str, site: Site) -> Outcome:
        return resource_outcome(await _sent(self._client.read_resource(uri)), site)

    async def _tools(self) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
        listed: dict[str, ListedTool] = {}
        notes: list[str] = []
        async with aclosing(_pages(self._client.list_tools)) as pages:
            async for page in pages:
                for tool in page.tools:
                    name = tool_name(self._server.name, tool.name)
                    if (why := _too_much(listed, name, tool)) is not None:
                        notes.append(why)
                    else:
                        listed[name] = _listed(name, tool)
                if len(listed) >= MOST_TOOLS:
                    break
        return tuple(listed.values()), tuple(notes[:10])

    async def _prompts(self) -> list[types.Prompt]:
        found: list[types.Prompt] = []
        async for page in _pages(self._client.list_prompts):
            found += page.prompts
        return found[:MOST_TOOLS]


class _Changes:
    """Reloads the server's features when it reports changes; merges overlapping reports."""

    def __init__(self, life: ServerLife) -> None:
        self._life = life
        self._looking = self._again = False

    async def hear(self, message: IncomingMessage) -> None:
        """Handle list-changed notifications of servers from before 2026."""
        changed = types.ToolListChangedNotification | types.PromptListChangedNotification
        if isinstance(message, changed):
            await self.look()

    async def look(self) -> None:
        self._again = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._again:
                self._again = False
                await self._life.relist()
        except (LinkLost, LinkRefused) as error:
            self._life.note_once(f"it says that its tools changed, and does not list them: {error}")
        finally:
            self._looking = False


async def _listen(client: Client, changes: _Changes) -> None:
    """Listen for change events of newer servers; without them the tools stay as they are."""
    has = client.server_capabilities
    tells = bool((has.tools and has.tools.list_changed) or (has.prompts and has.prompts.list_changed))
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not tells:
        return
    try:
        async with client.listen(tools_list_changed=True, prompts_list_changed=True) as heard:
            async for _ in heard:
                await changes.look()
    except (MCPError, RuntimeError, TimeoutError):
        return


async def _pages(listing: Callable[..., Awaitable[Page]]) -> AsyncGenerator[Page, None]:
    """Yield the pages of a list, up to a limit."""
    cursor: str | None = None
    for _ in range(PAGES):
        page = await _sent(listing(cursor=cursor))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


async def _sent(request: Awaitable[T]) -> T:
    try:
        return await request
    except MCPError as error:
        said = error.message.lower()
        # Over HTTP one response may break off and the next one succeed.
        closed = error.code == types.CONNECTION_CLOSED and not said.startswith("sse stream")
        if closed or "session terminated" in said:
            raise LinkLost(error.message) from error
        raise LinkRefused(error.message[:2_000]) from error
    except ValidationError as error:
        told = str(error)[:500]
        raise LinkRefused(f"its answer is not what the protocol says: {told}") from error
    except InputRequiredRoundsExceededError as error:
        raise LinkRefused(str(error)) from error


def _too_much(listed: Mapping[str, ListedTool], name: str, tool: types.Tool) -> str | None:
    if name in listed:
        other = listed[name].name
        return f"its tool {tool.name!r} is left out: {other!r} has the same name here, {name}."
    if len(listed) >= MOST_TOOLS:
        return f"it has more than {MOST_TOOLS} tools; the rest is left out."
    if len(dump(tool.input_schema)) > LONGEST_SCHEMA:
        return f"its tool {tool.name!r} is left out: its schema is longer than {LONGEST_SCHEMA:,} characters."
    return None


def _listed(name: str, tool: types.Tool) -> ListedTool:
    about = tool.description or tool.title or f"The tool {tool.name}."
    return ListedTool(
        name=tool.name,
        schema=ToolSchema(
            name=name, description=about[:LONGEST_DESCRIPTION], input_schema=dict(tool.input_schema)
        ),
        reads_only=bool(tool.annotations and tool.annotations.read_only_hint),
    )


def _offered(name: str, prompt: types.Prompt) -> OfferedPrompt:
    return OfferedPrompt(
        name=name,
        description=prompt.description or prompt.title or "",
        arguments=tuple(
            PromptArgument(
                name=argument.name,
                description=argument.description or "",
                required=bool(argument.required),
            )
            for argument in prompt.arguments or ()
        ),
    )


def _shown_resource(resource: types.Resource) -> dict[str, Any]:
    fields = {
        "uri": str(resource.uri),
        "name": resource.name,
        "mimeType": resource.mime_type,
        "description": resource.description,
    }
    return {key: value for key, value in fields.items() if value}


def _plain(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(each, kind) for each in error.exceptions)
    return isinstance(error, kind) or (error.__cause__ is not None and _holds(error.__cause__, kind))
