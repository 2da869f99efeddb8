"""One question with httpx and nothing else."""

import json
import os
import sys

import httpx

body = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
with httpx.stream("POST", os.environ["BENCH_URL"] + "/v1/chat/completions", json=body) as response:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                sys.stdout.write(choice["delta"].get("content") or "")
