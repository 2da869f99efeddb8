"""A mock provider in a separate process with its own CPU time: `python -m bench.mock_provider --api chat`.

A prompt with `ROUNDS=n` is answered with n rounds of one tool call, then with a final text; one with
`AGENTS=n` is answered with calls for n background agents, each of which gets the rest of the prompt. Each
event of an answer is sent separately; with `APART` in the prompt there is a pause between them, as from a
model that is still generating: the client then sleeps and wakes for each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.children import SOURCES
from bench.instant import FINAL, SAYING
from shoal.core.messages import Text, ToolUse
from shoal.core.usage import Usage
from shoal.testing.chat_form import ChatForm
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import Answer, Delay, Drip
from shoal.testing.servers import MockServer, serving

_USAGE = Usage(input_tokens=100, output_tokens=10)
# An answer with any fault is sent event by event, one without in a single write.
_AT_ONCE = (Delay(seconds=0),)
_APART = (Drip(seconds=0.0005, size=1 << 16),)


def think(body: Mapping[str, Any]) -> Answer:
    messages = body["messages"]
    prompt = str(next(m["content"] for m in messages if m["role"] == "user"))
    wanted = re.search(r"ROUNDS=(\d+)", prompt)
    done = sum(message["role"] == "assistant" for message in messages)
    faults = _APART if "APART" in prompt else _AT_ONCE
    crowd = re.search(r"AGENTS=(\d+) (.*)", prompt)
    if crowd is not None:
        calls = () if done else _agents(int(crowd[1]), crowd[2])
        return Answer(content=calls or (Text(text=FINAL),), usage=_USAGE, faults=faults)
    if wanted is None or done >= int(wanted[1]):
        return Answer(content=(last_word(body),), usage=_USAGE, faults=faults)
    call = ToolUse(id="", name="add", input={"a": done, "b": 1})
    return Answer(content=(Text(text=SAYING), call), usage=_USAGE, faults=faults)


def last_word(body: Mapping[str, Any], text: str = FINAL) -> Text | ToolUse:
    """Return the last block: some clients end only at the call of a certain tool."""
    offered = {tool.get("function", tool).get("name") for tool in body.get("tools") or ()}
    if "final_answer" in offered:
        return ToolUse(id="", name="final_answer", input={"answer": text})
    return Text(text=text)


def _agents(number: int, prompt: str) -> tuple[ToolUse, ...]:
    given = {"description": "Add", "prompt": prompt, "run_in_background": True}
    return tuple(ToolUse(id="", name="Agent", input=given) for _ in range(number))


async def serve(api: str) -> None:
    form = MessagesForm() if api == "messages" else ChatForm()
    server = MockServer(form, think, strict=False, keep_requests=False)
    async with serving(server):
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def provider(api: str) -> Iterator[str]:
    """Run a mock provider and yield its address; it ends with the block, and with this process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.provider", "--api", api],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the mock provider ended at once, with status {process.wait()}")
        yield url
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A mock provider for the benches.")
    parser.add_argument("--api", choices=("messages", "chat"), required=True)
    asyncio.run(serve(parser.parse_args().api))
