"""The mock providers as their clients meet them, over raw HTTP."""

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

from shoal.core.messages import Text
from shoal.core.usage import Usage
from shoal.testing import FakeClock, MockServer, chat_server, in_thread, messages_server, responses_server
from shoal.testing.replies import (
    Answer,
    BrokenToolJson,
    Cut,
    Delay,
    Drip,
    Garbage,
    HttpError,
    Pings,
    Reset,
    Stale,
    Stall,
    StreamError,
    call,
    rate_limited,
)

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
Form = Callable[..., AbstractAsyncContextManager[MockServer]]
PATHS: dict[Form, str] = {
    messages_server: "/v1/messages",
    chat_server: "/v1/chat/completions",
    responses_server: "/v1/responses",
}
APIS: dict[Form, str] = {messages_server: "messages", chat_server: "chat", responses_server: "responses"}
CALL = call("Bash", command="ls -la /somewhere/quite/long")


@pytest.fixture(params=list(APIS), ids=list(APIS.values()))
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


def question(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello?"}]
    options = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
    # Each form takes what it knows by the name of its own.
    return {"model": "m", "max_tokens": 100, "messages": messages, "input": messages, **options, **more}


def client(server: MockServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=5, **options)


def raw(form: Form, body: dict[str, Any]) -> bytes:
    """A request as bytes, where a client's own cost would be in the way."""
    content = json.dumps(body).encode()
    given = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST {PATHS[form]} HTTP/1.1\r\nhost: x\r\n{given}content-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def connection(server: MockServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def events_of(
    form: Form, server: MockServer, *, timeout: float = 5
) -> tuple[list[str], httpx.HTTPError | None]:
    """The data lines that arrived, and the exception that ended them, if one did."""
    lines: list[str] = []
    try:
        async with (
            client(server) as http,
            http.stream("POST", PATHS[form], json=question(stream=True), timeout=timeout) as response,
        ):
            async for line in response.aiter_lines():
                if line:
                    lines.append(line)  # noqa: PERF401 - what came before a break must stay
    except httpx.HTTPError as error:
        return lines, error
    return lines, None


async def test_answers_are_given_in_order_and_requests_are_kept(form: Form):
    async with form(["one", "two"]) as server, client(server) as http:
        first = await http.post(PATHS[form], json=question())
        second = await http.post(PATHS[form], json=question(temperature=0))
    assert "one" in first.text
    assert "two" in second.text
    assert [r.body.get("temperature") for r in server.requests] == [None, 0]
    assert {r.connection for r in server.requests} == {1}, "the connection is kept"
    assert server.requests[0].headers["x-api-key"] == "k"


async def test_the_sum_of_reported_usage_is_what_the_clients_were_told(form: Form):
    given = Usage(input_tokens=7, output_tokens=3, cache_read_input_tokens=5)
    told = 0
    async with form(["a" * 100, Answer(content=(Text(text="b"),), usage=given)]) as server:
        async with client(server) as http:
            for _ in range(2):
                usage = (await http.post(PATHS[form], json=question())).json()["usage"]
                told += usage.get("total_tokens") or sum(usage.values())
        assert server.reported.total_tokens == told
        assert server.reported.cache_read_input_tokens == 5


async def test_a_refused_request_says_what_the_provider_says(form: Form):
    unanswered = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "x", "input": {}}]}
        if form is messages_server
        else {"role": "assistant", "content": None, "tool_calls": [{"id": "t1"}]},
        {"role": "user", "content": "y"},
    ]
    called = [{"type": "function_call", "call_id": "t1", "name": "x", "arguments": "{}"}]
    async with form([]) as server, client(server) as http:
        response = await http.post(PATHS[form], json=question(messages=unanswered, input=called))
        other = await http.post("/v1/elsewhere", json={})
    assert response.status_code == 400
    assert "t1" in response.json()["error"]["message"]
    assert other.status_code == 404


async def test_a_request_without_a_key_is_unauthorized_where_keys_are_needed():
    async with messages_server([]) as server, httpx.AsyncClient(base_url=server.url) as http:
        response = await http.post("/v1/messages", json=question())
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a_mind_may_wait_for_the_test(form: Form):
    go = asyncio.Event()

    async def mind(_body):
        await go.wait()
        return "late"

    async with form(mind) as server, client(server) as http, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(http.post(PATHS[form], json=question()))
        await server.arrived(1)
        assert not asked.done()
        go.set()
        assert "late" in (await asked).text


@pytest.mark.parametrize("said", ["a mind that never answers", "a long delay"])
async def test_a_client_that_leaves_while_it_waits_is_noticed(form: Form, said):
    async def never(_body):
        await asyncio.Event().wait()

    async with form(never if "mind" in said else [Delay(seconds=600)]) as server:
        async with client(server) as http, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(http.post(PATHS[form], json=question()))
            await server.arrived(1)
            asked.cancel()
        await server.left()


async def test_two_hundred_clients_are_served_at_once(form: Form):
    meet = asyncio.Barrier(200)

    async def mind(body):
        await meet.wait()
        return Answer(content=(Text(text="Hello."),), model=f"for-{body['model']}")

    async def ask(server: MockServer, number: int) -> str:
        reader, writer = await connection(server)
        writer.write(raw(form, question(model=f"<{number}>", stream=True)))
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return answer.decode()

    async with form(mind) as server:
        answers = await asyncio.gather(*[ask(server, number) for number in range(200)])
    assert all(f"for-<{number}>" in answer for number, answer in enumerate(answers))


async def test_what_the_mind_raises_is_raised_at_the_end():
    def mind(body):
        assert body["model"] == "other"

    with pytest.raises(AssertionError):
        async with messages_server(mind) as server, client(server) as http:
            assert (await http.post("/v1/messages", json=question())).status_code == 400


async def test_an_answer_too_many_is_an_error_that_says_so(form: Form):
    async def one_too_many():
        async with form(["only"]) as server, client(server) as http:
            await http.post(PATHS[form], json=question())
            response = await http.post(PATHS[form], json=question())
            assert "one more was asked for" in response.json()["error"]["message"]

    with pytest.raises(IndexError, match="all 1 answers were given"):
        await one_too_many()


async def test_error_statuses_carry_retry_after(form: Form):
    async with form([rate_limited(1.5), HttpError(status=502, raw="<html>")]) as server:
        async with client(server) as http:
            limited = await http.post(PATHS[form], json=question())
            gateway = await http.post(PATHS[form], json=question())
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "1.5")
        assert (gateway.status_code, gateway.text) == (502, "<html>")
        assert server.reported == Usage()


async def test_a_delay_is_kept_by_the_clock(form: Form):
    clock = FakeClock()
    async with form([["late", Delay(seconds=30)]], clock=clock) as server, client(server) as http:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(http.post(PATHS[form], json=question()))
            await clock.asleep()
            await clock.advance(29)
            assert not asked.done()
            await clock.advance(1)
        assert "late" in asked.result().text


async def test_a_reset_connection_answers_nothing(form: Form):
    async with form([Reset()]) as server:
        lines, error = await events_of(form, server)
    assert isinstance(error, httpx.ReadError), "an orderly end would be a protocol error"
    assert lines == []


async def test_a_stale_connection_answers_once_and_never_again(form: Form):
    async with form([["whole", Stale()], "again"]) as server, client(server) as http:
        assert "whole" in (await http.post(PATHS[form], json=question())).text
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(PATHS[form], json=question())
        assert "again" in (await http.post(PATHS[form], json=question())).text
    assert (server.count, server.answered) == (2, 2)


@pytest.mark.parametrize("how", ["close", "reset", "clean"])
async def test_a_cut_in_a_tool_call_leaves_half_its_arguments(form: Form, how):
    async with form([["Now:", CALL, Cut(in_tool_call=True, how=how)]]) as server:
        lines, error = await events_of(form, server)
        await server.left()
        assert server.reported == Usage()
        assert server.unsettled.output_tokens > 0
    assert (error is None) == (how == "clean")
    if how != "reset":  # A reset may overtake bytes that were sent before it.
        text = "\n".join(lines)
        assert "command" in text
        assert "long" not in text
        assert "message_stop" not in text
        assert "[DONE]" not in text


async def test_a_cut_after_some_events_sends_just_these(form: Form):
    async with form([["some words to say", Cut(after=2)]]) as server:
        lines, error = await events_of(form, server)
        await server.left()
        assert server.unsettled.output_tokens > 0
    assert error is not None
    assert sum(line.startswith("data:") for line in lines) == 2


async def test_a_stalled_stream_stays_open_until_the_client_leaves(form: Form):
    async with form([["some words", Stall(after=2)]]) as server:
        lines, error = await events_of(form, server, timeout=0.2)
        assert isinstance(error, httpx.ReadTimeout)
        assert sum(line.startswith("data:") for line in lines) == 2
        await server.left()
        assert server.answered == 0


async def test_garbage_pings_and_error_events_come_between_events(form: Form):
    faults = [Garbage(after=1, line="data: {oops"), Pings(), StreamError(after=3)]
    async with form([["some words to say", *faults]]) as server:
        lines, error = await events_of(form, server)
    assert error is None
    assert "data: {oops" in lines
    assert sum("ping" in line and line[0] in ":e" for line in lines) == 3
    assert "Overloaded" in lines[-1]


async def test_a_drip_sends_byte_by_byte(form: Form):
    clock = FakeClock()
    async with form([["x", Drip(seconds=1)]], clock=clock) as server, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(events_of(form, server))
        await clock.asleep()
        while not asked.done():
            await clock.advance(1)
            await asyncio.sleep(0)
        lines, error = await asked
    assert error is None
    assert clock.monotonic() > sum(map(len, lines))


async def test_broken_tool_arguments_are_streamed_as_given(form: Form):
    async with form([[CALL, BrokenToolJson(arguments='{"a": ')]]) as server:
        lines, _ = await events_of(form, server)
    key = {messages_server: "partial_json", chat_server: "arguments", responses_server: "delta"}[form]
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(_values(data, key)) == '{"a": '


def _values(node: Any, key: str) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from _values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value, key)


async def test_what_is_not_http_ends_the_connection_and_nothing_else(form: Form):
    async with form(["still here"]) as server:
        reader, writer = await connection(server)
        writer.write(b"\x16\x03\x01 no request\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        await writer.wait_closed()
        async with client(server) as http:
            assert "still here" in (await http.post(PATHS[form], json=question())).text


async def test_models_can_be_listed(form: Form):
    async with form([], models=("a", "b")) as server, client(server) as http:
        listed = (await http.get("/v1/models")).json()["data"]
        tags = await http.get("/api/tags")
    assert [row["id"] for row in listed] == ["a", "b"]
    assert tags.status_code == (200 if form is chat_server else 404)


def test_a_server_on_a_thread_serves_a_test_without_a_loop(form: Form):
    with in_thread(form(["hi"])) as server:
        response = httpx.post(server.url + PATHS[form], json=question(), headers=HEADERS)
        assert "hi" in response.text
    assert server.answered == 1


def test_the_program_follows_its_script_and_tells_at_the_end(form: Form, tmp_path: Path):
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
    argv = [sys.executable, "-m", "shoal.testing.servers", "--api", APIS[form], "--script", str(script)]
    with subprocess.Popen(
        [*argv, "--with-parent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        url = program.stdout.readline().strip()
        with httpx.Client(base_url=url, headers=HEADERS) as http:
            answers = [http.post(PATHS[form], json=question()) for _ in range(4)]
        program.stdin.close()
        told = json.loads(program.stdout.readline())
        assert program.wait(10) == 0
    assert [answer.status_code for answer in answers] == [200, 200, 503, 503]
    assert "Good day." in answers[0].text
    assert "Read" in answers[1].text
    assert (told["requests"], told["answered"]) == (4, 2)
    assert told["reported"]["output_tokens"] > 4


def test_a_script_with_a_mistake_is_named(tmp_path: Path):
    script = tmp_path / "script.json"
    script.write_text('[{"txt": "typo"}]')
    argv = [sys.executable, "-m", "shoal.testing.servers", "--script", str(script)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "txt" in ended.stderr
    assert "script.json" in ended.stderr
