"""A whole session over the Responses API: its reasoning is in the transcript and outlives the process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.events import Finished
from shoal.core.messages import Thinking
from shoal.testing import call, messages_server, responses_server


async def told(session: shoal.Session, prompt: str) -> Finished:
    *_, last = [event async for event in session.run(prompt)]
    assert isinstance(last, Finished)
    return last


def sealed(body: Any) -> list[str]:
    return [item["encrypted_content"] for item in body["input"] if item["type"] == "reasoning"]


@pytest.mark.spec("USR-21")
async def test_reasoning_is_kept_through_tools_a_transcript_and_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("seven")
    look = [
        Thinking(thinking="I look.", signature="blob1"),
        call("Read", file_path=str(tmp_path / "a.txt")),
    ]
    minds = [look, [Thinking(thinking="", signature="blob2"), "It says seven."], "As I said: seven."]
    async with responses_server(minds) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        options: dict[str, Any] = {"cwd": tmp_path, "model": "openai-responses:gpt-6-sol"}
        async with shoal.open(**options) as first:
            assert (await told(first, "What does a.txt say?")).text == "It says seven."
        async with shoal.open(**options, resume=first.id) as second:
            assert (await told(second, "Sure?")).text == "As I said: seven."
    assert [sealed(each.body) for each in server.requests] == [[], ["blob1"], ["blob1", "blob2"]]
    # What is sent stays the same, byte for byte, so that the provider's cache holds it.
    before, after = (each.body["input"] for each in server.requests[1:])
    assert after[: len(before)] == before


async def test_a_conversation_goes_on_with_another_provider_without_that_reasoning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        responses_server([[Thinking(thinking="hm", signature="blob"), "Seven."]]) as theirs,
        messages_server(["Still seven."]) as other,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{theirs.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with shoal.open(cwd=tmp_path, model="openai-responses:gpt-6-sol") as session:
            await told(session, "What?")
            await session.set_model("anthropic:haiku")
            assert (await told(session, "Sure?")).text == "Still seven."
    assert "blob" not in json.dumps(other.requests[0].body)


async def test_no_tool_reads_the_keys_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Path(os.environ["SHOAL_HOME"]) / "shoal" / "credentials.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"openrouter": {"OPENROUTER_API_KEY": "a-secret-of-1234567890abcdef"}}))
    half = kept.with_name(".credentials.json.tmp.1234abcd")
    half.write_text("a-secret-of-1234567890abcdef")
    (tmp_path / "link").symlink_to(kept)
    calls = [
        call("Read", file_path=str(kept)),
        call("Read", file_path=str(half)),
        call("Read", file_path=str(tmp_path / "link")),
        call("Write", file_path=str(kept), content="{}"),
        call("Bash", command=f"cat {kept}"),
        call("Bash", command=f"cat {kept.parent}/credentials*"),
        call("Grep", pattern="secret", path=str(kept.parent), output_mode="content"),
    ]
    async with responses_server([calls, "Done."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        settings = json.dumps({"shoal": {"sandbox": {"enabled": False}}})
        model = "openai-responses:gpt-6-sol"
        async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True, settings=settings) as session:
            await told(session, "Go.")
    outputs = [i["output"] for i in server.requests[1].body["input"] if i["type"] == "function_call_output"]
    assert len(outputs) == len(calls)
    for output in outputs[:-1]:
        assert "keys of Shoal itself, which no tool may reach" in output
    assert "a-secret" not in json.dumps(outputs)
