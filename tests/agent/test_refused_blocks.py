"""Blocks that a provider refuses, and replies without content."""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from server_scripts import run_provider
from shoal.core.conversation.image_sizes import is_image_too_large, measure_image
from shoal.core.conversation.messages import TextBlock
from shoal.core.events import NoteAdded
from shoal.testing.mock_replies import HttpErrorFault, MockReply, RequestBody
from shoal.tools.fitted_images import FittedImage, UnfittingImage, fit_image
from shoal.tools.images import MAX_IMAGE_BYTES


def make_png(width: int, height: int) -> bytes:
    def make_chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * ((width + 7) // 8)) * height)
    return (
        b"\x89PNG\r\n\x1a\n"
        + make_chunk(b"IHDR", header)
        + make_chunk(b"IDAT", rows)
        + make_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (make_png(60_000, 2), (60_000, 2)),
        (b"GIF89a" + struct.pack("<HH", 300, 20) + b"\0" * 20, (300, 20)),
        (
            b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", 20, 9_000) + b"\0" * 9,
            (9_000, 20),
        ),
        (
            b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\x3f\x1f\0" + b"\x09\0\0",
            (8_000, 10),
        ),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 99 | 49 << 14) + b"\0" * 9, (100, 50)),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480), (640, 480)),
        (b"\xff\xd8\xff\xd9", None),
        (b"\xff\xd8" + b"\xff\xe0\x00\x00" * 9, None),
        (b"text", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_first_bytes(
    content: bytes, size: tuple[int, int] | None
) -> None:
    assert measure_image(content) == size
    assert is_image_too_large(content) == (size is not None and max(size) > 8_000)


def open_provider_session(cwd: Path, **options: Any) -> shoal.Session:
    return shoal.open(cwd=cwd, model="anthropic:claude-sonnet-4-5", skip_permissions=True, **options)


def list_blocks(body: RequestBody, kind: str) -> list[Any]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    parts = [part for block in blocks for part in block.get("content") or () if isinstance(part, dict)]
    return [block for block in (*blocks, *parts) if block["type"] == kind]


@pytest.mark.needs("PIL")
async def test_an_image_with_too_many_pixels_is_scaled_down_and_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wide.png").write_bytes(make_png(60_000, 40))
    look = call_tool("Read", file_path=str(tmp_path / "wide.png"))
    async with (
        run_provider(monkeypatch, lead=[look, "Done."]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        await run_all_turns(session)
    (image,) = list_blocks(server.requests[-1].body, "image")
    width, height = measure_image(base64.b64decode(image["source"]["data"])) or (0, 0)
    assert (width, height) == (2_000, 1)
    assert "scaled down from 60,000 x 40 pixels" in str(server.requests[-1].body)


@pytest.mark.needs("PIL")
@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP"])
def test_images_of_every_kind_are_scaled_and_invalid_ones_are_refused(kind: str) -> None:
    from PIL import Image

    output = BytesIO()
    Image.new("RGB", (9_000, 90), "red").save(output, kind)
    fitted = fit_image(output.getvalue(), f"image/{kind.lower()}", max_bytes=MAX_IMAGE_BYTES)
    assert isinstance(fitted, FittedImage)
    assert fitted.scaled_from == (9_000, 90)
    assert measure_image(fitted.content) == (2_000, 20)
    cut = fit_image(output.getvalue()[:200], f"image/{kind.lower()}", max_bytes=MAX_IMAGE_BYTES)
    assert isinstance(cut, UnfittingImage)
    assert "9,000 x 90 pixels and cannot be scaled down" in cut.reason


def test_an_image_with_more_pixels_than_fit_into_memory_is_not_decoded() -> None:
    bomb = fit_image(
        make_png(60_000, 2)[:16] + struct.pack(">II", 60_000, 60_000), "image/png", max_bytes=MAX_IMAGE_BYTES
    )
    assert isinstance(bomb, UnfittingImage)
    assert "too large to scale down" in bomb.reason


async def test_without_the_image_package_a_wide_image_is_not_sent_and_the_reason_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    (tmp_path / "wide.png").write_bytes(make_png(60_000, 2))
    look = call_tool("Read", file_path=str(tmp_path / "wide.png"))
    async with (
        run_provider(monkeypatch, lead=[look, "Done."]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        await run_all_turns(session)
    assert list_blocks(server.requests[-1].body, "image") == []
    assert "60,000 x 2 pixels" in str(server.requests[-1].body)
    assert "pip install 'shoal[images]'" in str(list_blocks(server.requests[-1].body, "tool_result"))


async def test_an_image_that_the_provider_refuses_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.png").write_bytes(make_png(20, 20))
    (tmp_path / "two.png").write_bytes(make_png(30, 30))
    refused = HttpErrorFault(status=400, message="Could not process image")

    def refuse_images(body: RequestBody) -> Any:
        return refused if list_blocks(body, "image") else "I see no image."

    look = [call_tool("Read", name, file_path=str(tmp_path / f"{name}.png")) for name in ("one", "two")]
    notes: list[str] = []
    async with (
        run_provider(monkeypatch, lead=[look[0], look[1], refuse_images]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        session.subscribe(lambda event: notes.append(event.text) if isinstance(event, NoteAdded) else None)
        assert await run_all_turns(session) == "I see no image."
        count = len(server.requests)
        assert await run_all_turns(session, "Again.") == "I see no image."
        # The next turn does not fail first.
        assert len(server.requests) == count + 1
        async with open_provider_session(tmp_path, resume=session.id, fork=True) as resumed:
            assert await run_all_turns(resumed, "And now?") == "I see no image."
        assert len(server.requests) == count + 2
    assert "The provider refused it" in str(server.requests[-1].body)
    assert any("left out of the conversation" in note for note in notes)


async def test_a_refused_image_does_not_prevent_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.png").write_bytes(make_png(20, 20))
    refused = HttpErrorFault(status=400, message="Could not process image")
    replies: list[Any] = [call_tool("Read", file_path=str(tmp_path / "one.png")), "I see it."]

    def reply(body: RequestBody) -> Any:
        if replies:
            return replies.pop(0)
        return refused if list_blocks(body, "image") else "A summary."

    async with (
        run_provider(monkeypatch, lead=[reply]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        assert await run_all_turns(session) == "I see it."
        await session.compact()
        assert await run_all_turns(session, "And now?") == "A summary."
    assert "A summary." in str(server.requests[-1].body["messages"][0])


async def test_another_refusal_ends_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.png").write_bytes(make_png(20, 20))
    refused = HttpErrorFault(status=400, message="tools: no")
    look = call_tool("Read", "one", file_path=str(tmp_path / "one.png"))
    async with (
        run_provider(monkeypatch, lead=[look, lambda _: refused]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        await run_all_turns(session)
        assert list_blocks(server.requests[-1].body, "image")


@pytest.mark.parametrize(
    "empty",
    ["", MockReply(content=(TextBlock(text=" \n"),)), MockReply(stop_reason="tool_use")],
    ids=["nothing", "white space", "a call that is missing"],
)
async def test_an_empty_reply_is_requested_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: Any
) -> None:
    replies: list[Any] = [empty, "Here I am.", empty, empty]
    async with (
        run_provider(monkeypatch, lead=[lambda _: replies.pop(0)]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        assert await run_all_turns(session, "Hello.") == "Here I am."
        assert len(server.requests) == 2
        assert (await run_all_turns(session, "And now?")).strip() == ""
        assert len(server.requests) == 4
