"""Drives the real program with the public SDK, and records the messages it receives."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.servers import MockServer

PATIENCE = 30.0
MODEL = "anthropic:claude-haiku-5-5"


class Rig:
    """A project, and the program as the SDK starts it."""

    def __init__(self, sdk: Any, directory: Path) -> None:
        self.sdk = sdk
        self.project = directory / "project"
        self.project.mkdir()
        self.cli = directory / "shoal"
        self.cli.write_text(f'#!/bin/sh\nexec {sys.executable} -m shoal "$@"\n')
        self.cli.chmod(0o700)

    def options(self, server: MockServer | None, **more: Any) -> Any:
        url = "http://127.0.0.1:9" if server is None else server.url
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-for-tests"} | more.pop("env", {})
        told = {"cli_path": self.cli, "cwd": self.project, "model": MODEL, "env": dict(os.environ) | env}
        return self.sdk.ClaudeAgentOptions(**told | more)

    async def query(self, server: MockServer | None, prompt: Any, **more: Any) -> Told:
        """Return every message of one run, with the error that the SDK raised at its end."""
        told = Told(self.sdk)
        try:
            async with asyncio.timeout(PATIENCE):
                async for message in self.sdk.query(prompt=prompt, options=self.options(server, **more)):
                    told.append(message)
        except self.sdk.ClaudeSDKError as error:
            told.error = error
        return told

    def client(self, server: MockServer | None, **more: Any) -> Any:
        return self.sdk.ClaudeSDKClient(self.options(server, **more))


class Told(list[Any]):
    def __init__(self, sdk: Any) -> None:
        super().__init__()
        self._sdk = sdk
        self.error: Exception | None = None

    @property
    def result(self) -> Any:
        """The last result message."""
        return self.of(self._sdk.ResultMessage)[-1]

    @property
    def init(self) -> dict[str, Any]:
        return self.system("init")[0]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self if isinstance(each, kind)]

    def system(self, subtype: str) -> list[dict[str, Any]]:
        return [each.data for each in self.of(self._sdk.SystemMessage) if each.subtype == subtype]

    def states(self) -> list[str]:
        return [each["state"] for each in self.system("session_state_changed")]


async def answered(client: Any) -> Told:
    """Return the messages up to and including the next result."""
    told = Told(sys.modules["claude_agent_sdk"])
    async with asyncio.timeout(PATIENCE):
        async for message in client.receive_response():
            told.append(message)
    return told


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(pytest.importorskip("claude_agent_sdk"), tmp_path)


def said_to(server: MockServer, request: int) -> str:
    """Dump everything a request sent to the model."""
    return str(server.requests[request].body)
