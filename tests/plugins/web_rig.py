"""A web view served on loopback for a test, and a client that reads its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from shoal.surfaces.web.server import Place, serve
from troupe import home

TOKEN = "a-token-for-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATIENCE = 15


class Web:
    """A running server, and a client with access to it."""

    def __init__(self, address: str, client: httpx.AsyncClient, ended: asyncio.Event) -> None:
        self.address = address
        self.client = client
        self.ended = ended

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    async def get(self, path: str, status: int = 200) -> Any:
        reply = await self.client.get(f"/api{path}")
        assert reply.status_code == status, reply.text
        return reply.json()

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        reply = await self.client.post(f"/api{path}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def patch(self, path: str, body: Any, status: int = 200) -> Any:
        reply = await self.client.patch(f"/api{path}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[Stream]:
        async with self.client.stream("GET", f"/api{path}", headers=headers) as reply:
            assert reply.status_code == 200
            yield Stream(reply)


class Stream:
    """Events of one connection: kind, id and data."""

    def __init__(self, reply: httpx.Response) -> None:
        self._lines = reply.aiter_lines()

    async def next(self) -> tuple[str, str, Any]:
        """Return the next event; raise StopAsyncIteration when the server has closed the stream properly."""
        kind = ident = data = ""
        async with asyncio.timeout(PATIENCE):
            while line := await anext(self._lines):
                name, _, value = line.partition(": ")
                match name:
                    case "event":
                        kind = value
                    case "id":
                        ident = value
                    case "data":
                        data = value
        return (kind, ident, json.loads(data)) if data else await self.next()

    async def rest(self) -> None:
        """Read until the server closes the stream properly; raise if the stream is cut off."""
        async with asyncio.timeout(PATIENCE):
            async for _ in self._lines:
                pass

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Return the data of the first event that fulfils the condition, ignoring changes of the run list."""
        while True:
            kind, _, data = await self.next()
            if kind != "runs" and wanted(data):
                return data


@asynccontextmanager
async def served(where: Path | None = None, **place: Any) -> AsyncIterator[Web]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    wanted = Place(**{"host": "127.0.0.1", "port": 0, "token": TOKEN, **place})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(where or home(), wanted, ready=address.set_result, ended=ended))
        base = (await address).partition("/?")[0]
        async with httpx.AsyncClient(base_url=base, headers=BEARER, timeout=PATIENCE) as client:
            yield Web(address.result(), client, ended)
        ended.set()


KEYS = {
    "agents": ("id",),
    "tasks": ("board", "id"),
    "letters": ("team", "to", "id"),
    "questions": ("id",),
    "costs": ("agent", "model", "board", "task"),
    "spend": ("at",),
    "notes": ("number",),
}


class Drawn:
    """State of a page after the frames it received: rows by their keys."""

    def __init__(self) -> None:
        self.run: Any = None
        self.live: bool | None = None
        self.rows: dict[str, dict[tuple[Any, ...], Any]] = {kind: {} for kind in KEYS}

    def take(self, frame: Any) -> Drawn:
        self.run = frame["run"] or self.run
        self.live = frame["live"]
        for kind, keys in KEYS.items():
            for row in frame[kind]:
                self.rows[kind][tuple(row[key] for key in keys)] = row
        return self

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.rows["agents"].values()}

    @property
    def all(self) -> Any:
        """State for comparison. `last` of the run is left out: it changes with every event."""
        return {"live": self.live, "run": {**self.run, "last": 0}, **self.rows}
