"""Opens a session of Shoal as its users do, with the bench's model and tool."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import shoal
from bench.instant_model import AddTool
from shoal.app.session.session import Session
from shoal.core.events import RunFinished
from shoal.core.ports import Model


@contextmanager
def use_empty_home() -> Iterator[Path]:
    """Use a temporary home, without settings, keys or sessions of the user who runs the bench."""
    old_environ = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        os.environ.update(HOME=directory, SHOAL_HOME=f"{directory}/home")
        try:
            yield Path(directory)
        finally:
            os.environ.clear()
            os.environ.update(old_environ)


@asynccontextmanager
async def open_session(model: Model, adder: AddTool, cwd: Path, *, persist: bool) -> AsyncIterator[Session]:
    session = shoal.open(cwd=cwd, model=model, tools=[adder.tool], allowed_tools=["add"], persist=persist)
    async with session:
        yield session


async def run_prompt(session: Session, prompt: str) -> str:
    """Run a turn and return its final text; every event is read on the way, as a surface does."""
    async for event in session.run(prompt):
        if isinstance(event, RunFinished):
            return event.text if event.reason == "done" else f"{event.reason}: {event.detail}"
    return ""
