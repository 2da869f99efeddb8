"""The reference in docs is what the code says, and what it says is so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, cast, use
from reference import DIRECTORY, PAGES
from reference_pages.settings import example, keys
from shoal.core.hook_events import ALWAYS, OCCASIONS, OF_AGENTS
from shoal.core.hooks import EVENTS
from shoal.core.questions import Denied
from shoal.wire.hooks import read_hooks
from shoal.wire.settings import read_document, unknown_keys


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), (
        f"docs/reference/{name} is old: run make reference"
    )


def test_the_reference_has_no_page_that_nothing_makes() -> None:
    assert {path.name for path in DIRECTORY.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("key", [key for key, _ in keys()])
def test_the_example_of_a_setting_is_understood(key: str) -> None:
    document = read_document(json.dumps(example(key)), name="settings.json", kind="user", path=None)
    assert list(unknown_keys(document)) == []
    assert read_hooks(document.raw.get("hooks", {}), document.place).problems == ()


async def test_hooks_are_told_the_fields_that_the_reference_lists(tmp_path: Path) -> None:
    told: dict[str, list[dict[str, Any]]] = {}

    def hear(event: dict[str, Any]) -> None:
        told.setdefault(event["hook_event_name"], []).append(event)

    async def refuse(session: shoal.Session) -> None:
        async for question in session.parts.desk.incoming():
            session.parts.desk.answer(question.id, Denied(reason="no"))

    model = cast(
        lead=[
            use("Write", file_path="made.txt", content=""),
            [use("Read", file_path="no.txt"), use("TaskCreate", subject="Dig", description="A well")],
            use("TaskUpdate", taskId="1", status="completed"),
            agent("sub"),
            "over",
        ],
        sub=["said"],
    )
    hooks = {event: [hear] for event in EVENTS}
    async with shoal.open(cwd=tmp_path, model=model, hooks=hooks, attended=True) as session:
        async with asyncio.TaskGroup() as beside:
            refusing = beside.create_task(refuse(session))
            await all_turns(session)
            refusing.cancel()
        await session.compact()
    untold = {"TeammateIdle", "WorktreeCreate", "WorktreeRemove"}
    assert set(told) == set(EVENTS) - untold
    for name, events in told.items():
        occasion = OCCASIONS[name]  # type: ignore[index]
        for event in events:
            needed = {*ALWAYS, *occasion.told, *(OF_AGENTS if "agent_id" in event else ())}
            assert needed <= set(event) <= needed | set(occasion.at_times), name
