"""Leases: a file that an agent has changed is its own until it ends, where settings want that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, cast, use
from crew_rig import drain, ends, opened, results, starts, texts
from shoal.core.errors import SettingsError
from shoal.core.messages import result_text
from shoal.core.requests import Request


def write(path: str, content: str, call_id: str) -> Any:
    return use("Write", call_id, file_path=path, content=content)


def told(request: Request) -> str:
    return "\n".join(result_text(each) for each in results(request.messages))


@pytest.mark.spec("USR-28", "RUN-09")
@pytest.mark.parametrize("leased", [True, False])
async def test_a_file_that_an_agent_has_changed_is_its_own_until_it_ends(
    tmp_path: Path, leased: bool
) -> None:
    gate = Gate()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("zero\n")
    read = use("Read", "r0", file_path="src/a.py")
    model = cast(
        lead=[
            agent("first", "c1", run_in_background=True),
            use("Until"),
            agent("second", "c2"),
            [read, write("src/a.py", "lead\n", "w3")],
            use("Open"),
            "wait",
            [use("Read", "r4", file_path="src/a.py"), write("src/a.py", "after\n", "w4")],
            "end",
        ],
        first=[read, [write("src/a.py", "first\n", "w1"), write("free.txt", "x", "w2")], use("Gate"), "done"],
        second=[
            [read, use("Read", "r1", file_path="free.txt")],
            [write("src/a.py", "second\n", "w1"), write("free.txt", "y", "w2")],
            told,
        ],
    )
    own = {"file_leases": ["docs/**", "src/**"] if leased else []}
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open], own=own) as session:
        async with asyncio.timeout(20):
            await drain(session.run("lead"))
            while (turn := await session.next_turn()) is not None:
                await drain(turn)
    first = starts(session)[0].agent
    second, lead = ends(session)["second"].text, texts(session)
    refusal = f"a.py is being changed by agent {first}, which has it until it ends"
    assert (refusal in second) is leased
    assert any(refusal in each for each in lead[3:5]) is leased
    # What no pattern names is free, and so is the file when its holder has ended.
    assert (tmp_path / "free.txt").read_text() == "y"
    assert (tmp_path / "src" / "a.py").read_text() == "after\n"


async def test_a_pattern_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="file_leases"):
        async with opened(tmp_path, cast(lead=["end"]), own={"file_leases": ["src/[a"]}):
            pass
