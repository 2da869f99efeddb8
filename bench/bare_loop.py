"""The minimum code that does the same: a loop over dict messages, no framework.

It gives no guarantees: no deadlines, permissions, events, retries or clean-up. It is the floor.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from bench.instant_model import CALL_TEXT, FINAL_TEXT

Messages = list[dict[str, Any]]
AskModel = Callable[[Messages], Awaitable[dict[str, Any]]]


async def run_bare_loop(
    prompt: str, ask: AskModel, tools: dict[str, Callable[..., Awaitable[str]]], log_fd: int = -1
) -> str:
    """Run the loop; append each message as a line to the file descriptor `log_fd`, if given."""
    messages: Messages = []

    def add_message(message: dict[str, Any]) -> None:
        messages.append(message)
        if log_fd >= 0:
            os.write(log_fd, json.dumps(message).encode() + b"\n")

    add_message({"role": "user", "content": prompt})
    while True:
        message = await ask(messages)
        add_message(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        work = (tools[c["function"]["name"]](**json.loads(c["function"]["arguments"])) for c in calls)
        for call, result in zip(calls, await asyncio.gather(*work), strict=True):
            add_message({"role": "tool", "tool_call_id": call["id"], "content": result})


def create_instant_model(rounds: int, saying: str = CALL_TEXT) -> AskModel:
    """Create a model that answers at once, in dicts."""

    async def ask_model(messages: Messages) -> dict[str, Any]:
        rounds_done = len(messages) // 2
        if rounds_done >= rounds:
            return {"role": "assistant", "content": FINAL_TEXT}
        arguments = f'{{"a": {rounds_done}, "b": 1}}'
        return {
            "role": "assistant",
            "content": saying,
            "tool_calls": [{"id": f"c{rounds_done}", "function": {"name": "add", "arguments": arguments}}],
        }

    return ask_model
