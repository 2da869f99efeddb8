"""MCP servers of a session: started in the background, shared by all its agents, stopped with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from shoal.app.mcp.channels import Channels
from shoal.app.settings.mcp_files import Configured
from shoal.core.definitions import Definition
from shoal.core.errors import AgentRefused
from shoal.core.mcp import PREFIX, OfferedPrompt, Push, Server, ServerStanding, Status, is_meant
from shoal.core.tools import Tool
from shoal.tools.mcp.host import Host, LinkRefused
from shoal.tools.mcp.life import ServerLife
from shoal.wire.mcp import BadServer, read_server

REQUIRED_WITHIN = 30.0
"""Seconds that an agent waits for the servers that it requires."""
PROMPTED_WITHIN = 30.0


async def _nothing_to_end() -> None: ...


class Kit(Struct, frozen=True, kw_only=True):
    """Tools available to one agent."""

    tools: Mapping[str, Tool]
    also: tuple[str, ...] = ()
    """Tools of the servers that the definition names; the agent has them regardless of its `tools`."""
    close: Callable[[], Awaitable[None]] = _nothing_to_end
    """Stops the agent's own servers."""

    @asynccontextmanager
    async def closed_on_failure(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.close()
            raise


class McpServers:
    """Context manager entered by the session. `tools`, shared by every agent, grows as servers connect."""

    def __init__(
        self,
        configured: Configured,
        host: Host,
        tools: dict[str, Tool],
        *,
        wait: float,
        trusts: Callable[[Definition], bool],
        channels: Channels | None = None,
    ) -> None:
        self.configured = configured
        self.channels = channels
        self.relayed: tuple[ServerStanding, ...] = ()
        """Servers of the program that drives the session; their tools are provided by the caller."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the set of tools changes."""
        self._host = host
        self._tools = tools
        self._wait = wait
        self._trusts = trusts
        self._clock = host.clock
        self._lives: list[ServerLife] = []
        self._of_agents: list[ServerLife] = []
        self._published: list[str] = []
        self._resource_tools: tuple[Tool, ...] = ()
        self._group = asyncio.TaskGroup()
        self._news = asyncio.Event()
        self._started: float | None = None
        self._settled = False

    async def __aenter__(self) -> McpServers:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        lives = (*self._lives, *self._of_agents)
        try:
            await self._end(lives)
        finally:
            # If this is cancelled, nothing is awaited.
            for life in lives:
                life.abandon()
            await self._group.__aexit__(None, None, None)

    def start(self) -> None:
        """Start the servers in the background; a second call does nothing."""
        if self._started is not None:
            return
        self._started = self._clock.monotonic()
        self._lives += (self._begun(server, self._hears(server)) for server in self.configured.servers)

    async def ready(self) -> None:
        """Wait briefly for every server to connect or fail, without delaying the first request long."""
        self.start()
        if self._settled:
            return
        left = (self._started or 0.0) + self._wait - self._clock.monotonic()
        if left > 0:
            with suppress(TimeoutError):
                async with self._clock.deadline(left):
                    while any(life.status == "pending" for life in self._lives):
                        await self._news.wait()
        # Later tools are appended, because a prompt cache depends on the order of tools.
        self._settled = True

    def standings(self) -> tuple[ServerStanding, ...]:
        begun = {life.server.name for life in self._lives}
        waiting = [server for server in self.configured.servers if server.name not in begun]
        return (
            *(life.standing for life in self._lives),
            *self.relayed,
            *(_unstarted(server, "pending", "") for server in waiting),
            *(_unstarted(server, "disabled", OFF) for server in self.configured.disabled),
            *(_unstarted(server, "disabled", UNTRUSTED) for server in self.configured.untrusted),
        )

    def missing_channels(self) -> tuple[str, ...]:
        """Return sentences about channels whose servers are not started."""
        if self.channels is None:
            return ()
        return self.channels.unknown(server.name for server in self.configured.servers)

    def prompts(self) -> tuple[OfferedPrompt, ...]:
        """Return the prompts, each usable as a slash command."""
        return tuple(prompt for life in self._lives for prompt in life.offer.prompts)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return a prompt. Raises `McpConnectionLost`, or `McpRequestRefused`, also for an unknown name."""
        for life in self._lives:
            if (own := life.offer.prompt_names.get(name)) is not None:
                async with self._clock.deadline(PROMPTED_WITHIN):
                    return await (await life.up()).prompt(own, arguments)
        raise LinkRefused(f"no MCP server offers a prompt named {name}")

    async def equip(self, definition: Definition, names: Sequence[str] = ()) -> Kit:
        """Return the tools for an agent, including those of its own and its required servers.

        `names` are tools it had before. Raises `AgentRequestRefused` and then leaves no server running.
        """
        await self.ready()
        own: list[ServerLife] = []
        try:
            own += map(self._begun, tuple(self._own(definition)))
            self._of_agents += own
            await self._there(definition, names, own)
        except BaseException:
            await self._end(own)
            raise
        named = [entry for entry in definition.mcp_servers if isinstance(entry, str)]
        meant = [life for life in self._lives if any(is_meant(each, life.server.name) for each in named)]
        also = (
            *(tool.schema.name for life in (*own, *meant) for tool in life.tools),
            *(name for each in named for name in self._relayed_tools(each)),
        )
        if not own:
            return Kit(tools=self._tools, also=also)

        async def close() -> None:
            await self._end(own)

        tools = {tool.schema.name: tool for life in own for tool in life.tools}
        return Kit(tools={**self._tools, **tools}, also=also, close=close)

    def _own(self, definition: Definition) -> Iterable[Server]:
        """Yield the servers that the definition itself describes."""
        agent, source = definition.name, definition.source
        for entry in definition.mcp_servers:
            for name, given in entry.items() if isinstance(entry, Mapping) else ():
                if not (source.trusted or self._trusts(definition)):
                    raise AgentRefused(
                        f"The agent {agent} ({source}) brings an MCP server of its own, {name}, and a "
                        "project's files start no programs before a person trusts them: they can see it with "
                        "`shoal trust --show`, and trust it with `shoal trust`."
                    )
                try:
                    yield read_server(name, given, f"agent {agent}")
                except BadServer as error:
                    raise AgentRefused(
                        f"The MCP server {name} of the agent {agent} ({source}) cannot be used: {error}."
                    ) from error

    async def _there(self, definition: Definition, names: Sequence[str], own: Sequence[ServerLife]) -> None:
        """Wait for the servers an agent needs. Raises `AgentRequestRefused`, naming missing ones."""
        required = definition.required_mcp_servers
        named = [entry for entry in definition.mcp_servers if isinstance(entry, str)]
        needs = dict.fromkeys((*named, *(life.server.name for life in own)), False)
        needs |= dict.fromkeys(required, True)
        needed = [*(definition.tools or ()), *names]
        if not needs and not any(name.startswith(PREFIX) for name in needed):
            return
        lives = (*own, *self._lives)
        try:
            async with self._clock.deadline(REQUIRED_WITHIN):
                while self._missing(needs, lives, failed=False) or _coming(needed, lives):
                    if gone := self._missing(needs, lives, failed=True):
                        raise AgentRefused(_refusal(definition, gone, ""))
                    await self._news.wait()
        except TimeoutError:
            if missing := self._missing(needs, lives, failed=False):
                late = f" within {REQUIRED_WITHIN:g} s"
                raise AgentRefused(_refusal(definition, missing, late)) from None

    def _missing(self, needs: Mapping[str, bool], lives: Sequence[ServerLife], *, failed: bool) -> list[str]:
        """Return the entries without a connected server and the reasons; with `failed`, only final ones.

        `needs` maps each entry to True if its server counts only once it offers a tool.
        """
        found: list[str] = []
        for entry, with_tools in needs.items():
            meant = [life for life in lives if is_meant(entry, life.server.name)]
            if self._relayed_tools(entry):
                continue
            if any(life.status == "connected" and (life.tools or not with_tools) for life in meant):
                continue
            if not failed or not any(life.status == "pending" for life in meant):
                found.append(f"{entry} ({self._why(entry, meant)})")
        return found

    def _relayed_tools(self, entry: str) -> tuple[str, ...]:
        return tuple(name for each in self.relayed if is_meant(entry, each.name) for name in each.tools)

    def _why(self, entry: str, meant: Sequence[ServerLife]) -> str:
        for life in meant:
            if life.status == "connected":
                return "it offers no tools"
            return life.detail or "it is still coming up"
        for server in self.configured.untrusted:
            if is_meant(entry, server.name):
                return UNTRUSTED
        for server in self.configured.disabled:
            if is_meant(entry, server.name):
                return OFF
        return "no such server is configured; `shoal mcp ls` lists them"

    def _hears(self, server: Server) -> Callable[[str, Push], None] | None:
        """Return the push handler of a session server; an agent's own server has none, whatever its name."""
        channels = self.channels
        return channels.push if channels is not None and server.name in channels.names else None

    def _begun(self, server: Server, hears: Callable[[str, Push], None] | None = None) -> ServerLife:
        life = ServerLife(server, self._host, self._heard, hears)
        life.begin(self._group)
        return life

    async def _end(self, lives: Iterable[ServerLife]) -> None:
        ending = tuple(lives)
        for life in ending:
            life.end()
        for life in ending:
            await life.ended()
            if life in self._of_agents:
                self._of_agents.remove(life)

    def _heard(self) -> None:
        """Handle a changed status or tool list of a server."""
        news, self._news = self._news, asyncio.Event()
        news.set()
        self._publish()

    def _publish(self) -> None:
        """Publish the tools of all servers. Tools of a lost server stay: removal would break a cache."""
        mine: dict[str, Tool] = {tool.schema.name: tool for life in self._lives for tool in life.tools}
        if any(life.offer.resources for life in self._lives):
            self._resource_tools = self._resource_tools or _resource_tools(lambda: self._lives)
            mine |= {tool.schema.name: tool for tool in self._resource_tools}
        before = {name: self._tools[name] for name in self._published}
        if self._settled:
            mine = {**before, **mine}
        else:
            mine |= {name: tool for name, tool in before.items() if name not in mine}
        if list(mine.items()) == list(before.items()):
            return
        for name in self._published:
            del self._tools[name]
        self._tools |= mine
        self._published = list(mine)
        self.changed()


UNTRUSTED = "the project configures it, and nobody trusts that: see `shoal trust --show`, then `shoal trust`"
OFF = "it is switched off in settings"


def _resource_tools(lives: Callable[[], Sequence[ServerLife]]) -> tuple[Tool, ...]:
    from shoal.tools.mcp.resources import resource_tools

    return resource_tools(lives)


def _coming(names: Sequence[str], lives: Sequence[ServerLife]) -> bool:
    """Return True if one of the tools may still appear."""
    return any(
        life.status == "pending" and f"{name}__".startswith(life.server.prefix)
        for name in names
        for life in lives
    )


def _refusal(definition: Definition, missing: Sequence[str], late: str) -> str:
    return (
        f"The agent {definition.name} ({definition.source}) was not started: MCP servers it needs are not "
        f"there{late}: {'; '.join(missing)}. See `shoal mcp ls`, or start another agent."
    )


def _unstarted(server: Server, status: Status, detail: str) -> ServerStanding:
    return ServerStanding(
        name=server.name, status=status, kind=server.kind, origin=server.origin, detail=detail
    )
