"""A session over the Responses API: its reasoning is in the transcript and survives a resume."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_prompt

import shoal
from shoal.core.conversation.messages import ThinkingBlock
from shoal.testing import make_tool_call, messages_server, responses_server


def list_encrypted_reasoning(body: Any) -> list[str]:
    return [item["encrypted_content"] for item in body["input"] if item["type"] == "reasoning"]


@pytest.mark.spec("USR-21")
async def test_reasoning_survives_tool_calls_the_transcript_and_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("seven")
    look = [
        ThinkingBlock(thinking="I look.", signature="blob1"),
        make_tool_call("Read", file_path=str(tmp_path / "a.txt")),
    ]
    choose_reply = [
        look,
        [ThinkingBlock(thinking="", signature="blob2"), "It says seven."],
        "As I said: seven.",
    ]
    async with responses_server(choose_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        options: dict[str, Any] = {"cwd": tmp_path, "model": "openai-responses:gpt-6-sol"}
        async with shoal.open(**options) as first:
            assert (await run_prompt(first, "What does a.txt say?")).text == "It says seven."
        async with shoal.open(**options, resume=first.id) as second:
            assert (await run_prompt(second, "Sure?")).text == "As I said: seven."
    assert [list_encrypted_reasoning(each.body) for each in server.requests] == [
        [],
        ["blob1"],
        ["blob1", "blob2"],
    ]
    # What is sent stays the same, byte for byte, so that the provider's cache holds it.
    before, after = (each.body["input"] for each in server.requests[1:])
    assert after[: len(before)] == before


async def test_a_conversation_continues_with_another_provider_without_the_reasoning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        responses_server([[ThinkingBlock(thinking="hm", signature="blob"), "Seven."]]) as theirs,
        messages_server(["Still seven."]) as other,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{theirs.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with shoal.open(cwd=tmp_path, model="openai-responses:gpt-6-sol") as session:
            await run_prompt(session, "What?")
            await session.set_model("anthropic:haiku")
            assert (await run_prompt(session, "Sure?")).text == "Still seven."
    assert "blob" not in json.dumps(other.requests[0].body)


async def test_no_tool_can_read_the_stored_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Path(os.environ["SHOAL_HOME"]) / "shoal" / "credentials.json"
    credentials.parent.mkdir(parents=True, exist_ok=True)
    credentials.write_text(json.dumps({"openrouter": {"OPENROUTER_API_KEY": "a-secret-of-1234567890abcdef"}}))
    half = credentials.with_name(".credentials.json.tmp.1234abcd")
    half.write_text("a-secret-of-1234567890abcdef")
    (tmp_path / "link").symlink_to(credentials)
    calls = [
        make_tool_call("Read", file_path=str(credentials)),
        make_tool_call("Read", file_path=str(half)),
        make_tool_call("Read", file_path=str(tmp_path / "link")),
        make_tool_call("Write", file_path=str(credentials), content="{}"),
        make_tool_call("Bash", command=f"cat {credentials}"),
        make_tool_call("Bash", command=f"cat {credentials.parent}/credentials*"),
        make_tool_call("Grep", pattern="secret", path=str(credentials.parent), output_mode="content"),
    ]
    async with responses_server([calls, "Done."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        settings = json.dumps({"shoal": {"sandbox": {"enabled": False}}})
        model = "openai-responses:gpt-6-sol"
        async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True, settings=settings) as session:
            await run_prompt(session, "Go.")
    outputs = [i["output"] for i in server.requests[1].body["input"] if i["type"] == "function_call_output"]
    assert len(outputs) == len(calls)
    for output in outputs[:-1]:
        assert "Shoal's own keys, which no tool may access" in output
    assert "a-secret" not in json.dumps(outputs)
