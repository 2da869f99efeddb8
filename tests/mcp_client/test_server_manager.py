"""The servers of a session, without a session: when they start, what they offer and why one is missing."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from mcp_helpers import make_guide_config, make_rogue_config

from shoal.app.mcp.mcp_servers import InlineMcpServerPolicy, SessionMcpServerManager
from shoal.app.settings.mcp_files import ConfiguredMcpServers
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.agents.agent_definitions import (
    AgentCapabilities,
    AgentDefinition,
    DefinitionSource,
    DefinitionSourceKind,
)
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.tools import Tool
from shoal.core.errors import AgentRequestRefused
from shoal.core.extensions.mcp_servers import McpServerConfig, McpServerStatus
from shoal.testing import FakeClock
from shoal.tools.mcp.client_context import (
    McpClientContext,
    McpConnectionLost,
    McpRequestRefused,
    McpTokenStore,
)
from shoal.wire.mcp_codec import parse_mcp_server

pytestmark = pytest.mark.needs("mcp")


def refuse_token_store(name: str, url: str) -> McpTokenStore:
    raise AssertionError


class Servers:
    """The manager, and what it reported."""

    def __init__(self, manager: SessionMcpServerManager, notes: list[str]) -> None:
        self.manager = manager
        self.notes = notes
        self.published: list[list[str]] = []
        manager.subscribe_to_tool_changes(lambda tools: self.published.append(list(tools)))

    @property
    def statuses(self) -> dict[str, str]:
        return {each.name: each.status for each in self.manager.list_statuses()}


@asynccontextmanager
async def manage(
    tmp_path: Path,
    servers: Mapping[str, dict[str, Any]],
    *,
    wait: float = 30.0,
    optional: tuple[str, ...] = (),
    connect_timeout: float = 30.0,
    clock: Clock | None = None,
    **configured: Any,
) -> AsyncIterator[Servers]:
    notes: list[str] = []
    processes = GuardedProcessLauncher(SystemClock())
    host = McpClientContext(
        processes=processes,
        clock=clock or SystemClock(),
        root=tmp_path,
        env=dict(os.environ),
        logs=tmp_path / "logs",
        deadline=10,
        note=notes.append,
        tokens=refuse_token_store,
        connect_timeout=connect_timeout,
    )
    parsed = tuple(parse_mcp_server(name, config, "a test") for name, config in servers.items())
    documents = ConfiguredMcpServers(servers=parsed, **configured)
    manager = SessionMcpServerManager(
        documents,
        host,
        startup_wait=wait,
        inline=InlineMcpServerPolicy(
            configured=documents, is_trusted=lambda _: True, is_permitted=lambda _: True
        ),
        is_required=lambda server: server.name not in optional,
    )
    try:
        async with asyncio.timeout(60), manager:
            yield Servers(manager, notes)
    finally:
        await processes.aclose()


def make_server(name: str) -> McpServerConfig:
    return parse_mcp_server(name, {"command": "none"}, "a test")


def define_agent(kind: DefinitionSourceKind = "user", **capabilities: Any) -> AgentDefinition:
    return AgentDefinition(
        name="worker",
        description="d",
        prompt="p",
        source=DefinitionSource(kind=kind),
        capabilities=AgentCapabilities(**capabilities),
    )


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_an_optional_server_starts_when_it_is_asked_for_or_after_a_moment(
    tmp_path: Path, is_asked_for: bool
) -> None:
    mark, clock = tmp_path / "mark", FakeClock()
    servers = {"first": make_guide_config(), "second": make_guide_config(mark=str(mark))}
    async with manage(tmp_path, servers, optional=("second",), clock=clock) as session:
        assert session.statuses == {"first": "pending", "second": "pending"}
        assert session.manager.list_pending_names() == ("first", "second")
        await session.manager.wait_until_ready()
        assert session.statuses == {"first": "connected", "second": "pending"}
        assert session.manager.list_pending_names() == ("second",)
        assert session.published == [["mcp__first__look"]]
        assert not mark.exists()
        if is_asked_for:
            await session.manager.wait_for_pending(30)
        else:
            await clock.advance(0.3)
            while session.manager.list_pending_names():
                await session.manager._change_event.wait()
        assert mark.exists()
        assert session.statuses == {"first": "connected", "second": "connected"}
        assert session.notes == []
    assert session.published[-1] == ["mcp__first__look", "mcp__second__look"]


async def test_late_servers_are_named_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    servers = {"late": make_guide_config(gate=str(gate)), "near": make_guide_config()}
    async with manage(tmp_path, servers, wait=0.01) as session:
        manager = session.manager
        await manager.wait_until_ready()
        assert session.notes[0].startswith("Still connecting: late")
        names = manager.take_late_names()
        assert "late" in names
        assert manager.take_late_names() == ()
        await manager.wait_until_ready()
        assert manager.find_pending_server("mcp__late__look") == "late"
        assert manager.find_pending_server("mcp__later__look") is None
        Thread(target=gate.write_text, args=("open",), daemon=True).start()
        await manager.wait_until_settled()
        assert set(session.statuses.values()) == {"connected"}
        assert manager.find_pending_server("mcp__late__look") is None
    assert len(session.notes) == 1


async def test_servers_that_are_not_started_have_a_state_and_a_reason(tmp_path: Path) -> None:
    relayed = McpServerStatus(
        name="given", status="connected", kind="sdk", origin="x", tools=("mcp__given__a",)
    )
    async with manage(
        tmp_path,
        {"first": make_guide_config()},
        disabled=(make_server("off"),),
        untrusted=(make_server("stranger"),),
        relayed=(relayed,),
        channel_names=frozenset({"first", "nobody", "another"}),
    ) as session:
        statuses = {each.name: each for each in session.manager.list_statuses()}
        assert [each.status for each in statuses.values()] == ["connected", "pending", "disabled", "disabled"]
        assert statuses["off"].detail == "it is disabled in the settings"
        assert "shoal trust" in statuses["stranger"].detail
        assert (statuses["off"].kind, statuses["off"].origin) == ("stdio", "a test")
        missing = session.manager.describe_missing_channels()
        assert [each.split()[2] for each in missing] == ["server:another", "server:nobody"]
        assert session.manager.split_resource_mention("given:doc://1") == ("given", "doc://1")
        uri, tool, reason = await session.manager.open_resource("off", "doc://1")
        assert (uri, tool) == ("doc://1", None)
        assert reason == "The MCP server off is not available: it is disabled in the settings."
        uri, tool, reason = await session.manager.open_resource("given", "doc://1")
        assert reason == "The MCP server given is not available: connected."


@pytest.mark.spec("CMP-123")
@pytest.mark.parametrize(
    ("mention", "found"),
    [
        ("a:doc://1", ("a", "doc://1")),
        ("a:b:doc://1", ("a:b", "doc://1")),
        ("a:b", None),
        ("a:1doc:x", None),
        ("a", None),
        ("b:doc://1", None),
        ("ab:doc://1", None),
        ("a:x+y.z-1:", ("a", "x+y.z-1:")),
    ],
)
async def test_a_mention_names_a_server_and_a_resource(
    tmp_path: Path, mention: str, found: tuple[str, str] | None
) -> None:
    async with manage(tmp_path, {}, disabled=(make_server("a"), make_server("a:b"))) as session:
        assert session.manager.split_resource_mention(mention) == found


@pytest.mark.spec("CMP-123")
async def test_a_resource_is_found_with_or_without_the_punctuation_after_it(tmp_path: Path) -> None:
    resources = {"doc://a": "a", "doc://b.": "b", "doc://c.)": "c"}
    servers = {"guide": make_guide_config(resources=resources), "bare": make_guide_config()}
    async with manage(tmp_path, servers) as session:
        found = {
            uri: (await session.manager.open_resource("guide", uri))[0]
            for uri in ("doc://a", "doc://a.", "doc://b.", "doc://b.,", "doc://c.)!", "doc://d..")
        }
        _, tool, reason = await session.manager.open_resource("bare", "doc://a")
        assert (tool, reason) == (None, "The MCP server bare has no resources.")
        _, tool, reason = await session.manager.open_resource("guide", "doc://a")
        assert reason == ""
        assert tool is not None
        assert tool.schema.name == "ReadMcpResourceTool"
    assert found == {
        "doc://a": "doc://a",
        "doc://a.": "doc://a",
        "doc://b.": "doc://b.",
        "doc://b.,": "doc://b.",
        "doc://c.)!": "doc://c.)",
        "doc://d..": "doc://d",
    }


@pytest.mark.spec("CMP-123")
async def test_a_server_that_fails_has_no_resource_and_no_prompt(tmp_path: Path) -> None:
    async with manage(tmp_path, {"broken": make_rogue_config("fails")}) as session:
        _, tool, reason = await session.manager.open_resource("broken", "doc://a")
        assert tool is None
        assert reason.startswith("The MCP server broken is not available: exit status 4.")
        with pytest.raises(McpRequestRefused, match="mcp__broken__x"):
            await session.manager.render_prompt("mcp__broken__x", {})
        assert await session.manager.list_resource_mentions() == ()
    assert session.statuses == {"broken": "failed"}


@pytest.mark.spec("CMP-123")
async def test_a_server_that_does_not_answer_has_no_resource(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with manage(tmp_path, {"slow": make_guide_config(gate=str(gate))}, connect_timeout=0.05) as session:
        reasons = [(await session.manager.open_resource("slow", "doc://a"))[1:] for _ in range(2)]
        await session.manager.wait_until_settled()
        reasons.append((await session.manager.open_resource("slow", "doc://a"))[1:])
    failed = "The MCP server slow is not available: it did not start within 0.05 s"
    assert reasons[0][1] == "The MCP server slow did not answer in time." or reasons[0][1].startswith(failed)
    assert reasons[-1][1].startswith(failed)
    assert {tool for tool, _ in reasons} == {None}
    assert session.notes[0].startswith(
        "The MCP server slow (a test) is not available: it did not start within 0.05 s"
    )


@pytest.mark.spec("CMP-123")
async def test_a_server_that_does_not_list_its_resources_is_not_waited_for_forever(tmp_path: Path) -> None:
    clock = FakeClock()
    server = make_guide_config(resources={"doc://a": "a"}, mute=["resources/list"])
    async with manage(tmp_path, {"guide": server}, clock=clock) as session:
        await session.manager.wait_until_ready()
        others = clock.sleepers
        opening = asyncio.create_task(session.manager.open_resource("guide", "doc://a."))
        listing = asyncio.create_task(session.manager.list_resource_mentions())
        await clock.wait_for_sleepers(others + 2)
        await clock.advance(10)
        assert await listing == ()
        assert not opening.done()
        await clock.advance(20)
        assert await opening == ("doc://a.", None, "The MCP server guide did not answer in time.")


async def test_resource_tools_are_offered_with_the_first_server_that_has_resources(tmp_path: Path) -> None:
    servers = {"bare": make_guide_config(), "guide": make_guide_config(resources={"doc://a": "a"})}
    async with manage(tmp_path, servers, optional=("guide",)) as session:
        await session.manager.wait_until_ready()
        assert session.published[-1] == ["mcp__bare__look"]
        await session.manager.wait_for_pending(30)
    assert session.published[-1] == [
        "mcp__bare__look",
        "mcp__guide__look",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
    ]


@pytest.mark.spec("MCP-01")
async def test_an_agent_gets_the_tools_of_its_own_servers_and_of_those_it_names(tmp_path: Path) -> None:
    servers = {"near": make_guide_config(), "other": make_guide_config()}
    relayed = McpServerStatus(
        name="given", status="connected", kind="sdk", origin="x", tools=("mcp__given__a",)
    )
    own = {"own": make_guide_config(instructions="Knock.")}
    async with manage(tmp_path, servers, relayed=(relayed,)) as session:
        tools: dict[str, Tool] = {}
        agent = await session.manager.prepare_agent_tools(
            define_agent(mcp_servers=(own, "ne*", "given")), tools
        )
        assert agent.extra_names == ("mcp__own__look", "mcp__near__look", "mcp__given__a")
        assert list(agent.tools) == ["mcp__own__look"]
        assert [each.tool_prefix for each in agent.instructed_servers] == ["mcp__own__"]
        instructions = session.manager.create_agent_instructions(agent)
        assert instructions is not None
        (text,) = instructions.take_new_texts(agent.tools, ())
        assert "Knock." in text
        assert "own" not in session.statuses
        await agent.close()
        plain = await session.manager.prepare_agent_tools(define_agent(), tools)
        assert (plain.tools, plain.extra_names, plain.instructed_servers) == (tools, (), ())
    async with manage(tmp_path, {}) as session:
        assert session.manager.create_agent_instructions() is None


@pytest.mark.spec("AGT-06")
@pytest.mark.parametrize(
    ("capabilities", "reason"),
    [
        ({"required_mcp_servers": ("given",)}, None),
        ({"required_mcp_servers": ("ne*",)}, None),
        ({"mcp_servers": ("bare",)}, None),
        ({"required_mcp_servers": ("bare",)}, "bare (it has no tools)"),
        ({"mcp_servers": ("nobody",)}, "nobody (it is not configured; `shoal mcp ls` lists the servers)"),
        ({"mcp_servers": ("off",)}, "off (it is disabled in the settings)"),
        ({"mcp_servers": ("stranger",)}, "stranger (the project that configures it is not trusted"),
        ({"mcp_servers": ("broken",)}, "broken (exit status 4"),
        ({"mcp_servers": ("broken", "near", "off")}, "broken (exit status 4"),
        ({"tools": ("mcp__nobody__x",)}, None),
    ],
)
async def test_an_agent_whose_server_is_missing_does_not_start(
    tmp_path: Path, capabilities: dict[str, Any], reason: str | None
) -> None:
    servers = {
        "near": make_guide_config(),
        "bare": make_guide_config(tools=[]),
        "broken": make_rogue_config("fails"),
    }
    relayed = McpServerStatus(
        name="given", status="connected", kind="sdk", origin="x", tools=("mcp__given__a",)
    )
    async with manage(
        tmp_path,
        servers,
        relayed=(relayed,),
        disabled=(make_server("off"),),
        untrusted=(make_server("stranger"),),
    ) as session:
        if reason is None:
            await session.manager.prepare_agent_tools(define_agent(**capabilities), {})
            return
        with pytest.raises(AgentRequestRefused) as refused:
            await session.manager.prepare_agent_tools(define_agent(**capabilities), {})
    text = str(refused.value)
    assert text.startswith("The agent worker (user) was not started because MCP servers that it needs")
    assert reason in text
    assert "near (" not in text


@pytest.mark.spec("AGT-06")
async def test_a_refused_agent_leaves_no_own_server_running(tmp_path: Path) -> None:
    definition = define_agent(mcp_servers=({"own": make_rogue_config("plain")}, "nobody"))
    async with manage(tmp_path, {}) as session:
        with pytest.raises(AgentRequestRefused):
            await session.manager.prepare_agent_tools(definition, {})
        assert session.manager._agent_servers == []


@pytest.mark.spec("CMP-088", "CMP-094")
@pytest.mark.parametrize(
    ("kind", "configured", "reason"),
    [
        ("flag", {"managed_by": "/etc/x"}, "only the servers in /etc/x may run"),
        ("user", {"is_strict": True}, "--strict-mcp-config allows only the servers in --mcp-config"),
        ("flag", {"is_strict": True}, None),
        ("user", {"is_plugin_only": True}, "a managed file sets strictPluginOnlyCustomization"),
        ("plugin", {"is_plugin_only": True}, None),
        ("managed", {"is_plugin_only": True}, None),
        ("user", {"switched_off": frozenset({"own"})}, "disabledMcpServers in the settings disables it"),
        ("user", {"switched_off": frozenset({"other"})}, None),
        ("user", {}, None),
        ("project", {}, None),
    ],
)
def test_settings_decide_which_servers_of_a_definition_start(
    kind: DefinitionSourceKind, configured: dict[str, Any], reason: str | None
) -> None:
    definition = define_agent(kind, mcp_servers=({"own": {"command": "none"}}, "named"))
    policy = InlineMcpServerPolicy(
        configured=ConfiguredMcpServers(servers=(), **configured),
        is_trusted=lambda _: True,
        is_permitted=lambda _: True,
    )
    servers, problems = policy.read_lead_servers(definition)
    if reason is None:
        assert [each.name for each in policy.read_servers(definition)] == ["own"]
        assert ([each.name for each in servers], problems) == (["own"], ())
        assert servers[0].origin == "agent worker"
        return
    assert (servers, len(problems), reason in problems[0]) == ((), 1, True)
    with pytest.raises(AgentRequestRefused, match=re.escape(reason)):
        list(policy.read_servers(definition))


@pytest.mark.spec("CMP-088")
@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [("project", {"command": "none"}, "trust"), ("user", {"command": "none"}, "does not permit"),
     ("user", {"command": 5}, "command")],
)  # fmt: skip
def test_a_server_of_a_definition_needs_trust_a_permission_and_a_valid_configuration(
    kind: DefinitionSourceKind, config: dict[str, Any], reason: str
) -> None:
    definition = define_agent(kind, mcp_servers=({"own": config},))
    policy = InlineMcpServerPolicy(configured=ConfiguredMcpServers(servers=()))
    with pytest.raises(AgentRequestRefused, match=reason):
        list(policy.read_servers(definition))


async def test_the_state_of_a_lost_server_says_why(tmp_path: Path) -> None:
    async with manage(tmp_path, {"frail": make_rogue_config("dies")}) as session:
        await session.manager.wait_until_ready()
        (managed,) = session.manager._servers
        managed.mark_connection_lost("it hung")
        assert (managed.status, managed.detail) == ("pending", "it hung")
        while managed.status == "pending":
            await session.manager._change_event.wait()
        assert managed.status == "connected"
        managed.mark_connection_lost("it hung again")
        with pytest.raises(McpConnectionLost, match=r"it ended twice \(it hung again\)"):
            await managed.wait_for_connection()
        assert session.statuses == {"frail": "failed"}
    restarted = "The MCP server frail ended (it hung). It is being restarted."
    assert [note for note in session.notes if "restarted" in note] == [restarted]


async def test_a_server_is_stopped_only_once(tmp_path: Path) -> None:
    async with manage(tmp_path, {"near": make_guide_config()}) as session:
        await session.manager.wait_until_ready()
        (managed,) = session.manager._servers
        managed.stop()
        await managed.wait_stopped()
        assert (managed.status, session.notes) == ("connected", [])
        with pytest.raises(McpConnectionLost):
            await managed.wait_for_connection()
        await managed.wait_stopped()
