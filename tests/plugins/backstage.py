"""Sessions and a web server for browser tests, in an event loop of another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import shoal
from cast import all_turns
from shoal.surfaces.web.server import Place, serve
from troupe import home
from web_rig import PATIENCE, TOKEN

_Result = TypeVar("_Result")


class Backstage:
    """Runs coroutines in the loop of another thread and waits for their results."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stack = AsyncExitStack()
        self._serving: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._turns: list[asyncio.Task[str]] = []
        self.base = ""

    def do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def call(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)

    def serve(self, port: int = 0) -> str:
        """Start the web server and return its address with the token."""
        return self.do(self._serve(port))

    async def _serve(self, port: int) -> str:
        address: asyncio.Future[str] = self._loop.create_future()
        self._ended = asyncio.Event()
        place = Place(host="127.0.0.1", port=port, token=TOKEN)
        work = serve(home(), place, ready=address.set_result, ended=self._ended)
        self._serving = self._loop.create_task(work)
        self.base = (await address).partition("/?")[0]
        return address.result()

    def stop_serving(self) -> None:
        self.do(self._stop_serving())

    async def _stop_serving(self) -> None:
        self._ended.set()
        if self._serving is not None:
            await self._serving
        self._serving = None

    def open(self, session: shoal.Session) -> shoal.Session:
        """Open a session whose lead takes turns until the session is closed."""
        return self.do(self._open(session))

    async def _open(self, session: shoal.Session) -> shoal.Session:
        opened = await self._stack.enter_async_context(session)
        self._turns.append(self._loop.create_task(all_turns(opened, "Paint the house.")))
        return opened

    def close(self) -> None:
        """Close the sessions in order; the web server keeps running."""
        self.do(self._close())

    async def _close(self) -> None:
        for turns in self._turns:
            turns.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        self._turns.clear()
        await self._stack.aclose()


@contextmanager
def backstage() -> Iterator[Backstage]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop,), name="backstage")
    thread.start()
    stage = Backstage(loop)
    try:
        yield stage
    finally:
        try:
            stage.close()
            stage.stop_serving()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(PATIENCE)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def project(tmp_path: Path) -> Path:
    """Create a project directory with the name that people see."""
    place = tmp_path / "house"
    place.mkdir()
    return place
