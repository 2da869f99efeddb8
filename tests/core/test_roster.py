"""Teams and colours."""

from __future__ import annotations

import pytest

from shoal.core.roster import Member, Team, agent_id, next_color


@pytest.mark.spec("TEAM-04")
def test_colours_come_in_their_order_and_round_again():
    order = ["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"]
    assert [next_color(n) for n in range(17)] == [*order, *order, "blue"]


@pytest.mark.spec("TEAM-03")
def test_an_agent_s_id_is_its_name_at_its_team():
    assert agent_id("ann", "roof") == "ann@roof"


def test_members_are_found_by_name():
    ann, bob = (
        Member(agent_id=f"{name}@roof", name=name, agent_type="x", model="m", joined_at=1, cwd="/")
        for name in ("ann", "bob")
    )
    team = Team(
        name="roof",
        description=None,
        created_at=1,
        lead_agent_id="ann@roof",
        lead_session_id="s",
        members=(ann, bob),
    )
    assert team.member("bob") == bob
    assert team.member("cid") is None
