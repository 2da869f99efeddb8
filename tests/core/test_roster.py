"""Teams and colours."""

from __future__ import annotations

import pytest

from shoal.core.teams.roster import RosterEntry, TeamRoster, format_agent_id, next_member_color


@pytest.mark.spec("TEAM-04")
def test_colours_repeat_in_a_fixed_order():
    order = ["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"]
    assert [next_member_color(n) for n in range(17)] == [*order, *order, "blue"]


@pytest.mark.spec("TEAM-03")
def test_an_agent_id_is_name_at_team():
    assert format_agent_id("ann", "roof") == "ann@roof"


def test_members_are_found_by_name():
    ann, bob = (
        RosterEntry(agent_id=f"{name}@roof", name=name, agent_type="x", model="m", joined_at=1, cwd="/")
        for name in ("ann", "bob")
    )
    team = TeamRoster(
        name="roof",
        description=None,
        created_at=1,
        lead_agent_id="ann@roof",
        lead_session_id="s",
        members=(ann, bob),
    )
    assert team.find_member("bob") == bob
    assert team.find_member("cid") is None
