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

from bench.child_process import SOURCES
from bench.instant_model import CALL_TEXT, FINAL_TEXT
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock, ToolUseBlock
from shoal.testing.chat_format import MockChatCompletionsApiFormat
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import DelayedReplyFault, MockReply, SlowStreamFault
from shoal.testing.servers import MockServer, run_mock_server

_USAGE = Usage(input_tokens=100, output_tokens=10)
# An answer with any fault is sent event by event, one without in a single write.
_EVENT_BY_EVENT = (DelayedReplyFault(seconds=0),)
_SLOW_EVENTS = (SlowStreamFault(seconds=0.0005, size=1 << 16),)


def choose_reply(body: Mapping[str, Any]) -> MockReply:
    messages = body["messages"]
    prompt = str(next(m["content"] for m in messages if m["role"] == "user"))
    rounds_match = re.search(r"ROUNDS=(\d+)", prompt)
    rounds_done = sum(message["role"] == "assistant" for message in messages)
    faults = _SLOW_EVENTS if "APART" in prompt else _EVENT_BY_EVENT
    agents_match = re.search(r"AGENTS=(\d+) (.*)", prompt)
    if agents_match is not None:
        calls = () if rounds_done else _make_agent_calls(int(agents_match[1]), agents_match[2])
        return MockReply(content=calls or (TextBlock(text=FINAL_TEXT),), usage=_USAGE, faults=faults)
    if rounds_match is None or rounds_done >= int(rounds_match[1]):
        return MockReply(content=(make_last_block(body),), usage=_USAGE, faults=faults)
    call = ToolUseBlock(id="", name="add", input={"a": rounds_done, "b": 1})
    return MockReply(content=(TextBlock(text=CALL_TEXT), call), usage=_USAGE, faults=faults)


def make_last_block(body: Mapping[str, Any], text: str = FINAL_TEXT) -> TextBlock | ToolUseBlock:
    """Return the last block: some clients end only at the call of a certain tool."""
    offered = {tool.get("function", tool).get("name") for tool in body.get("tools") or ()}
    if "final_answer" in offered:
        return ToolUseBlock(id="", name="final_answer", input={"answer": text})
    return TextBlock(text=text)


def _make_agent_calls(number: int, prompt: str) -> tuple[ToolUseBlock, ...]:
    arguments = {"description": "Add", "prompt": prompt, "run_in_background": True}
    return tuple(ToolUseBlock(id="", name="Agent", input=arguments) for _ in range(number))


async def serve_provider(api: str) -> None:
    wire_format = MockMessagesApiFormat() if api == "messages" else MockChatCompletionsApiFormat()
    server = MockServer(wire_format, choose_reply, strict=False, keep_requests=False)
    async with run_mock_server(server):
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def run_mock_provider(api: str) -> Iterator[str]:
    """Run a mock provider and yield its address; it ends with the block, and with this process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.mock_provider", "--api", api],
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
    asyncio.run(serve_provider(parser.parse_args().api))
