"""The `Skill` tool: what it brings, what it allows and for how long, and agents that it starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns, spawn_agent
from session_helpers import list_agent_starts, list_lead_results, map_agent_results, open_session
from shoal.app.skills.skill_trust import SkillTrust
from shoal.core.agents import ResolvedAgentSettings
from shoal.core.events import Event, ToolOutputReturned
from skill_helpers import RecordingScript, join_conversation, write_command, write_skill


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


async def test_a_body_enters_only_when_the_skill_is_called_for(project: Path, home: Path) -> None:
    write_skill(home / "skills", "pdf", "Use the stamp of $1, then $ARGUMENTS.", description="Fills forms")
    mind = RecordingScript(lead=[call_tool("Skill", skill="pdf", args="red twice"), "done"])
    async with open_session(project, mind.model) as session:
        await run_all_turns(session)
    first, last = mind.requests[0], mind.requests[-1]
    listed = next(tool.description for tool in first.tools if tool.name == "Skill")
    assert "- pdf: Fills forms" in listed
    assert "stamp" not in listed + first.system + join_conversation(first)
    (told,) = list_lead_results(session)
    assert "Use the stamp of red, then red twice." in told
    assert str(home / "skills" / "pdf") in told
    assert (first.system, first.tools) == (last.system, last.tools)


async def test_files_beside_a_skill_are_readable_once_it_is_in_use(project: Path, home: Path) -> None:
    path = write_skill(home / "skills", "pdf")
    beside = path.parent / "forms.md"
    beside.write_text("the forms are in the attic")
    read = call_tool("Read", file_path=str(beside))
    mind = RecordingScript(
        lead=[
            read,
            call_tool("Skill", skill="pdf"),
            call_tool("Read", "again", file_path=str(beside)),
            "done",
        ]
    )
    async with open_session(project, mind.model, skip_permissions=False) as session:
        await run_all_turns(session)
    before, _, after = list_lead_results(session)
    assert "was not run" in before
    assert "attic" in after


async def test_a_projects_skill_that_is_a_link_opens_nothing_outside(project: Path, tmp_path: Path) -> None:
    outside = write_skill(tmp_path / "elsewhere", "pdf")
    secret = outside.parent / "secret.txt"
    secret.write_text("hunter2")
    (project / ".claude" / "skills").mkdir(parents=True)
    (project / ".claude" / "skills" / "pdf").symlink_to(outside.parent)
    mind = RecordingScript(
        lead=[call_tool("Skill", skill="pdf"), call_tool("Read", file_path=str(secret)), "done"]
    )
    async with open_session(project, mind.model, skip_permissions=False) as session:
        await run_all_turns(session)
    assert "Do it well." in list_lead_results(session)[0]
    assert "hunter2" not in list_lead_results(session)[1]


@pytest.mark.spec("SKL-01")
@pytest.mark.parametrize("whose", ["user", "project", "trusted project"])
async def test_what_a_skill_allows_counts_for_trusted_sources_until_the_turn_ends(
    project: Path, home: Path, whose: str
) -> None:
    root = home / "skills" if whose == "user" else project / ".claude" / "skills"
    write_skill(root, "toucher", allowed_tools="Bash(touch made:*)")
    touch = call_tool("Bash", command="touch made")
    mind = RecordingScript(
        lead=[
            touch,
            call_tool("Skill", skill="toucher"),
            touch,
            call_tool("Bash", command="touch other"),
            "x",
            touch,
            "y",
        ]
    )
    async with open_session(project, mind.model, skip_permissions=False) as session:
        found = session.services.knowledge.skills.skills.find("toucher")
        if whose == "trusted project":
            SkillTrust(home, project).save_decisions([found], trusted=True)
        await run_all_turns(session)
        await run_all_turns(session, "lead once more")
    before, told, during, other, after = list_lead_results(session)
    allowed = whose != "project"
    assert "was not run" in before
    assert ("was not run" not in during) is allowed
    assert ("shoal trust" in told) is not allowed
    assert "was not run" in other
    assert "was not run" in after
    assert (project / "made").exists() is allowed


async def test_trust_in_a_skill_ends_when_its_file_changes(project: Path, home: Path) -> None:
    path = write_skill(project / ".claude" / "skills", "toucher", allowed_tools="Bash")
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        catalogue, trust = session.services.knowledge.skills.skills, SkillTrust(home, project)
        trust.save_decisions([catalogue.find("toucher")], trusted=True)
        assert trust.list_granted_tools(catalogue.find("toucher")) == ("Bash",)
        path.write_text(path.read_text() + "And remove everything.\n")
        assert trust.list_granted_tools(catalogue.find("toucher")) == ()


async def test_a_skill_that_is_not_there_or_not_for_the_model_is_a_failed_call(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "deploy", disable_model_invocation="true")
    write_skill(home / "skills", "broken", context="spoon")
    both = [call_tool("Skill", "a", skill="deploi"), call_tool("Skill", "b", skill="deploy")]
    mind = RecordingScript(lead=[both, call_tool("Skill", skill="broken"), "done"])
    async with open_session(project, mind.model) as session:
        await run_all_turns(session)
    listed = next(tool.description for tool in mind.requests[0].tools if tool.name == "Skill")
    assert "deploy" not in listed
    unknown, not_for_it, broken = list_lead_results(session)
    assert "There is no skill 'deploi'. Is deploy meant?" in unknown
    assert "/deploy" in not_for_it
    assert "SKILL.md:4: context: fork is expected, not 'spoon'" in broken


async def test_a_rule_that_denies_a_skill_keeps_it_from_every_agent(project: Path, home: Path) -> None:
    write_skill(home / "skills", "deploy")
    mind = RecordingScript(lead=[call_tool("Skill", skill="deploy"), "done"])
    async with open_session(project, mind.model, disallowed_tools=["Skill(deploy)"]) as session:
        await run_all_turns(session)
    assert "was not run: the rule Skill(deploy)" in list_lead_results(session)[0]


@pytest.mark.spec("FRK-06", "SKL-01")
async def test_a_skill_that_forks_is_done_by_an_agent_limited_to_its_tools(project: Path, home: Path) -> None:
    write_skill(
        home / "skills", "census", "part-census Count $1.",
        context="fork", agent="general-purpose", allowed_tools="Bash(echo:*) Read",
    )  # fmt: skip
    mind = RecordingScript(
        lead=[call_tool("Skill", skill="census", args="fish"), "done"],
        census=[
            [call_tool("Bash", "e", command="echo 7"), call_tool("Bash", "t", command="touch x")],
            join_conversation,
        ],
    )
    async with open_session(project, mind.model, skip_permissions=False) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert (started.kind, started.tools, started.background) == ("general-purpose", ("Read", "Bash"), False)
    (told,) = list_lead_results(session)
    assert "part-census Count fish." in told
    assert "\n7\n" in told
    assert not (project / "x").exists()
    assert "part-census" not in join_conversation(mind.requests[0])
    assert map_agent_results(session)["/census"].status == "completed"


@pytest.mark.spec("PRM-08")
async def test_a_skill_that_forks_starts_no_agent_of_a_kind_that_a_rule_denies(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "census", "part-census Count.", context="fork", agent="Explore")
    mind = RecordingScript(lead=[call_tool("Skill", skill="census"), "done"], census=["there are 7"])
    async with open_session(project, mind.model, disallowed_tools=["Agent(Explore)"]) as session:
        await run_all_turns(session)
    assert list_agent_starts(session) == []
    assert "Agent(Explore)" in list_lead_results(session)[0]


@pytest.mark.spec("FRK-06")
async def test_in_assistant_mode_a_forking_skill_runs_in_the_background_and_reports(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "census", "part-census Count.", context="fork")
    mind = RecordingScript(
        lead=[call_tool("Skill", skill="census"), "go on", join_conversation], census=["there are 7"]
    )
    async with open_session(project, mind.model, shoal_settings={"assistant": True}) as session:
        text = await run_all_turns(session)
    assert list_agent_starts(session)[0].background
    assert "<task-notification>" in text
    assert "there are 7" in text


async def test_an_agent_that_lacks_a_tool_of_the_skill_is_not_started(project: Path, home: Path) -> None:
    write_skill(home / "skills", "census", context="fork", agent="Explore", allowed_tools="Read Write")
    mind = RecordingScript(lead=[call_tool("Skill", skill="census"), "done"])
    async with open_session(project, mind.model) as session:
        await run_all_turns(session)
    assert "does not have here: Write" in list_lead_results(session)[0]
    assert not list_agent_starts(session)


@pytest.mark.spec("USR-13")
async def test_agents_at_every_depth_have_the_skills_of_the_lead(project: Path, home: Path) -> None:
    write_skill(home / "skills", "pdf", "the stamp is red")
    call = call_tool("Skill", skill="pdf")
    mind = RecordingScript(
        lead=[[spawn_agent("part-child"), spawn_agent("part-mate", name="ann")], "done"],
        child=[[call, spawn_agent("part-nested")], join_conversation],
        nested=[call, join_conversation],
        mate=[call, join_conversation],
    )
    async with open_session(project, mind.model) as session:
        await run_all_turns(session)
    heard = [join_conversation(request) for request in mind.requests]
    for part in ("child", "nested", "mate"):
        assert any(f"part-{part}" in each and "the stamp is red" in each for each in heard), part


@pytest.mark.spec("DEF-08")
@pytest.mark.parametrize("named", ["colours", "arts:colours"])
async def test_skills_of_a_definition_are_in_its_agents_context_from_the_start(
    project: Path, home: Path, named: str
) -> None:
    write_skill(home / "skills", "style", "Write short lines.")
    plugin = project / "plugin"
    write_skill(plugin, "colours", "Use no red.")
    beside = plugin / "colours" / "palette.md"
    beside.write_text("only blue")
    defined = {"painter": {"description": "d", "prompt": "You paint.", "skills": ["style", named]}}
    mind = RecordingScript(
        lead=[spawn_agent("part-paint", subagent_type="painter"), "done"],
        paint=[call_tool("Read", file_path=str(home / "skills" / "style" / "SKILL.md")), join_conversation],
    )
    async with open_session(project, mind.model, agents=defined, skip_permissions=False) as session:
        session.services.knowledge.skills.add_plugin_skills("arts", skills=plugin)
        await run_all_turns(session)
    told = join_conversation(next(r for r in mind.requests if "part-paint" in join_conversation(r)))
    assert "Write short lines." in told
    assert "The skill arts:colours" in told
    assert "Use no red." in told
    assert "Knows style" in list_lead_results(session)[0]


@pytest.mark.spec("USR-13")
async def test_a_spawn_lists_the_skills_and_tools_it_resolved(project: Path, home: Path) -> None:
    write_skill(home / "skills", "style", "Write short lines.")
    defined = {"painter": {"description": "d", "prompt": "p", "tools": ["Read", "Glob"], "skills": ["style"]}}
    paint = spawn_agent("part-paint", subagent_type="painter", run_in_background=True)
    mate = spawn_agent("part-mate", subagent_type="painter", name="ann")
    mind = RecordingScript(
        lead=[call_tool("TeamCreate", team_name="crew"), [paint, mate], "done"],
        paint=["painted"],
        mate=["painted"],
    )
    found: list[ResolvedAgentSettings] = []

    def look(event: Event) -> None:
        if isinstance(event, ToolOutputReturned) and event.tool == "Agent":
            found.append(event.data["resolved"])

    async with open_session(project, mind.model, agents=defined) as session:
        session.subscribe(look)
        await run_all_turns(session)
        _, alone, member = list_lead_results(session)
    assert "with 2 tools and the skill style, starting at" in alone
    assert " tools and the skill style." in member
    assert found[0].tools == ("Read", "Glob")
    assert {"Read", "Glob", "SendMessage"} <= set(found[1].tools)
    assert [each.skills for each in found] == [("style",)] * 2


@pytest.mark.spec("DEF-08", "USR-13")
async def test_a_missing_skill_fails_the_spawn_with_its_name(project: Path, home: Path) -> None:
    write_skill(home / "skills", "style")
    defined = {"painter": {"description": "d", "prompt": "p", "skills": ["style", "stile"]}}
    mind = RecordingScript(lead=[spawn_agent("part-paint", subagent_type="painter"), "done"])
    async with open_session(project, mind.model, agents=defined) as session:
        await run_all_turns(session)
    assert "The agent painter is not started without its skill 'stile'" in list_lead_results(session)[0]
    assert "Is style meant?" in list_lead_results(session)[0]
    assert not list_agent_starts(session)


@pytest.mark.spec("SKL-02")
async def test_new_agents_and_skills_are_announced_after_the_cached_prefix(project: Path, home: Path) -> None:
    write_skill(home / "skills", "old")
    mind = RecordingScript(
        lead=[
            "hm",
            call_tool("Skill", skill="fresh"),
            spawn_agent("part-kid", subagent_type="helper"),
            join_conversation,
        ],
        kid=["kid was here"],
    )
    async with open_session(project, mind.model) as session:
        await run_all_turns(session)
        write_skill(project / ".claude" / "skills", "fresh", "just written", description="Brand new")
        (home / "skills" / "old" / "SKILL.md").unlink()
        write_command(home / "agents", "helper", "You help.", name="helper", description="Helps now")
        text = await run_all_turns(session, "go on")
        await run_all_turns(session, "and on")
    first, last = mind.requests[0], mind.requests[-1]
    assert (first.system, first.tools) == (last.system, last.tools)
    assert last.messages[0] == first.messages[0]
    assert "- fresh: Brand new" in text
    assert "- helper: Helps now" in text
    assert "not there any more:\n- old" in text
    assert text.count("Brand new") == 1
    assert "just written" in text
    assert "kid was here" in text
