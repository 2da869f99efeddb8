"""Asks a model with httpx alone: a body of dicts, the lines of the stream, nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bench.bare_loop import AskModel, Messages

if TYPE_CHECKING:
    import httpx

_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
_HEADERS = {"authorization": "Bearer bench", "x-api-key": "bench", "anthropic-version": "2023-06-01"}


async def stream_events(
    client: httpx.AsyncClient, url: str, body: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("POST", url, json=body, headers=_HEADERS) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[6:])


_TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": _SCHEMA}}]


def create_chat_model_without_stream(client: httpx.AsyncClient, base: str) -> AskModel:
    """Create a Chat Completions model that does not stream."""

    async def ask_model(messages: Messages) -> dict[str, Any]:
        body = {"model": "mock", "messages": messages, "tools": _TOOLS}
        response = await client.post(f"{base}/v1/chat/completions", json=body, headers=_HEADERS)
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    return ask_model


def create_chat_model(client: httpx.AsyncClient, base: str) -> AskModel:
    async def ask_model(messages: Messages) -> dict[str, Any]:
        text = ""
        calls: dict[int, dict[str, Any]] = {}
        body = {"model": "mock", "messages": messages, "tools": _TOOLS, "stream": True}
        async for event in stream_events(client, f"{base}/v1/chat/completions", body):
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                for part in choice["delta"].get("tool_calls") or ():
                    empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                    call = calls.setdefault(part["index"], empty)
                    call["id"] += part.get("id") or ""
                    for key in ("name", "arguments"):
                        call["function"][key] += part["function"].get(key) or ""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        return {**message, "tool_calls": list(calls.values())} if calls else message

    return ask_model


def create_messages_model(client: httpx.AsyncClient, base: str) -> AskModel:
    """Create a Messages model; it translates each Chat Completions message of the bare loop once."""
    tools = [{"name": "add", "description": "Add.", "input_schema": _SCHEMA}]
    history: Messages = []

    async def ask_model(said: Messages) -> dict[str, Any]:
        history.extend(map(_translate_message, said[len(history) :]))
        blocks: dict[int, dict[str, Any]] = {}
        body = {"model": "mock", "max_tokens": 1000, "messages": history, "tools": tools, "stream": True}
        async for event in stream_events(client, f"{base}/v1/messages", body):
            if event["type"] == "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            elif event["type"] == "content_block_delta":
                delta, block = event["delta"], blocks[event["index"]]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                else:
                    block["json"] += delta["partial_json"]
        text = "".join(block["text"] for block in blocks.values() if block["type"] == "text")
        calls = [
            {"id": block["id"], "function": {"name": block["name"], "arguments": block["json"]}}
            for block in blocks.values()
            if block["type"] == "tool_use"
        ]
        message: dict[str, Any] = {"role": "assistant", "content": text}
        return {**message, "tool_calls": calls} if calls else message

    return ask_model


def _translate_message(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
        }
        return {"role": "user", "content": [result]}
    if not message.get("tool_calls"):
        return message
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": [{"type": "text", "text": message["content"]}, *calls]}
