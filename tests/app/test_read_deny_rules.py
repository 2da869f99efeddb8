"""A file with a read deny rule stays unread, also through searches of its parent directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.events import ToolOutputReturned
from shoal.core.permissions.questions import AllowAnswer
from shoal.models.scripted_model import ScriptedModel

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep (rg) is not installed")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
DENY = ["Read(./secrets/**)", "Read(*.key)"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("secrets/a", "secrets/deep/b", "secrets/odd\nname", "src/own.key", "src/open", "open", "z"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"before\nneedle in {name!r}\nafter\n")
    return root


async def run_calls(project: Path, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    uses = [ToolUseBlock(id=str(at), name=name, input=given) for at, (name, given) in enumerate(calls)]
    options.setdefault("disallowed_tools", DENY)
    async with shoal.open(cwd=project, model=ScriptedModel([uses, "done"]), **options) as session:
        events = [event async for event in session.run("go")]
    # Reads run side by side and end in any order.
    returned = {
        event.call: extract_tool_result_text(event.result)
        for event in events
        if isinstance(event, ToolOutputReturned)
    }
    return [returned[use.id] for use in uses]


@needs_ripgrep
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_a_search_skips_files_with_a_read_deny_rule(project: Path, mode: str) -> None:
    (project.parent / "link").symlink_to(project)
    content = {"pattern": "needle", "output_mode": "content", "-C": 1}
    calls = [
        ("Grep", {"pattern": "needle"}),
        ("Grep", {"pattern": "needle", "output_mode": "count"}),
        ("Grep", content),
        ("Grep", {**content, "multiline": True, "pattern": "needle.*after"}),
        ("Grep", {**content, "path": "src"}),
        ("Grep", {**content, "path": str(project.parent / "link")}),
        ("Grep", {**content, "glob": "secrets/**"}),
    ]
    options: dict[str, Any] = {"mode": mode, "skip_permissions": mode == "bypassPermissions"}
    found = await run_calls(project, *calls, add_dirs=[project.parent / "link"], **options)
    assert len(found) == len(calls)
    for text in found[:6]:
        assert "open" in text
    for text in found:
        assert "secrets" not in text
        assert "own.key" not in text
        assert "odd" not in text
        assert "left out" in text
    assert found[2].count("needle") == 3
    assert found[6].startswith("No match.")


@needs_ripgrep
async def test_names_of_denied_files_are_not_listed(project: Path) -> None:
    found = await run_calls(
        project, ("Glob", {"pattern": "**/*"}), ("Glob", {"pattern": f"{project}/secrets/*"})
    )
    assert sorted(found[0].split("\n")) == [f"{project}/{name}" for name in ("open", "src/open", "z")]
    assert found[1] == "Glob was not run: the rule Read(./secrets/**) (--disallowedTools) forbids it."


@needs_ripgrep
async def test_files_with_an_ask_rule_are_skipped_unless_searched_directly(project: Path) -> None:
    (project / ".claude").mkdir()
    rules = {"permissions": {"ask": ["Read(secrets/**)"], "deny": ["Read(secrets/deep/**)"]}}
    (project / ".claude" / "settings.json").write_text(json.dumps(rules))
    whole, part = {"pattern": "needle"}, {"pattern": "needle", "path": "secrets"}
    uses = [ToolUseBlock(id=str(at), name="Grep", input=given) for at, given in enumerate((whole, part))]
    async with shoal.open(cwd=project, model=ScriptedModel([uses, "done"]), attended=True) as session:
        texts: dict[str, str] = {}
        async for event in session.run("go"):
            for question in session.runtime.question_broker.list_open_questions():
                session.runtime.question_broker.submit_answer(question.id, AllowAnswer())
            if isinstance(event, ToolOutputReturned):
                texts[event.call] = extract_tool_result_text(event.result)
    assert "secrets" not in texts["0"]
    assert "secrets/a" in texts["1"]
    assert "deep" not in texts["1"]


@needs_bwrap
async def test_a_sandboxed_command_cannot_see_denied_files(project: Path) -> None:
    Path(os.environ["SHOAL_HOME"]).mkdir(parents=True, exist_ok=True)
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text('{"shoal": {"sandbox": {"enabled": true}}}')
    script = "import pathlib; [print(p.read_text()) for p in pathlib.Path().rglob('*') if p.is_file()]"
    # The code is in a file, which is not read before it runs: as an argument it would be asked about.
    (project / "print_all.py").write_text(script)
    calls = ("Bash", {"command": "python3 print_all.py"})
    (open_text,) = await run_calls(project, calls, allowed_tools=["Bash"], disallowed_tools=[])
    (text,) = await run_calls(project, calls, allowed_tools=["Bash"])
    assert open_text.count("needle") == 7
    assert text.count("needle") == 3
    assert "secrets" not in text
    assert (project / "secrets" / "a").read_text()


@needs_bwrap
async def test_a_deny_rule_for_all_files_does_not_break_commands(project: Path) -> None:
    Path(os.environ["SHOAL_HOME"]).mkdir(parents=True, exist_ok=True)
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text('{"shoal": {"sandbox": {"enabled": true}}}')
    for rule in ("Read(/**)", "Read(//usr/**)", "Read(//**)"):
        call = ("Bash", {"command": "echo it ran"})
        (text,) = await run_calls(project, call, allowed_tools=["Bash"], disallowed_tools=[rule])
        assert "it ran" in text, rule
