"""Skills and instructions of a member in its own process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns
from server_scripts import (
    approve_shutdown,
    join_conversation,
    join_text,
    list_requests_of,
    open_process_session,
    run_provider,
)
from skill_helpers import write_skill
from team_scripts import get_home, send_message, spawn_member


@pytest.mark.spec("DEF-08", "USR-13")
async def test_a_member_in_another_process_gets_skills_and_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(get_home() / "skills", "pdf", "The stamp is red.")
    write_skill(get_home() / "skills", "style", "Write short lines.")
    (tmp_path / "CLAUDE.md").write_text("Be kind to the fish.")
    agents = json.dumps({"painter": {"description": "d", "prompt": "You paint.", "skills": ["style"]}})
    async with (
        run_provider(
            monkeypatch,
            lead=[
                call_tool("TeamCreate", team_name="crew"),
                spawn_member("ann", subagent_type="painter"),
                "Ann is at work.",
                lambda body: (
                    send_message("ann", {"type": "shutdown_request", "reason": "done"})
                    if "All is well" in join_conversation(body)
                    else "Waiting."
                ),
                "Over.",
            ],
            ann=[
                call_tool("Skill", skill="pdf"),
                send_message("team-lead", "All is well."),
                "I am done.",
                approve_shutdown,
            ],
        ) as server,
        open_process_session(tmp_path, agents=agents) as session,
    ):
        await run_all_turns(session, "Go.")
    first, second, *_ = list_requests_of(server, "ann")
    assert "Be kind to the fish." in join_text(first["system"])
    assert "Write short lines." in join_conversation(first)
    assert "The stamp is red." not in join_conversation(first)
    assert "The stamp is red." in join_conversation(second)
