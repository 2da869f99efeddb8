"""A web view served on loopback for a test, and a client that reads its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from shoal.app.run_access.stored_runs import StoredRuns
from shoal.surfaces.web.web_server import WebServerAddress, serve_web_view
from team_scripts import get_home

TOKEN = "a-token-for-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
TIMEOUT = 60.0


class WebTestClient:
    """A running server, and a client with access to it."""

    def __init__(self, address: str, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        self.address = address
        self.client = client
        self.stop = stop

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    async def get_json(self, path: str, status: int = 200) -> Any:
        reply = await self.client.get(f"/api{path}")
        assert reply.status_code == status, reply.text
        return reply.json()

    async def post_json(self, path: str, body: Any, status: int = 200) -> Any:
        reply = await self.client.post(f"/api{path}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def patch_json(self, path: str, body: Any, status: int = 200) -> Any:
        reply = await self.client.patch(f"/api{path}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    @asynccontextmanager
    async def open_stream(self, path: str, **headers: str) -> AsyncIterator[SseStream]:
        async with self.client.stream("GET", f"/api{path}", headers=headers) as reply:
            assert reply.status_code == 200
            yield SseStream(reply)


class SseStream:
    """Events of one connection: kind, id and data."""

    def __init__(self, reply: httpx.Response) -> None:
        self._lines = reply.aiter_lines()

    async def read_event(self) -> tuple[str, str, Any]:
        """Return the next event; raise StopAsyncIteration when the server has closed the stream properly."""
        kind = ident = data = ""
        async with asyncio.timeout(TIMEOUT):
            while line := await anext(self._lines):
                name, _, value = line.partition(": ")
                match name:
                    case "event":
                        kind = value
                    case "id":
                        ident = value
                    case "data":
                        data = value
        return (kind, ident, json.loads(data)) if data else await self.read_event()

    async def read_to_end(self) -> None:
        """Read until the server closes the stream properly; raise if the stream is cut off."""
        async with asyncio.timeout(TIMEOUT):
            async for _ in self._lines:
                pass

    async def read_until(self, condition: Callable[[Any], bool]) -> Any:
        """Return the data of the first event that fulfils the condition, ignoring changes of the run list."""
        while True:
            kind, _, data = await self.read_event()
            if kind != "runs" and condition(data):
                return data


@asynccontextmanager
async def serve_home(home: Path | None = None, **address_fields: Any) -> AsyncIterator[WebTestClient]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    wanted = WebServerAddress(**{"host": "127.0.0.1", "port": 0, "token": TOKEN, **address_fields})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            serve_web_view(
                StoredRuns(home=home or get_home()), wanted, on_ready=address.set_result, ended=ended
            )
        )
        base = (await address).partition("/?")[0]
        async with httpx.AsyncClient(base_url=base, headers=BEARER, timeout=TIMEOUT) as client:
            yield WebTestClient(address.result(), client, ended)
        ended.set()


ROW_KEYS = {
    "agents": ("id",),
    "tasks": ("board", "id"),
    "letters": ("team", "to", "id"),
    "questions": ("id",),
    "costs": ("agent", "model", "board", "task"),
    "spend": ("at",),
    "notes": ("number",),
}


class PageState:
    """State of a page after the frames it received: rows by their keys."""

    def __init__(self) -> None:
        self.run: Any = None
        self.live: bool | None = None
        self.rows: dict[str, dict[tuple[Any, ...], Any]] = {kind: {} for kind in ROW_KEYS}

    def apply_frame(self, frame: Any) -> PageState:
        self.run = frame["run"] or self.run
        self.live = frame["live"]
        for kind, keys in ROW_KEYS.items():
            for row in frame[kind]:
                self.rows[kind][tuple(row[key] for key in keys)] = row
        return self

    def map_agent_states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.rows["agents"].values()}

    @property
    def comparable_state(self) -> Any:
        """State for comparison. `last` of the run is left out: it changes with every event."""
        return {"live": self.live, "run": {**self.run, "last": 0}, **self.rows}
