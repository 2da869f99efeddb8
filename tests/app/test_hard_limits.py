"""A provider that is over its limit for hours: agents stop with what they have, and go on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from cast import agent, all_turns, use
from crew_rig import ends
from fleet import said_to, text_of
from shoal.core.clock import SystemClock
from shoal.testing import messages_server
from shoal.testing.replies import Body, Sayable, rate_limited


@pytest.mark.spec("USR-09")
async def test_an_agent_at_a_hard_limit_goes_on_later_and_repeats_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited: list[Body] = []

    def digger(body: Body) -> Sayable:
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        if not spoken:
            return use("Bash", "b1", command="echo dug >> holes")
        if not limited:
            limited.append(body)
            return rate_limited(retry_after=5 * 3600)
        return f"told: {said_to(body)}"

    def mind(body: Body) -> Sayable:
        if text_of(body["messages"][0]["content"]).startswith("Dig"):
            return digger(body)
        heard = said_to(body)
        if heard.endswith("go"):
            return agent("Dig.", "c1", name="digger", run_in_background=True)
        if "again" in heard:
            return use("SendMessage", "m1", to="digger", message="Go on.", summary="go on")
        return "I wait."

    async with messages_server(mind) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        options = {"model": "anthropic:claude-sonnet-4-5", "skip_permissions": True}
        async with shoal.open(cwd=tmp_path, clock=SystemClock(), **options) as session:
            await all_turns(session, "go")
            paused = ends(session)["Dig."]
        # With a clock of its own it knows nothing of the pause, as one of another process some hours later.
        later = SystemClock()
        async with shoal.open(cwd=tmp_path, resume=session.id, clock=later, **options) as session:
            await all_turns(session, "try again")
            done = ends(session)["Dig."]
    assert (paused.status, done.status) == ("failed", "completed")
    assert "Go on." in done.text
    assert (tmp_path / "holes").read_text() == "dug\n"
