"""Fields, placeholders and settings of skills that were written for Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from session_helpers import collect_events, list_agent_starts, list_lead_results, open_session
from shoal.app.session.typed_commands import parse_slash_command
from shoal.app.skills.skill_trust import SkillTrustDecisionStore
from shoal.core.events import NoteAdded, RunFinished
from skill_helpers import RecordingScript, join_conversation, write_command, write_skill


async def run_typed_line(session: shoal.Session, text: str) -> RunFinished:
    events = await collect_events(session.run(parse_slash_command(session.runtime, text)))
    assert isinstance(events[-1], RunFinished)
    return events[-1]


def list_notes(session: shoal.Session) -> str:
    return "\n".join(event.text for event in read_events(session) if isinstance(event, NoteAdded))


@pytest.mark.spec("CMP-070")
async def test_numbered_arguments_start_at_zero_and_a_missing_first_one_is_noted(project: Path) -> None:
    commands = project / ".claude" / "commands"
    write_command(commands, "both", "From $0 to $1, or $ARGUMENTS[0] to $ARGUMENTS[1], not $2.")
    write_command(commands, "second", "To $1.")
    script = RecordingScript(lead=[join_conversation])
    async with open_session(project, script.model) as session:
        both = await run_typed_line(session, '/both "the left" right')
        assert "From the left to right, or the left to right, not ." in both.text
        assert "$0" not in list_notes(session)
        assert "To right." in (await run_typed_line(session, "/second left right")).text
        await run_typed_line(session, "/second left right")
    assert list_notes(session).count("/second uses $1 but not $0; $0 is the first argument") == 1


@pytest.mark.spec("CMP-071")
async def test_session_project_effort_and_named_arguments_are_filled_in(project: Path, home: Path) -> None:
    body = "In ${CLAUDE_SESSION_ID} of ${CLAUDE_PROJECT_DIR} at ${CLAUDE_EFFORT}: $what-ever for $who, $HOME."
    write_skill(home / "skills", "named", body, arguments="who what-ever")
    script = RecordingScript(lead=[join_conversation])
    async with open_session(project, script.model, thinking_tokens=5_000) as session:
        text = (await run_typed_line(session, "/named Ann fish")).text
    assert f"In {session.id} of {project} at medium: fish for Ann, $HOME." in text
    assert "ARGUMENTS:" not in text


@pytest.mark.spec("CMP-071")
async def test_directories_are_filled_into_allowed_tools(project: Path, home: Path) -> None:
    outside = project.parent / "outside.txt"
    outside.write_text("not for it")
    path = write_skill(
        home / "skills",
        "runner",
        allowed_tools="Bash(${CLAUDE_SKILL_DIR}/run.sh:*) Write(${CLAUDE_PROJECT_DIR}/made/**)",
    )
    program = path.parent / "run.sh"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    calls = [
        call_tool("Bash", command=f"{program} now"),
        call_tool("Write", "in", file_path=str(project / "made" / "x.txt"), content="x"),
        call_tool("Write", "out", file_path=str(project / "other.txt"), content="x"),
    ]
    script = RecordingScript(lead=[call_tool("Skill", skill="runner"), calls, "done"])
    async with open_session(project, script.model, skip_permissions=False) as session:
        await run_all_turns(session)
    _, ran, made, other = list_lead_results(session)
    assert "it ran" in ran
    assert "was not run" not in made
    assert "was not run" in other
    assert (project / "made" / "x.txt").exists()


@pytest.mark.spec("CMP-074")
async def test_effort_and_when_to_use_are_used_and_other_fields_cost_no_warning(
    project: Path, home: Path
) -> None:
    fields = {"effort": "high", "when_to_use": "Use it on Mondays.", "paths": "src/**", "background": "true"}
    write_skill(home / "skills", "hard", "Think.", **fields, shell="bash", version="1.2")
    write_skill(home / "skills", "odd", "Think.", effort="extreme")
    path = home / "skills" / "hard" / "SKILL.md"
    path.write_text(path.read_text().replace("when-to-use", "when_to_use"))
    script = RecordingScript(lead=["thought"])
    async with open_session(project, script.model) as session:
        warnings = session.runtime.knowledge.skills.skills.warnings
        await run_typed_line(session, "/hard")
        await run_all_turns(session)
        await run_typed_line(session, "/odd")
    assert [request.thinking_tokens for request in script.requests] == [16_384, 0, 0]
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "- hard: Knows hard Use it on Mondays." in listed
    (warning,) = warnings
    assert "'extreme'" in warning


@pytest.mark.spec("CMP-074")
@pytest.mark.parametrize("thinking", [5_000, None, 0])
async def test_the_effort_of_a_skill_that_the_model_calls_holds_until_the_turn_ends(
    project: Path, home: Path, thinking: int | None
) -> None:
    write_skill(home / "skills", "hard", "At ${CLAUDE_EFFORT}.", effort="max")
    script = RecordingScript(lead=[call_tool("Skill", skill="hard"), "done", "later"])
    async with open_session(project, script.model, thinking_tokens=thinking) as session:
        await run_all_turns(session)
        await run_all_turns(session)
    sent = [(each.thinking_tokens, each.adaptive_thinking, each.adaptive_tokens) for each in script.requests]
    is_default, own = thinking is None, thinking or 0
    # A turn that began without thinking cannot start it: providers refuse that after a tool call.
    assert sent == [
        (own, is_default, 0),
        (65_536 if own else 0, is_default, 65_536),
        (own, is_default, 0),
    ]
    assert "At max." in list_lead_results(session)[0]


@pytest.mark.spec("CMP-074")
async def test_the_effort_of_a_forking_skill_is_that_of_its_agent(project: Path, home: Path) -> None:
    write_skill(home / "skills", "census", "part-census Count.", context="fork", effort="low")
    script = RecordingScript(lead=[call_tool("Skill", skill="census"), "done"], census=["seven"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
    assert [request.thinking_tokens for request in script.requests] == [0, 1_024, 0]
    assert len(list_agent_starts(session)) == 1


def write_guarded_skill(root: Path, marker: str) -> None:
    path = write_skill(root, "guarded", "Go.")
    hook = {"type": "command", "command": f"echo {marker} >&2; exit 2"}
    hooks = json.dumps({"PreToolUse": [{"matcher": "Write", "hooks": [hook]}]})
    path.write_text(path.read_text().replace("---\nGo.", f"hooks: {hooks}\n---\nGo."))


@pytest.mark.spec("CMP-074")
async def test_hooks_of_a_skill_run_from_its_first_use_to_the_end_of_the_session(
    project: Path, home: Path
) -> None:
    write_guarded_skill(home / "skills", "guard-said-no")
    write = call_tool("Write", file_path=str(project / "a.txt"), content="a")
    script = RecordingScript(lead=[write, call_tool("Skill", skill="guarded"), write, "x", write, "y"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        await run_all_turns(session, "lead once more")
    before, _, during, after = list_lead_results(session)
    assert "guard-said-no" not in before
    assert "guard-said-no" in during
    assert "guard-said-no" in after


@pytest.mark.spec("CMP-074")
async def test_a_project_skill_with_hooks_runs_only_when_it_is_trusted(project: Path, home: Path) -> None:
    write_guarded_skill(project / ".claude" / "skills", "no")
    script = RecordingScript(lead=[call_tool("Skill", skill="guarded"), "x"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        assert "it defines hooks that are not trusted" in list_lead_results(session)[0]
        assert "not trusted" in (await run_typed_line(session, "/guarded")).detail
        skill = session.runtime.knowledge.skills.find_skill("guarded")
        SkillTrustDecisionStore(home, project).save_decisions([skill], trusted=True)
        await run_typed_line(session, "/guarded")
    assert "Go." in script.last_request_text


@pytest.mark.spec("CMP-075")
async def test_skill_overrides_of_any_file_decide_who_is_offered_a_skill(project: Path, home: Path) -> None:
    for name in ("plain", "brief", "typed", "gone", "odd"):
        write_skill(home / "skills", name)
    (project / ".claude").mkdir()
    (home / "settings.json").write_text(json.dumps({"skillOverrides": {"plain": "off", "odd": "sometimes"}}))
    project_overrides = {"plain": "on", "brief": "name-only", "typed": "user-invocable-only", "gone": "off"}
    (project / ".claude" / "settings.json").write_text(json.dumps({"skillOverrides": project_overrides}))
    both = [call_tool("Skill", "a", skill="typed"), call_tool("Skill", "b", skill="gone")]
    script = RecordingScript(lead=[both, "x"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        typed = [each.name for each in session.runtime.knowledge.skills.list_skills_for_user()]
        notices = session.runtime.knowledge.list_skill_and_instruction_notices()
    listed = next(tool.description for tool in script.requests[0].tools if tool.name == "Skill")
    assert "- plain: Knows plain" in listed
    assert "- brief" in listed
    assert "Knows brief" not in listed
    assert "typed" not in listed
    assert "gone" not in listed
    assert typed == ["brief", "plain", "typed"]
    refused, unknown = list_lead_results(session)
    assert "Only the user can run the skill" in refused
    assert "There is no skill 'gone'" in unknown
    assert any("skillOverrides.odd" in notice and "the skill is disabled" in notice for notice in notices)


@pytest.mark.spec("CMP-075")
async def test_commands_in_skills_do_not_run_if_a_file_disables_them(project: Path, home: Path) -> None:
    write_skill(home / "skills", "shelly", "See !`touch made` here.")
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"disableSkillShellExecution": true}')
    script = RecordingScript(lead=[join_conversation])
    async with open_session(project, script.model) as session:
        text = (await run_typed_line(session, "/shelly")).text
    assert "See [shell command execution is disabled by settings" in text
    assert not (project / "made").exists()
