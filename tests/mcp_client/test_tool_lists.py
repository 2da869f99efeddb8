"""What is taken from a server's list of tools, when tools are deferred, and which instructions are given."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.app.mcp.deferred_tools import parse_tool_search_threshold
from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.mcp.server_instructions import (
    MAX_TOTAL_CHARACTERS,
    AgentServerInstructions,
    InstructedServer,
    list_instructed_servers,
)
from shoal.core.agents.agent_definitions import ToolSelection
from shoal.core.conversation.messages import user_message
from shoal.core.extensions.mcp_servers import McpServerStatus
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT, StructuredOutputTool

GUIDE = McpServerStatus(
    name="guide",
    status="connected",
    kind="stdio",
    origin="x",
    tools=("mcp__guide__look",),
    instructions="Knock.",
)
TYPED = McpServerStatus(name="typed", status="connected", kind="stdio", origin="x", instructions="Type.")
LIBRARY = McpServerStatus(
    name="library", status="connected", kind="stdio", origin="x", instructions="Read.", resources=True
)


@pytest.mark.spec("CMP-111")
@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        *((word, None) for word in ("false", "0", "no", "OFF", " false ")),
        *((word, 0) for word in ("true", "1", "yes", "On", "auto:0")),
        ("auto", 20_000),
        ("AUTO:1", 2_000),
        ("auto:25", 50_000),
        ("auto:100", 200_000),
        ("auto:101", 200_000),
        ("auto:999", 200_000),
        *((word, 4_000) for word in ("", "auto:", "auto:1000", "auto:x", "maybe", "2")),
    ],
)
def test_the_variable_sets_the_tokens_above_which_tools_are_deferred(value: str, tokens: int | None) -> None:
    assert parse_tool_search_threshold(value, 200_000) == tokens


def take_texts(
    *servers: McpServerStatus,
    tools: tuple[str, ...] = ("mcp__guide__look",),
    is_lead: bool = True,
    own: tuple[McpServerStatus, ...] = (),
    delivered: tuple[str, ...] = (),
) -> tuple[str, ...]:
    listed = list_instructed_servers(servers)
    instructions = AgentServerInstructions(list_instructed_servers(own), lambda: listed, is_lead=is_lead)
    return instructions.take_new_texts(tools, [user_message(text) for text in delivered])


@pytest.mark.spec("CMP-122")
@pytest.mark.parametrize(
    ("server", "tools", "is_lead", "is_given"),
    [
        (GUIDE, ("mcp__guide__look",), False, True),
        (GUIDE, ("Read", "mcp__guide__other"), True, True),
        (GUIDE, ("mcp__guides__look", "ReadMcpResourceTool"), True, False),
        (GUIDE, (), True, False),
        (LIBRARY, ("ReadMcpResourceTool",), False, True),
        (LIBRARY, ("Read",), True, False),
        (TYPED, (), True, True),
        (TYPED, ("ReadMcpResourceTool",), False, False),
    ],
)
def test_instructions_are_given_to_agents_that_can_use_the_server(
    server: McpServerStatus, tools: tuple[str, ...], is_lead: bool, is_given: bool
) -> None:
    texts = take_texts(server, tools=tools, is_lead=is_lead)
    assert (len(texts), server.instructions in "".join(texts)) == (int(is_given), is_given)


@pytest.mark.spec("CMP-122")
def test_a_server_without_instructions_is_not_named() -> None:
    silent = McpServerStatus(name="silent", status="connected", kind="stdio", origin="x")
    (text,) = take_texts(silent, TYPED)
    assert "typed" in text
    assert take_texts(silent) == ()


@pytest.mark.spec("CMP-122")
def test_instructions_that_the_conversation_contains_are_not_given_again() -> None:
    own, guide = take_texts(GUIDE, own=(TYPED,))
    assert "Type." in own
    assert take_texts(GUIDE, own=(TYPED,), delivered=(own,)) == (guide,)
    assert take_texts(GUIDE, own=(TYPED,), delivered=(guide, own)) == ()


@pytest.mark.spec("CMP-122")
def test_instructions_are_looked_for_again_only_if_something_has_changed() -> None:
    listed: list[tuple[InstructedServer, ...]] = [list_instructed_servers((TYPED,))]
    instructions = AgentServerInstructions((), lambda: listed[-1], is_lead=True)
    tools, messages = ["Read"], [user_message("begin")]
    (text,) = instructions.take_new_texts(tools, messages)
    assert instructions.take_new_texts(tools, messages) == ()
    # A compaction made another list of messages.
    assert instructions.take_new_texts(tools, list(messages)) == (text,)
    listed.append(list_instructed_servers((GUIDE, TYPED)))
    assert instructions.take_new_texts(tools, messages) == (text,)
    assert len(instructions.take_new_texts([*tools, "mcp__guide__look"], messages)) == 2


@pytest.mark.spec("CMP-122")
def test_instructions_up_to_the_total_are_given_and_the_rest_only_named() -> None:
    def make_server(number: int, length: int) -> McpServerStatus:
        return McpServerStatus(
            name=f"s{number}", status="connected", kind="stdio", origin="x", instructions="x" * length
        )

    (short,) = take_texts(make_server(1, 1))
    frame = len(short) - 1
    half = MAX_TOTAL_CHARACTERS // 2 - frame
    texts = take_texts(make_server(1, half), make_server(2, half))
    assert [text.count("x" * half) for text in texts] == [1, 1]
    texts = take_texts(make_server(1, half), make_server(2, half + 1), make_server(3, half))
    assert [text.count("x" * half) for text in texts] == [1, 0, 1]
    assert "instructions, which are left out" in texts[1]
    # What was given before counts, and a server that was only named is not given later.
    later = take_texts(make_server(1, half), make_server(4, half + 1), delivered=(texts[0],))
    assert [text.count("x" * half) for text in later] == [0]
    assert take_texts(make_server(2, half + 1), delivered=(texts[1],)) == ()


@pytest.mark.parametrize(
    ("names", "has_own", "expected"),
    [
        (("Read",), False, ("Read",)),
        (("Read",), True, ("Read", STRUCTURED_OUTPUT)),
        (("Read", STRUCTURED_OUTPUT), False, ("Read",)),
        ((STRUCTURED_OUTPUT, "Read"), True, ("Read", STRUCTURED_OUTPUT)),
    ],
)
def test_an_agent_gets_its_own_output_tool_and_never_that_of_the_lead(
    names: tuple[str, ...], has_own: bool, expected: tuple[str, ...]
) -> None:
    output_tool = StructuredOutputTool({"type": "object"}) if has_own else None
    selected = AgentTools(tools={}, output_tool=output_tool).add_output_tool_name(ToolSelection(names=names))
    assert selected.names == expected


PROBLEMS: list[tuple[Any, str]] = [
    ("text", "without a name"),
    ({}, "without a name"),
    ({"name": 5, "inputSchema": {}}, "without a name"),
    ({"name": "", "inputSchema": {}}, "without a name"),
    ({"name": "a"}, "its tool 'a' is ignored: its input schema is not an object."),
    ({"name": "x" * 81, "inputSchema": []}, f"its tool '{'x' * 80}' is ignored: its input schema is not"),
    ({"name": "a", "inputSchema": {"type": "array"}}, "its input has the type 'array' instead of object"),
    ({"name": "a", "inputSchema": {"properties": []}}, "properties in its schema is not an object"),
    ({"name": "a", "inputSchema": {"$defs": []}}, "$defs in its schema is not an object"),
    ({"name": "a", "inputSchema": {"definitions": 1}}, "definitions in its schema is not an object"),
    ({"name": "a", "inputSchema": {"required": "b"}}, "`required` in its schema is not a list of names"),
    ({"name": "a", "inputSchema": {"required": ["b", 1]}}, "`required` in its schema is not a list of names"),
    ({"name": "a", "inputSchema": {}}, ""),
    ({"name": "a", "inputSchema": {"properties": {}, "required": ["b"], "$defs": {}}}, ""),
]


@pytest.mark.needs("mcp")
@pytest.mark.parametrize(("tool", "problem"), PROBLEMS)
def test_a_tool_that_the_library_would_refuse_is_left_out_with_the_reason(tool: Any, problem: str) -> None:
    from shoal.tools.mcp.filtering_transport import find_mcp_tool_problem

    found = find_mcp_tool_problem(tool)
    assert problem in found
    assert bool(found) is bool(problem)


@pytest.mark.needs("mcp")
def test_fields_of_a_tool_that_nobody_needs_are_dropped_if_they_are_invalid() -> None:
    from shoal.tools.mcp.filtering_transport import find_mcp_tool_problem

    odd = {"name": "a", "inputSchema": {}, "description": 5, "annotations": "x", "outputSchema": 7}
    valid = {"name": "a", "inputSchema": {}, "description": "d", "annotations": {"title": "x"}}
    assert find_mcp_tool_problem(odd) == find_mcp_tool_problem({**valid, "outputSchema": {}}) == ""
    assert odd == {"name": "a", "inputSchema": {"type": "object"}}
    assert find_mcp_tool_problem(valid) == ""
    assert (valid["description"], valid["annotations"]) == ("d", {"title": "x"})


@pytest.mark.needs("mcp")
async def test_messages_that_the_library_must_not_see_are_handled_before_it() -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    from shoal.tools.mcp.filtering_transport import McpToolFilterTransport

    sender, receiver = anyio.create_memory_object_stream[Any](10)
    closed: list[bool] = []
    notes: list[str] = []
    pushed: list[Any] = []

    class Transport:
        async def __aenter__(self) -> Any:
            return receiver, "the other direction"

        async def __aexit__(self, *exc: object) -> None:
            closed.append(True)

    def make_message(**fields: Any) -> Any:
        return SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **fields}))

    tools = [{"name": "good", "inputSchema": {}}, {"name": "bad"}]
    broken = ValueError("broken line")
    for item in (
        make_message(method="notifications/message", params={"data": "x"}),
        make_message(method="notifications/claude/channel", params={"content": "ding"}),
        make_message(method="notifications/resources/updated", params={"uri": "doc://1"}),
        make_message(method="notifications/tools/list_changed"),
        make_message(id=1, result={"tools": tools}),
        make_message(id=2, result={"tools": "many"}),
        make_message(id=3, method="notifications/message"),
        broken,
    ):
        await sender.send(item)
    await sender.aclose()
    async with McpToolFilterTransport(Transport(), notes.append, pushed.append) as (stream, other):
        received = [item async for item in stream]
        async with stream:
            pass
    assert (other, closed) == ("the other direction", [True])
    changed, first, second, request, error = received
    assert changed.message.method == "notifications/tools/list_changed"
    assert [tool["name"] for tool in first.message.result["tools"]] == ["good"]
    assert second.message.result["tools"] == "many"
    assert request.message.id == 3
    assert error is broken
    assert notes == ["its tool 'bad' is ignored: its input schema is not an object."]
    assert pushed == [{"content": "ding"}]
    with pytest.raises(anyio.ClosedResourceError):
        receiver.receive_nowait()
