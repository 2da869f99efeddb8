"""Agents stop with their partial work at a rate limit of hours, and resume from there."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, spawn_agent
from server_scripts import get_last_text, join_text
from session_helpers import map_agent_results
from shoal.core.clock import SystemClock
from shoal.testing import messages_server
from shoal.testing.mock_replies import ReplyLike, RequestBody, make_rate_limit_fault


@pytest.mark.spec("USR-09")
async def test_an_agent_stopped_by_a_hard_rate_limit_resumes_without_repeating_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited: list[RequestBody] = []

    def digger(body: RequestBody) -> ReplyLike:
        reply_count = sum(message["role"] == "assistant" for message in body["messages"])
        if not reply_count:
            return call_tool("Bash", "b1", command="echo dug >> holes")
        if not limited:
            limited.append(body)
            return make_rate_limit_fault(retry_after=5 * 3600)
        return f"told: {get_last_text(body)}"

    def choose_reply(body: RequestBody) -> ReplyLike:
        if join_text(body["messages"][0]["content"]).startswith("Dig"):
            return digger(body)
        last_text = get_last_text(body)
        if last_text.endswith("go"):
            return spawn_agent("Dig.", "c1", name="digger", run_in_background=True)
        if "again" in last_text:
            return call_tool("SendMessage", "m1", to="digger", message="Go on.", summary="go on")
        return "I wait."

    async with messages_server(choose_reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        options = {"model": "anthropic:claude-sonnet-4-5", "skip_permissions": True}
        async with shoal.open(cwd=tmp_path, clock=SystemClock(), **options) as session:
            await run_all_turns(session, "go")
            paused = map_agent_results(session)["Dig."]
        # With a clock of its own it knows nothing of the pause, as one of another process some hours later.
        later = SystemClock()
        async with shoal.open(cwd=tmp_path, resume=session.id, clock=later, **options) as session:
            await run_all_turns(session, "try again")
            done = map_agent_results(session)["Dig."]
    assert (paused.status, done.status) == ("failed", "completed")
    assert "Go on." in done.text
    assert (tmp_path / "holes").read_text() == "dug\n"
