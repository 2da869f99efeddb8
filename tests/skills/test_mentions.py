"""Mentions in a person's message: files and listings are attached, and agents are asked for."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns, spawn_agent
from session_helpers import open_session
from shoal.core.conversation.messages import ImageBlock
from shoal.core.events import NoteAdded
from skill_helpers import RecordingScript, join_conversation, write_command

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.spec("CMP-080")
async def test_mentioned_files_and_directories_are_attached_after_the_prompt(project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("".join(f"line {n}\n" for n in range(1, 31)))
    (project / "two words.md").write_text("buy milk\n")
    (project / "dot.png").write_bytes(PICTURE)
    script = RecordingScript(lead=[join_conversation])
    prompt = 'lead: @src/main.py#L7-8, @"two words.md" and @src/. Not @nobody, me@src/main.py (@dot.png)'
    async with open_session(project, script.model, skip_permissions=False) as session:
        text = await run_all_turns(session, prompt)
    typed, _, attached = text.partition("<system-reminder>")
    assert typed.strip() == prompt
    assert "line 7" in attached
    assert "line 8" in attached
    assert "line 9" not in attached
    assert "line 6" not in attached
    assert "buy milk" in attached
    assert "main.py\n" in attached
    assert "nobody" not in attached
    (request,) = script.requests
    assert any(isinstance(block, ImageBlock) for message in request.messages for block in message.content)


@pytest.mark.spec("CMP-080")
async def test_a_denied_file_is_not_attached_and_not_listed(project: Path) -> None:
    (project / "conf").mkdir()
    (project / "conf" / "secret.env").write_text("hunter2\n")
    (project / "conf" / "open.env").write_text("fine\n")
    script = RecordingScript(lead=[join_conversation])
    async with open_session(
        project, script.model, skip_permissions=False, disallowed_tools=["Read(conf/secret.env)"]
    ) as session:
        text = await run_all_turns(session, "lead @conf/secret.env @conf")
    assert "hunter2" not in text
    assert "conf/secret.env was not attached" in text
    assert "open.env" in text
    assert text.count("secret.env") == text.split("open.env")[0].count("secret.env")


@pytest.mark.spec("CMP-080")
async def test_a_path_outside_the_project_is_attached_because_the_user_typed_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.parent / "own"
    (home / "notes").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / "todo.md").write_text("buy milk\n")
    (home / "notes" / "idea [1].md").write_text("a boat\n")
    (project.parent / "far.txt").write_text("far away\n")
    (project.parent / "near.txt").write_text("one up\n")
    script = RecordingScript(lead=[join_conversation])
    prompt = f'lead @~/todo.md @{project.parent}/far.txt @../near.txt @"~/notes/idea [1].md" @~/notes @~/none'
    async with open_session(project, script.model, skip_permissions=False) as session:
        text = await run_all_turns(session, prompt)
    for part in ("buy milk", "far away", "one up", "a boat", "\nidea [1].md"):
        assert part in text
    assert "was not attached" not in text
    assert text.count("~/none") == 1


@pytest.mark.spec("CMP-080")
@pytest.mark.parametrize("case", ["deny", "ask", "dontAsk", "hook", "link"])
async def test_what_forbids_reading_outside_the_project_applies_to_a_mention(
    project: Path, home: Path, case: str
) -> None:
    far = project.parent / "far.txt"
    far.write_text("far away\n")
    (project / "link.txt").symlink_to(far)
    settings: dict[str, Any] = {"permissions": {}}
    if case in ("deny", "ask"):
        settings["permissions"][case] = [f"Read(/{far})"]
    if case == "hook":
        answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}
        command = f"echo '{json.dumps(answer)}'"
        hooks = [{"matcher": "Read", "hooks": [{"type": "command", "command": command}]}]
        settings["hooks"] = {"PreToolUse": hooks}
    (home / "settings.json").write_text(json.dumps(settings))
    script = RecordingScript(lead=[join_conversation])
    mode = "dontAsk" if case == "dontAsk" else "default"
    async with open_session(project, script.model, skip_permissions=False, mode=mode) as session:
        events = [each async for each in session.run("lead @link.txt" if case == "link" else f"lead @{far}")]
    text = join_conversation(script.requests[0])
    assert "far away" not in text
    assert "was not attached" in text
    assert any("was not attached" in each.text for each in events if isinstance(each, NoteAdded))


@pytest.mark.spec("CMP-080")
async def test_a_mention_in_a_message_of_a_person_to_a_child_is_attached_but_not_in_a_models_prompt(
    project: Path,
) -> None:
    (project / "notes.md").write_text("buy milk\n")
    script = RecordingScript(lead=[spawn_agent("part-child @notes.md"), "done"], child=[join_conversation])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        first = next(each for each in script.requests if "part-child" in join_conversation(each)[:20])
        assert "buy milk" not in join_conversation(first)
        (child,) = session.supervisor.list_agents()
        await session.send(child.agent, "now @notes.md")
        await run_all_turns(session, None)
    assert "buy milk" in "".join(join_conversation(each) for each in script.requests)


@pytest.mark.spec("CMP-080")
async def test_a_read_file_counts_as_read_and_a_steering_message_is_expanded(project: Path) -> None:
    (project / "notes.md").write_text("buy milk\n")
    edit = call_tool("Edit", file_path=str(project / "notes.md"), old_string="milk", new_string="tea")
    script = RecordingScript(lead=[edit, "done"])
    async with open_session(project, script.model) as session:
        session.steer("lead @notes.md")
        await run_all_turns(session, None)
    assert (project / "notes.md").read_text() == "buy tea\n"


@pytest.mark.spec("CMP-081")
@pytest.mark.parametrize("mention", ["@agent-painter,", '@"painter (agent)"'])
async def test_a_mentioned_agent_is_asked_for(project: Path, mention: str) -> None:
    defined = {"painter": {"description": "Paints", "prompt": "You paint."}}
    script = RecordingScript(lead=[join_conversation])
    async with open_session(project, script.model, agents=defined) as session:
        text = await run_all_turns(session, f"lead {mention} paint it, not @agent-nobody")
    assert "asks for the agent painter: start it with the Agent tool, subagent_type painter" in text
    assert text.count("asks for the agent") == 1


@pytest.mark.spec("CMP-081")
@pytest.mark.parametrize(
    ("mention", "advice"),
    [("@agent-paniter", "Did you mean @agent-painter?"), ('@"zzz (agent)"', "shoal agents ls")],
)
async def test_a_mistyped_agent_is_reported(project: Path, mention: str, advice: str) -> None:
    defined = {"painter": {"description": "Paints", "prompt": "You paint."}}
    (project / "agent-notes.md").write_text("buy milk\n")
    script = RecordingScript(lead=["done"])
    async with open_session(project, script.model, agents=defined) as session:
        events = [each async for each in session.run(f"lead {mention}, see @agent-notes.md")]
    (note,) = [each.text for each in events if isinstance(each, NoteAdded)]
    assert note.startswith("There is no agent")
    assert advice in note
    assert "buy milk" in join_conversation(script.requests[0])


@pytest.mark.spec("CMP-079")
async def test_a_readme_among_the_agents_is_silent(project: Path, home: Path) -> None:
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / ".claude" / "agents" / "README.md").write_text("# Our agents\n")
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        catalog = session.runtime.config.definitions
        assert catalog.describe_agent_file_problems() == ()
        assert len(catalog.problems) == 1
        write_command(project / ".claude" / "agents", "broken", "You.", name="broken")
        assert "One agent file cannot be used" in catalog.describe_agent_file_problems()[0]
