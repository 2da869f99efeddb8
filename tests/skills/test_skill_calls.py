"""The `Skill` tool: what it brings, what it allows and for how long, and agents that it starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cast import agent, all_turns, use
from crew_rig import ends, opened, starts, texts
from shoal.app.skills.trust import SkillTrust
from shoal.core.agents import Resolved
from shoal.core.events import Event, ToolReturned
from skill_rig import Mind, command, everything, skill


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


async def test_a_body_enters_only_when_the_skill_is_called_for(project: Path, home: Path) -> None:
    skill(home / "skills", "pdf", "Use the stamp of $1, then $ARGUMENTS.", description="Fills forms")
    mind = Mind(lead=[use("Skill", skill="pdf", args="red twice"), "done"])
    async with opened(project, mind.model) as session:
        await all_turns(session)
    first, last = mind.requests[0], mind.requests[-1]
    listed = next(tool.description for tool in first.tools if tool.name == "Skill")
    assert "- pdf: Fills forms" in listed
    assert "stamp" not in listed + first.system + everything(first)
    (told,) = texts(session)
    assert "Use the stamp of red, then red twice." in told
    assert str(home / "skills" / "pdf") in told
    assert (first.system, first.tools) == (last.system, last.tools)


async def test_files_beside_a_skill_are_readable_once_it_is_in_use(project: Path, home: Path) -> None:
    path = skill(home / "skills", "pdf")
    beside = path.parent / "forms.md"
    beside.write_text("the forms are in the attic")
    read = use("Read", file_path=str(beside))
    mind = Mind(lead=[read, use("Skill", skill="pdf"), use("Read", "again", file_path=str(beside)), "done"])
    async with opened(project, mind.model, skip_permissions=False) as session:
        await all_turns(session)
    before, _, after = texts(session)
    assert "was not run" in before
    assert "attic" in after


async def test_a_projects_skill_that_is_a_link_opens_nothing_outside(project: Path, tmp_path: Path) -> None:
    outside = skill(tmp_path / "elsewhere", "pdf")
    secret = outside.parent / "secret.txt"
    secret.write_text("hunter2")
    (project / ".claude" / "skills").mkdir(parents=True)
    (project / ".claude" / "skills" / "pdf").symlink_to(outside.parent)
    mind = Mind(lead=[use("Skill", skill="pdf"), use("Read", file_path=str(secret)), "done"])
    async with opened(project, mind.model, skip_permissions=False) as session:
        await all_turns(session)
    assert "Do it well." in texts(session)[0]
    assert "hunter2" not in texts(session)[1]


@pytest.mark.spec("SKL-01")
@pytest.mark.parametrize("whose", ["user", "project", "trusted project"])
async def test_what_a_skill_allows_counts_for_trusted_sources_until_the_turn_ends(
    project: Path, home: Path, whose: str
) -> None:
    root = home / "skills" if whose == "user" else project / ".claude" / "skills"
    skill(root, "toucher", allowed_tools="Bash(touch made:*)")
    touch = use("Bash", command="touch made")
    mind = Mind(
        lead=[
            touch,
            use("Skill", skill="toucher"),
            touch,
            use("Bash", command="touch other"),
            "x",
            touch,
            "y",
        ]
    )
    async with opened(project, mind.model, skip_permissions=False) as session:
        found = session.parts.knowledge.skills.skills.find("toucher")
        if whose == "trusted project":
            SkillTrust(home, project).answer([found], trusted=True)
        await all_turns(session)
        await all_turns(session, "lead once more")
    before, told, during, other, after = texts(session)
    allowed = whose != "project"
    assert "was not run" in before
    assert ("was not run" not in during) is allowed
    assert ("shoal trust" in told) is not allowed
    assert "was not run" in other
    assert "was not run" in after
    assert (project / "made").exists() is allowed


async def test_trust_in_a_skill_ends_when_its_file_changes(project: Path, home: Path) -> None:
    path = skill(project / ".claude" / "skills", "toucher", allowed_tools="Bash")
    async with opened(project, Mind(lead=["x"]).model) as session:
        catalogue, trust = session.parts.knowledge.skills.skills, SkillTrust(home, project)
        trust.answer([catalogue.find("toucher")], trusted=True)
        assert trust.granted(catalogue.find("toucher")) == ("Bash",)
        path.write_text(path.read_text() + "And remove everything.\n")
        assert trust.granted(catalogue.find("toucher")) == ()


async def test_a_skill_that_is_not_there_or_not_for_the_model_is_a_failed_call(
    project: Path, home: Path
) -> None:
    skill(home / "skills", "deploy", disable_model_invocation="true")
    skill(home / "skills", "broken", context="spoon")
    both = [use("Skill", "a", skill="deploi"), use("Skill", "b", skill="deploy")]
    mind = Mind(lead=[both, use("Skill", skill="broken"), "done"])
    async with opened(project, mind.model) as session:
        await all_turns(session)
    listed = next(tool.description for tool in mind.requests[0].tools if tool.name == "Skill")
    assert "deploy" not in listed
    unknown, not_for_it, broken = texts(session)
    assert "There is no skill 'deploi'. Is deploy meant?" in unknown
    assert "/deploy" in not_for_it
    assert "SKILL.md:4: context: fork is expected, not 'spoon'" in broken


async def test_a_rule_that_denies_a_skill_keeps_it_from_every_agent(project: Path, home: Path) -> None:
    skill(home / "skills", "deploy")
    mind = Mind(lead=[use("Skill", skill="deploy"), "done"])
    async with opened(project, mind.model, disallowed_tools=["Skill(deploy)"]) as session:
        await all_turns(session)
    assert "was not run: the rule Skill(deploy)" in texts(session)[0]


@pytest.mark.spec("FRK-06", "SKL-01")
async def test_a_skill_that_forks_is_done_by_an_agent_limited_to_its_tools(project: Path, home: Path) -> None:
    skill(
        home / "skills", "census", "part-census Count $1.",
        context="fork", agent="general-purpose", allowed_tools="Bash(echo:*) Read",
    )  # fmt: skip
    mind = Mind(
        lead=[use("Skill", skill="census", args="fish"), "done"],
        census=[[use("Bash", "e", command="echo 7"), use("Bash", "t", command="touch x")], everything],
    )
    async with opened(project, mind.model, skip_permissions=False) as session:
        await all_turns(session)
    (started,) = starts(session)
    assert (started.kind, started.tools, started.background) == ("general-purpose", ("Read", "Bash"), False)
    (told,) = texts(session)
    assert "part-census Count fish." in told
    assert "\n7\n" in told
    assert not (project / "x").exists()
    assert "part-census" not in everything(mind.requests[0])
    assert ends(session)["/census"].status == "completed"


@pytest.mark.spec("PRM-08")
async def test_a_skill_that_forks_starts_no_agent_of_a_kind_that_a_rule_denies(
    project: Path, home: Path
) -> None:
    skill(home / "skills", "census", "part-census Count.", context="fork", agent="Explore")
    mind = Mind(lead=[use("Skill", skill="census"), "done"], census=["there are 7"])
    async with opened(project, mind.model, disallowed_tools=["Agent(Explore)"]) as session:
        await all_turns(session)
    assert starts(session) == []
    assert "Agent(Explore)" in texts(session)[0]


@pytest.mark.spec("FRK-06")
async def test_in_assistant_mode_a_skill_that_forks_runs_in_the_background_and_is_told_of(
    project: Path, home: Path
) -> None:
    skill(home / "skills", "census", "part-census Count.", context="fork")
    mind = Mind(lead=[use("Skill", skill="census"), "go on", everything], census=["there are 7"])
    async with opened(project, mind.model, own={"assistant": True}) as session:
        text = await all_turns(session)
    assert starts(session)[0].background
    assert "<task-notification>" in text
    assert "there are 7" in text


async def test_an_agent_that_lacks_a_tool_of_the_skill_is_not_started(project: Path, home: Path) -> None:
    skill(home / "skills", "census", context="fork", agent="Explore", allowed_tools="Read Write")
    mind = Mind(lead=[use("Skill", skill="census"), "done"])
    async with opened(project, mind.model) as session:
        await all_turns(session)
    assert "does not have here: Write" in texts(session)[0]
    assert not starts(session)


@pytest.mark.spec("USR-13")
async def test_agents_at_every_depth_have_the_skills_of_the_lead(project: Path, home: Path) -> None:
    skill(home / "skills", "pdf", "the stamp is red")
    call = use("Skill", skill="pdf")
    mind = Mind(
        lead=[[agent("part-child"), agent("part-mate", name="ann")], "done"],
        child=[[call, agent("part-nested")], everything],
        nested=[call, everything],
        mate=[call, everything],
    )
    async with opened(project, mind.model) as session:
        await all_turns(session)
    heard = [everything(request) for request in mind.requests]
    for part in ("child", "nested", "mate"):
        assert any(f"part-{part}" in each and "the stamp is red" in each for each in heard), part


@pytest.mark.spec("DEF-08")
@pytest.mark.parametrize("named", ["colours", "arts:colours"])
async def test_skills_of_a_definition_are_in_its_agents_context_from_the_start(
    project: Path, home: Path, named: str
) -> None:
    skill(home / "skills", "style", "Write short lines.")
    plugin = project / "plugin"
    skill(plugin, "colours", "Use no red.")
    beside = plugin / "colours" / "palette.md"
    beside.write_text("only blue")
    defined = {"painter": {"description": "d", "prompt": "You paint.", "skills": ["style", named]}}
    mind = Mind(
        lead=[agent("part-paint", subagent_type="painter"), "done"],
        paint=[use("Read", file_path=str(home / "skills" / "style" / "SKILL.md")), everything],
    )
    async with opened(project, mind.model, agents=defined, skip_permissions=False) as session:
        session.parts.knowledge.skills.add_plugin("arts", skills=plugin)
        await all_turns(session)
    told = everything(next(r for r in mind.requests if "part-paint" in everything(r)))
    assert "Write short lines." in told
    assert "The skill arts:colours" in told
    assert "Use no red." in told
    assert "Knows style" in texts(session)[0]


@pytest.mark.spec("USR-13")
async def test_a_spawn_lists_the_skills_and_tools_it_resolved(project: Path, home: Path) -> None:
    skill(home / "skills", "style", "Write short lines.")
    defined = {"painter": {"description": "d", "prompt": "p", "tools": ["Read", "Glob"], "skills": ["style"]}}
    paint = agent("part-paint", subagent_type="painter", run_in_background=True)
    mate = agent("part-mate", subagent_type="painter", name="ann")
    mind = Mind(
        lead=[use("TeamCreate", team_name="crew"), [paint, mate], "done"], paint=["painted"], mate=["painted"]
    )
    found: list[Resolved] = []

    def look(event: Event) -> None:
        if isinstance(event, ToolReturned) and event.tool == "Agent":
            found.append(event.data["resolved"])

    async with opened(project, mind.model, agents=defined) as session:
        session.watch(look)
        await all_turns(session)
        _, alone, member = texts(session)
    assert "with 2 tools and the skill style, starting at" in alone
    assert " tools and the skill style." in member
    assert found[0].tools == ("Read", "Glob")
    assert {"Read", "Glob", "SendMessage"} <= set(found[1].tools)
    assert [each.skills for each in found] == [("style",)] * 2


@pytest.mark.spec("DEF-08", "USR-13")
async def test_a_missing_skill_fails_the_spawn_with_its_name(project: Path, home: Path) -> None:
    skill(home / "skills", "style")
    defined = {"painter": {"description": "d", "prompt": "p", "skills": ["style", "stile"]}}
    mind = Mind(lead=[agent("part-paint", subagent_type="painter"), "done"])
    async with opened(project, mind.model, agents=defined) as session:
        await all_turns(session)
    assert "The agent painter is not started without its skill 'stile'" in texts(session)[0]
    assert "Is style meant?" in texts(session)[0]
    assert not starts(session)


@pytest.mark.spec("SKL-02")
async def test_new_agents_and_skills_are_told_of_after_what_a_cache_holds(project: Path, home: Path) -> None:
    skill(home / "skills", "old")
    mind = Mind(
        lead=["hm", use("Skill", skill="fresh"), agent("part-kid", subagent_type="helper"), everything],
        kid=["kid was here"],
    )
    async with opened(project, mind.model) as session:
        await all_turns(session)
        skill(project / ".claude" / "skills", "fresh", "just written", description="Brand new")
        (home / "skills" / "old" / "SKILL.md").unlink()
        command(home / "agents", "helper", "You help.", name="helper", description="Helps now")
        text = await all_turns(session, "go on")
        await all_turns(session, "and on")
    first, last = mind.requests[0], mind.requests[-1]
    assert (first.system, first.tools) == (last.system, last.tools)
    assert last.messages[0] == first.messages[0]
    assert "- fresh: Brand new" in text
    assert "- helper: Helps now" in text
    assert "not there any more:\n- old" in text
    assert text.count("Brand new") == 1
    assert "just written" in text
    assert "kid was here" in text
