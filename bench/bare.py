"""The minimum code that does the same: a loop over dict messages, no framework.

It gives no guarantees: no deadlines, permissions, events, retries or clean-up. It is the floor.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from bench.instant import FINAL, SAYING

Messages = list[dict[str, Any]]
Ask = Callable[[Messages], Awaitable[dict[str, Any]]]


async def loop(prompt: str, ask: Ask, tools: dict[str, Callable[..., Awaitable[str]]], keep: int = -1) -> str:
    """Run the loop; append each message as a line to the file descriptor `log_fd`, if given."""
    messages: Messages = []

    def add(message: dict[str, Any]) -> None:
        messages.append(message)
        if keep >= 0:
            os.write(keep, json.dumps(message).encode() + b"\n")

    add({"role": "user", "content": prompt})
    while True:
        message = await ask(messages)
        add(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        work = (tools[c["function"]["name"]](**json.loads(c["function"]["arguments"])) for c in calls)
        for call, result in zip(calls, await asyncio.gather(*work), strict=True):
            add({"role": "tool", "tool_call_id": call["id"], "content": result})


def instant(rounds: int, saying: str = SAYING) -> Ask:
    """Create a model that answers at once, in dicts."""

    async def ask(messages: Messages) -> dict[str, Any]:
        done = len(messages) // 2
        if done >= rounds:
            return {"role": "assistant", "content": FINAL}
        arguments = f'{{"a": {done}, "b": 1}}'
        return {
            "role": "assistant",
            "content": saying,
            "tool_calls": [{"id": f"c{done}", "function": {"name": "add", "arguments": arguments}}],
        }

    return ask
