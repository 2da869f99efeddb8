"""The mock providers over raw HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock
from shoal.testing import FakeClock, MockServer, chat_server, messages_server, responses_server, run_in_thread
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
    ConnectionResetFault,
    CutStreamFault,
    DelayedReplyFault,
    GarbageLineFault,
    HttpErrorFault,
    MockReply,
    PingAfterEachEventFault,
    SlowStreamFault,
    StaleConnectionFault,
    StalledStreamFault,
    StreamErrorFault,
    make_rate_limit_fault,
    make_tool_call,
)

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
ServerFactory = Callable[..., AbstractAsyncContextManager[MockServer]]
PATHS: dict[ServerFactory, str] = {
    messages_server: "/v1/messages",
    chat_server: "/v1/chat/completions",
    responses_server: "/v1/responses",
}
APIS: dict[ServerFactory, str] = {
    messages_server: "messages",
    chat_server: "chat",
    responses_server: "responses",
}
CALL = make_tool_call("Bash", command="ls -la /somewhere/quite/long")


@pytest.fixture(params=list(APIS), ids=list(APIS.values()))
def start_server(request: pytest.FixtureRequest) -> ServerFactory:
    return request.param


def make_mock_request(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello?"}]
    options = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
    # Each API reads the fields it knows.
    return {"model": "m", "max_tokens": 100, "messages": messages, "input": messages, **options, **more}


def create_http_client(server: MockServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60, **options)


def encode_request(start_server: ServerFactory, body: dict[str, Any]) -> bytes:
    """Return a request as bytes, for tests in which a client would be too slow."""
    content = json.dumps(body).encode()
    given = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST {PATHS[start_server]} HTTP/1.1\r\nhost: x\r\n{given}content-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def open_connection(server: MockServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def read_events(
    start_server: ServerFactory, server: MockServer, *, timeout: float = 60
) -> tuple[list[str], httpx.HTTPError | None]:
    """Return the data lines that arrived, and the exception that ended the stream, if any."""
    lines: list[str] = []
    try:
        async with (
            create_http_client(server) as http,
            http.stream(
                "POST", PATHS[start_server], json=make_mock_request(stream=True), timeout=timeout
            ) as response,
        ):
            async for line in response.aiter_lines():
                if line:
                    lines.append(line)  # noqa: PERF401 - the lines before an exception are needed
    except httpx.HTTPError as error:
        return lines, error
    return lines, None


async def test_replies_are_sent_in_order_and_requests_are_recorded(start_server: ServerFactory):
    async with start_server(["one", "two"]) as server, create_http_client(server) as http:
        first = await http.post(PATHS[start_server], json=make_mock_request())
        second = await http.post(PATHS[start_server], json=make_mock_request(temperature=0))
    assert "one" in first.text
    assert "two" in second.text
    assert [r.body.get("temperature") for r in server.requests] == [None, 0]
    assert {r.connection for r in server.requests} == {1}, "the connection is reused"
    assert server.requests[0].headers["x-api-key"] == "k"


async def test_total_usage_is_the_sum_of_usage_sent_to_clients(start_server: ServerFactory):
    given = Usage(input_tokens=7, output_tokens=3, cache_read_input_tokens=5)
    reported = 0
    async with start_server(["a" * 100, MockReply(content=(TextBlock(text="b"),), usage=given)]) as server:
        async with create_http_client(server) as http:
            for _ in range(2):
                usage = (await http.post(PATHS[start_server], json=make_mock_request())).json()["usage"]
                reported += usage.get("total_tokens") or sum(usage.values())
        assert server.reported_usage.total_tokens == reported
        assert server.reported_usage.cache_read_input_tokens == 5


async def test_a_refused_request_has_the_error_of_the_provider(start_server: ServerFactory):
    unanswered = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "x", "input": {}}]}
        if start_server is messages_server
        else {"role": "assistant", "content": None, "tool_calls": [{"id": "t1"}]},
        {"role": "user", "content": "y"},
    ]
    called = [{"type": "function_call", "call_id": "t1", "name": "x", "arguments": "{}"}]
    async with start_server([]) as server, create_http_client(server) as http:
        response = await http.post(
            PATHS[start_server], json=make_mock_request(messages=unanswered, input=called)
        )
        other = await http.post("/v1/elsewhere", json={})
    assert response.status_code == 400
    assert "t1" in response.json()["error"]["message"]
    assert other.status_code == 404


async def test_a_request_without_a_required_key_is_unauthorized():
    async with messages_server([]) as server, httpx.AsyncClient(base_url=server.url) as http:
        response = await http.post("/v1/messages", json=make_mock_request())
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a_reply_function_may_wait_for_the_test(start_server: ServerFactory):
    go = asyncio.Event()

    async def choose_reply(_body):
        await go.wait()
        return "late"

    async with (
        start_server(choose_reply) as server,
        create_http_client(server) as http,
        asyncio.TaskGroup() as tasks,
    ):
        request = tasks.create_task(http.post(PATHS[start_server], json=make_mock_request()))
        await server.wait_for_requests(1)
        assert not request.done()
        go.set()
        assert "late" in (await request).text


@pytest.mark.parametrize("cause", ["a function that never returns", "a long delay"])
async def test_a_client_that_disconnects_while_waiting_is_detected(start_server: ServerFactory, cause):
    async def wait_forever(_body):
        await asyncio.Event().wait()

    async with start_server(
        wait_forever if "function" in cause else [DelayedReplyFault(seconds=600)]
    ) as server:
        async with create_http_client(server) as http, asyncio.TaskGroup() as tasks:
            request = tasks.create_task(http.post(PATHS[start_server], json=make_mock_request()))
            await server.wait_for_requests(1)
            request.cancel()
        await server.wait_for_disconnect()


async def test_two_hundred_clients_are_served_at_once(start_server: ServerFactory):
    meet = asyncio.Barrier(200)

    async def choose_reply(body):
        await meet.wait()
        return MockReply(content=(TextBlock(text="Hello."),), model=f"for-{body['model']}")

    async def ask(server: MockServer, number: int) -> str:
        reader, writer = await open_connection(server)
        writer.write(encode_request(start_server, make_mock_request(model=f"<{number}>", stream=True)))
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return answer.decode()

    async with start_server(choose_reply) as server:
        answers = await asyncio.gather(*[ask(server, number) for number in range(200)])
    assert all(f"for-<{number}>" in answer for number, answer in enumerate(answers))


async def test_an_exception_of_the_reply_function_is_raised_at_the_end():
    def choose_reply(body):
        assert body["model"] == "other"

    with pytest.raises(AssertionError):
        async with messages_server(choose_reply) as server, create_http_client(server) as http:
            assert (await http.post("/v1/messages", json=make_mock_request())).status_code == 400


async def test_a_request_after_the_last_scripted_reply_is_an_error(start_server: ServerFactory):
    async def send_one_request_too_many():
        async with start_server(["only"]) as server, create_http_client(server) as http:
            await http.post(PATHS[start_server], json=make_mock_request())
            response = await http.post(PATHS[start_server], json=make_mock_request())
            assert "another was requested" in response.json()["error"]["message"]

    with pytest.raises(IndexError, match="all 1 answers were used"):
        await send_one_request_too_many()


async def test_error_statuses_carry_retry_after(start_server: ServerFactory):
    async with start_server([make_rate_limit_fault(1.5), HttpErrorFault(status=502, raw="<html>")]) as server:
        async with create_http_client(server) as http:
            limited = await http.post(PATHS[start_server], json=make_mock_request())
            gateway = await http.post(PATHS[start_server], json=make_mock_request())
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "1.5")
        assert (gateway.status_code, gateway.text) == (502, "<html>")
        assert server.reported_usage == Usage()


async def test_a_delay_uses_the_clock(start_server: ServerFactory):
    clock = FakeClock()
    async with (
        start_server([["late", DelayedReplyFault(seconds=30)]], clock=clock) as server,
        create_http_client(server) as http,
    ):
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(http.post(PATHS[start_server], json=make_mock_request()))
            await clock.wait_for_sleepers()
            await clock.advance(29)
            assert not request.done()
            await clock.advance(1)
        assert "late" in request.result().text


async def test_a_reset_connection_sends_no_reply(start_server: ServerFactory):
    async with start_server([ConnectionResetFault()]) as server:
        lines, error = await read_events(start_server, server)
    assert isinstance(error, httpx.ReadError), "an orderly end would raise a protocol error"
    assert lines == []


async def test_a_stale_connection_answers_only_once(start_server: ServerFactory):
    async with (
        start_server([["whole", StaleConnectionFault()], "again"]) as server,
        create_http_client(server) as http,
    ):
        assert "whole" in (await http.post(PATHS[start_server], json=make_mock_request())).text
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(PATHS[start_server], json=make_mock_request())
        assert "again" in (await http.post(PATHS[start_server], json=make_mock_request())).text
    assert (server.request_count, server.replies_sent) == (2, 2)


@pytest.mark.parametrize("how", ["close", "reset", "clean"])
async def test_a_stream_cut_in_a_tool_call_leaves_partial_arguments(start_server: ServerFactory, how):
    async with start_server([["Now:", CALL, CutStreamFault(in_tool_call=True, how=how)]]) as server:
        lines, error = await read_events(start_server, server)
        await server.wait_for_disconnect()
        assert server.reported_usage == Usage()
        assert server.unsettled_usage.output_tokens > 0
    assert (error is None) == (how == "clean")
    if how != "reset":  # A reset may overtake bytes that were sent before it.
        text = "\n".join(lines)
        assert "command" in text
        assert "long" not in text
        assert "message_stop" not in text
        assert "[DONE]" not in text


async def test_a_stream_cut_after_some_events_sends_only_those(start_server: ServerFactory):
    async with start_server([["some words to say", CutStreamFault(after=2)]]) as server:
        lines, error = await read_events(start_server, server)
        await server.wait_for_disconnect()
        assert server.unsettled_usage.output_tokens > 0
    assert error is not None
    assert sum(line.startswith("data:") for line in lines) == 2


async def test_a_stalled_stream_stays_open_until_the_client_disconnects(start_server: ServerFactory):
    async with start_server([["some words", StalledStreamFault(after=2)]]) as server:
        lines, error = await read_events(start_server, server, timeout=0.2)
        assert isinstance(error, httpx.ReadTimeout)
        assert sum(line.startswith("data:") for line in lines) == 2
        await server.wait_for_disconnect()
        assert server.replies_sent == 0


async def test_garbage_pings_and_error_events_are_sent_between_events(start_server: ServerFactory):
    faults = [
        GarbageLineFault(after=1, line="data: {oops"),
        PingAfterEachEventFault(),
        StreamErrorFault(after=3),
    ]
    async with start_server([["some words to say", *faults]]) as server:
        lines, error = await read_events(start_server, server)
    assert error is None
    assert "data: {oops" in lines
    assert sum("ping" in line and line[0] in ":e" for line in lines) == 3
    assert "Overloaded" in lines[-1]


async def test_a_drip_fault_sends_byte_by_byte(start_server: ServerFactory):
    clock = FakeClock()
    async with (
        start_server([["x", SlowStreamFault(seconds=1)]], clock=clock) as server,
        asyncio.TaskGroup() as tasks,
    ):
        request = tasks.create_task(read_events(start_server, server))
        await clock.wait_for_sleepers()
        while not request.done():
            await clock.advance(1)
            await asyncio.sleep(0)
        lines, error = await request
    assert error is None
    assert clock.monotonic() > sum(map(len, lines))


async def test_broken_tool_arguments_are_streamed_as_given(start_server: ServerFactory):
    async with start_server([[CALL, BrokenToolJsonFault(arguments='{"a": ')]]) as server:
        lines, _ = await read_events(start_server, server)
    key = {messages_server: "partial_json", chat_server: "arguments", responses_server: "delta"}[start_server]
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(_collect_values(data, key)) == '{"a": '


def _collect_values(node: Any, key: str) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from _collect_values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _collect_values(value, key)


async def test_input_that_is_not_http_ends_only_its_connection(start_server: ServerFactory):
    async with start_server(["still here"]) as server:
        reader, writer = await open_connection(server)
        writer.write(b"\x16\x03\x01 no request\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        await writer.wait_closed()
        async with create_http_client(server) as http:
            assert "still here" in (await http.post(PATHS[start_server], json=make_mock_request())).text


async def test_models_can_be_listed(start_server: ServerFactory):
    async with start_server([], models=("a", "b")) as server, create_http_client(server) as http:
        listed = (await http.get("/v1/models")).json()["data"]
        tags = await http.get("/api/tags")
    assert [row["id"] for row in listed] == ["a", "b"]
    assert tags.status_code == (200 if start_server is chat_server else 404)


def test_a_server_on_a_thread_serves_a_test_without_a_loop(start_server: ServerFactory):
    with run_in_thread(start_server(["hi"])) as server:
        response = httpx.post(server.url + PATHS[start_server], json=make_mock_request(), headers=HEADERS)
        assert "hi" in response.text
    assert server.replies_sent == 1


def test_the_command_follows_its_script_and_prints_a_summary(start_server: ServerFactory, tmp_path: Path):
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps(
            [
                {"match": "Hello", "at": 0, "text": "Good day.", "usage": {"output_tokens": 4}},
                {"match": "never", "text": "not said"},
                {"tools": [{"name": "Read", "input": {"file_path": "a"}}]},
                {"faults": [{"type": "http_error", "status": 503}], "repeat": True},
            ]
        )
    )
    argv = [
        sys.executable,
        "-m",
        "shoal.testing.servers",
        "--api",
        APIS[start_server],
        "--script",
        str(script),
    ]
    with subprocess.Popen(
        [*argv, "--with-parent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        url = program.stdout.readline().strip()
        with httpx.Client(base_url=url, headers=HEADERS) as http:
            answers = [http.post(PATHS[start_server], json=make_mock_request()) for _ in range(4)]
        program.stdin.close()
        reported = json.loads(program.stdout.readline())
        assert program.wait(10) == 0
    assert [answer.status_code for answer in answers] == [200, 200, 503, 503]
    assert "Good day." in answers[0].text
    assert "Read" in answers[1].text
    assert (reported["requests"], reported["answered"]) == (4, 2)
    assert reported["reported"]["output_tokens"] > 4


def test_an_invalid_script_is_named_in_the_error(tmp_path: Path):
    script = tmp_path / "script.json"
    script.write_text('[{"txt": "typo"}]')
    argv = [sys.executable, "-m", "shoal.testing.servers", "--script", str(script)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "txt" in ended.stderr
    assert "script.json" in ended.stderr
