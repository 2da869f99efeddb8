"""Memory that the processes of teammates share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recording_member import RECORD

from agent_scripts import call_tool, run_all_turns
from server_scripts import approve_shutdown, join_conversation, open_process_session, run_provider
from shoal.app.agents import backend_launcher
from team_scripts import send_message, spawn_member


@pytest.mark.fresh_interpreter
async def test_a_forked_member_imports_no_module_of_ours_that_the_fork_server_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_launcher, "MEMBER_ENTRY_POINT", "recording_member:main")
    async with (
        run_provider(
            monkeypatch,
            lead=[
                call_tool("TeamCreate", team_name="crew"),
                spawn_member("ann"),
                "Ann is at work.",
                lambda body: (
                    send_message("ann", {"type": "shutdown_request", "reason": "done"})
                    if "All is well" in join_conversation(body)
                    else "Waiting."
                ),
                "Asked.",
                "Over.",
            ],
            ann=[send_message("team-lead", "All is well.", "report"), "I am done.", approve_shutdown],
        ),
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session, "Go.")
    late = json.loads((tmp_path / RECORD).read_text())
    assert [name for name in late if name.startswith("shoal.")] == []
