"""config.json: both forms read, what we do not know of teams and members kept."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import few_examples, make_unknown_fields, texts, values
from msgspec.structs import replace

from shoal.core.names import TeamName
from shoal.core.teams.roster import RosterEntry, TeamRoster
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.roster_codec import (
    ParsedTeamRosterFile,
    encode_new_team_roster,
    parse_roster_entry,
    parse_team_roster,
)

LEAD = {
    "agentId": "team-lead@t",
    "name": "team-lead",
    "agentType": "team-lead",
    "model": "big",
    "joinedAt": 1770535107409,
    "tmuxPaneId": "",
    "cwd": "/project",
    "subscriptions": [],
}
TEAMMATE = {
    "agentId": "ann@t",
    "name": "ann",
    "agentType": "general-purpose",
    "model": "big",
    "prompt": "You look after\nthe roof.",
    "color": "blue",
    "planModeRequired": False,
    "joinedAt": 1770535144590,
    "tmuxPaneId": "%14",
    "cwd": "/project",
    "subscriptions": [],
    "backendType": "tmux",
    "isActive": True,
}
CONFIG = {
    "name": "t",
    "description": "mends roofs",
    "createdAt": 1770535107409,
    "leadAgentId": "team-lead@t",
    "leadSessionId": "c93b690c-0000-4000-8000-d9451b749ac2",
    "members": [LEAD, TEAMMATE],
}

members = st.builds(
    RosterEntry,
    agent_id=texts.filter(bool),
    name=st.sampled_from(["ann", "bob", "cid", "team-lead"]),
    agent_type=texts,
    model=texts,
    joined_at=st.integers(0, 2**53),
    cwd=texts,
    tmux_pane_id=texts,
    subscriptions=st.lists(texts, max_size=2).map(tuple),
    prompt=st.none() | texts,
    color=st.none() | texts,
    plan_mode_required=st.none() | st.booleans(),
    backend_type=st.none() | texts,
    is_active=st.none() | st.booleans(),
)
teams = st.builds(
    TeamRoster,
    name=st.just("t"),
    description=st.none() | texts,
    created_at=st.integers(0, 2**53),
    lead_agent_id=texts.filter(bool),
    lead_session_id=texts,
    members=st.lists(members, unique_by=lambda member: member.name, max_size=3).map(tuple),
)


def parse_content(content, name="t") -> ParsedTeamRosterFile:
    found = parse_team_roster(content if isinstance(content, bytes) else json.dumps(content).encode(), name)
    assert isinstance(found, ParsedTeamRosterFile), found
    return found


@pytest.mark.spec("TEAM-02", "TEAM-09")
def test_a_roster_has_the_fields_of_the_protocol():
    team = parse_content(CONFIG).team
    lead, ann = team.members
    assert (team.name, team.description, team.created_at) == ("t", "mends roofs", 1770535107409)
    assert (lead.name, lead.prompt, lead.color, lead.is_active) == ("team-lead", None, None, None)
    assert (ann.prompt, ann.color, ann.tmux_pane_id, ann.backend_type) == (
        "You look after\nthe roof.",
        "blue",
        "%14",
        "tmux",
    )
    found = json.loads(encode_new_team_roster(team))
    assert found == CONFIG
    assert list(found["members"][0]) == [name for name in TEAMMATE if name in LEAD]


@few_examples
@given(teams)
def test_a_written_roster_reads_back_unchanged(team):
    assert parse_content(encode_new_team_roster(team)).team == team


@pytest.mark.spec("HOM-05")
@few_examples
@given(
    before=teams,
    after=teams,
    unknown=make_unknown_fields(*CONFIG),
    of_members=st.lists(make_unknown_fields(*TEAMMATE), min_size=3, max_size=3),
)
def test_a_rewrite_keeps_unknown_fields_of_the_team_and_its_members(before, after, unknown, of_members):
    config = json.loads(encode_new_team_roster(before))
    config["members"] = [
        {**more, **member} for more, member in zip(of_members, config["members"], strict=False)
    ]
    unknown_of = {member["name"]: more for more, member in zip(of_members, config["members"], strict=False)}
    rewritten = parse_content({**unknown, **config}).encode_changed_roster(after)
    found = json.loads(rewritten)
    assert {name: value for name, value in found.items() if name not in CONFIG} == unknown
    for member in found["members"]:
        more = {name: value for name, value in member.items() if name not in TEAMMATE}
        assert more == unknown_of.get(member["name"], {})
    assert parse_content(rewritten).team == after


def test_unchanged_members_stay_identical_byte_for_byte():
    odd = b'{"name":"bob","joinedAt":1.50e3,"extra":  1.0}'
    content = b'{"members":[{"name":"ann"},%b]}' % odd
    file = parse_content(content)
    ann, bob = file.team.members
    found = file.encode_changed_roster(replace(file.team, members=(replace(ann, is_active=True), bob)))
    assert b'"joinedAt": 1.50e3' in found
    assert json.loads(found)["members"][0]["isActive"] is True


@pytest.mark.parametrize("members", [[], [LEAD], [LEAD, TEAMMATE, {"name": "cid", "x": {"members": [0]}}]])
def test_a_rewritten_roster_is_indented_as_if_it_were_formatted_whole(members):
    config = {"first": [], **CONFIG, "members": members, "last": {"members": [0], "none": None}}
    file = parse_content(config)
    file = file.replace_roster(replace(file.team, members=file.team.members[::-1]))
    added = replace(file.team, members=(*file.team.members, parse_content(CONFIG).team.members[1]))
    for changed in (file, file.replace_roster(added)):
        assert changed.content == msgspec.json.format(changed.content, indent=2) + b"\n"
        assert list(json.loads(changed.content)) == list(config)
    assert json.loads(file.content) == {**config, "members": members[::-1]}


def test_the_late_form_is_read_and_its_fields_are_kept():
    process = {"pid": 7, "pidSpace": "host", "claimedAt": 1, "procStart": "2"}
    late = {name: value for name, value in CONFIG.items() if name != "description"}
    late["leadProcess"] = process
    late["members"] = [
        {**LEAD, "backendType": "in-process", "tmuxPaneId": "leader"},
        {**TEAMMATE, "tmuxPaneId": ""},
        TEAMMATE,
    ]
    file = parse_content(late)
    assert file.team.description is None
    assert [(member.name, member.tmux_pane_id) for member in file.team.members] == [
        ("team-lead", "leader"),
        ("ann", "%14"),
    ]
    found = json.loads(file.encode_changed_roster(file.team))
    assert found["leadProcess"] == process
    assert "description" not in found


def test_a_member_with_missing_fields_is_read():
    (member,) = parse_content({**CONFIG, "members": [{"name": "ann"}]}).team.members
    assert (member.agent_id, member.tmux_pane_id, member.is_active) == ("ann@t", "", None)


def test_an_invalid_member_is_reported_and_stays_in_the_file():
    file = parse_content({**CONFIG, "members": [LEAD, {"nickname": "x"}, TEAMMATE]})
    assert [member.name for member in file.team.members] == ["team-lead", "ann"]
    assert [rejected.reason for rejected in file.rejected] == ["object missing required field `name`"]
    changed = replace(file.team, members=file.team.members[:1])
    assert json.loads(file.encode_changed_roster(changed))["members"] == [LEAD, {"nickname": "x"}]


@pytest.mark.spec("TEAM-09")
def test_a_team_has_the_name_of_its_directory():
    uuid = "c93b690c-0000-4000-8000-d9451b749ac2"
    file = parse_content({**CONFIG, "name": "Our Team!"}, uuid)
    assert file.team.name == uuid
    assert json.loads(file.encode_changed_roster(file.team))["name"] == "Our Team!"


def test_half_a_surrogate_pair_and_a_byte_order_mark_are_read():
    config = {**CONFIG, "members": [LEAD, {**TEAMMATE, "prompt": "half \ud83d", "extra": 1}]}
    file = parse_content(b"\xef\xbb\xbf" + json.dumps(config).encode())
    assert json.loads(file.encode_changed_roster(file.team)) == config


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"members":{}}', b'{"members":[],"createdAt":"x"}', b"\xff"]
)
def test_invalid_content_is_refused_with_a_reason(content):
    found = parse_team_roster(content, "t")
    assert isinstance(found, InvalidFileContent)
    assert found.reason


@few_examples
@given(st.binary(max_size=60) | values.map(lambda value: json.dumps({"members": value}).encode()))
def test_no_content_crashes_the_parser(content):
    assert isinstance(parse_team_roster(content, "t"), ParsedTeamRosterFile | InvalidFileContent)


def test_entries_share_equal_strings() -> None:
    """A process may keep a roster of thousands of members, which differ in little else than their names."""
    content = [{**TEAMMATE, "name": name, "agentId": f"{name}@t"} for name in ("ann", "bob")]
    first, second = (parse_roster_entry(json.dumps(each).encode(), TeamName("t")) for each in content)
    for field in ("agent_type", "model", "cwd", "tmux_pane_id", "color", "backend_type"):
        assert getattr(first, field), field
        assert getattr(first, field) is getattr(second, field), field
