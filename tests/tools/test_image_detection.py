"""Pictures that others send: a model is shown those that are some, as what they are."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from shell_workbench import open_workbench

from shoal.core.conversation.image_sizes import measure_image
from shoal.core.conversation.messages import ImageBlock, TextBlock
from shoal.tools.fitted_images import UnfittingImage, fit_image
from shoal.tools.images import MAX_BASE64_CHARACTERS, image_from_base64
from shoal.tools.relayed_mcp import parse_relayed_tool_result as relayed

PNG = b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
GIF = b64encode(b"GIF89a").decode()
NO_PICTURES = ["", "not base64!", b64encode(b"<svg/>").decode(), PNG[:-1], PNG + "A" * MAX_BASE64_CHARACTERS]


def test_the_type_of_an_image_comes_from_its_content() -> None:
    for data, media_type in ((PNG, "image/png"), (GIF, "image/gif")):
        shown = image_from_base64(data)
        assert shown is not None
        assert shown.source.media_type == media_type
        assert shown.source.data == data


@pytest.mark.parametrize("data", NO_PICTURES, ids=range(len(NO_PICTURES)))
def test_content_that_is_not_an_image_is_not_shown_as_one(data: str) -> None:
    assert image_from_base64(data) is None
    (block,) = relayed({"content": [{"type": "image", "data": data, "mimeType": "image/png"}] * 2}).content[
        :1
    ]
    assert block == TextBlock(text="[image that cannot be shown]")


@pytest.mark.needs("mcp")
async def test_a_wrongly_labelled_image_of_a_server_is_stored_as_a_file(tmp_path: Path) -> None:
    import mcp_types as types

    from shoal.tools.mcp.result_content import convert_mcp_call_result

    async with open_workbench(tmp_path) as workbench:
        sent = [types.ImageContent(type="image", data=data, mime_type="image/png") for data in (GIF, "aGk=")]
        shown, output = convert_mcp_call_result(
            types.CallToolResult(content=sent), workbench.create_context()
        ).content
    assert isinstance(shown, ImageBlock)
    assert shown.source.media_type == "image/gif"
    assert isinstance(output, TextBlock)
    assert Path(output.text.partition("saved in ")[2].removesuffix("]")).read_bytes() == b"hi"


def test_structured_data_without_text_is_returned_as_json() -> None:
    data = {"fits": True, "name": "é", "none": None}
    output = relayed({"content": [], "structuredContent": data})
    assert isinstance(output.content, str)
    assert json.loads(output.content) == data


def test_the_size_of_an_image_is_not_searched_for_in_endless_padding() -> None:
    frame = b"\xff\xc0\x00\x11\x08\x00\x10\x00\x20" + bytes(20)
    assert measure_image(b"\xff\xd8" + b"\xff" * 100 + frame) == (32, 16)
    padded = b"\xff\xd8" + b"\xff" * 100_000 + frame
    assert measure_image(padded) is None
    fitted = fit_image(padded, "image/jpeg", max_bytes=1_000)
    assert isinstance(fitted, UnfittingImage)
    assert "its size in pixels cannot be read" in fitted.reason
