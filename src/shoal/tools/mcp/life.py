"""One MCP server of a session: started, restarted once when lost, stopped with its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import MissingExtra, ShoalError
from shoal.core.mcp import Address, Program, Push, Server, ServerStanding, Status
from shoal.core.tools import Outcome, Progress, Site, failed
from shoal.tools.mcp.host import IN_ALL, Caller, Host, LinkLost, LinkRefused, NeedsLogin, Offer
from shoal.tools.mcp.tool import McpTool
from shoal.wire.mcp import BadServer, filled

if TYPE_CHECKING:
    from types import ModuleType

    from shoal.tools.mcp.link import Link

CONNECTING = 30.0
"""Seconds for a server to start and list its features."""
RESTARTS = 1
STEADY = 60.0
"""Seconds after which a connection to an address counts as stable."""
ENDING = 5.0
_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


class ServerLife:
    """Manages the connection to one MCP server inside its owner's task group."""

    def __init__(
        self,
        server: Server,
        host: Host,
        changed: Callable[[], None],
        hears: Callable[[str, Push], None] | None = None,
    ) -> None:
        """`on_push` receives what the server pushes; if None, it is dropped with a note."""
        self.server = server
        self.host = host
        self.status: Status = "pending"
        self.detail = ""
        self.offer = Offer()
        self.tools: tuple[McpTool, ...] = ()
        self._changed = changed
        self._hears = hears
        self._link: Link | None = None
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self._lost = ""
        self._calls: list[Caller] = []
        self._told: set[str] = set()

    @property
    def standing(self) -> ServerStanding:
        return ServerStanding(
            name=self.server.name,
            status=self.status,
            kind=self.server.kind,
            origin=self.server.origin,
            detail=self.detail,
            version=self.offer.version,
            tools=tuple(tool.schema.name for tool in self.tools),
            prompts=tuple(prompt.name for prompt in self.offer.prompts),
            resources=self.offer.resources,
        )

    def begin(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._run())

    async def _run(self) -> None:
        name = self.server.name
        try:
            server = filled(self.server, self.host.env)
            await self._lives(await asyncio.to_thread(_sdk_part), server)
        except NeedsLogin:
            self._stand("needs-auth", f"it needs a login: run `shoal mcp login {name}`")
            self.host.note(f"The MCP server {name} needs a login. Run: shoal mcp login {name}")
        except (BadServer, ShoalError) as error:
            self._fail(str(error).removesuffix("."))
        except TimeoutError:
            self._fail(f"it did not come up within {CONNECTING:g} s")
        except Exception as error:  # noqa: BLE001 - a failing server must not affect the others
            self._fail(_described(error))
        finally:
            self._link = None
            if self.status == "pending":
                self._stand("failed", "it was ended")

    def end(self) -> None:
        self._ending = True
        self._wake.set()
        if self._link is None and self._task is not None:
            # Still starting, and nobody waits for it any more.
            self.abandon()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait a bounded time until the server has stopped."""
        if self._task is None or self._task.done():
            return
        try:
            async with self.host.clock.deadline(ENDING):
                await asyncio.wait([self._task])
        except TimeoutError:
            self.abandon()

    def lose(self, why: str) -> None:
        """Mark the connection as unusable."""
        self._lost = self._lost or why
        if self._link is not None and not self._ending:
            # From now on calls wait for the next connection.
            self._link = None
            self._stand("pending", why)
        self._wake.set()

    def note_once(self, text: str) -> None:
        if text not in self._told and len(self._told) < 20:
            self._told.add(text)
            self.host.note(f"The MCP server {self.server.name}: {text}")

    def pushed(self, push: Push) -> None:
        if self._hears is not None:
            self._hears(self.server.name, push)
            return
        self.note_once(
            "it pushes messages to the session, which are dropped: nobody named it as a channel. "
            f"--channels server:{self.server.name} lets them in, or shoal.channels in your own settings."
        )

    async def relist(self) -> None:
        """Reload the features after the server reported a change."""
        if self._link is not None:
            self._learn(await self._link.offer())
            self._changed()

    @property
    def caller(self) -> Caller | None:
        """Call that a server's question belongs to; if unknown, the latest one."""
        return _caller.get() or (self._calls[-1] if self._calls else None)

    async def call(self, tool: str, arguments: Mapping[str, Any], site: Site) -> Outcome:
        async def work(link: Link, caller: Caller) -> Outcome:
            return await link.call(tool, arguments, site, _progress(caller, site.progress))

        return await self.reached(f"The call of {tool}", site, work)

    async def reached(self, what: str, site: Site, work: Callable[[Link, Caller], Any]) -> Outcome:
        """Run work on the connection for an agent; failures become tool output the model can act on."""
        name, seconds, link = self.server.name, self.host.deadline, None
        try:
            async with site.clock.deadline(seconds) as deadline:
                last = site.clock.monotonic() + seconds * IN_ALL
                caller = Caller(site=site, deadline=deadline, seconds=seconds, last=last)
                with self._calling(caller):
                    link = await self.up()
                    outcome: Outcome = await work(link, caller)
                    return outcome
        except TimeoutError:
            return failed(
                f"{what} was not answered by the MCP server {name} within {seconds:g} s and was cancelled. "
                "The setting shoal.mcp_deadline allows more."
            )
        except LinkLost as lost:
            if link is not None and link is self._link:
                self.lose(str(lost))
            return failed(f"{what} failed: {self._gone(str(lost))}")
        except LinkRefused as refused:
            return failed(f"{what} was refused by the MCP server {name}: {refused}")

    async def _lives(self, sdk: ModuleType, server: Server) -> None:
        left = RESTARTS
        while True:
            began = self.host.clock.monotonic()
            await self._connected(sdk, server)
            if self._ending:
                return
            if isinstance(server.reach, Address) and self.host.clock.monotonic() - began > STEADY:
                # A remote server may drop an idle session without having failed.
                left = RESTARTS
            if not left:
                raise LinkLost(f"it ended twice ({self._lost})")
            left -= 1
            self._stand("pending", self._lost)
            self.host.note(f"The MCP server {server.name} ended ({self._lost}). It is started again.")

    async def _connected(self, sdk: ModuleType, server: Server) -> None:
        """Run one connection from start to end. Raises if the server does not start."""
        self._wake.clear()
        self._lost, came_up = "", False
        try:
            async with AsyncExitStack() as stack:
                async with self.host.clock.deadline(CONNECTING):
                    link: Link = await stack.enter_async_context(sdk.opened(server, self))
                    self._learn(await link.offer())
                self._link, came_up = link, True
                self._stand("connected", "")
                await self._wake.wait()
                self._link = None
        except Exception as error:
            if not came_up:
                raise self._start_failed(error) from error
            self._lost = self._lost or _described(error)
        finally:
            self._link = None
        self._lost = self._lost or "its connection closed"

    def _start_failed(self, error: Exception) -> Exception:
        if isinstance(error, NeedsLogin | TimeoutError) and not self._lost:
            return error
        if isinstance(error, ShoalError) and not isinstance(error, LinkLost):
            return error
        return LinkLost(self._lost or _described(error))

    def _learn(self, offer: Offer) -> None:
        self.offer = offer
        self.tools = tuple(McpTool(self, listed) for listed in offer.tools)
        for note in offer.notes:
            self.note_once(note)

    def _stand(self, status: Status, detail: str) -> None:
        self.status, self.detail = status, detail
        news, self._news = self._news, asyncio.Event()
        news.set()
        self._changed()

    def _fail(self, why: str) -> None:
        log = ""
        if isinstance(self.server.reach, Program) and self.log.is_file() and self.log.stat().st_size:
            log = f". What it wrote is in {self.log}"
        self._stand("failed", f"{why}{log}")
        self.host.note(f"The MCP server {self.server.name} ({self.server.origin}) is not there: {why}{log}.")

    @property
    def log(self) -> Path:
        return self.host.logs / f"{self.server.prefix[5:-2]}.log"

    async def up(self) -> Link:
        while self.status == "pending":
            await self._news.wait()
        if self._link is None:
            raise LinkLost(self.detail or "its connection closed")
        return self._link

    @contextmanager
    def _calling(self, caller: Caller) -> Iterator[None]:
        self._calls.append(caller)
        token = _caller.set(caller)
        try:
            yield
        finally:
            _caller.reset(token)
            self._calls.remove(caller)

    def _gone(self, why: str) -> str:
        name = self.server.name
        if self.status == "failed":
            return (
                f"the MCP server {name} is not there any more: {self.detail}. Its tools cannot be used in "
                "this session; go on without them, and say so."
            )
        return (
            f"the MCP server {name} ended ({self._lost or why}). It is being started again. Whether the call "
            "had an effect is not known: look before you make it again."
        )


def _sdk_part() -> ModuleType:
    """Import the module that uses the SDK, which takes a second. Raises `MissingExtra`."""
    try:
        from shoal.tools.mcp import link
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "httpx2"):
            raise
        raise MissingExtra("Speaking with MCP servers", "mcp") from error
    return link


def _progress(caller: Caller, tell: Progress) -> Callable[[str], Any]:
    """Report only the newest progress, so that a fast server cannot fill a queue."""
    newest: str | None = None
    telling = False

    async def progress(text: str) -> None:
        nonlocal newest, telling
        caller.goes_on()
        newest = text
        if telling:
            return
        telling = True
        try:
            while newest is not None:
                text, newest = newest, None
                await tell(text)
        finally:
            telling = False

    return progress


def _described(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
