"""MCP servers of a session: started in the background, shared by all its agents, stopped with it.

Their prompts are slash commands.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.mcp.server_instructions import (
    AgentServerInstructions,
    InstructedServer,
    list_instructed_servers,
)
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.mcp_files import ConfiguredMcpServers
from shoal.core.agents.agent_definitions import AgentDefinition, DefinitionSourceKind, ToolSelection
from shoal.core.compact_event import CompactEvent
from shoal.core.conversation.tools import Tool
from shoal.core.errors import AgentRequestRefused
from shoal.core.extensions.mcp_servers import (
    MCP_PREFIX,
    READ_RESOURCE_TOOL,
    McpChannelMessage,
    McpPrompt,
    McpServerConfig,
    McpServerState,
    McpServerStatus,
    format_mcp_tool_prefix,
    matches_mcp_server_pattern,
)
from shoal.core.extensions.skills import ExternalSlashPrompt
from shoal.tools.mcp.client_context import McpClientContext, McpConnectionLost, McpRequestRefused
from shoal.tools.mcp.managed_server import ManagedMcpServer
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT, StructuredOutputTool
from shoal.wire.mcp_codec import InvalidMcpServerConfigError, parse_mcp_server

REQUIRED_TIMEOUT = 30.0
"""Seconds that an agent waits for the servers that it requires."""
PROMPT_TIMEOUT = 30.0
_LIST_TIMEOUT = 10.0
"""Seconds in which a server lists its resources for a completion."""
_MAX_LISTED_RESOURCES = 500
_PUNCTUATION = ".,;:!?)]}"
_RESOURCE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


INLINE_SERVER_ORIGIN = "agent "
"""Start of the origin of a server that an agent definition describes; its name follows."""
_MAX_START_DELAY = 0.3
"""Seconds after which optional servers start even if no request was sent."""


async def _close_nothing() -> None: ...


class AgentTools(Struct, frozen=True, kw_only=True):
    """Tools available to one agent."""

    tools: Mapping[str, Tool]
    extra_names: tuple[str, ...] = ()
    """Tools of the servers that the definition names; the agent has them regardless of its `tools`."""
    close: Callable[[], Awaitable[None]] = _close_nothing
    """Stops the agent's own servers."""
    instructed_servers: tuple[InstructedServer, ...] = ()
    """The agent's own servers that gave instructions."""
    output_tool: StructuredOutputTool | None = None
    """Receives the structured answer that the agent must give, if any; also in `tools`."""

    def add_output_tool_name(self, toolset: ToolSelection) -> ToolSelection:
        """Return the selection with the agent's own output tool, and never with that of the lead."""
        if self.output_tool is None and STRUCTURED_OUTPUT not in toolset.names:
            return toolset
        names = tuple(name for name in toolset.names if name != STRUCTURED_OUTPUT)
        return replace(toolset, names=names if self.output_tool is None else (*names, STRUCTURED_OUTPUT))

    @asynccontextmanager
    async def close_on_failure(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.close()
            raise


class InlineMcpServerPolicy(Struct, frozen=True, kw_only=True):
    """Decides which servers that agent definitions describe may be started."""

    configured: ConfiguredMcpServers
    is_trusted: Callable[[AgentDefinition], bool] = lambda _: False
    is_permitted: Callable[[McpServerConfig], bool] = lambda _: False

    def read_servers(self, definition: AgentDefinition) -> Iterator[McpServerConfig]:
        """Yield the servers of a definition. Raises `AgentRequestRefused` if one must not be started."""
        for name, config in _iter_inline_servers(definition):
            yield self._read_server(definition, name, config, "was not started")

    def read_lead_servers(
        self, definition: AgentDefinition
    ) -> tuple[tuple[McpServerConfig, ...], tuple[str, ...]]:
        """Return the servers of the lead's definition, and sentences about those that must not be started."""
        servers: list[McpServerConfig] = []
        problems: list[str] = []
        for name, config in _iter_inline_servers(definition):
            try:
                servers.append(self._read_server(definition, name, config, "runs without one of its servers"))
            except AgentRequestRefused as refusal:
                problems.append(str(refusal))
        return tuple(servers), tuple(problems)

    def _read_server(
        self, definition: AgentDefinition, name: str, config: Any, outcome: str
    ) -> McpServerConfig:
        agent, source = definition.name, definition.source

        def refuse(notice: str, **details: Any) -> AgentRequestRefused:
            words = {"agent": agent, "source": source, "outcome": outcome, "name": name}
            return AgentRequestRefused(format_session_notice(notice, **words, **details))

        if reason := self._find_ban(name, source.kind):
            raise refuse("mcp_server_banned", reason=reason)
        if not (source.is_trusted or self.is_trusted(definition)):
            raise refuse("mcp_server_untrusted")
        try:
            server = parse_mcp_server(name, config, f"{INLINE_SERVER_ORIGIN}{agent}")
        except InvalidMcpServerConfigError as error:
            raise refuse("mcp_server_invalid", error=error) from error
        if not self.is_permitted(server):
            raise refuse("mcp_server_denied")
        return server

    def _find_ban(self, name: str, source: DefinitionSourceKind) -> str:
        """Return the reason why a definition from a source cannot describe a server; empty if it can."""
        configured = self.configured
        if configured.managed_by:
            return f"only the servers in {configured.managed_by} may run"
        # An agent that a flag describes was asked for as a server of --mcp-config is.
        if configured.is_strict and source != "flag":
            return "--strict-mcp-config allows only the servers in --mcp-config"
        if configured.is_plugin_only and source not in ("plugin", "managed"):
            return "a managed file sets strictPluginOnlyCustomization"
        return "disabledMcpServers in the settings disables it" if name in configured.switched_off else ""


def _iter_inline_servers(definition: AgentDefinition) -> Iterator[tuple[str, Any]]:
    for entry in definition.capabilities.mcp_servers:
        if isinstance(entry, Mapping):
            yield from entry.items()


class SessionMcpServerManager:
    """Context manager entered by the session."""

    def __init__(
        self,
        configured: ConfiguredMcpServers,
        host: McpClientContext,
        *,
        startup_wait: float,
        inline: InlineMcpServerPolicy | None = None,
        is_required: Callable[[McpServerConfig], bool] = lambda _: True,
    ) -> None:
        """`is_required` is True for servers that the first request waits for.

        The others start with the first request, or a moment after the session opened: importing the SDK
        takes a second, which would delay that request.
        """
        self.configured = configured
        self._host = host
        self._startup_wait = startup_wait
        self._inline = inline or InlineMcpServerPolicy(configured=configured)
        self._is_required = is_required
        self._clock = host.clock
        self._servers: list[ManagedMcpServer] = []
        self._agent_servers: list[ManagedMcpServer] = []
        self._published: Mapping[str, Tool] = {}
        self._tool_change_listeners: tuple[Callable[[Mapping[str, Tool]], object], ...] = ()
        self._channel_listeners: tuple[Callable[[str, McpChannelMessage], None], ...] = ()
        self._resource_tools: tuple[Tool, ...] = ()
        self._instructed = list_instructed_servers(configured.relayed)
        self._group = asyncio.TaskGroup()
        self._change_event = CompactEvent()
        self._optional_start = CompactEvent()
        self._started: float | None = None
        self._settled = False
        self._late_names: tuple[str, ...] = ()

    async def __aenter__(self) -> SessionMcpServerManager:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        servers = (*self._servers, *self._agent_servers)
        try:
            await self._stop_servers(servers)
        finally:
            # If this is canceled, nothing is awaited.
            for server in servers:
                server.cancel()
            await self._group.__aexit__(None, None, None)

    def subscribe_to_tool_changes(self, listener: Callable[[Mapping[str, Tool]], object]) -> None:
        """Call this with the tools of all servers whenever they have changed."""
        self._tool_change_listeners = (*self._tool_change_listeners, listener)

    def subscribe_to_channel_messages(self, listener: Callable[[str, McpChannelMessage], None]) -> None:
        """Call this with the name of the server and each message that it pushes to the lead."""
        self._channel_listeners = (*self._channel_listeners, listener)

    def start(self) -> None:
        """Start the servers in the background; a second call does nothing."""
        if self._started is not None:
            return
        self._started = self._clock.monotonic()
        self._servers += (
            self._start_server(
                server,
                self._find_channel_push_handler(server),
                None if self._is_required(server) else self._wait_for_optional_start,
            )
            for server in self.configured.servers
        )

    def start_optional_servers(self) -> None:
        """Start the servers that nobody has waited for."""
        self._optional_start.set()

    async def _wait_for_optional_start(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.deadline(_MAX_START_DELAY):
                await self._optional_start.wait()

    async def wait_until_ready(self) -> None:
        """Wait for the required servers to connect or fail; the others connect in the background."""
        self.start()
        if self._settled:
            return
        remaining = (self._started or 0.0) + self._startup_wait - self._clock.monotonic()
        required = [managed for managed in self._servers if self._is_required(managed.server)]
        if remaining > 0:
            with suppress(TimeoutError):
                async with self._clock.deadline(remaining):
                    while any(managed.status == "pending" for managed in required):
                        await self._change_event.wait()
        self._settle(required)

    def _settle(self, required: Sequence[ManagedMcpServer]) -> None:
        """End the wait of the first request. Several callers may have waited."""
        if self._settled:
            return
        # Later tools are appended, because a prompt cache depends on the order of tools.
        self._settled = True
        self._late_names = tuple(each.server.name for each in required if each.status == "pending")
        if self._late_names:
            self._host.note(
                f"Still connecting: {', '.join(self._late_names)} (MCP). The first request does not wait "
                "any longer; the agent gets the tools when the connection is ready. /mcp shows the servers; "
                "shoal.mcp_wait sets the time to wait."
            )

    def take_late_names(self) -> tuple[str, ...]:
        """Return the servers that the first request waited for in vain, on the first call only."""
        names, self._late_names = self._late_names, ()
        return names

    async def wait_for_pending(self, seconds: float) -> None:
        """Wait at most this long until no server is still connecting."""
        self.start_optional_servers()
        with suppress(TimeoutError):
            async with self._clock.deadline(seconds):
                while self.list_pending_names():
                    await self._change_event.wait()

    def list_pending_names(self) -> tuple[str, ...]:
        """Return the names of servers that are still connecting, or will be started."""
        if self._started is None:
            return tuple(server.name for server in self.configured.servers)
        return tuple(managed.server.name for managed in self._servers if managed.status == "pending")

    def find_pending_server(self, tool: str) -> str | None:
        """Return the name of the server that may offer this tool when it is connected."""
        names = self.list_pending_names()
        return next((name for name in names if tool.startswith(format_mcp_tool_prefix(name))), None)

    def list_always_loaded_prefixes(self) -> tuple[str, ...]:
        """Return the name prefixes of tools that are never deferred."""
        return tuple(server.tool_name_prefix for server in self.configured.servers if server.always_load)

    async def wait_until_settled(self) -> None:
        """Wait until every server is connected or has failed; each has its own time limit."""
        self.start()
        self.start_optional_servers()
        while any(managed.status == "pending" for managed in self._servers):
            await self._change_event.wait()

    def list_statuses(self) -> tuple[McpServerStatus, ...]:
        started_names = {managed.server.name for managed in self._servers}
        unstarted = [server for server in self.configured.servers if server.name not in started_names]
        return (
            *(managed.status_info for managed in self._servers),
            *self.configured.relayed,
            *(_make_unstarted_server_status(server, "pending", "") for server in unstarted),
            *(
                _make_unstarted_server_status(server, "disabled", DISABLED_REASON)
                for server in self.configured.disabled
            ),
            *(
                _make_unstarted_server_status(server, "disabled", UNTRUSTED_REASON)
                for server in self.configured.untrusted
            ),
        )

    def describe_missing_channels(self) -> tuple[str, ...]:
        """Return sentences about channels whose servers are not started."""
        names = self.configured.channel_names
        missing = sorted(names.difference(server.name for server in self.configured.servers))
        return tuple(
            f"The channel server:{name} is not available: no MCP server {name} is configured and enabled. "
            "List the servers: shoal mcp ls"
            for name in missing
        )

    def list_prompts(self) -> tuple[McpPrompt, ...]:
        """Return the prompts, each usable as a slash command."""
        return tuple(prompt for managed in self._servers for prompt in managed.features.prompts)

    async def render_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return a prompt. Raises `McpConnectionLost`, or `McpRequestRefused`, for example for an unknown
        name."""
        for server in self._servers:
            if (prompt_name := server.features.prompt_names.get(name)) is not None:
                async with self._clock.deadline(PROMPT_TIMEOUT):
                    return await (await server.wait_for_connection()).get_prompt(prompt_name, arguments)
        raise McpRequestRefused(format_session_notice("unknown_mcp_prompt", name=name))

    def split_resource_mention(self, mention: str) -> tuple[str, str] | None:
        """Return the server and the URI in `server:uri`; None if no server has this name."""
        names = sorted((each.name for each in self.list_statuses()), key=len, reverse=True)
        for name in names:
            if mention.startswith(f"{name}:") and _RESOURCE_URI.match(uri := mention[len(name) + 1 :]):
                return name, uri
        return None

    async def open_resource(self, server: str, uri: str) -> tuple[str, Tool | None, str]:
        """Return the URI without punctuation after it, the tool that reads it, and the reason if none can."""
        self.start()
        self.start_optional_servers()
        managed = next((each for each in self._servers if each.server.name == server), None)
        if managed is None:
            (status,) = (each for each in self.list_statuses() if each.name == server)
            return uri, None, f"The MCP server {server} is not available: {status.detail or status.status}."
        try:
            async with self._clock.deadline(self._host.connect_timeout):
                connection = await managed.wait_for_connection()
                shorter = uri.rstrip(_PUNCTUATION)
                if shorter != uri and managed.features.resources:
                    listed = {each["uri"] for each in await connection.list_resources()}
                    possible = [uri[:end] for end in range(len(uri), len(shorter), -1)]
                    uri = next((each for each in possible if each in listed), shorter)
        except TimeoutError:
            return uri, None, f"The MCP server {server} did not answer in time."
        except (McpConnectionLost, McpRequestRefused) as error:
            return uri, None, f"The MCP server {server} is not available: {error}."
        if not managed.features.resources:
            return uri, None, f"The MCP server {server} has no resources."
        self._resource_tools = self._resource_tools or _create_resource_tools(lambda: self._servers)
        return uri, next(each for each in self._resource_tools if each.schema.name == READ_RESOURCE_TOOL), ""

    async def list_resource_mentions(self) -> tuple[tuple[str, str], ...]:
        """Return `server:uri` and a description of each resource of the connected servers."""
        found: list[tuple[str, str]] = []
        for managed in self._servers:
            if managed.status != "connected" or not managed.features.resources:
                continue
            with suppress(TimeoutError, McpConnectionLost, McpRequestRefused):
                async with self._clock.deadline(_LIST_TIMEOUT):
                    listed = await (await managed.wait_for_connection()).list_resources()
                found += (
                    (f"{managed.server.name}:{each['uri']}", str(each.get("name") or ""))
                    for each in listed[:_MAX_LISTED_RESOURCES]
                )
        return tuple(found)

    async def prepare_agent_tools(
        self, definition: AgentDefinition, session_tools: Mapping[str, Tool], names: Sequence[str] = ()
    ) -> AgentTools:
        """Return the tools for an agent, including the tools of its own servers and of the servers it
        requires.

        `names` are tools it had before. Raises `AgentRequestRefused` and then leaves no server running.
        """
        await self.wait_until_ready()
        self.start_optional_servers()
        own_servers: list[ManagedMcpServer] = []
        try:
            own_servers += map(self._start_server, tuple(self._inline.read_servers(definition)))
            self._agent_servers += own_servers
            await self._wait_for_required_servers(definition, names, own_servers)
        except BaseException:
            await self._stop_servers(own_servers)
            raise
        patterns = [entry for entry in definition.capabilities.mcp_servers if isinstance(entry, str)]
        named_servers = [
            managed
            for managed in self._servers
            if any(matches_mcp_server_pattern(each, managed.server.name) for each in patterns)
        ]
        extra_names = (
            *(tool.schema.name for managed in (*own_servers, *named_servers) for tool in managed.tools),
            *(name for each in patterns for name in self._list_driving_program_tool_names(each)),
        )
        if not own_servers:
            return AgentTools(tools=session_tools, extra_names=extra_names)

        async def close_own_servers() -> None:
            await self._stop_servers(own_servers)

        own_tools = {tool.schema.name: tool for managed in own_servers for tool in managed.tools}
        return AgentTools(
            tools={**session_tools, **own_tools},
            extra_names=extra_names,
            close=close_own_servers,
            instructed_servers=list_instructed_servers([managed.status_info for managed in own_servers]),
        )

    def create_agent_instructions(
        self, agent_tools: AgentTools | None = None
    ) -> AgentServerInstructions | None:
        """Return the instructions of the servers for an agent with these tools, or for the lead.

        None if there are no servers.
        """
        own_servers = () if agent_tools is None else agent_tools.instructed_servers
        if not (own_servers or self.configured.servers or self.configured.relayed):
            return None
        return AgentServerInstructions(own_servers, lambda: self._instructed, is_lead=agent_tools is None)

    async def _wait_for_required_servers(
        self, definition: AgentDefinition, names: Sequence[str], own_servers: Sequence[ManagedMcpServer]
    ) -> None:
        """Wait for the servers an agent needs. Raises `AgentRequestRefused`, naming missing ones."""
        required = definition.capabilities.required_mcp_servers
        patterns = [entry for entry in definition.capabilities.mcp_servers if isinstance(entry, str)]
        entries = dict.fromkeys((*patterns, *(managed.server.name for managed in own_servers)), False)
        entries |= dict.fromkeys(required, True)
        tool_names = [*(definition.capabilities.tools or ()), *names]
        if not entries and not any(name.startswith(MCP_PREFIX) for name in tool_names):
            return
        servers = (*own_servers, *self._servers)
        try:
            async with self._clock.deadline(REQUIRED_TIMEOUT):
                while self._find_missing_servers(entries, servers, final_only=False) or _has_pending_tool(
                    tool_names, servers
                ):
                    if failed := self._find_missing_servers(entries, servers, final_only=True):
                        raise AgentRequestRefused(_format_missing_servers(definition, failed, ""))
                    await self._change_event.wait()
        except TimeoutError:
            if missing := self._find_missing_servers(entries, servers, final_only=False):
                delay = f" within {REQUIRED_TIMEOUT:g} s"
                raise AgentRequestRefused(_format_missing_servers(definition, missing, delay)) from None

    def _find_missing_servers(
        self, entries: Mapping[str, bool], servers: Sequence[ManagedMcpServer], *, final_only: bool
    ) -> list[str]:
        """Return the entries without a connected server and the reasons; with `failed`, only final ones.

        `needs` maps each entry to True if its server counts only once it offers a tool.
        """
        found: list[str] = []
        for entry, needs_tools in entries.items():
            matching = [
                managed for managed in servers if matches_mcp_server_pattern(entry, managed.server.name)
            ]
            if self._list_driving_program_tool_names(entry):
                continue
            if any(
                managed.status == "connected" and (managed.tools or not needs_tools) for managed in matching
            ):
                continue
            if not final_only or not any(managed.status == "pending" for managed in matching):
                found.append(f"{entry} ({self._explain_missing_server(entry, matching)})")
        return found

    def _list_driving_program_tool_names(self, entry: str) -> tuple[str, ...]:
        return tuple(
            name
            for each in self.configured.relayed
            if matches_mcp_server_pattern(entry, each.name)
            for name in each.tools
        )

    def _explain_missing_server(self, entry: str, matching: Sequence[ManagedMcpServer]) -> str:
        for managed in matching:
            if managed.status == "connected":
                return "it has no tools"
            return managed.detail or "it is still starting"
        for server in self.configured.untrusted:
            if matches_mcp_server_pattern(entry, server.name):
                return UNTRUSTED_REASON
        for server in self.configured.disabled:
            if matches_mcp_server_pattern(entry, server.name):
                return DISABLED_REASON
        return "it is not configured; `shoal mcp ls` lists the servers"

    def _find_channel_push_handler(
        self, server: McpServerConfig
    ) -> Callable[[str, McpChannelMessage], None] | None:
        """Return the push handler of a session server; an agent's own server has none, whatever its name."""
        return self._publish_channel_message if server.name in self.configured.channel_names else None

    def _publish_channel_message(self, server: str, push: McpChannelMessage) -> None:
        for listener in self._channel_listeners:
            listener(server, push)

    def _start_server(
        self,
        server: McpServerConfig,
        on_push: Callable[[str, McpChannelMessage], None] | None = None,
        wait_for_start: Callable[[], Awaitable[object]] | None = None,
    ) -> ManagedMcpServer:
        managed = ManagedMcpServer(server, self._host, self._on_server_changed, on_push, wait_for_start)
        managed.start(self._group)
        return managed

    async def _stop_servers(self, servers: Iterable[ManagedMcpServer]) -> None:
        stopping = tuple(servers)
        for server in stopping:
            server.stop()
        for server in stopping:
            await server.wait_stopped()
            if server in self._agent_servers:
                self._agent_servers.remove(server)

    def _on_server_changed(self) -> None:
        """Handle a changed status or tool list of a server."""
        event, self._change_event = self._change_event, CompactEvent()
        event.set()
        statuses = [*self.configured.relayed, *(managed.status_info for managed in self._servers)]
        if (instructed := list_instructed_servers(statuses)) != self._instructed:
            self._instructed = instructed
        if not self._publish_tools() and not self.list_pending_names():
            self._notify_listeners()

    def _publish_tools(self) -> bool:
        """Publish the tools of all servers; return False if nothing changed.

        Tools of a lost server stay: removal would break a cache.
        """
        published: dict[str, Tool] = {
            tool.schema.name: tool for managed in self._servers for tool in managed.tools
        }
        if any(managed.features.resources for managed in self._servers):
            self._resource_tools = self._resource_tools or _create_resource_tools(lambda: self._servers)
            published |= {tool.schema.name: tool for tool in self._resource_tools}
        previous = self._published
        if self._settled:
            published = {**previous, **published}
        else:
            published |= {name: tool for name, tool in previous.items() if name not in published}
        if list(published.items()) == list(previous.items()):
            return False
        self._published = published
        self._notify_listeners()
        return True

    def _notify_listeners(self) -> None:
        for listener in self._tool_change_listeners:
            listener(self._published)


UNTRUSTED_REASON = (
    "the project that configures it is not trusted; see `shoal trust --show`, then run `shoal trust`"
)
DISABLED_REASON = "it is disabled in the settings"


def _create_resource_tools(servers: Callable[[], Sequence[ManagedMcpServer]]) -> tuple[Tool, ...]:
    from shoal.tools.mcp.resource_tools import build_mcp_resource_tools

    return build_mcp_resource_tools(servers)


def _has_pending_tool(names: Sequence[str], servers: Sequence[ManagedMcpServer]) -> bool:
    """Return True if one of the tools may still appear."""
    return any(
        managed.status == "pending" and f"{name}__".startswith(managed.server.tool_name_prefix)
        for name in names
        for managed in servers
    )


def _format_missing_servers(definition: AgentDefinition, missing: Sequence[str], delay: str) -> str:
    return (
        f"The agent {definition.name} ({definition.source}) was not started because MCP servers that it "
        f"needs are not available{delay}: {'; '.join(missing)}. Run `shoal mcp ls`, or start another agent."
    )


def _make_unstarted_server_status(
    server: McpServerConfig, status: McpServerState, detail: str
) -> McpServerStatus:
    return McpServerStatus(
        name=server.name,
        status=status,
        kind=server.transport_type,
        origin=server.origin,
        scope=server.scope,
        detail=detail,
    )


class McpPromptCommands:
    """Prompt commands. Typed words fill the arguments in order; the last argument takes the rest."""

    def __init__(self, servers: SessionMcpServerManager) -> None:
        self._servers = servers

    def list_prompts(self) -> tuple[ExternalSlashPrompt, ...]:
        return tuple(
            ExternalSlashPrompt(
                name=each.name,
                description=each.description,
                argument_hint=" ".join(f"[{argument.name}]" for argument in each.arguments),
            )
            for each in self._servers.list_prompts()
        )

    async def expand_prompt(self, name: str, arguments: str) -> str:
        prompt = next((each for each in self._servers.list_prompts() if each.name == name), None)
        values = {} if prompt is None else _parse_prompt_arguments(prompt, arguments)
        return await self._servers.render_prompt(name, values)


def _parse_prompt_arguments(prompt: McpPrompt, arguments: str) -> dict[str, str]:
    names = [argument.name for argument in prompt.arguments]
    try:
        words = shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark
        words = arguments.split()
    if names and len(words) > len(names):
        words[len(names) - 1 :] = [" ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))
