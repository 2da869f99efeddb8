"""Pictures that others send: a model is shown those that are some, as what they are."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from sites import workbench

from shoal.core.messages import Image, Text
from shoal.tools.pictures import LARGEST, picture
from shoal.tools.relayed import outcome as relayed

PNG = b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
GIF = b64encode(b"GIF89a").decode()
NO_PICTURES = ["", "not base64!", b64encode(b"<svg/>").decode(), PNG[:-1], PNG + "A" * LARGEST]


def test_a_picture_is_of_the_type_that_its_content_has() -> None:
    for data, media_type in ((PNG, "image/png"), (GIF, "image/gif")):
        shown = picture(data)
        assert shown is not None
        assert shown.source.media_type == media_type
        assert shown.source.data == data


@pytest.mark.parametrize("data", NO_PICTURES, ids=range(len(NO_PICTURES)))
def test_what_is_no_picture_is_not_shown_as_one(data: str) -> None:
    assert picture(data) is None
    (block,) = relayed({"content": [{"type": "image", "data": data, "mimeType": "image/png"}] * 2}).content[
        :1
    ]
    assert block == Text(text="[image that cannot be shown]")


@pytest.mark.needs("mcp")
async def test_what_a_server_calls_a_picture_and_is_none_is_kept_as_a_file(tmp_path: Path) -> None:
    import mcp_types as types

    from shoal.tools.mcp.results import outcome

    async with workbench(tmp_path) as bench:
        sent = [types.ImageContent(type="image", data=data, mime_type="image/png") for data in (GIF, "aGk=")]
        shown, told = outcome(types.CallToolResult(content=sent), bench.site()).content
    assert isinstance(shown, Image)
    assert shown.source.media_type == "image/gif"
    assert isinstance(told, Text)
    assert Path(told.text.partition("kept in ")[2].removesuffix("]")).read_bytes() == b"hi"


def test_data_alone_come_as_json() -> None:
    data = {"fits": True, "name": "é", "none": None}
    told = relayed({"content": [], "structuredContent": data})
    assert isinstance(told.content, str)
    assert json.loads(told.content) == data
