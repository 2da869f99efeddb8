"""Resources that agents ask for: in definitions, in templates and in the roster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.agents.agent_definitions import DefinitionSource
from shoal.core.agents.subagents import ResourceRequest
from shoal.core.errors import InvalidAgentDefinition, InvalidTeamTemplate, SettingsError
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.roster import NewMember, TeamRoster
from shoal.core.teams.team_templates import TeamTemplateSource
from shoal.wire.agent_definition_codec import parse_agent_definition
from shoal.wire.field_parsers import InvalidFrontMatterFieldError
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.resource_codec import parse_resource_request
from shoal.wire.roster_codec import encode_new_team_roster, parse_team_roster
from shoal.wire.team_template_codec import parse_team_template

FULL = ResourceRequest(cpus=2.0, memory=4 << 30, gpus=0.5, labels={"disk": "fast"})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ResourceRequest()),
        ({"cpus": 2, "memory": "4 GiB", "gpus": 0.5, "labels": {"disk": "fast"}}, FULL),
        ({"cpus": "0.25"}, ResourceRequest(cpus=0.25)),
        ({"memory": 1000}, ResourceRequest(memory=1000)),
        ({"memory": "1.5GB"}, ResourceRequest(memory=1_500_000_000)),
        ({"memory": "512m"}, ResourceRequest(memory=512 << 20)),
        (
            {"cpus": None, "labels": {"example.org/zone": "b-1"}},
            ResourceRequest(labels={"example.org/zone": "b-1"}),
        ),
    ],
)
def test_resources_are_numbers_sizes_and_labels(given: dict[str, Any], found: ResourceRequest) -> None:
    assert parse_resource_request(given) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2 cpus", "expected a mapping with cpus, memory, gpus, labels"),
        ({"cpu": 2}, "did you mean cpus?"),
        ({"cpus": -1}, "cpus: expected a number"),
        ({"cpus": True}, "cpus: expected a number"),
        ({"cpus": "nan"}, "cpus: expected a number"),
        ({"cpus": 1.5}, "Above 1, use an integer"),
        ({"gpus": 0.00001}, "less than 0.0001"),
        ({"memory": "a lot"}, "memory: expected bytes"),
        ({"memory": "4 XB"}, "memory: expected bytes"),
        ({"memory": -4}, "memory: expected bytes"),
        ({"memory": 10**30}, "memory: expected bytes"),
        ({"labels": ["disk"]}, "labels: expected a mapping"),
        ({"labels": {"disk": "!fast"}}, "is not a label value"),
        ({"labels": {"disk": 3}}, "is not a label value"),
        ({"labels": {"a b": "c"}}, "is not a label name"),
    ],
)
def test_an_invalid_resource_is_an_error_that_names_it(given: Any, told: str) -> None:
    with pytest.raises(InvalidFrontMatterFieldError, match=re.escape(told)):
        parse_resource_request(given)


HEADER = "---\nname: trainer\ndescription: Trains.\nresources:\n  cpus: {cpus}\n  memory: 4 GiB\n"
SOURCE = DefinitionSource(kind="user", path=Path("/p/trainer.md"))


def test_a_definition_has_resources_and_a_wrong_one_names_its_line() -> None:
    text = HEADER.format(cpus=2) + "  gpus: 0.5\n  labels: {disk: fast}\n---\nTrain.\n"
    assert parse_agent_definition(text, SOURCE, name="trainer").definition.run.resources == FULL
    with pytest.raises(InvalidAgentDefinition, match=r"trainer.md:4: resources: cpus: expected a number"):
        parse_agent_definition(HEADER.format(cpus="many") + "---\nTrain.\n", SOURCE, name="trainer")
    with pytest.raises(InvalidAgentDefinition, match="write resources"):
        parse_agent_definition(
            "---\nname: a\ndescription: b\nRessources: {}\n---\nTrain.\n", SOURCE, name="trainer"
        )


def test_a_role_of_a_template_has_resources() -> None:
    role = "  - name: ann\n    prompt: Work.\n    resources: {cpus: %s}\n"
    text = f"---\nname: t\ndescription: d\nroles:\n{role}---\n"
    source = TeamTemplateSource(kind="user", path=Path("/p/t.md"))
    assert parse_team_template(text % "2", source).roles[0].resources == ResourceRequest(cpus=2.0)
    with pytest.raises(InvalidTeamTemplate, match=r"t.md:7: roles\[1\].resources: cpus: expected a number"):
        parse_team_template(text % "x", source)


def test_an_agent_of_a_program_has_resources() -> None:
    agent = shoal.Agent(
        "trainer",
        prompt="Train.",
        resources={"cpus": 2, "memory": "4 GiB", "gpus": 0.5, "labels": {"disk": "fast"}},
    )
    assert agent.parsed.definition.run.resources == FULL
    with pytest.raises(SettingsError, match="resources: gpus: expected a number"):
        shoal.Agent("trainer", prompt="Train.", resources={"gpus": -1})


def test_a_member_is_stored_with_the_resources_of_its_call() -> None:
    team = TeamName("crew")
    new = NewMember(name=AgentName("ann"), agent_type="x", model="m", cwd="/", prompt="p", resources=FULL)
    entry = new.to_teammate_entry(AgentName("ann"), team, at=1, spawned_before=0)
    roster = TeamRoster(
        name=team, description=None, created_at=1, lead_agent_id="l", lead_session_id="s", members=(entry,)
    )
    content = encode_new_team_roster(roster)
    assert json.loads(content)["members"][0]["shoal"]["resources"]["memory"] == 4 << 30
    parsed = parse_team_roster(content, team)
    assert not isinstance(parsed, InvalidFileContent)
    assert parsed.team.members[0].resources == FULL


def test_resources_are_described_as_a_person_would_write_them() -> None:
    assert str(FULL) == "2 cpus, 4 GiB memory, 0.5 gpus, disk=fast"
