"""`shoal workflow` as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

WORKFLOW = """
import shoal

reviewer = shoal.Agent("reviewer", prompt="You review.", tools=[])


@shoal.workflow
async def review(flow: shoal.Workflow, files: list[str]) -> list[str]:
    flow.phase("review")
    return await flow.map(reviewer, [f"Review {file}" for file in files])
"""


@pytest.fixture
def scripted_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "It is fine.", "repeat": True}]))
    monkeypatch.setenv("SHOAL_MODEL", f"scripted:{script}")


def find_session(text: str) -> str:
    return text.partition("Session ")[2].partition(".")[0]


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_workflow_is_run_shown_and_resumed(shoal: ShoalProgram, home: Path) -> None:
    (home / "workflows").mkdir()
    (home / "workflows" / "review.py").write_text(WORKFLOW)
    assert "review" in (await shoal("workflow", "ls")).text
    ran = await shoal("workflow", "run", "review", 'files=["a.py", "b.py"]')
    assert ran.code == 0, ran.err
    assert json.loads(ran.text) == ["It is fine.", "It is fine."]
    assert "phase: review" in ran.err
    session = find_session(ran.err)
    shown = (await shoal("workflow", "show", session, "--json")).lines[-1]
    assert shown["status"] == "completed"
    assert [(step["input"], step["finished"]) for step in shown["steps"]] == [
        ("Review a.py", True),
        ("Review b.py", True),
    ]
    resumed = await shoal("workflow", "resume", session)
    assert json.loads(resumed.text) == json.loads(ran.text)
    assert "completed: reviewer" not in resumed.err
    again = await shoal("workflow", "resume", session, "--from", "2")
    assert again.err.count("completed: reviewer") == 1


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_workflow_of_the_project_is_run_only_by_its_path(shoal: ShoalProgram) -> None:
    directory = shoal.project / ".claude" / "workflows"
    directory.mkdir(parents=True)
    (directory / "review.py").write_text(WORKFLOW)
    (directory / "old.js").write_text("export default 1")
    listed = (await shoal("workflow", "ls")).text
    assert "old.js" in listed
    assert "Shoal runs workflows in Python only" in listed
    refused = await shoal("workflow", "run", "review", "files=[]")
    assert refused.code == 1
    assert "shoal workflow run .claude/workflows/review.py:review" in refused.err
    ran = await shoal("workflow", "run", ".claude/workflows/review.py:review", "files=[]")
    assert json.loads(ran.text) == []


@pytest.mark.spec("WFL-06")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("missing.py",), "is not a Python file"),
        (("nothing",), "There is no workflow 'nothing'"),
        (("review.py:other",), "has no workflow 'other'. Its workflows: review"),
        (("review.py", "files=3"), "The argument 'files' of review does not fit its type"),
        (("review.py",), "missing a required argument: 'files'"),
        (("review.py", "files"), "Write NAME=VALUE"),
        (("review.py", "--args", "["), "--args is not JSON"),
        (("broken.py",), "cannot be run: ZeroDivisionError"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_the_reason(
    shoal: ShoalProgram, words: tuple[str, ...], expected: str
) -> None:
    (shoal.project / "review.py").write_text(WORKFLOW)
    (shoal.project / "broken.py").write_text("1 / 0")
    ran = await shoal("workflow", "run", *words)
    assert ran.code != 0
    assert expected in ran.err
