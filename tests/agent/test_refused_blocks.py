"""Blocks that a provider refuses, and replies without content."""

from __future__ import annotations

import asyncio
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from server_scripts import run_provider
from shoal.core.conversation.image_sizes import is_image_too_large, measure_image
from shoal.core.events import NoteAdded
from shoal.testing.mock_replies import HttpErrorFault, RequestBody


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


def open_provider_session(cwd: Path) -> shoal.Session:
    return shoal.open(cwd=cwd, model="anthropic:claude-sonnet-4-5", skip_permissions=True)


def list_blocks(body: RequestBody, kind: str) -> list[Any]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    parts = [part for block in blocks for part in block.get("content") or () if isinstance(part, dict)]
    return [block for block in (*blocks, *parts) if block["type"] == kind]


async def test_an_image_with_too_many_pixels_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "The provider refused it" in str(server.requests[-1].body)
    assert any("left out of the conversation" in note for note in notes)


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


async def test_an_empty_reply_is_requested_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Any] = ["", "Here I am.", "", ""]
    async with (
        run_provider(monkeypatch, lead=[lambda _: replies.pop(0)]) as server,
        open_provider_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        assert await run_all_turns(session, "Hello.") == "Here I am."
        assert len(server.requests) == 2
        assert await run_all_turns(session, "And now?") == ""
        assert len(server.requests) == 4
