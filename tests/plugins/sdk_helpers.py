"""Drives the real program with the public SDK, and records the messages it receives."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from program_forks import SHOAL_SCRIPT
from shoal.testing.servers import MockServer

TIMEOUT = 60.0
MODEL = "anthropic:claude-haiku-5-5"


class SdkHarness:
    """A project, and the program as the SDK starts it."""

    def __init__(self, sdk: Any, directory: Path) -> None:
        self.sdk = sdk
        self.project = directory / "project"
        self.project.mkdir()
        self.cli = directory / "shoal"
        self.cli.write_text(SHOAL_SCRIPT)
        self.cli.chmod(0o700)

    def build_options(self, server: MockServer | None, **more: Any) -> Any:
        url = "http://127.0.0.1:9" if server is None else server.url
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-for-tests"} | more.pop("env", {})
        defaults = {"cli_path": self.cli, "cwd": self.project, "model": MODEL, "env": dict(os.environ) | env}
        return self.sdk.ClaudeAgentOptions(**defaults | more)

    async def run_query(self, server: MockServer | None, prompt: Any, **more: Any) -> SdkMessages:
        """Return every message of one run, with the error that the SDK raised at its end."""
        messages = SdkMessages(self.sdk)
        try:
            async with asyncio.timeout(TIMEOUT):
                async for message in self.sdk.query(
                    prompt=prompt, options=self.build_options(server, **more)
                ):
                    messages.append(message)
        except self.sdk.ClaudeSDKError as error:
            messages.error = error
        return messages

    def create_client(self, server: MockServer | None, **more: Any) -> Any:
        return self.sdk.ClaudeSDKClient(self.build_options(server, **more))


class SdkMessages(list[Any]):
    def __init__(self, sdk: Any) -> None:
        super().__init__()
        self._sdk = sdk
        self.error: Exception | None = None

    @property
    def result(self) -> Any:
        """The last result message."""
        return self.filter_by_type(self._sdk.ResultMessage)[-1]

    @property
    def init(self) -> dict[str, Any]:
        return self.list_system_data("init")[0]

    def filter_by_type(self, kind: type) -> list[Any]:
        return [message for message in self if isinstance(message, kind)]

    def list_system_data(self, subtype: str) -> list[dict[str, Any]]:
        return [
            message.data
            for message in self.filter_by_type(self._sdk.SystemMessage)
            if message.subtype == subtype
        ]

    def list_states(self) -> list[str]:
        return [data["state"] for data in self.list_system_data("session_state_changed")]


async def receive_answer(client: Any) -> SdkMessages:
    """Return the messages up to and including the next result."""
    messages = SdkMessages(sys.modules["claude_agent_sdk"])
    async with asyncio.timeout(TIMEOUT):
        async for message in client.receive_response():
            messages.append(message)
    return messages


@pytest.fixture
def harness(tmp_path: Path) -> SdkHarness:
    return SdkHarness(pytest.importorskip("claude_agent_sdk"), tmp_path)


def dump_request(server: MockServer, request: int) -> str:
    """Dump everything a request sent to the model."""
    return str(server.requests[request].body)
