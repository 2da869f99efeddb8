"""Rules, instructions of subdirectories, excluded files, and notes about the project."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns
from hook_helpers import AGENT_POSITIONS, HookInputLog, make_settings, open_hook_scenario
from session_helpers import open_session
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import slugify_project_path
from shoal.models.scripted_model import ScriptedModel
from skill_helpers import RecordingScript, join_conversation

MP = pytest.MonkeyPatch
in_every_position = pytest.mark.parametrize("position", AGENT_POSITIONS)


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read_call(path: Path, number: int = 1) -> Any:
    return call_tool("Read", f"r{number}", file_path=str(path))


@pytest.mark.spec("CMP-065")
@in_every_position
async def test_rules_are_read_at_the_start_and_those_about_paths_with_a_matching_file(
    position: str, project: Path, home: Path, monkeypatch: MP
) -> None:
    write_file(home / "rules/mine.md", "OWN RULE")
    write_file(project / ".claude/rules/deep/all.md", "COMMON RULE")
    front = '---\npaths:\n  - "src/**/*.{ts,tsx}"\n  - "*.sql"\n---\n'
    write_file(project / ".claude/rules/typed.md", f"{front}TYPED RULE")
    shown, other = write_file(project / "src/a/b.tsx", "x"), write_file(project / "lib/a.sql", "x")
    script = [read_call(other, 1), read_call(shown, 2), read_call(shown, 3), "done"]
    async with open_hook_scenario(position, project, monkeypatch, script, "{}") as scenario:
        await scenario.run_session()
        requests = [json.dumps(body) for body in scenario.worker_requests]
    assert requests[0].index("OWN RULE") < requests[0].index("COMMON RULE")
    assert "TYPED RULE" not in requests[1]
    assert "paths:" not in requests[-1]
    assert (requests[2].count("TYPED RULE"), requests[3].count("TYPED RULE")) == (1, 1)


@pytest.mark.spec("CMP-065")
async def test_the_rules_of_a_subdirectory_come_with_the_first_file_that_they_are_about(
    project: Path, home: Path
) -> None:
    write_file(project / "web/.claude/rules/all.md", "WEB RULE")
    write_file(project / "web/.claude/rules/typed.md", '---\npaths: "src/*.ts"\n---\nTYPED RULE')
    plain, typed = write_file(project / "web/a.txt", "x"), write_file(project / "web/src/b.ts", "x")
    script = RecordingScript(lead=[read_call(plain, 1), read_call(typed, 2), read_call(typed, 3), "done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session, "go")
    texts = [join_conversation(request) for request in script.requests]
    assert [text.count("WEB RULE") for text in texts] == [0, 1, 1, 1]
    assert [text.count("TYPED RULE") for text in texts] == [0, 0, 1, 1]


@pytest.mark.spec("CMP-066")
async def test_a_mentioned_file_brings_the_instructions_about_it(project: Path, home: Path) -> None:
    write_file(project / "lib/CLAUDE.md", "LIB WORDS")
    write_file(project / ".claude/rules/typed.md", '---\npaths: "lib/*.ts"\n---\nTYPED RULE')
    write_file(project / "lib/a.ts", "x")
    script = RecordingScript(lead=["done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session, "explain @lib/a.ts")
        await run_all_turns(session, "again @lib/a.ts")
    first, second = (join_conversation(request) for request in script.requests)
    assert (first.count("LIB WORDS"), first.count("TYPED RULE")) == (1, 1)
    assert (second.count("LIB WORDS"), second.count("TYPED RULE")) == (1, 1)


@pytest.mark.spec("CMP-066")
@in_every_position
async def test_the_instructions_of_a_subdirectory_come_with_the_first_file_there(
    position: str, project: Path, monkeypatch: MP
) -> None:
    write_file(project / "CLAUDE.md", "ROOT WORDS")
    write_file(project / "lib/CLAUDE.md", "LIB WORDS @more.md")
    write_file(project / "lib/more.md", "MORE WORDS")
    write_file(project / "lib/deep/CLAUDE.local.md", "DEEP WORDS")
    write_file(project / "other/CLAUDE.md", "OTHER WORDS")
    script = [read_call(write_file(project / "lib/deep/a.txt", "x")), "done"]
    async with open_hook_scenario(position, project, monkeypatch, script, "{}") as scenario:
        await scenario.run_session()
        first, second = [json.dumps(body) for body in scenario.worker_requests[:2]]
    assert "LIB WORDS" not in first
    assert second.index("LIB WORDS") < second.index("MORE WORDS") < second.index("DEEP WORDS")
    assert "OTHER WORDS" not in second
    assert second.count("ROOT WORDS") == 1


@pytest.mark.spec("CMP-066")
async def test_the_instructions_of_a_subdirectory_come_again_after_a_compaction(project: Path) -> None:
    write_file(project / "lib/CLAUDE.md", "LIB WORDS")
    file = write_file(project / "lib/a.txt", "x")
    seen: list[str] = []

    def reply(request: ModelRequest) -> Any:
        text = join_conversation(request)
        seen.append(text)
        has_result = request.messages[-1].role == "user" and "LIB WORDS" in text
        return "done" if has_result or "part-end" in text else read_call(file, len(seen))

    async with open_session(project, ScriptedModel(reply), skip_permissions=True) as session:
        await run_all_turns(session, "look")
        await session.compact("part-end")
        seen.clear()
        await run_all_turns(session, "look again")
    assert "LIB WORDS" not in seen[0]
    assert "LIB WORDS" in seen[-1]


@pytest.mark.spec("CMP-066")
async def test_instructions_that_a_rule_hides_are_not_shown(project: Path, monkeypatch: MP) -> None:
    write_file(project / "lib/CLAUDE.md", "LIB WORDS")
    settings = json.dumps({"permissions": {"deny": ["Read(lib/CLAUDE.md)"]}})
    script = [read_call(write_file(project / "lib/a.txt", "x")), "done"]
    async with open_hook_scenario("lead", project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
        assert "LIB WORDS" not in json.dumps(scenario.last_request)


async def test_the_end_of_a_session_waits_for_hooks_of_its_instructions(
    project: Path, monkeypatch: MP, tmp_path: Path
) -> None:
    write_file(project / "CLAUDE.md", "ROOT WORDS")
    gate, log = tmp_path / "gate", tmp_path / "log"
    os.mkfifo(gate)
    settings = make_settings({"InstructionsLoaded": f"cat '{gate}' >/dev/null; sleep 0.1; cat > '{log}'"})
    async with open_hook_scenario("lead", project, monkeypatch, ["done"], settings) as scenario:
        await scenario.run_session()
        await asyncio.to_thread(gate.write_text, "go on")
    assert json.loads(log.read_text())["load_reason"] == "session_start"


@pytest.mark.spec("CMP-044")
@in_every_position
async def test_a_hook_is_told_of_each_instruction_file(
    position: str, project: Path, monkeypatch: MP, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hook_log = HookInputLog(tmp_path_factory.mktemp("log") / "inputs")
    root = write_file(project / "CLAUDE.md", "ROOT WORDS")
    below = write_file(project / "lib/CLAUDE.local.md", "LIB WORDS")
    # In one write, because hooks of the start run at the same time as later ones.
    command = f"line=$(cat); printf '%s\\n' \"$line\" >> '{hook_log.path}'"
    settings = make_settings({"InstructionsLoaded": command})
    script = [read_call(write_file(project / "lib/a.txt", "x")), "done"]
    async with open_hook_scenario(position, project, monkeypatch, script, settings) as scenario:
        await scenario.run_session()
    fields = ("file_path", "memory_type", "load_reason")
    found = [tuple(each[field] for field in fields) for each in hook_log.read_inputs("InstructionsLoaded")]
    assert sorted(found) == sorted(
        [(str(root), "Project", "session_start"), (str(below), "Local", "nested_traversal")]
    )


@pytest.mark.spec("CMP-067")
async def test_comments_in_instructions_are_left_out(project: Path) -> None:
    write_file(project / "CLAUDE.md", "Begin.\n<!-- a note\nfor people -->\n`<!-- code -->` End.")
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        assert "a note" not in session.agent.system
        assert "Begin.\n`<!-- code -->` End." in session.agent.system


@pytest.mark.spec("CMP-067")
async def test_a_comment_after_words_does_not_join_lines(project: Path) -> None:
    text = (
        "- rule one <!-- note -->\n- rule `two` <!-- a\nb -->\n  <!-- own `line` --> <!-- c -->\n"
        "<!-- d --> - three\n- four <!-- e -->\nEnd."
    )
    write_file(project / "CLAUDE.md", text)
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        assert "- rule one \n- rule `two` \n- three\n- four \nEnd." in session.agent.system


@pytest.mark.spec("CMP-068")
async def test_excluded_instruction_files_are_not_read(project: Path, home: Path) -> None:
    write_file(home / "CLAUDE.md", "OWN WORDS")
    write_file(project / "CLAUDE.md", "ROOT WORDS")
    write_file(project / ".claude/rules/team/a.md", "TEAM WORDS")
    write_file(project / "AGENTS.md", "AGENT WORDS")
    patterns = [str(project / ".claude/rules/team/**"), "**/CLAUDE.md"]
    write_file(project / ".claude/settings.json", json.dumps({"claudeMdExcludes": patterns}))
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        system = session.agent.system
        assert "ROOT WORDS" not in system
        assert "TEAM WORDS" not in system
        assert "AGENT WORDS" in system
        # The project cannot exclude the files of the user; the user can.
        assert "OWN WORDS" in system
    write_file(home / "settings.json", json.dumps({"claudeMdExcludes": patterns}))
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        assert "OWN WORDS" not in session.agent.system


@pytest.mark.spec("CMP-069")
async def test_the_lead_gets_the_notes_about_the_project_and_reads_their_directory(
    project: Path, home: Path
) -> None:
    slug = slugify_project_path(os.path.realpath(project))
    directory = home / "projects" / slug / "memory"
    write_file(directory / "MEMORY.md", "\n".join(f"- fact {number}" for number in range(300)))
    topic = write_file(directory / "topic.md", "TOPIC WORDS")
    script = RecordingScript(lead=[read_call(topic), "done"])
    async with open_session(project, script.model) as session:
        await run_all_turns(session)
        system = session.agent.system
    assert "- fact 199" in system
    assert "- fact 200" not in system
    assert "TOPIC WORDS" in join_conversation(script.requests[-1])


@pytest.mark.spec("CMP-069")
@pytest.mark.parametrize("kind", ["off", "variable", "elsewhere", "elsewhere by the project"])
async def test_settings_turn_off_or_move_the_notes_about_the_project(
    kind: str, project: Path, home: Path, tmp_path: Path, monkeypatch: MP
) -> None:
    slug = slugify_project_path(os.path.realpath(project))
    write_file(home / "projects" / slug / "memory" / "MEMORY.md", "USUAL NOTES")
    write_file(tmp_path / "notes" / "MEMORY.md", "OTHER NOTES")
    moved = json.dumps({"autoMemoryDirectory": str(tmp_path / "notes")})
    match kind:
        case "off":
            write_file(home / "settings.json", json.dumps({"autoMemoryEnabled": False}))
        case "variable":
            monkeypatch.setenv("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1")
        case "elsewhere":
            write_file(home / "settings.json", moved)
        case _:
            write_file(project / ".claude/settings.json", moved)
    async with open_session(project, RecordingScript(lead=["x"]).model) as session:
        system = session.agent.system
    assert ("USUAL NOTES" in system) == (kind == "elsewhere by the project")
    assert ("OTHER NOTES" in system) == (kind == "elsewhere")
