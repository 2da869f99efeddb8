"""One question to a Messages API with httpx and nothing else: `python -m bench.bare_start`."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import httpx


async def main() -> None:
    body = {
        "model": "mock",
        "max_tokens": 1000,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    async with (
        httpx.AsyncClient() as client,
        client.stream("POST", url, json=body, headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                sys.stdout.write(json.loads(line[6:]).get("delta", {}).get("text", ""))


asyncio.run(main())
