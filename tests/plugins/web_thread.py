"""Sessions and a web server for browser tests, in an event loop of another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import shoal
from agent_scripts import run_all_turns
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.surfaces.web.web_server import WebServerAddress, serve_web_view
from team_scripts import get_home
from web_client import TIMEOUT, TOKEN

_Result = TypeVar("_Result")


class WebThread:
    """Runs coroutines in the loop of another thread and waits for their results."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stack = AsyncExitStack()
        self._server_task: asyncio.Task[None] | None = None
        self._server_stop = asyncio.Event()
        self._turn_tasks: list[asyncio.Task[str]] = []
        self.base = ""

    def run_coroutine(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT)

    def start_coroutine(self, coroutine: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def start_server(self, port: int = 0) -> str:
        """Start the web server and return its address with the token."""
        return self.run_coroutine(self._start_server(port))

    async def _start_server(self, port: int) -> str:
        address: asyncio.Future[str] = self._loop.create_future()
        self._server_stop = asyncio.Event()
        place = WebServerAddress(host="127.0.0.1", port=port, token=TOKEN)
        runs = StoredRuns(home=get_home())
        work = serve_web_view(runs, place, on_ready=address.set_result, ended=self._server_stop)
        self._server_task = self._loop.create_task(work)
        self.base = (await address).partition("/?")[0]
        return address.result()

    def stop_server(self) -> None:
        self.run_coroutine(self._stop_server())

    async def _stop_server(self) -> None:
        self._server_stop.set()
        if self._server_task is not None:
            await self._server_task
        self._server_task = None

    def open_session(self, session: shoal.Session) -> shoal.Session:
        """Open a session whose lead takes turns until the session is closed."""
        return self.run_coroutine(self._open_session(session))

    async def _open_session(self, session: shoal.Session) -> shoal.Session:
        opened = await self._stack.enter_async_context(session)
        self._turn_tasks.append(self._loop.create_task(run_all_turns(opened, "Paint the house.")))
        return opened

    def close_sessions(self) -> None:
        """Close the sessions in order; the web server keeps running."""
        self.run_coroutine(self._close_sessions())

    async def _close_sessions(self) -> None:
        for turns in self._turn_tasks:
            turns.cancel()
        await asyncio.gather(*self._turn_tasks, return_exceptions=True)
        self._turn_tasks.clear()
        await self._stack.aclose()


@contextmanager
def start_web_thread() -> Iterator[WebThread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run_loop, args=(loop,), name="backstage")
    thread.start()
    stage = WebThread(loop)
    try:
        yield stage
    finally:
        try:
            stage.close_sessions()
            stage.stop_server()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(TIMEOUT)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def create_project(tmp_path: Path) -> Path:
    """Create a project directory with the name that people see."""
    place = tmp_path / "house"
    place.mkdir()
    return place
