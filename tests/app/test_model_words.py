"""The words sent to models: their size, their protocol, and that they do not depend on docstrings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from request_recorder import extract_protocol, extract_schemas, record_session

RECORDED_PROTOCOL = Path(__file__).with_name("recorded_protocol.json")
"""Recorded from the commit before the texts were rewritten."""
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "forks": {"shoal_settings": {"forks": True}, "attended": True},
    "coordinator": {"coordinator": True},
    "assistant": {"assistant": True},
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED_PROTOCOL.read_text())
    return found


async def test_tool_schemas_are_as_recorded(project: Path, recorded: dict[str, Any]) -> None:
    recorder = await record_session(project)
    assert extract_schemas(recorder.first["lead"]) == recorded["schemas"]


@pytest.mark.parametrize("mode", MODES)
async def test_protocol_words_are_as_recorded(project: Path, mode: str, recorded: dict[str, Any]) -> None:
    recorder = await record_session(project, **MODES[mode])
    assert {
        speaker: extract_protocol(request, recorded["schemas"]) for speaker, request in recorder.last.items()
    } == recorded["requests"][mode]
