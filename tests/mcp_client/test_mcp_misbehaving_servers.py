"""MCP servers that flood, lie, hang and print rubbish: named, bounded, and nothing else is harmed."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from mcp_helpers import (
    join_notes,
    list_result_texts,
    list_tool_results,
    make_rogue_config,
    map_statuses,
    open_session,
)

from agent_scripts import call_tool, read_events, run_all_turns, script_agents
from shoal.core.events import NoteAdded

pytestmark = pytest.mark.needs("mcp")
SOUND = {"sound": make_rogue_config("plain", "here")}
STILL_THERE = call_tool("mcp__sound__echo", text="still")


async def test_an_invalid_tool_affects_no_other_tool(tmp_path: Path) -> None:
    lead = [call_tool("mcp__liar__good", text="yes"), STILL_THERE, "done"]
    async with open_session(
        tmp_path, script_agents(lead=lead), {"liar": make_rogue_config("liar", "well"), **SOUND}
    ) as session:
        await run_all_turns(session)
        assert list_result_texts(session) == ["well yes", "here still"]
        mine = [name for name in session.agent.tools if name.startswith("mcp__liar__")]
        told = join_notes(read_events(session))
    assert mine[:3] == ["mcp__liar__good", "mcp__liar__bare", "mcp__liar__go_od"]
    (long,) = mine[3:]
    assert len(long) == 64
    assert long.startswith("mcp__liar__xxx")
    for why in (
        "its tool 'text' is ignored: its input schema is not an object",
        "its tool 'list' is ignored: its input has the type 'array'",
        "its tool 'odd' is ignored",
        "a tool without a name",
        "its tool 'go.od' is ignored: 'go od' has the same name in Shoal (mcp__liar__go_od)",
        "its tool 'huge' is ignored",
    ):
        assert why in told


@pytest.mark.spec("LIM-07")
async def test_a_server_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    lead = [call_tool("mcp__mute__echo"), STILL_THERE, "done"]
    servers = {"mute": make_rogue_config("mute"), **SOUND}
    async with open_session(tmp_path, script_agents(lead=lead), servers, own={"mcp_deadline": 1}) as session:
        await run_all_turns(session)
        late, other = list_result_texts(session)
        assert list_tool_results(session)[0].is_error
    assert "the MCP server mute did not answer within 1 s" in late
    assert other == "here still"


@pytest.mark.spec("LIM-07")
async def test_a_list_that_a_server_announces_and_never_sends_is_not_waited_for(tmp_path: Path) -> None:
    call = call_tool("mcp__shy__echo", text="through")
    async with open_session(
        tmp_path,
        script_agents(lead=[call, "done", call, "done"]),
        {"shy": make_rogue_config("shy")},
        own={"mcp_deadline": 1},
    ) as session:
        noted = asyncio.Event()
        session.subscribe(
            lambda event: (
                noted.set()
                if isinstance(event, NoteAdded) and "did not list them within 1 s" in event.text
                else None
            )
        )
        await run_all_turns(session)
        async with asyncio.timeout(30):
            await noted.wait()
        assert "mcp__shy__late" not in session.agent.tools
        # The server announces the change again, and lists its new tool this time.
        changed = asyncio.Event()
        session.runtime.servers.subscribe_to_tool_changes(lambda _: changed.set())
        await run_all_turns(session)
        async with asyncio.timeout(30):
            await changed.wait()
        assert "mcp__shy__late" in session.agent.tools


async def test_garbage_on_standard_output_is_skipped_and_reported_once(tmp_path: Path) -> None:
    call = call_tool("mcp__noisy__echo", text="through")
    async with open_session(
        tmp_path, script_agents(lead=[call, call, "done"]), {"noisy": make_rogue_config("garbage")}
    ) as session:
        await run_all_turns(session)
        assert list_result_texts(session) == ["through", "through"]
        assert join_notes(read_events(session)).count("a line that is not a message") == 1


async def test_a_server_that_prints_only_garbage_is_stopped(tmp_path: Path) -> None:
    servers = {"chatty": make_rogue_config("chatty"), **SOUND}
    async with open_session(tmp_path, script_agents(lead=[STILL_THERE, "done"]), servers) as session:
        await run_all_turns(session)
        assert list_result_texts(session) == ["here still"]
        assert map_statuses(session) == {"chatty": "failed", "sound": "connected"}
        assert "more than 1,000 lines that are not messages" in join_notes(read_events(session))


@pytest.mark.parametrize("behaviour", ["picture", "late-id"])
async def test_a_picture_that_is_too_large_fails_only_its_call(tmp_path: Path, behaviour: str) -> None:
    """A picture of 20 MB, with the id of the call before or after it."""
    servers = {"gallery": make_rogue_config(behaviour)}
    lead = [call_tool("mcp__gallery__echo"), call_tool("mcp__gallery__pid", "one"), "done"]
    async with open_session(tmp_path, script_agents(lead=lead), servers) as session:
        await run_all_turns(session)
        picture, pid = list_result_texts(session)
        assert "The answer is longer than 16 MB." in picture
        assert pid.isdecimal()
        assert map_statuses(session) == {"gallery": "connected"}
        assert "it sent a message of more than 16 MB, which is ignored" in join_notes(read_events(session))


@pytest.mark.slow
async def test_a_flood_of_output_uses_bounded_memory(tmp_path: Path) -> None:
    """100 MB of notifications before the answer, and a line without end."""
    servers = {"flood": make_rogue_config("flood"), "line": make_rogue_config("line"), **SOUND}
    lead = [call_tool("mcp__flood__echo", text="dry"), call_tool("mcp__line__echo"), STILL_THERE, "done"]
    async with open_session(tmp_path, script_agents(lead=lead), servers) as session:
        await session.runtime.servers.wait_until_ready()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await run_all_turns(session)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        flood, line, other = list_result_texts(session)
    assert flood == "dry"
    assert "it wrote a line of more than 64 MB" in line
    assert other == "here still"
    assert grown < 90_000, "kilobytes"


async def test_a_server_that_cannot_start_is_reported_with_the_reason(tmp_path: Path) -> None:
    servers = {
        "away": {"command": "no-such-program-anywhere"},
        "unset": {"command": "echo", "args": ["${NO_SUCH_VARIABLE_HERE}"]},
        "closed": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
        "odd": {"type": "pigeon", "url": "x"},
        "empty": {"command": ""},
        "fails": make_rogue_config("fails"),
        "so und": make_rogue_config("plain"),
        **SOUND,
        "so.und": make_rogue_config("plain"),
    }
    async with open_session(tmp_path, script_agents(lead=[STILL_THERE, "done"]), servers) as session:
        await run_all_turns(session)
        assert list_result_texts(session) == ["here still"]
        standing = {each.name: each for each in session.runtime.servers.list_statuses()}
        told = "\n".join((*session.notes, join_notes(read_events(session))))
    assert "no-such-program-anywhere" in standing["away"].detail
    assert "NO_SUCH_VARIABLE_HERE, which is not set" in standing["unset"].detail
    assert standing["closed"].status == "failed"
    assert "exit status 4" in standing["fails"].detail
    assert "fails.log" in standing["fails"].detail
    assert "the MCP server odd cannot be used: type is 'pigeon'" in told
    assert "the MCP server empty cannot be used: command is missing" in told
    assert "the MCP server so.und is ignored" in told
    assert standing["so und"].tools == ("mcp__so_und__echo", "mcp__so_und__pid")
