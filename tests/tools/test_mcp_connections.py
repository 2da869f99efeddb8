"""What a connection lists, calls and reads, with a server of the official SDK in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from shell_workbench import open_workbench

from shoal.core.extensions.mcp_servers import McpServerConfig, McpStdioConfig
from shoal.tools.mcp.client_context import MAX_INSTRUCTION_CHARACTERS, McpConnectionLost, McpRequestRefused

pytestmark = pytest.mark.needs("mcp")
CONFIG = McpServerConfig(name="far.away", connection=McpStdioConfig(command="none"), origin="a test")


def paginate(kind: Any, key: str, pages: list[list[Any]]) -> Any:
    """Return a handler that lists one page for each request."""

    async def list_page(_: Any, params: Any) -> Any:
        number = int(params.cursor) if params is not None and params.cursor else 0
        following = str(number + 1) if number + 1 < len(pages) else None
        return kind.model_validate({key: pages[number], "nextCursor": following})

    return list_page


@asynccontextmanager
async def connect(**handlers: Any) -> AsyncIterator[Any]:
    """Connect to a server with these handlers."""
    from mcp.client import Client
    from mcp.server.lowlevel import Server

    from shoal.tools.mcp.sdk_connection import McpConnection

    async with Client(Server("far", **handlers), cache=None) as client:
        yield McpConnection(client, CONFIG)


def list_tools(*pages: list[dict[str, Any]]) -> Any:
    import mcp_types

    filled = [[{"inputSchema": {"type": "object"}, **tool} for tool in page] for page in pages]
    return paginate(mcp_types.ListToolsResult, "tools", filled)


def list_prompts(*pages: list[dict[str, Any]]) -> Any:
    import mcp_types

    return paginate(mcp_types.ListPromptsResult, "prompts", list(pages))


def list_resources(*pages: list[dict[str, Any]]) -> Any:
    import mcp_types

    return paginate(mcp_types.ListResourcesResult, "resources", list(pages))


@pytest.mark.spec("MCP-01")
async def test_a_server_without_tools_prompts_and_resources_offers_nothing() -> None:
    async with connect() as connection:
        features = await connection.list_features()
    assert (features.tools, features.prompts, features.prompt_names) == ((), (), {})
    assert (features.resources, features.instructions, features.notes) == (False, "", ())


@pytest.mark.spec("MCP-01")
async def test_tools_of_all_pages_are_listed_with_what_is_known_of_them() -> None:
    tools = list_tools(
        [
            {"name": "look", "description": "Looks.", "annotations": {"readOnlyHint": True}},
            {"name": "titled", "title": "A title", "annotations": {"readOnlyHint": False}},
        ],
        [{"name": "bare", "annotations": {"title": "x"}}, {"name": "long", "description": "x" * 10_001}],
    )
    async with connect(on_list_tools=tools, instructions=" Knock. ") as connection:
        features = await connection.list_features()
    look, titled, bare, long = features.tools
    assert [each.name for each in features.tools] == ["look", "titled", "bare", "long"]
    assert look.schema.name == "mcp__far_away__look"
    assert [look.schema.description, titled.schema.description] == ["Looks.", "A title"]
    assert bare.schema.description == "The tool bare."
    assert len(long.schema.description) == 10_000
    assert [each.reads_only for each in features.tools] == [True, False, False, False]
    assert look.schema.input_schema == {"type": "object"}
    assert (features.instructions, features.resources, features.notes) == ("Knock.", False, ())


async def test_tools_with_the_same_name_and_large_schemas_are_left_out_with_a_note() -> None:
    def describe(length: int) -> dict[str, Any]:
        return {"inputSchema": {"type": "object", "description": "x" * length}}

    base = len('{"type":"object","description":""}')
    tools = list_tools(
        [
            {"name": "a.b"},
            {"name": "a b"},
            {"name": "fits", **describe(100_000 - base)},
            {"name": "large", **describe(100_001 - base)},
        ]
    )
    async with connect(on_list_tools=tools) as connection:
        features = await connection.list_features()
    assert [each.name for each in features.tools] == ["a.b", "fits"]
    assert features.notes == (
        "its tool 'a b' is ignored: 'a.b' has the same name in Shoal (mcp__far_away__a_b).",
        "its tool 'large' is ignored: its schema is longer than 100,000 characters.",
    )


@pytest.mark.parametrize(
    ("sizes", "count", "notes"),
    [((500,), 500, 0), ((501,), 500, 1), ((499, 1, 9), 500, 0), ((530,), 500, 10)],
)
async def test_at_most_500_tools_of_a_server_are_used(sizes: tuple[int, ...], count: int, notes: int) -> None:
    pages = [[{"name": f"t{page}-{number}"} for number in range(size)] for page, size in enumerate(sizes)]
    async with connect(on_list_tools=list_tools(*pages)) as connection:
        features = await connection.list_features()
    assert len(features.tools) == count
    assert len(features.notes) == notes
    assert all("more than 500 tools" in note for note in features.notes)


async def test_a_list_without_an_end_is_read_for_50_pages() -> None:
    pages = [[{"uri": f"doc://{number}", "name": "x"}] for number in range(60)]
    async with connect(on_list_resources=list_resources(*pages)) as connection:
        assert len(await connection.list_resources()) == 50
        assert (await connection.list_features()).resources


async def test_prompts_have_their_own_names_and_arguments() -> None:
    greet = {
        "name": "greet",
        "title": "Greets",
        "arguments": [{"name": "who", "required": True}, {"name": "where", "description": "A place."}],
    }
    described = {"name": "other", "title": "x", "description": "Other."}
    prompts = list_prompts([greet], [described, {"name": "third"}])
    async with connect(on_list_prompts=prompts) as connection:
        features = await connection.list_features()
    assert [(each.name, each.description) for each in features.prompts] == [
        ("mcp__far_away__greet", "Greets"),
        ("mcp__far_away__other", "Other."),
        ("mcp__far_away__third", ""),
    ]
    assert features.prompt_names["mcp__far_away__greet"] == "greet"
    who, where = features.prompts[0].arguments
    assert (who.name, who.description, who.required) == ("who", "", True)
    assert (where.name, where.description, where.required) == ("where", "A place.", False)
    assert features.prompts[1].arguments == ()


async def test_at_most_500_prompts_of_a_server_are_used() -> None:
    prompts = list_prompts([{"name": f"p{number}"} for number in range(502)])
    async with connect(on_list_prompts=prompts) as connection:
        assert len((await connection.list_features()).prompts) == 500


async def test_resources_are_listed_with_the_fields_that_they_have() -> None:
    whole = {"uri": "doc://1", "name": "one", "mimeType": "text/plain", "description": "First."}
    async with connect(
        on_list_resources=list_resources([whole], [{"uri": "doc://2", "name": ""}])
    ) as connection:
        assert await connection.list_resources() == [whole, {"uri": "doc://2"}]


@pytest.mark.parametrize(
    ("length", "left_out"),
    [(MAX_INSTRUCTION_CHARACTERS, None), (MAX_INSTRUCTION_CHARACTERS + 1_000, "1,000")],
)
async def test_instructions_beyond_the_limit_are_left_out(length: int, left_out: str | None) -> None:
    async with connect(instructions="x" * length) as connection:
        text = (await connection.list_features()).instructions
    notice = "" if left_out is None else f"\n[… {left_out} more characters are left out]"
    assert text == "x" * MAX_INSTRUCTION_CHARACTERS + notice


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        ((1.0, 4.0, None), "1 of 4"),
        ((0.5, None, None), "0.5"),
        ((2.0, 0.0, "mile"), "2: mile"),
        ((1.0, 2.0, "x" * 501), "1 of 2: " + "x" * 500),
    ],
)
async def test_progress_of_a_call_is_shown_with_its_total_and_its_message(
    tmp_path: Path, progress: tuple[float, float | None, str | None], shown: str
) -> None:
    import mcp_types

    seen: list[str] = []

    async def report(text: str) -> None:
        seen.append(text)

    async def call(context: Any, params: Any) -> Any:
        await context.session.report_progress(*progress)
        return mcp_types.CallToolResult(
            content=[mcp_types.TextContent(type="text", text=f"{params.name} {params.arguments}")]
        )

    async with (
        open_workbench(tmp_path) as workbench,
        connect(on_list_tools=list_tools([{"name": "look"}]), on_call_tool=call) as connection,
    ):
        output = await connection.call_tool("look", {"at": 1}, workbench.create_context(), report)
    assert (output.content, output.is_error) == ("look {'at': 1}", False)
    assert seen == [shown]


@pytest.mark.parametrize(
    ("code", "message", "is_lost"),
    [
        (-32000, "Connection closed", True),
        (-32000, "SSE stream ended", False),
        (-32600, "Session terminated", True),
        (-32602, "There is no x", False),
    ],
)
async def test_an_error_of_a_server_is_a_lost_connection_or_a_refusal(
    code: int, message: str, is_lost: bool
) -> None:
    from mcp.shared.exceptions import MCPError

    async def refuse(_: Any, params: Any) -> Any:
        raise MCPError(code, message)

    async with connect(on_get_prompt=refuse) as connection:
        with pytest.raises(McpConnectionLost if is_lost else McpRequestRefused, match=message):
            await connection.get_prompt("greet", {})


async def test_a_long_refusal_is_cut() -> None:
    from mcp.shared.exceptions import MCPError

    async def refuse(_: Any, params: Any) -> Any:
        raise MCPError(-32602, "x" * 2_001)

    async with connect(on_get_prompt=refuse) as connection:
        with pytest.raises(McpRequestRefused) as refused:
            await connection.get_prompt("greet", {})
    assert str(refused.value) == "x" * 2_000


async def test_a_prompt_is_one_text_that_names_what_is_not_text_and_who_speaks() -> None:
    import mcp_types

    contents: list[tuple[str, dict[str, Any]]] = [
        ("user", {"type": "text", "text": "Begin."}),
        ("assistant", {"type": "text", "text": "Yes?"}),
        ("user", {"type": "resource", "resource": {"uri": "doc://1", "text": "north"}}),
        ("user", {"type": "resource_link", "name": "chart", "uri": "chart://2"}),
        ("user", {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
    ]
    result = mcp_types.GetPromptResult.model_validate(
        {"messages": [{"role": role, "content": content} for role, content in contents]}
    )

    async def get_prompt(_: Any, params: Any) -> Any:
        assert (params.name, params.arguments) == ("greet", {"who": "Ann"})
        return result

    async with connect(on_get_prompt=get_prompt) as connection:
        text = await connection.get_prompt("greet", {"who": "Ann"})
    begin, yes, north, chart, image = text.split("\n\n")
    assert (begin, yes, north) == ("Begin.", "[assistant] Yes?", "[doc://1]\nnorth")
    assert "chart://2" in chart
    assert image == "[image that is not text]"


@pytest.mark.parametrize(
    ("contents", "shown"),
    [
        ([], "The resource is empty."),
        ([{"uri": "doc://1", "text": "north"}], "[doc://1]\nnorth"),
        ([{"uri": "doc://1", "text": "a"}, {"uri": "doc://2", "text": "b"}], "[doc://1]\na\n[doc://2]\nb"),
    ],
)
async def test_a_resource_is_read_as_text(tmp_path: Path, contents: list[dict[str, Any]], shown: str) -> None:
    import mcp_types

    async def read(_: Any, params: Any) -> Any:
        return mcp_types.ReadResourceResult.model_validate({"contents": contents})

    async with open_workbench(tmp_path) as workbench, connect(on_read_resource=read) as connection:
        output = await connection.read_resource("doc://1", workbench.create_context())
    assert output.content == shown


async def test_an_answer_over_http_is_refused_only_beyond_its_limit() -> None:
    import httpx2

    from shoal.tools.mcp.sdk_connection import MAX_BODY_BYTES, _SizeLimitedResponseStream

    class Body(httpx2.AsyncByteStream):
        def __init__(self, *sizes: int) -> None:
            self.sizes = sizes

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for size in self.sizes:
                yield bytes(size)

    async def measure(*sizes: int) -> int:
        return sum([len(chunk) async for chunk in _SizeLimitedResponseStream(Body(*sizes))])

    assert await measure(MAX_BODY_BYTES - 1, 1) == MAX_BODY_BYTES
    with pytest.raises(httpx2.StreamError, match="longer than 16 MB"):
        await measure(MAX_BODY_BYTES, 1)
