"""What the runtime sees of an agent at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.core.events import Event, MessageAdded, RequestSettled, ToolFinished, ToolReturned, ToolStarted
from shoal.core.ids import AgentId, EntryId, RequestId
from shoal.core.messages import Message, Text, ToolResult, user
from shoal.core.usage import Usage
from shoal.runs.witness import Witness

A = AgentId("a1")


async def unheard(_: Event) -> None: ...


def added(text: str, by: str = "model") -> MessageAdded:
    said = Message(role="assistant", content=(Text(text=text),)) if by == "model" else user(text)
    return MessageAdded(agent=A, entry=EntryId("e"), message=said, by=by)


@pytest.mark.spec("CTL-07")
async def test_the_output_file_grows_while_the_agent_works(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "tasks" / "a1.output", unheard)
    await witness.tell(added("do it", by="agent"))
    await witness.tell(added("I look."))
    await witness.tell(ToolStarted(agent=A, call="c", tool="Read", preview="a.txt"))
    await asyncio.sleep(0)
    assert witness.output.read_text() == "I look.\n· Read a.txt\n"
    await witness.tell(added("Done."))
    witness.flush()
    assert witness.output.read_text() == "I look.\n· Read a.txt\nDone.\n"
    witness.output.unlink()
    await asyncio.sleep(0)
    assert not witness.output.exists()


async def test_an_output_file_that_cannot_be_written_does_not_stop_the_agent(tmp_path: Path) -> None:
    (tmp_path / "tasks").touch()
    witness = Witness(tmp_path / "tasks" / "a1.output", unheard)
    await witness.tell(added("I look."))
    await asyncio.sleep(0)
    witness.flush()


async def test_every_event_is_passed_on_and_what_it_shows_is_counted(tmp_path: Path) -> None:
    heard: list[Event] = []
    doing: list[str] = []

    async def tell(event: Event) -> None:
        heard.append(event)

    async def progress(text: str) -> None:
        doing.append(text)

    witness = Witness(tmp_path / "a1.output", tell)
    witness.wait_for(progress)
    usage = Usage(input_tokens=5, output_tokens=2)
    events: list[Event] = [
        RequestSettled(agent=A, request=RequestId("r"), model="m", usage=usage, cost_usd=None, duration_ms=1),
        ToolStarted(agent=A, call="c", tool="Bash", preview="make"),
        ToolReturned(
            agent=A, call="c", tool="Bash", result=ToolResult(tool_use_id="c"), data={"exit_code": 2}
        ),
        ToolFinished(agent=A, call="c", tool="Bash", is_error=True, size=0, duration_ms=1, preview=""),
    ]
    for event in events:
        await witness.tell(event)
    witness.flush()
    assert heard == events
    assert doing == ["Bash make"]
    assert (witness.usage, witness.requests, witness.used_shell) == (usage, 1, True)
    found = witness.evidence()
    assert (found.tool_calls, found.failed_calls) == (1, 1)
    assert [(ran.command, ran.exit_code) for ran in found.commands] == [("make", 2)]


async def waiting(_: str) -> None: ...


@pytest.mark.spec("CTL-07")
async def test_the_file_of_one_that_is_waited_for_comes_in_a_moment_or_at_its_end(
    tmp_path: Path,
) -> None:
    slow, quick = (Witness(tmp_path / "tasks" / name, unheard) for name in ("slow", "quick"))
    for witness in (slow, quick):
        witness.wait_for(waiting)
        await witness.tell(added("I look."))
    assert quick.conclude("Done.\n", looked_for=False) == str(quick.output)
    assert quick.output.read_text() == "I look.\nDone.\n"
    async with asyncio.timeout(10):
        while not slow.output.exists():
            await asyncio.sleep(0)
    await slow.tell(added("I go on."))
    await asyncio.sleep(0)
    assert slow.output.read_text() == "I look.\nI go on.\n"


@pytest.mark.spec("CTL-07")
async def test_what_was_held_back_is_there_as_soon_as_nobody_waits(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "a1.output", unheard)
    witness.wait_for(waiting)
    await witness.tell(added("I look."))
    assert not witness.output.exists()
    witness.let_go()
    assert witness.output.read_text() == "I look.\n"


async def test_where_nothing_is_kept_one_that_was_done_at_once_leaves_no_file(tmp_path: Path) -> None:
    for looked_for in (False, True):
        witness = Witness(tmp_path / f"{looked_for}.output", unheard, kept=False)
        witness.wait_for(waiting)
        await witness.tell(added("I look."))
        assert witness.conclude("Done.\n", looked_for=looked_for) == (
            str(witness.output) if looked_for else ""
        )
        assert witness.output.exists() is looked_for


async def test_many_agents_at_work_hold_no_file_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    crowd = [Witness(tmp_path / f"{number}.output", unheard) for number in range(50)]
    for witness in crowd:
        await witness.tell(added("I look."))
    await asyncio.sleep(0)
    assert all(witness.output.exists() for witness in crowd)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
