"""What the model gets for each kind of content that an MCP tool returns."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import list_tool_results, make_rogue_config, open_session

from agent_scripts import call_tool, run_all_turns, script_agents
from shoal.core.conversation.messages import ImageBlock, TextBlock, ToolResultBlock
from shoal.tools.mcp.result_content import MAX_IMAGES

pytestmark = pytest.mark.needs("mcp")
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360f8cf00000004000108e80bd40000000049454e44ae426082"
    )
).decode()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: str = PNG, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": media_type}


async def convert_results(tmp_path: Path, *results: dict[str, Any]) -> list[ToolResultBlock]:
    calls = [call_tool("mcp__raw__echo", f"c{n}", text=json.dumps(each)) for n, each in enumerate(results)]
    model = script_agents(lead=[*calls, "done"])
    async with open_session(tmp_path, model, {"raw": make_rogue_config("returns")}) as session:
        await run_all_turns(session)
        return list_tool_results(session)


def describe_blocks(result: ToolResultBlock) -> list[str]:
    if isinstance(result.content, str):
        return [result.content]
    return [block.text if isinstance(block, TextBlock) else type(block).__name__ for block in result.content]


async def test_structured_data_is_shown_only_if_there_is_no_other_content(tmp_path: Path) -> None:
    data = {"name": "Röse", "tons": [40]}
    results = await convert_results(
        tmp_path,
        {"content": [], "structuredContent": data},
        {"content": [text("a ship")], "structuredContent": data},
        {"content": []},
        {"content": [text("it sank")], "isError": True},
    )
    shown, other, empty, failed = results
    (only,) = describe_blocks(shown)
    assert json.loads(only) == data
    assert "Röse" in only
    assert describe_blocks(other) == ["a ship"]
    assert "null" not in "".join(describe_blocks(empty))
    assert (other.is_error, failed.is_error) == (False, True)


async def test_adjacent_texts_are_joined_and_images_stay_between_them(tmp_path: Path) -> None:
    (result,) = await convert_results(
        tmp_path, {"content": [text("one"), text("two"), image(), text("three"), image()]}
    )
    assert describe_blocks(result) == ["one\ntwo", "ImageBlock", "three", "ImageBlock"]


async def test_images_beyond_the_limit_and_other_files_are_saved(tmp_path: Path) -> None:
    song = base64.b64encode(b"la la la").decode()
    blob = {"uri": "file:///x", "blob": song}
    results = await convert_results(
        tmp_path,
        {"content": [image() for _ in range(MAX_IMAGES + 2)]},
        {"content": [{"type": "audio", "data": song, "mimeType": "audio/Wav!e-Form-extended"}]},
        {"content": [{"type": "resource", "resource": blob}, {"type": "resource", "resource": blob}]},
        {"content": [image("not base64!"), image(song)]},
    )
    many, audio, resources, broken = (
        result.content if isinstance(result.content, tuple) else (TextBlock(text=result.content),)
        for result in results
    )
    assert sum(isinstance(block, ImageBlock) for block in many) == MAX_IMAGES
    (rest,) = [block.text for block in many if isinstance(block, TextBlock)]
    assert rest.count("image/png") == 2
    assert ["c0-1.png" in rest, "c0-2.png" in rest] == [True, True]
    (saved,) = audio
    assert isinstance(saved, TextBlock)
    assert "c1-1.waveformex" in saved.text
    assert "8 bytes" in saved.text
    path = saved.text.partition("saved in ")[2].rstrip("]")
    assert Path(path).read_bytes() == b"la la la"
    (both,) = resources
    assert isinstance(both, TextBlock)
    assert ["c2-1.octetstrea" in both.text, "c2-2.octetstrea" in both.text] == [True, True]
    assert "application/octet-stream" in both.text
    (two,) = broken
    assert isinstance(two, TextBlock)
    assert two.text.splitlines()[0] == "[image/png: the server sent invalid base64]"
    assert "c3-1.png" in two.text.splitlines()[1]


async def test_resources_and_links_are_named(tmp_path: Path) -> None:
    link = {"type": "resource_link", "name": "chart", "uri": "chart://north"}
    (result,) = await convert_results(
        tmp_path,
        {
            "content": [
                {"type": "resource", "resource": {"uri": "log://1", "text": "calm"}},
                {**link, "description": "all rocks"},
                link,
            ]
        },
    )
    (shown,) = describe_blocks(result)
    log, calm, described, plain = shown.splitlines()
    assert (log, calm) == ("[log://1]", "calm")
    assert "chart" in described
    assert "chart://north" in described
    assert ": all rocks" in described
    assert "all rocks" not in plain
    assert "None" not in plain
