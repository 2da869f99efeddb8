"""Responses and events are read the same in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.models.http_parser import HttpResponseParser, MalformedHttpResponseError
from shoal.models.reply_stream import SseEventTooLongError, SseParser

BODY = b"data: one\r\n\r\ndata: two\n\n" + bytes(range(256))
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    + b"".join(b"%X;ext=1\r\n%s\r\n" % (len(part), part) for part in (BODY[:1], BODY[1:20], BODY[20:]))
    + b"0\r\nTrailer: x\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
ENDLESS = b"HTTP/1.0 200 OK\r\n\r\n" + BODY


def cut_positions(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), max_size=12).map(sorted)


def split_at(data: bytes, at: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize("raw", [CHUNKED, SIZED, ENDLESS], ids=["chunked", "sized", "until the end"])
@given(data=st.data())
def test_a_response_is_parsed_alike_in_any_chunks(raw: bytes, data: st.DataObject) -> None:
    response, body = HttpResponseParser(), b""
    for piece in split_at(raw, data.draw(cut_positions(len(raw)))):
        body += response.feed(piece)
    assert body == BODY
    assert response.head is not None
    assert response.head.status == 200
    assert response.handle_connection_end()


@given(st.integers(0, len(CHUNKED) - 1))
def test_a_response_cut_anywhere_is_incomplete(at: int) -> None:
    response = HttpResponseParser()
    response.feed(CHUNKED[:at])
    assert not response.handle_connection_end()


def test_headers_of_the_same_name_are_joined() -> None:
    response = HttpResponseParser()
    response.feed(CHUNKED)
    assert response.head is not None
    assert response.head.headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "raw",
    [
        b"<html>",
        b"SSH-2.0-OpenSSH",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %b\r\n\r\n" % (b"9" * 5_000),
        b"HTTP/1.1 \xb200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    ],
)
def test_input_that_is_not_http_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedHttpResponseError):
        HttpResponseParser().feed(raw)


STREAM = (
    b"\xef\xbb\xbf: a comment\r\n\r\nevent: x\r\ndata: one\r\n\r\ngarbage line\ndata: two\ndata:three\n\n"
    b"id: 7\n\n\n\ndata:\n\ndata: cut off"
)


@given(data=st.data())
def test_events_are_parsed_alike_in_any_chunks(data: st.DataObject) -> None:
    events = SseParser()
    found = [
        e for piece in split_at(STREAM, data.draw(cut_positions(len(STREAM)))) for e in events.feed(piece)
    ]
    assert found == [b"one", b"two\nthree", b""]


def test_an_endless_line_is_refused_without_buffering_it() -> None:
    events = SseParser(limit=1 << 20)
    for _ in range(10):
        events.feed(b"x" * 100_000)
    with pytest.raises(SseEventTooLongError):
        events.feed(b"x" * 100_000)


def test_an_endless_event_is_refused() -> None:
    events = SseParser(limit=1 << 20)
    for _ in range(10):
        events.feed(b"data: " + b"x" * 100_000 + b"\n")
    with pytest.raises(SseEventTooLongError):
        events.feed(b"data: " + b"x" * 100_000 + b"\n")
