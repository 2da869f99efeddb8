"""A file that a rule keeps from being read stays unread, also by what goes through the directory above it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.events import ToolReturned
from shoal.core.messages import ToolUse, result_text
from shoal.core.questions import Allowed
from shoal.models.scripted import ScriptedModel

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


async def results(project: Path, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    uses = [ToolUse(id=str(at), name=name, input=given) for at, (name, given) in enumerate(calls)]
    options.setdefault("disallowed_tools", DENY)
    async with shoal.open(cwd=project, model=ScriptedModel([uses, "done"]), **options) as session:
        events = [event async for event in session.run("go")]
    # Reads run side by side and end in any order.
    returned = {event.call: result_text(event.result) for event in events if isinstance(event, ToolReturned)}
    return [returned[use.id] for use in uses]


@needs_ripgrep
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_a_search_leaves_out_files_that_must_not_be_read(project: Path, mode: str) -> None:
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
    found = await results(project, *calls, add_dirs=[project.parent / "link"], **options)
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
async def test_names_of_such_files_are_not_listed(project: Path) -> None:
    found = await results(
        project, ("Glob", {"pattern": "**/*"}), ("Glob", {"pattern": f"{project}/secrets/*"})
    )
    assert sorted(found[0].split("\n")) == [f"{project}/{name}" for name in ("open", "src/open", "z")]
    assert "No file" in found[1]


@needs_ripgrep
async def test_what_must_be_asked_first_is_left_out_until_it_is_what_is_searched(project: Path) -> None:
    (project / ".claude").mkdir()
    rules = {"permissions": {"ask": ["Read(secrets/**)"], "deny": ["Read(secrets/deep/**)"]}}
    (project / ".claude" / "settings.json").write_text(json.dumps(rules))
    whole, part = {"pattern": "needle"}, {"pattern": "needle", "path": "secrets"}
    uses = [ToolUse(id=str(at), name="Grep", input=given) for at, given in enumerate((whole, part))]
    async with shoal.open(cwd=project, model=ScriptedModel([uses, "done"]), attended=True) as session:
        texts: dict[str, str] = {}
        async for event in session.run("go"):
            for question in session.parts.desk.open_questions():
                session.parts.desk.answer(question.id, Allowed())
            if isinstance(event, ToolReturned):
                texts[event.call] = result_text(event.result)
    assert "secrets" not in texts["0"]
    assert "secrets/a" in texts["1"]
    assert "deep" not in texts["1"]


@needs_bwrap
async def test_a_confined_command_does_not_see_what_is_denied(project: Path) -> None:
    Path(os.environ["SHOAL_HOME"]).mkdir(parents=True, exist_ok=True)
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text('{"shoal": {"sandbox": {"enabled": true}}}')
    script = "import pathlib; [print(p.read_text()) for p in pathlib.Path().rglob('*') if p.is_file()]"
    calls = ("Bash", {"command": f'python3 -c "{script}"'})
    (open_text,) = await results(project, calls, allowed_tools=["Bash"], disallowed_tools=[])
    (text,) = await results(project, calls, allowed_tools=["Bash"])
    assert open_text.count("needle") == 7
    assert text.count("needle") == 3
    assert "secrets" not in text
    assert (project / "secrets" / "a").read_text()


@needs_bwrap
async def test_a_rule_about_everything_does_not_take_the_ground_from_under_commands(project: Path) -> None:
    Path(os.environ["SHOAL_HOME"]).mkdir(parents=True, exist_ok=True)
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text('{"shoal": {"sandbox": {"enabled": true}}}')
    for rule in ("Read(/**)", "Read(//usr/**)", "Read(//**)"):
        call = ("Bash", {"command": "touch made && echo it ran"})
        (text,) = await results(project, call, allowed_tools=["Bash"], disallowed_tools=[rule])
        assert "it ran" in text, rule
