"""Skills and instructions of a teammate in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cast import all_turns, use
from fleet import approve, asked_of, everything, opened, provider, text_of
from skill_rig import skill
from troupe import home, member, tell


@pytest.mark.spec("DEF-08", "USR-13")
async def test_a_teammate_in_another_process_has_what_agents_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill(home() / "skills", "pdf", "The stamp is red.")
    skill(home() / "skills", "style", "Write short lines.")
    (tmp_path / "CLAUDE.md").write_text("Be kind to the fish.")
    agents = json.dumps({"painter": {"description": "d", "prompt": "You paint.", "skills": ["style"]}})
    async with (
        provider(
            monkeypatch,
            lead=[
                use("TeamCreate", team_name="crew"),
                member("ann", subagent_type="painter"),
                "Ann is at work.",
                lambda body: (
                    tell("ann", {"type": "shutdown_request", "reason": "done"})
                    if "All is well" in everything(body)
                    else "Waiting."
                ),
                "Over.",
            ],
            ann=[use("Skill", skill="pdf"), tell("team-lead", "All is well."), "I am done.", approve],
        ) as server,
        opened(tmp_path, agents=agents) as session,
    ):
        await all_turns(session, "Go.")
    first, second, *_ = asked_of(server, "ann")
    assert "Be kind to the fish." in text_of(first["system"])
    assert "Write short lines." in everything(first)
    assert "The stamp is red." not in everything(first)
    assert "The stamp is red." in everything(second)
