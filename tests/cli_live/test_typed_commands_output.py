"""What the commands of a session print at the plain terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import shoal
from agent_scripts import ToolGate, call_tool, script_agents
from cli_live.typed_terminal import open_typed_terminal
from shoal.surfaces.terminal.session_loop import print_session_farewell
from team_scripts import script_team, spawn_member


def open_session(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, attended=True, **{"skip_permissions": True, **options})


def create_task(subject: str, **more: Any) -> Any:
    return call_tool("TaskCreate", f"task-{subject}", subject=subject, description="d", **more)


async def test_the_board_shows_marks_owners_and_open_blockers(tmp_path: Path) -> None:
    lead = [
        [create_task("dig"), create_task("pour"), create_task("paint")],
        call_tool("TaskUpdate", "u1", taskId="2", addBlockedBy=["1"]),
        call_tool("TaskUpdate", "u2", taskId="3", addBlockedBy=["1", "2"]),
        call_tool("TaskUpdate", "u3", taskId="1", status="in_progress", owner="ann"),
        "planned",
        call_tool("TaskUpdate", "u4", taskId="1", status="completed"),
        "dug",
    ]
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=lead))) as terminal:
        assert "There are no tasks on the board." in await terminal.run_line("/tasks", "shoal task add")
        await terminal.run_prompt("lead", "planned")
        assert (await terminal.run_line("/tasks", "paint")).endswith(
            "  ▸ #1 dig  ann\n  ○ #2 pour  waits for #1\n  ○ #3 paint  waits for #1, #2\n"
        )
        await terminal.run_prompt("go on", "dug")
        assert (await terminal.run_line("/tasks", "paint")).endswith(
            "  ✓ #1 dig  ann\n  ○ #2 pour\n  ○ #3 paint  waits for #2\n"
        )


async def test_the_team_is_listed_and_its_members_are_talked_to(tmp_path: Path) -> None:
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), [spawn_member("ann"), spawn_member("bob")], "ready"],
        ann=["ann began", "ann heard you", "ann heard more"],
        bob=["bob began"],
    )
    settings = json.dumps({"shoal": {"teammate_mode": "in-process"}})
    async with open_typed_terminal(open_session(tmp_path, model, settings=settings)) as terminal:
        assert "There is no team. Ask the lead for one" in await terminal.run_line(
            "/team", "There is no team"
        )
        assert "nobody yet" in await terminal.run_line("/to", "/to NAME")
        assert "There is no member 'ann'.\n" in await terminal.run_line("/to ann", "There is no member")
        await terminal.run_prompt("lead", "ready")
        shown = await terminal.run_line("/team", "● bob")
        assert "  team crew\n  ● ann  " in shown
        assert " tokens · $0.0" in shown
        listed = await terminal.run_line("/to", "/to NAME")
        assert "one of these members: ann, bob. /to lead or Esc" in listed
        refused = await terminal.run_line("/to carol", "There is no member")
        assert "There is no member 'carol'. Members: ann, bob." in refused
        assert "You are talking to ann." in await terminal.run_line("/to @ann", "You are talking")
        assert terminal.prompt.label == "to ann"
        assert "↳ sent to ann: how is it?" in await terminal.run_line("how is it?", "↳ sent to")
        await terminal.wait_for("ann: ann heard you")
        terminal.press_escape()
        await terminal.wait_for("You are talking to the lead.")
        assert terminal.prompt.label == ""
        assert "ann heard more" not in await terminal.run_line("@ann: and now?", "↳ sent to ann: and now?")
        wrong = await terminal.run_line("@anm and now?", "Nothing was sent.")
        assert "There is no member 'anm'. Did you mean @ann?" in wrong
        assert "ready" in await terminal.run_line("@zzz is read by the lead", "ready")


async def test_input_typed_directly_before_leaving_leaves_no_unawaited_coroutine(tmp_path: Path) -> None:
    for line in ("go", "/agents", "/compact", "/to lead"):
        model = script_agents(go=["gone"])
        async with open_typed_terminal(open_session(tmp_path, model)) as terminal:
            terminal.type_line(line)
        assert line in terminal.text


async def test_agents_are_listed_shown_stopped_and_messaged(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            [
                call_tool("Agent", "c1", prompt="quick", name="swift", description="look quickly"),
                call_tool(
                    "Agent",
                    "c2",
                    prompt="slow",
                    name="snail",
                    run_in_background=True,
                    description="look slowly",
                ),
            ],
            "started",
        ],
        quick=["found it", "again"],
        slow=[call_tool("Gate"), "late"],
    )
    async with open_typed_terminal(open_session(tmp_path, model, tools=[gate.tool])) as terminal:
        listed = await terminal.run_line("/agents", "/agents, /agents show ID")
        assert "  No agent has been started.\n" in listed
        (row,) = (row for row in listed.splitlines() if row.startswith(f"  {'general-purpose':<18} "))
        assert row.endswith(". (builtin)")
        assert "No agent is working." in await terminal.run_line("/agents stop all", "No agent")
        assert "There is no foreground agent." in await terminal.run_line("/agents background", "foreground")
        await terminal.run_prompt("lead", "started")
        await gate.wait_until_reached()
        listed = await terminal.run_line("/agents", "/agents, /agents show ID")
        assert "  ● swift  look quickly\n" in listed
        assert "  ● snail  look slowly\n" in listed
        rows = listed.splitlines()
        done, working = (
            rows[rows.index(f"  ● {name}  look {how}") + 1]
            for name, how in (("swift", "quickly"), ("snail", "slowly"))
        )
        assert " · completed · 0 calls · " in done
        assert "in the background" not in done
        assert " · working: " in working
        assert " · in the background · 0 calls · " in working
        assert terminal.prompt.rows is not None
        assert list(terminal.prompt.rows(80)) == ["1 agent working in the background · /agents lists them"]
        shown = await terminal.run_line("/agents show swift", "found it")
        assert "completed, " in shown
        assert "There is no agent 'nobody'" in await terminal.run_line("/agents show nobody", "no agent")
        agent = next(each.agent for each in terminal.session.list_subagents() if each.name == "snail")
        assert f"Stopped {agent[:9]}: " in await terminal.run_line(f"/agents stop {agent[:9]}", "Stopped")
        assert "swift" in await terminal.run_line("/agents send swift once more", "swift")
        assert "Usage: /agents, " in await terminal.run_line("/agents dance", "Usage")
        assert "Usage: /agents, " in await terminal.run_line("/agents send swift", "Usage")


async def test_the_cost_of_one_model_is_one_line(tmp_path: Path) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"]))) as terminal:
        await terminal.run_prompt("lead", "yes")
        shown = await terminal.run_line("/cost", " out")
        shown += await terminal.run_line("/model", "The model is")
    assert len([line for line in shown.splitlines() if "tokens" in line]) == 1


async def test_a_new_session_says_that_there_is_nothing_yet(tmp_path: Path) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"]))) as terminal:
        for line, answer in (
            ("/compact", "There is nothing to summarize yet."),
            ("/rewind", "There are no turns yet."),
            ("/rewind 3", "There is no turn 3. /rewind lists them."),
            ("/mcp", "No MCP server is configured. Add one: shoal mcp add NAME COMMAND"),
            ("/resume", "There is no other session in this directory."),
            ("/skills", "There are no skills here. To add one, create .claude/skills/NAME/SKILL.md."),
            ("/memory", "There is no instruction file here. Create CLAUDE.md or AGENTS.md."),
            ("/btw", "/btw QUESTION asks the agent a side question"),
            ("/suggest", "↳ There is no suggestion yet."),
            ("/cost", "$0.0000 · 0 tokens in, 0 out"),
            ("/delegate maybe", "/delegate switches the mode; /delegate on and /delegate off set it."),
            ("/permissions never", "Unknown mode never. Modes: "),
            ("/costs", "Unknown command /costs. Did you mean /cost? /help lists the commands."),
            ("/qqqqq", "Unknown command /qqqqq. /help lists the commands."),
        ):
            assert answer in await terminal.run_line(line, answer), line
        assert "/tmp/notes is a path\n\nyes" not in terminal.text
        assert terminal.session.turn == 0
        screen = terminal.controller.screen
        before = terminal.text
        print_session_farewell(screen, terminal.session, ())
        assert terminal.text == before


async def test_a_session_lists_its_skills_instructions_models_and_turns(tmp_path: Path) -> None:
    skill = tmp_path / ".claude" / "skills" / "sweep" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: sweep\ndescription: Clean up.\nargument-hint: ROOM\n"
        "disable-model-invocation: true\n---\nGo.\n"
    )
    broken = tmp_path / ".claude" / "skills" / "odd" / "SKILL.md"
    broken.parent.mkdir()
    broken.write_text("---\nname: [\n---\n")
    (tmp_path / "extra.md").write_text("More.")
    (tmp_path / "CLAUDE.md").write_text("Be brief.\n@extra.md\n")
    model = script_agents(lead=["hello"], Go=["swept"])
    async with open_typed_terminal(open_session(tmp_path, model, setting_sources=["project"])) as terminal:
        skills = await terminal.run_line("/skills", "odd")
        assert f"  {'sweep':<18} Clean up. (project, only for you)\n" in skills
        memory = await terminal.run_line("/memory", "extra.md")
        assert f"  {tmp_path / 'CLAUDE.md'}  " in memory
        assert f", imported by {tmp_path / 'CLAUDE.md'}\n" in memory
        helped = await terminal.run_line("/help", "press it twice, or Ctrl-D")
        assert f"  {'/sweep ROOM':<19} Clean up. (project)\n" in helped
        assert f"  {'/resume [ID]':<20}resume another session\n" in helped
        assert "The model is scripted." in await terminal.run_line("/model", "The model is")
        await terminal.run_prompt("lead, say hello", "hello")
        turns = await terminal.run_line("/rewind", "/rewind TURN")
        assert "  1  lead, say hello\n" in turns
        assert "You are already in this session." in await terminal.run_line(
            f"/resume {terminal.session.id[:8]}", "already"
        )
        missing = tmp_path / "no" / "talk.md"
        assert f"✗ Cannot write {missing}: No such file or directory." in await terminal.run_line(
            "/export no/talk.md", "Cannot write"
        )
        exported = tmp_path / f"shoal-{terminal.session.id[:8]}.md"
        await terminal.run_line("/export", f"Wrote the conversation to {exported}.")
        assert exported.read_text() == (
            f"# Session {terminal.session.id}\n\n## You\n\nlead, say hello\n\n## Agent\n\nhello\n"
        )


async def test_an_exported_conversation_fences_calls_and_results(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("```\ncode\n```\n")
    lead = ["first", "second", [call_tool("Read", "r1", file_path=str(tmp_path / "a.md"))], "read"]
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=lead))) as terminal:
        await terminal.run_prompt("lead", "first")
        await terminal.run_prompt("more", "second")
        await terminal.run_prompt("read it", "read")
        await terminal.run_line("/export talk.md", "Wrote the conversation")
    text = (tmp_path / "talk.md").read_text()
    assert "## You\n\nlead\n\n## Agent\n\nfirst\n\n## You\n\nmore\n\n## Agent\n\nsecond\n" in text
    assert '**Read**\n\n```json\n{\n  "file_path": ' in text
    assert "\n````\n" in text
    assert text.endswith("read\n")
    assert text.count("## Agent") == 2
