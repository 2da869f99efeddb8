"""Every refusal is one error that says what, where and what to do."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from model_helpers import (
    create_anthropic_model,
    create_openai_model,
    create_responses_model,
    make_request,
    make_response,
    serve_responses,
)

from shoal.core.conversation.model_requests import ignore_stream_delta
from shoal.core.errors import (
    BadReply,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    ServerFault,
    StreamCut,
    TransientModelError,
    Unauthorized,
    UnknownModel,
)
from shoal.testing import FakeClock, chat_server, messages_server, responses_server
from shoal.testing.fake_clock import START
from shoal.testing.mock_replies import HttpErrorFault, make_context_length_fault

SERVERS = [
    (messages_server, create_anthropic_model),
    (chat_server, create_openai_model),
    (responses_server, create_responses_model),
]
ALL = pytest.mark.parametrize(("serve", "create_model"), SERVERS, ids=["messages", "chat", "responses"])


async def catch_model_error(
    serve: Any, create_model: Any, fault: HttpErrorFault, **options: Any
) -> ModelError:
    async with serve([fault]) as server:
        model = create_model(server.url, **options)
        with pytest.raises(ModelError) as caught:
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    return caught.value


@ALL
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Unauthorized),
        (402, QuotaExceeded),
        (404, UnknownModel),
        (408, ServerFault),
        (413, ContextTooLong),
        (429, RateLimited),
        (500, ServerFault),
        (502, ServerFault),
        (503, Overloaded),
        (529, Overloaded),
    ],
)
async def test_an_http_status_raises_its_error(
    serve: Any, create_model: Any, status: int, kind: type[ModelError]
) -> None:
    error = await catch_model_error(serve, create_model, HttpErrorFault(status=status))
    assert type(error) is kind
    assert error.status == status
    assert error.provider in ("anthropic", "openai", "openai-responses")


@ALL
async def test_a_history_over_the_context_window_has_its_own_error(serve: Any, create_model: Any) -> None:
    assert type(await catch_model_error(serve, create_model, make_context_length_fault())) is ContextTooLong


async def test_a_wrong_key_names_the_variable_to_set() -> None:
    error = await catch_model_error(messages_server, create_anthropic_model, HttpErrorFault(status=401))
    assert "anthropic" in str(error)
    assert "ANTHROPIC_API_KEY" in str(error)
    assert "OPENAI_API_KEY" in str(
        await catch_model_error(chat_server, create_openai_model, HttpErrorFault(status=401))
    )


async def test_the_providers_message_is_a_separate_sentence() -> None:
    error = await catch_model_error(
        messages_server, create_anthropic_model, HttpErrorFault(status=401, message="invalid x-api-key")
    )
    assert "(status 401): invalid x-api-key. Check ANTHROPIC_API_KEY" in str(error)
    error = await catch_model_error(
        messages_server, create_anthropic_model, HttpErrorFault(status=401, message="Go away!")
    )
    assert "(status 401): Go away! Check" in str(error)


async def test_an_unknown_model_error_suggests_similar_names() -> None:
    error = await catch_model_error(
        messages_server, create_anthropic_model, HttpErrorFault(status=404), model="claude-sonet-4-5"
    )
    assert "'claude-sonet-4-5'" in str(error)
    assert "claude-sonnet-4-5" in str(error)


@ALL
async def test_the_wait_a_provider_asks_for_is_in_the_error(serve: Any, create_model: Any) -> None:
    error = await catch_model_error(serve, create_model, HttpErrorFault(status=429, retry_after=7))
    assert isinstance(error, TransientModelError)
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("Retry-After: 2.5", 2.5),
        ("Retry-After: Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Retry-After: Wed, 31 Dec 2025 00:00:00 GMT", 0),
        ("retry-after-ms: 1500", 1.5),
        ("Retry-After: soon", None),
        ("X-Other: 1", None),
    ],
)
async def test_a_wait_is_read_as_seconds_or_as_a_date(header: str, seconds: float | None) -> None:
    assert START == 1_767_225_600_000
    async with serve_responses(make_response(b"", header, status=429)) as url:
        with pytest.raises(RateLimited) as caught:
            await create_openai_model(url, clock=FakeClock()).generate_reply(
                make_request("Hi."), ignore_stream_delta
            )
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": "model is loading"}', "model is loading"),
        ('{"error": {"message": {"deeply": "odd"}}}', ""),
        ('{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        ('[{"error": {"code": 400, "message": "in a list"}}]', "in a list"),
        ('{"message": "top level"}', "top level"),
        ("null", ""),
        ('"just a string"', "just a string"),
        ("<html><head><title>400 Bad\nGateway</title></head><body>x</body></html>", "400 Bad Gateway"),
        ("<p>No title</p>", "No title"),
        ("plain words", "plain words"),
        ("\x00\xff binary", "binary"),
        ("x" * 100_000, "xxx…"),
    ],
)
async def test_the_message_of_an_error_is_found_in_any_format(body: str, words: str) -> None:
    async with serve_responses(make_response(body.encode("latin-1"), status=400)) as url:
        with pytest.raises(BadRequest) as caught:
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 700


async def test_an_html_error_page_of_a_proxy_keeps_the_meaning_of_its_status() -> None:
    page = b"<html><title>503 Service Temporarily Unavailable</title></html>"
    async with serve_responses(make_response(page, "Content-Type: text/html", status=503)) as url:
        with pytest.raises(Overloaded, match="Temporarily Unavailable"):
            await create_anthropic_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_an_html_page_with_status_200_is_a_bad_reply() -> None:
    async with serve_responses(
        make_response(b"<html><title>Log in</title></html>", "Content-Type: text/html")
    ) as url:
        with pytest.raises(BadReply, match=r"Log in.*Check the base URL"):
            await create_anthropic_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_a_json_error_with_status_200_raises_that_error() -> None:
    body = json.dumps({"error": {"code": 503, "message": "no capacity"}}).encode()
    async with serve_responses(make_response(body, "Content-Type: application/json")) as url:
        with pytest.raises(Overloaded, match="no capacity"):
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_an_empty_answer_is_a_cut_stream() -> None:
    async with serve_responses(make_response(b"", "Content-Type: text/event-stream")) as url:
        with pytest.raises(StreamCut):
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_a_server_that_does_not_speak_http_is_a_bad_reply() -> None:
    async with serve_responses(b"220 mail.example.org ESMTP\r\n") as url:
        with pytest.raises(BadReply, match=r"HTTP/1\.1"):
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_an_account_without_credit_is_not_retried() -> None:
    body = json.dumps(
        {"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}
    ).encode()
    async with serve_responses(make_response(body, status=429)) as url:
        with pytest.raises(BadRequest, match="exceeded your quota"):
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_a_redirect_says_to_correct_the_base_url() -> None:
    async with serve_responses(make_response(b"", "Location: https://elsewhere/", status=301)) as url:
        with pytest.raises(BadRequest, match="base URL"):
            await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


@pytest.mark.parametrize("url", ["ftp://x", "not a url", "http://", "http://x:port/"])
def test_an_invalid_base_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadRequest):
        create_openai_model(url)


def test_an_api_key_cannot_inject_a_header() -> None:
    with pytest.raises(BadRequest, match="line break"):
        create_openai_model("http://127.0.0.1", api_key="sk\r\nX-Evil: 1")


async def test_an_answer_with_unrequested_compression_is_read() -> None:

    stream = gzip.compress(
        b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    answer = make_response(stream, "Content-Type: text/event-stream", "Content-Encoding: gzip")
    async with serve_responses(answer) as url:
        reply = await create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)
    assert reply.message.text == "Hi."
