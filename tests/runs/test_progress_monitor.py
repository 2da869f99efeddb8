"""ProgressMonitor of a running agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, user_message
from shoal.core.events import (
    Event,
    MessageAdded,
    ModelRequestSettled,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
)
from shoal.core.ids import AgentId, EntryId, RequestId
from shoal.runs.progress_monitor import ProgressMonitor

A = AgentId("a1")


async def ignore_event(_: Event) -> None: ...


def make_message_added(text: str, by: str = "model") -> MessageAdded:
    said = Message(role="assistant", content=(TextBlock(text=text),)) if by == "model" else user_message(text)
    return MessageAdded(agent=A, entry=EntryId("e"), message=said, by=by)


@pytest.mark.spec("CTL-07")
async def test_the_output_file_grows_while_the_agent_works(tmp_path: Path) -> None:
    monitor = ProgressMonitor(str(tmp_path / "tasks" / "a1.output"), ignore_event)
    await monitor.record_and_forward_event(make_message_added("do it", by="agent"))
    await monitor.record_and_forward_event(make_message_added("I look."))
    await monitor.record_and_forward_event(ToolStarted(agent=A, call="c", tool="Read", preview="a.txt"))
    await asyncio.sleep(0)
    assert Path(monitor.output).read_text() == "I look.\n· Read a.txt\n"
    await monitor.record_and_forward_event(make_message_added("Done."))
    monitor.flush_output()
    assert Path(monitor.output).read_text() == "I look.\n· Read a.txt\nDone.\n"
    Path(monitor.output).unlink()
    await asyncio.sleep(0)
    assert not Path(monitor.output).exists()


async def test_an_output_file_that_cannot_be_written_does_not_stop_the_agent(tmp_path: Path) -> None:
    (tmp_path / "tasks").touch()
    monitor = ProgressMonitor(str(tmp_path / "tasks" / "a1.output"), ignore_event)
    await monitor.record_and_forward_event(make_message_added("I look."))
    await asyncio.sleep(0)
    monitor.flush_output()


async def test_every_event_is_forwarded_and_counted(tmp_path: Path) -> None:
    forwarded: list[Event] = []
    doing: list[str] = []

    async def tell(event: Event) -> None:
        forwarded.append(event)

    async def progress(text: str) -> None:
        doing.append(text)

    monitor = ProgressMonitor(str(tmp_path / "a1.output"), tell)
    monitor.attach_progress_callback(progress)
    usage = Usage(input_tokens=5, output_tokens=2)
    events: list[Event] = [
        ModelRequestSettled(
            agent=A, request=RequestId("r"), model="m", usage=usage, cost_usd=None, duration_ms=1
        ),
        ToolStarted(agent=A, call="c", tool="Bash", preview="make"),
        ToolOutputReturned(
            agent=A, call="c", tool="Bash", result=ToolResultBlock(tool_use_id="c"), data={"exit_code": 2}
        ),
        ToolFinished(agent=A, call="c", tool="Bash", is_error=True, size=0, duration_ms=1, preview=""),
    ]
    for event in events:
        await monitor.record_and_forward_event(event)
    monitor.flush_output()
    assert forwarded == events
    assert doing == ["Bash make"]
    assert (monitor.usage, monitor.requests, monitor.used_shell) == (usage, 1, True)
    found = monitor.collect_evidence()
    assert (found.tool_calls, found.failed_calls) == (1, 1)
    assert [(ran.command, ran.exit_code) for ran in found.commands] == [("make", 2)]


async def ignore_progress(_: str) -> None: ...


@pytest.mark.spec("CTL-07")
async def test_the_output_file_of_an_awaited_agent_is_written_with_a_delay_or_at_its_end(
    tmp_path: Path,
) -> None:
    slow, quick = (
        ProgressMonitor(str(tmp_path / "tasks" / name), ignore_event) for name in ("slow", "quick")
    )
    for monitor in (slow, quick):
        monitor.attach_progress_callback(ignore_progress)
        await monitor.record_and_forward_event(make_message_added("I look."))
    assert quick.finish_output("Done.\n", is_needed=False) == str(quick.output)
    assert Path(quick.output).read_text() == "I look.\nDone.\n"
    async with asyncio.timeout(10):
        while not Path(slow.output).exists():
            await asyncio.sleep(0)
    await slow.record_and_forward_event(make_message_added("I go on."))
    await asyncio.sleep(0)
    assert Path(slow.output).read_text() == "I look.\nI go on.\n"


@pytest.mark.spec("CTL-07")
async def test_delayed_output_is_written_when_the_waiter_detaches(tmp_path: Path) -> None:
    monitor = ProgressMonitor(str(tmp_path / "a1.output"), ignore_event)
    monitor.attach_progress_callback(ignore_progress)
    await monitor.record_and_forward_event(make_message_added("I look."))
    assert not Path(monitor.output).exists()
    monitor.detach_progress_callback()
    assert Path(monitor.output).read_text() == "I look.\n"


async def test_an_unkept_output_of_a_quick_agent_leaves_no_file(tmp_path: Path) -> None:
    for looked_for in (False, True):
        monitor = ProgressMonitor(str(tmp_path / f"{looked_for}.output"), ignore_event, is_kept=False)
        monitor.attach_progress_callback(ignore_progress)
        await monitor.record_and_forward_event(make_message_added("I look."))
        assert monitor.finish_output("Done.\n", is_needed=looked_for) == (
            monitor.output if looked_for else ""
        )
        assert Path(monitor.output).exists() is looked_for


async def test_running_agents_hold_no_file_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    monitors = [ProgressMonitor(str(tmp_path / f"{number}.output"), ignore_event) for number in range(50)]
    for monitor in monitors:
        await monitor.record_and_forward_event(make_message_added("I look."))
    await asyncio.sleep(0)
    assert all(Path(monitor.output).exists() for monitor in monitors)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
