"""Official clients of the providers, connected to a mock server."""

from __future__ import annotations

import anthropic
import openai

from shoal.testing import MockServer


def create_anthropic_client(server: MockServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)


def create_openai_client(server: MockServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
