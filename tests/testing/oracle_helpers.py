"""Official clients of the providers, connected to a mock server.

Only the tests that use a client import it: both imports take seconds, and every worker collects all tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.testing import MockServer

if TYPE_CHECKING:
    import anthropic
    import openai


def create_anthropic_client(server: MockServer) -> anthropic.AsyncAnthropic:
    import anthropic

    return anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)


def create_openai_client(server: MockServer) -> openai.AsyncOpenAI:
    import openai

    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
