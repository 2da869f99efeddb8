"""A task that goes back and forth between a lead and a member without a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.core.events import Event, NoteAdded, RepetitionStopped
from team_scripts import open_session, script_team, spawn_member

SETTINGS = '{"shoal": {"max_unproductive_messages": 3}}'


def build_lead_script() -> list[object]:
    """Return the lines of a lead that puts the task back whenever it hears from its member."""
    return [
        call_tool("TeamCreate", team_name="crew"),
        call_tool("TaskCreate", subject="Impossible", description="Nobody can do this."),
        spawn_member("ann", "Wait for tasks."),
        *(
            line
            for number in range(100)
            for line in ("Fine.", call_tool("TaskUpdate", f"put-back-{number}", taskId="1", status="pending"))
        ),
        "That was enough.",
    ]


@pytest.mark.spec("LIM-05")
async def test_a_member_that_claims_the_same_task_without_a_change_is_told_and_then_stopped(
    tmp_path: Path,
) -> None:
    model = script_team(lead=build_lead_script(), ann=["I cannot do it."])
    events = list[Event]()
    async with open_session(tmp_path, model, settings=SETTINGS) as session:
        session.subscribe(events.append)
        await run_all_turns(session, "Go.")
    stopped = [event for event in events if isinstance(event, RepetitionStopped)]
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    assert len(stopped) == 1
    assert "claimed task #1" in stopped[0].reason
    assert any("ann may be in a loop: it claimed task #1" in note for note in notes)
