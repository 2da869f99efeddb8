"""A report reaches whoever asked for it whole, however many messages it took."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cast import agent, all_turns, cast, use
from crew_rig import ends, opened, results
from shoal.core.agents import Completion
from shoal.core.messages import Text, result_text
from shoal.core.requests import Request
from shoal.models.scripted import Line


@pytest.mark.spec("USR-02")
@pytest.mark.parametrize("background", [True, False])
async def test_half_a_megabyte_over_three_messages_is_one_report_byte_for_byte(
    tmp_path: Path, background: bool
) -> None:
    lines = [f"{n}: naïve – 報告 \t{'=' * (n % 60)}" for n in range(9_000)]
    whole = "\r\n".join(lines) + "\n\n"
    third = len(whole) // 3
    parts = [whole[:third], whole[third : 2 * third], whole[2 * third :]]
    cut = [Line(content=(Text(text=part),), stop_reason="max_tokens") for part in parts[:2]]

    def read(request: Request) -> Any:
        return use("Bash", "b1", command=f"cat '{ends(session)['child'].result}' | sha256sum")

    lead = [agent("child", "c1", run_in_background=background), "wait", read, "end"]
    if not background:
        lead = [lead[0], read, "end"]
    model = cast(lead=lead, child=[["first thoughts", use("Glob", "g1", pattern="*")], *cut, parts[2]])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        said = [result_text(each) for each in results(session.agent.conversation.messages)]
    done: Completion = ends(session)["child"]
    digest = sha256(whole.encode()).hexdigest()
    assert len(whole.encode()) > 500_000
    assert Path(done.result).read_bytes() == whole.encode()
    assert done.size == len(whole)
    assert done.digest == digest
    # The lead can read every byte by what it was told.
    assert any(digest in each for each in said)
    assert f"{len(whole):,} characters" in str(session.agent.conversation.messages)


@pytest.mark.spec("USR-02")
@pytest.mark.parametrize("background", [True, False])
async def test_a_report_that_could_not_be_kept_whole_makes_no_agent_that_is_done(
    tmp_path: Path, background: bool
) -> None:
    whole = "a line of the report\n" * 10_000
    lead = [agent("child", "c1", run_in_background=background), lambda request: str(request.messages[-1])]
    model = cast(lead=lead if not background else [lead[0], "wait", lead[1]], child=[whole])
    async with opened(tmp_path, model) as session:
        # In the place where whole reports are kept there is something else.
        session.agent.surroundings.results.directory.write_text("")
        told = await all_turns(session)
    done: Completion = ends(session)["child"]
    assert (done.status, done.text, done.result) == ("failed", "", "")
    assert "results" in done.detail
    assert "results" in told
    assert "a line of the report" not in told
