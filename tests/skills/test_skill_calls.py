"""The `Skill` tool: the text it adds, the tools it allows, and the agents it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns, spawn_agent
from session_helpers import list_agent_starts, list_lead_results, map_agent_results, open_session
from shoal.app.skills.skill_trust import SkillTrustDecisionStore
from shoal.core.agents.subagents import ResolvedAgentSettings
from shoal.core.events import Event, ToolOutputReturned
from shoal.tools.skill_tool import MAX_LIST_CHARACTERS
from skill_helpers import RecordingScript, join_conversation, write_command, write_skill


async def test_the_body_of_a_skill_is_sent_only_after_its_call(project: Path, home: Path) -> None:
    write_skill(home / "skills", "pdf", "Use the stamp of $0, then $ARGUMENTS.", description="Fills forms")
    script = RecordingScript(lead=[call_tool("Skill", skill="pdf", args="red twice"), "done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    first, last = script.requests[0], script.requests[-1]
    listed = next(tool.description for tool in first.tools if tool.name == "Skill")
    assert "- pdf: Fills forms" in listed
    assert "stamp" not in listed + first.system + join_conversation(first)
    (result,) = list_lead_results(session)
    assert "Use the stamp of red, then red twice." in result
    assert str(home / "skills" / "pdf") in result
    assert (first.system, first.tools) == (last.system, last.tools)


@pytest.mark.spec("CMP-125")
async def test_a_command_is_listed_and_called_like_a_skill(project: Path, home: Path) -> None:
    commands = project / ".claude" / "commands"
    write_command(commands / "git", "sum-up", "Sum up $ARGUMENTS in one line.", description="Sums up changes")
    write_command(home / "commands", "plain", "Say hello.")
    write_command(home / "commands", "mine", "Only mine.", disable_model_invocation="true")
    write_command(home / "commands", "pdf", "The command.", description="A command")
    write_skill(home / "skills", "pdf", "The skill.")
    script = RecordingScript(
        lead=[
            call_tool("Skill", skill="git:sum-up", args="the diff"),
            call_tool("Skill", skill="mine"),
            call_tool("Skill", skill="pdf"),
            call_tool("Skill", skill="sum-upp"),
            "done",
        ]
    )
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        changed = write_command(commands, "late", "Later.", description="Comes later")
        await run_all_turns(session)
        changed.unlink()
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "- git:sum-up: Sums up changes" in listed
    assert "- plain: Say hello." in listed
    assert "mine" not in listed
    assert listed.count("- pdf:") == 1
    called, refused, skill, unknown = list_lead_results(session)
    assert "Sum up the diff in one line." in called
    assert "Only the user can run the skill mine" in refused
    assert "The skill." in skill
    assert "sum-up" in unknown
    assert "mine" not in unknown
    assert "- late: Comes later" in join_conversation(script.requests[-1])


@pytest.mark.spec("CMP-125", "CMP-117")
async def test_commands_outside_the_chosen_skills_are_not_offered_and_the_list_stays_bounded(
    project: Path, home: Path
) -> None:
    for number in range(200):
        write_command(home / "commands", f"command-{number}", "Do it.", description="x" * 500)
    write_skill(home / "skills", "pdf", description="Fills forms")
    script = RecordingScript(lead=["done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "- pdf" in listed
    assert len(listed) < MAX_LIST_CHARACTERS + 1_000
    script = RecordingScript(lead=[call_tool("Skill", skill="command-1"), "done"])
    async with open_session(project, script.model, skills=["command-7", "pdf"]) as session:
        await run_all_turns(session)
        typed = [each.name for each in session.list_slash_commands()]
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "- command-7" in listed
    assert "- command-1" not in listed
    assert "no skill" in list_lead_results(session)[0].lower()
    assert "command-1" in typed


async def test_files_in_the_directory_of_a_skill_are_readable_after_its_call(
    project: Path, home: Path
) -> None:
    path = write_skill(home / "skills", "pdf")
    skill_file = path.parent / "forms.md"
    skill_file.write_text("the forms are in the attic")
    read = call_tool("Read", file_path=str(skill_file))
    script = RecordingScript(
        lead=[
            read,
            call_tool("Skill", skill="pdf"),
            call_tool("Read", "again", file_path=str(skill_file)),
            "done",
        ]
    )
    async with open_session(project, script.model, skip_permissions=False) as session:
        await run_all_turns(session)
    before, _, after = list_lead_results(session)
    assert "was not run" in before
    assert "attic" in after


async def test_a_symlinked_project_skill_gives_no_access_outside_the_project(
    project: Path, tmp_path: Path
) -> None:
    outside = write_skill(tmp_path / "elsewhere", "pdf")
    secret = outside.parent / "secret.txt"
    secret.write_text("hunter2")
    (project / ".claude" / "skills").mkdir(parents=True)
    (project / ".claude" / "skills" / "pdf").symlink_to(outside.parent)
    script = RecordingScript(
        lead=[call_tool("Skill", skill="pdf"), call_tool("Read", file_path=str(secret)), "done"]
    )
    async with open_session(project, script.model, skip_permissions=False) as session:
        await run_all_turns(session)
    assert "Do it well." in list_lead_results(session)[0]
    assert "hunter2" not in list_lead_results(session)[1]


@pytest.mark.spec("SKL-01")
@pytest.mark.parametrize("source", ["user", "project", "trusted project"])
async def test_allowed_tools_of_a_trusted_skill_apply_until_the_turn_ends(
    project: Path, home: Path, source: str
) -> None:
    root = home / "skills" if source == "user" else project / ".claude" / "skills"
    write_skill(root, "toucher", allowed_tools="Bash(touch made:*)")
    touch = call_tool("Bash", command="touch made")
    script = RecordingScript(
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
    async with open_session(project, script.model, skip_permissions=False) as session:
        skill = session.runtime.knowledge.skills.find_skill("toucher")
        if source == "trusted project":
            SkillTrustDecisionStore(home, project).save_decisions([skill], trusted=True)
        await run_all_turns(session)
        await run_all_turns(session, "lead once more")
    before, skill_result, during, other_command, after = list_lead_results(session)
    allowed = source != "project"
    assert "was not run" in before
    assert ("was not run" not in during) is allowed
    assert ("shoal trust" in skill_result) is not allowed
    assert "was not run" in other_command
    assert "was not run" in after
    assert (project / "made").exists() is allowed


async def test_trust_in_a_skill_ends_when_its_file_changes(project: Path, home: Path) -> None:
    path = write_skill(project / ".claude" / "skills", "toucher", allowed_tools="Bash")
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        catalogue, trust = session.runtime.knowledge.skills, SkillTrustDecisionStore(home, project)
        trust.save_decisions([catalogue.find_skill("toucher")], trusted=True)
        assert trust.list_granted_tools(catalogue.find_skill("toucher")) == ("Bash",)
        path.write_text(path.read_text() + "And remove everything.\n")
        assert trust.list_granted_tools(catalogue.find_skill("toucher")) == ()


async def test_calling_an_unknown_broken_or_user_only_skill_fails(project: Path, home: Path) -> None:
    write_skill(home / "skills", "deploy", disable_model_invocation="true")
    write_skill(home / "skills", "review")
    write_skill(home / "skills", "broken", context="spoon")
    calls = [call_tool("Skill", name, skill=name) for name in ("deploi", "reviev", "deploy")]
    script = RecordingScript(lead=[calls, call_tool("Skill", skill="broken"), "done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "deploy" not in listed
    hidden, unknown, not_for_it, broken = list_lead_results(session)
    assert "There is no skill 'deploi'. Available: review." in hidden
    assert "There is no skill 'reviev'. Did you mean review?" in unknown
    assert "Only the user can run the skill deploy, by typing /deploy." in not_for_it
    assert "SKILL.md:4: context: expected fork, got 'spoon'" in broken


async def test_a_skill_denied_by_a_rule_is_not_run(project: Path, home: Path) -> None:
    write_skill(home / "skills", "deploy")
    script = RecordingScript(lead=[call_tool("Skill", skill="deploy"), "done"])
    async with open_session(project, script.model, disallowed_tools=["Skill(deploy)"]) as session:
        await run_all_turns(session)
    assert "was not run: the rule Skill(deploy)" in list_lead_results(session)[0]


@pytest.mark.spec("FRK-06", "SKL-01", "CMP-072")
async def test_the_agent_of_a_forking_skill_keeps_its_tools_and_need_not_ask_for_the_allowed_ones(
    project: Path, home: Path
) -> None:
    write_skill(
        home / "skills", "census", "part-census Count $0.",
        context="fork", agent="general-purpose", allowed_tools="Bash(echo:*) Read",
    )  # fmt: skip
    script = RecordingScript(
        lead=[call_tool("Skill", skill="census", args="fish"), "done"],
        census=[
            [call_tool("Bash", "e", command="echo 7"), call_tool("Bash", "t", command="touch x")],
            join_conversation,
        ],
    )
    async with open_session(project, script.model, skip_permissions=False) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert (started.kind, started.background) == ("general-purpose", False)
    assert {"Read", "Bash", "Write"} <= set(started.tools)
    (result,) = list_lead_results(session)
    assert "part-census Count fish." in result
    assert "\n7\n" in result
    assert not (project / "x").exists()
    assert "part-census" not in join_conversation(script.requests[0])
    assert map_agent_results(session)["/census"].status == "completed"


@pytest.mark.spec("PRM-08")
async def test_a_forking_skill_does_not_start_an_agent_type_that_a_rule_denies(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "census", "part-census Count.", context="fork", agent="Explore")
    script = RecordingScript(lead=[call_tool("Skill", skill="census"), "done"], census=["there are 7"])
    async with open_session(project, script.model, disallowed_tools=["Agent(Explore)"]) as session:
        await run_all_turns(session)
    assert list_agent_starts(session) == []
    assert "Agent(Explore)" in list_lead_results(session)[0]


@pytest.mark.spec("FRK-06")
async def test_in_assistant_mode_a_forking_skill_runs_in_the_background_and_reports(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "census", "part-census Count.", context="fork")
    script = RecordingScript(
        lead=[call_tool("Skill", skill="census"), "go on", join_conversation], census=["there are 7"]
    )
    async with open_session(project, script.model, shoal_settings={"assistant": True}) as session:
        text = await run_all_turns(session)
    assert list_agent_starts(session)[0].background
    assert "<task-notification>" in text
    assert "there are 7" in text


@pytest.mark.spec("CMP-072")
async def test_an_agent_that_lacks_an_allowed_tool_of_the_skill_runs_without_it(
    project: Path, home: Path
) -> None:
    write_skill(home / "skills", "census", context="fork", agent="Explore", allowed_tools="Read Write")
    script = RecordingScript(lead=[call_tool("Skill", skill="census"), "done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert "Write" not in started.tools


@pytest.mark.spec("USR-13")
async def test_agents_at_every_depth_can_call_the_skills_of_the_lead(project: Path, home: Path) -> None:
    write_skill(home / "skills", "pdf", "the stamp is red")
    call = call_tool("Skill", skill="pdf")
    script = RecordingScript(
        lead=[[spawn_agent("part-child"), spawn_agent("part-mate", name="ann")], "done"],
        child=[[call, spawn_agent("part-nested")], join_conversation],
        nested=[call, join_conversation],
        mate=[call, join_conversation],
    )
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    conversations = [join_conversation(request) for request in script.requests]
    for part in ("child", "nested", "mate"):
        assert any(
            f"part-{part}" in conversation and "the stamp is red" in conversation
            for conversation in conversations
        ), part


@pytest.mark.spec("DEF-08")
@pytest.mark.parametrize("skill_name", ["colours", "arts:colours"])
async def test_skills_of_a_definition_are_in_its_agents_context_from_the_start(
    project: Path, home: Path, skill_name: str
) -> None:
    write_skill(home / "skills", "style", "Write short lines.")
    plugin = project / "plugin"
    write_skill(plugin, "colours", "Use no red.")
    palette = plugin / "colours" / "palette.md"
    palette.write_text("only blue")
    defined = {"painter": {"description": "d", "prompt": "You paint.", "skills": ["style", skill_name]}}
    script = RecordingScript(
        lead=[spawn_agent("part-paint", subagent_type="painter"), "done"],
        paint=[call_tool("Read", file_path=str(home / "skills" / "style" / "SKILL.md")), join_conversation],
    )
    # In a file: the skills in a mapping of a program must exist when the session opens.
    (project / "agents.json").write_text(json.dumps(defined))
    agents = str(project / "agents.json")
    async with open_session(project, script.model, agents=agents, skip_permissions=False) as session:
        session.runtime.knowledge.skills.add_plugin_skills("arts", skills=plugin)
        await run_all_turns(session)
    conversation = join_conversation(next(r for r in script.requests if "part-paint" in join_conversation(r)))
    assert "Write short lines." in conversation
    assert "The skill arts:colours" in conversation
    assert "Use no red." in conversation
    assert "Knows style" in list_lead_results(session)[0]


@pytest.mark.spec("USR-13")
async def test_a_spawn_lists_the_skills_and_tools_it_resolved(project: Path, home: Path) -> None:
    write_skill(home / "skills", "style", "Write short lines.")
    defined = {"painter": {"description": "d", "prompt": "p", "tools": ["Read", "Glob"], "skills": ["style"]}}
    paint = spawn_agent("part-paint", subagent_type="painter", run_in_background=True)
    mate = spawn_agent("part-mate", subagent_type="painter", name="ann")
    script = RecordingScript(
        lead=[call_tool("TeamCreate", team_name="crew"), [paint, mate], "done"],
        paint=["painted"],
        mate=["painted"],
    )
    resolved_settings: list[ResolvedAgentSettings] = []

    def record_settings(event: Event) -> None:
        if isinstance(event, ToolOutputReturned) and event.tool == "Agent":
            resolved_settings.append(event.data["resolved"])

    async with open_session(project, script.model, agents=defined) as session:
        session.subscribe(record_settings)
        await run_all_turns(session)
        _, alone, member = list_lead_results(session)
    assert "with 2 tools and the skill style, starting at" in alone
    assert " tools and the skill style." in member
    assert resolved_settings[0].tools == ("Read", "Glob")
    assert {"Read", "Glob", "SendMessage"} <= set(resolved_settings[1].tools)
    assert [settings.skills for settings in resolved_settings] == [("style",)] * 2


@pytest.mark.spec("DEF-08", "USR-13")
async def test_a_missing_skill_fails_the_spawn_with_its_name(project: Path, home: Path) -> None:
    write_skill(home / "skills", "style")
    defined = home / "agents.json"  # a mapping would be checked at the start
    defined.write_text('{"painter": {"description": "d", "prompt": "p", "skills": ["style", "stile"]}}')
    script = RecordingScript(lead=[spawn_agent("part-paint", subagent_type="painter"), "done"])
    async with open_session(project, script.model, agents=str(defined)) as session:
        await run_all_turns(session)
    assert "painter was not started because its skill 'stile' failed" in list_lead_results(session)[0]
    assert "Did you mean style?" in list_lead_results(session)[0]
    assert not list_agent_starts(session)


@pytest.mark.spec("SKL-02")
async def test_new_agents_and_skills_are_announced_after_the_cached_prefix(project: Path, home: Path) -> None:
    write_skill(home / "skills", "old")
    script = RecordingScript(
        lead=[
            "hm",
            call_tool("Skill", skill="fresh"),
            spawn_agent("part-kid", subagent_type="helper"),
            join_conversation,
        ],
        kid=["kid was here"],
    )
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        write_skill(project / ".claude" / "skills", "fresh", "just written", description="Brand new")
        write_skill(home / "skills", "mine", description="For people", disable_model_invocation="true")
        (home / "skills" / "old" / "SKILL.md").unlink()
        write_command(home / "agents", "helper", "You help.", name="helper", description="Helps now")
        text = await run_all_turns(session, "go on")
        await run_all_turns(session, "and on")
    first, last = script.requests[0], script.requests[-1]
    assert (first.system, first.tools) == (last.system, last.tools)
    assert last.messages[0] == first.messages[0]
    assert "- fresh: Brand new" in text
    assert "For people" not in text
    assert "- helper: Helps now" in text
    assert "no longer available:\n- old" in text
    assert text.count("Brand new") == 1
    assert "just written" in text
    assert "kid was here" in text


@pytest.mark.spec("CMP-073")
@pytest.mark.parametrize("context", ["", "fork"])
async def test_tools_that_a_skill_takes_away_are_denied_until_the_turn_ends(
    project: Path, home: Path, context: str
) -> None:
    fields = {"context": context, "agent": "general-purpose"} if context else {}
    write_skill(home / "skills", "reader", "part-reader", disallowed_tools="Bash(touch:*)", **fields)
    touch = call_tool("Bash", "t1", command="touch made")
    script = RecordingScript(
        lead=[call_tool("Skill", skill="reader"), touch, "x", call_tool("Bash", command="touch later"), "y"],
        reader=[touch, "done"],
    )
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        assert not (project / "made").exists()
        await run_all_turns(session, "lead once more")
    assert (project / "later").exists()
