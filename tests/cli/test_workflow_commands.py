"""`shoal workflow` as a person or a script uses it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from shoal_process import ShoalProgram, wait_for_result

from shoal.core.events import WorkflowStepStarted
from shoal.stores.files.sessions.file_journal import follow_journal

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
    watched = (await shoal("watch", session)).text
    assert "phase review" in watched
    assert "completed" in watched
    assert list((await shoal("cost", session, "--json")).lines[-1]["by_phase"]) == ["review: review"]
    resumed = await shoal("workflow", "resume", session)
    assert json.loads(resumed.text) == json.loads(ran.text)
    assert "completed: reviewer" not in resumed.err
    again = await shoal("workflow", "resume", session, "--from", "2")
    assert again.err.count("completed: reviewer") == 1


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_workflow_of_the_project_runs_by_name_once_the_project_is_trusted(
    shoal: ShoalProgram,
) -> None:
    directory = shoal.project / ".claude" / "workflows"
    directory.mkdir(parents=True)
    (directory / "review.py").write_text(WORKFLOW)
    (directory / "old.js").write_text("export default 1")
    listed = (await shoal("workflow", "ls")).text
    assert "old.js" in listed
    assert "Shoal runs only Python workflows" in listed
    assert "not trusted in their current state" in listed
    refused = await shoal("workflow", "run", "review", "files=[]")
    assert refused.code == 1
    assert "Read them, then trust the project: shoal trust" in refused.err
    ran = await shoal("workflow", "run", ".claude/workflows/review.py:review", "files=[]")
    assert json.loads(ran.text) == []
    assert "workflow.review.py" in (await shoal("trust")).text
    assert json.loads((await shoal("workflow", "run", "review", "files=[]")).text) == []
    # Trust covers one state of the file.
    (directory / "review.py").write_text(f"{WORKFLOW}\nprint('changed')\n")
    changed = await shoal("workflow", "run", "review", "files=[]")
    assert changed.code == 1
    assert "changed" not in changed.text


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_workflow_of_the_project_is_resumed_only_in_a_trusted_state(
    shoal: ShoalProgram, tmp_path: Path
) -> None:
    directory = shoal.project / ".claude" / "workflows"
    directory.mkdir(parents=True)
    (directory / "review.py").write_text(WORKFLOW)
    await shoal("trust")
    ran = await shoal("workflow", "run", "review", 'files=["a.py"]')
    assert ran.code == 0, ran.err
    session = find_session(ran.err)
    assert json.loads((await shoal("workflow", "resume", session)).text) == ["It is fine."]
    marker = tmp_path / "ran"
    (directory / "review.py").write_text(f"{WORKFLOW}\nopen({str(marker)!r}, 'w')\n")
    inner = shoal.project / "inner"
    inner.mkdir()
    for reference, cwd in ((session, shoal.project), ("review", shoal.project), (session, inner)):
        in_directory = ("env", "-C", str(cwd))
        refused = await shoal("workflow", "resume", reference, "--from", "1", prefix=in_directory)
        assert refused.code == 1
        assert "The workflow review cannot run: This project's workflows are not trusted" in refused.err
        assert not marker.exists()
    await shoal("trust")
    assert json.loads((await shoal("workflow", "resume", session)).text) == ["It is fine."]
    assert marker.exists()
    marker.unlink()
    assert (await shoal("trust", "--revoke")).code == 0
    revoked = await shoal("workflow", "resume", session)
    assert revoked.code == 1
    assert "are not trusted in their current state" in revoked.err
    assert not marker.exists()


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_workflows_of_plugins_and_modules_run_by_name(
    shoal: ShoalProgram, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = home / "plugins" / "tools"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": "tools"}))
    (plugin / "workflows").mkdir()
    (plugin / "workflows" / "review.py").write_text(WORKFLOW)
    assert "tools:review" in (await shoal("workflow", "ls")).text
    ran = await shoal("workflow", "run", "tools:review", 'files=["a.py"]')
    assert json.loads(ran.text) == ["It is fine."]
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "company_flows.py").write_text(WORKFLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    ran = await shoal("workflow", "run", "company_flows:review", 'files=["a.py"]')
    assert json.loads(ran.text) == ["It is fine."], ran.err


@pytest.mark.spec("WFL-07")
@pytest.mark.usefixtures("scripted_model")
async def test_a_typed_workflow_is_the_turn_of_a_session(shoal: ShoalProgram, home: Path) -> None:
    (home / "workflows").mkdir()
    (home / "workflows" / "review.py").write_text(WORKFLOW)
    ran = await shoal("-p", '/review files=["a.py","b.py"]')
    assert ran.code == 0, ran.err
    assert json.loads(ran.text) == ["It is fine.", "It is fine."]
    # A text or a JSON value is enough for a workflow with one parameter.
    assert json.loads((await shoal("-p", '/review ["a.py"]')).text) == ["It is fine."]
    failed = await shoal("-p", "/review 3")
    assert failed.code == 1
    assert "does not match its type" in failed.err


@pytest.mark.spec("WFL-07")
@pytest.mark.usefixtures("scripted_model")
async def test_a_typed_workflow_of_an_untrusted_project_is_refused(shoal: ShoalProgram) -> None:
    directory = shoal.project / ".claude" / "workflows"
    directory.mkdir(parents=True)
    (directory / "review.py").write_text(f"{WORKFLOW}\nopen('ran', 'w')\n")
    refused = await shoal("-p", '/review files=["a.py"]')
    assert refused.code == 1
    assert "trust the project: shoal trust" in refused.err
    assert not (shoal.project / "ran").exists()
    await shoal("trust")
    assert json.loads((await shoal("-p", "/review files=[]")).text) == []


BLOCKED = """
import shoal


@shoal.workflow
async def wait(flow: shoal.Workflow) -> str:
    flow.phase("wait")
    await flow.sleep(100_000)
    return "never"
"""


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_running_workflow_is_stopped_by_its_name(shoal: ShoalProgram, home: Path) -> None:
    (home / "workflows").mkdir()
    (home / "workflows" / "wait.py").write_text(BLOCKED)
    async with shoal.start_process("workflow", "run", "wait") as process:
        assert process.stderr is not None
        async with asyncio.timeout(20):
            await process.stderr.readuntil(b"phase: wait")
        stopped = await shoal("workflow", "stop", "wait")
        assert stopped.code == 0, stopped.err
        assert "Stopped the workflow wait-" in stopped.text
        assert (await wait_for_result(process)).code == 4
    shown = (await shoal("workflow", "show", "wait", "--json")).lines[-1]
    assert shown["status"] == "stopped"
    again = await shoal("workflow", "stop", "wait")
    assert again.code == 1
    assert "is not running: stopped" in again.err


@pytest.mark.spec("WFL-06")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("missing.py",), "is not a Python file"),
        (("nothing",), "There is no workflow 'nothing'"),
        (("review.py:other",), "has no workflow 'other'. Its workflows: review"),
        (("review.py", "files=3"), "The argument 'files' of review does not match its type"),
        (("review.py",), "missing a required argument: 'files'"),
        (("review.py", 'file=["a"]'), "The workflow review has no parameter 'file'. Did you mean files?"),
        (("review.py", "files=[]", 'files=["a"]'), "The argument 'files' is given twice"),
        (
            ("review.py", "--args", '{"files": []}', 'files=["a"]'),
            "The argument 'files' is given twice. Leave one out.",
        ),
        (("review.py", "--args", '{"files": [], "files": [1]}'), "the name 'files' is given twice"),
        (("unclosed",), "unclosed.py cannot run: The file cannot be read: "),
        (("company.flows:review",), "The module company.flows cannot be imported: ModuleNotFoundError"),
        (("review.py", "files"), "Write NAME=VALUE"),
        (("review.py", "--args", "["), "--args is not JSON"),
        (("broken.py",), "cannot be run: ZeroDivisionError"),
        (("old-one",), "The workflow old-one cannot run: Shoal runs only Python workflows."),
        (("old.js",), "is not used: Shoal runs only Python workflows."),
    ],
)
async def test_what_cannot_be_run_is_refused_with_the_reason(
    shoal: ShoalProgram, words: tuple[str, ...], expected: str
) -> None:
    (shoal.project / "review.py").write_text(WORKFLOW)
    (shoal.project / "broken.py").write_text("1 / 0")
    (shoal.project / ".claude" / "workflows").mkdir(parents=True, exist_ok=True)
    (shoal.project / ".claude" / "workflows" / "old-one.js").write_text("export default 1")
    (shoal.project / ".claude" / "workflows" / "unclosed.py").write_text("def f(")
    ran = await shoal("workflow", "run", *words)
    assert ran.code != 0
    assert expected in ran.err


RAISING = """
import asyncio
import pathlib
import shoal


@shoal.workflow
async def check(flow: shoal.Workflow, in_group: bool = False) -> str:
    await flow.shell("echo first")
    if in_group:
        async with asyncio.TaskGroup() as group:
            group.create_task(find_gate())
    else:
        await find_gate()
    return "open"


async def find_gate() -> None:
    if not pathlib.Path("gate").exists():
        raise ValueError("not yet")
"""


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
@pytest.mark.parametrize("in_group", ["false", "true"])
async def test_an_error_of_the_program_is_reported_with_its_line_and_can_be_resumed(
    shoal: ShoalProgram, in_group: str
) -> None:
    file = shoal.project / "check.py"
    file.write_text(RAISING)
    line = RAISING[: RAISING.index("raise ValueError")].count("\n") + 1
    flags = ("--permission-mode", "bypassPermissions")
    failed = await shoal("workflow", "run", "check.py", f"in_group={in_group}", *flags)
    session = find_session(failed.err)
    resumed = await shoal("workflow", "resume", session, *flags)
    for ran in (failed, resumed):
        assert ran.code == 1
        assert f"The workflow check raised ValueError: not yet ({file}:{line})." in ran.err
        assert ran.err.endswith(f"run: shoal workflow resume {session}\n")
        assert "bug" not in ran.err
    (shoal.project / "gate").touch()
    finished = await shoal("workflow", "resume", session, *flags)
    assert (finished.code, finished.text) == (0, "open\n"), finished.err


@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_changed_workflow_is_shown_with_the_command_that_repeats_its_steps(
    shoal: ShoalProgram,
) -> None:
    file = shoal.project / "check.py"
    file.write_text(RAISING)
    flags = ("--permission-mode", "bypassPermissions")
    session = find_session((await shoal("workflow", "run", "check.py", *flags)).err)
    file.write_text(RAISING.replace("echo first", "echo other"))
    changed = await shoal("workflow", "resume", session, *flags)
    shown = await shoal("workflow", "show", session)
    listed = (await shoal("workflow", "show", session, "--json")).lines[-1]["detail"]
    for text in (changed.err, shown.text, listed):
        assert f"run: shoal workflow resume {session} --from 1" in text
        assert "rerun_from" not in text


@pytest.mark.slow
@pytest.mark.spec("WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_workflow_of_a_package_with_relative_imports_is_resumed(
    shoal: ShoalProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "modules" / "company"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .flows import review\n")
    (package / "names.py").write_text('PHASE = "review"\n')
    relative = WORKFLOW.replace("import shoal", "import shoal\nfrom .names import PHASE", 1)
    (package / "flows.py").write_text(relative.replace('flow.phase("review")', "flow.phase(PHASE)"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    ran = await shoal("workflow", "run", "company:review", 'files=["a.py"]')
    assert ran.code == 0, ran.err
    session = find_session(ran.err)
    for _ in range(2):
        resumed = await shoal("workflow", "resume", session, "--from", "1")
        assert resumed.code == 0, resumed.err
        assert "phase: review" in resumed.err
    # Another package with the same name is not the program that ran.
    other = tmp_path / "other" / "company"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("open('ran', 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    refused = await shoal("workflow", "resume", session, "--from", "1")
    assert refused.code == 1
    assert "flows.py cannot be run: ImportError" in refused.err
    assert not (shoal.project / "ran").exists()


SCRIPT = """
async def main(flow):
    first = await flow.map("general-purpose", ["one", "two", "three"], at_once=1)
    number = flow.random()
    if (await flow.shell("cat gate")).exit_code:
        await flow.sleep(100_000)
    return [first, number, await flow.agent("general-purpose", "last")]
"""


@pytest.mark.spec("WFL-08")
@pytest.mark.needs("bwrap")
async def test_a_killed_script_continues_without_repeating_its_agents(
    shoal: ShoalProgram, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {"name": "Workflow", "input": {"name": "job", "script": SCRIPT, "max_agents": 4}}
    steps = [
        {"match": "start it", "tools": [call]},
        {"match": "runs in the background", "text": "It runs."},
        {"match": "was interrupted", "text": "Noted."},
        {"text": "done", "repeat": True},
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps(steps))
    monkeypatch.setenv("SHOAL_MODEL", f"scripted:{script}")
    monkeypatch.setenv("SHELL", "/bin/sh")
    (home / "settings.json").write_text(json.dumps({"shoal": {"workflow_tool": True}}))
    flags = ("--permission-mode", "bypassPermissions")
    session = "9a1f3c52-0000-4000-8000-000000000001"
    async with shoal.start_process("-p", "start it", "--session-id", session, *flags) as process:
        assert process.stdin is not None
        process.stdin.close()
        journal = home / "shoal" / "runs" / session / "journal.jsonl"
        async with asyncio.timeout(60):
            async for record in follow_journal(journal, 0, is_running=lambda: True):
                if isinstance(record.event, WorkflowStepStarted) and record.event.path == "sleep":
                    break
        process.kill()
    assert (await shoal("workflow", "show", "job", "--json")).lines[-1]["status"] == "interrupted"
    resumed = await shoal("-p", "and now?", "--resume", session, *flags)
    assert resumed.code == 0, resumed.err
    (shoal.project / "gate").touch()
    before = (await shoal("workflow", "show", "job", "--json")).lines[-1]["steps"]
    assert [step["finished"] for step in before] == [True] * 5 + [False]
    finished = await shoal("workflow", "resume", "job", "--from", "5", "--json", *flags)
    assert finished.code == 0, finished.err
    value = json.loads(finished.text)
    assert value[0] == ["done"] * 3
    assert value[2] == "done"
    # Only the last agent ran in this process.
    assert finished.err.count("completed: general-purpose") == 1
    again = await shoal("workflow", "resume", "job", "--json", *flags)
    assert json.loads(again.text) == value


@pytest.mark.spec("WFL-03", "WFL-06")
@pytest.mark.usefixtures("scripted_model")
async def test_a_changed_workflow_is_refused_with_the_command_that_runs_a_step_again(
    shoal: ShoalProgram,
) -> None:
    file = shoal.project / "check.py"
    file.write_text(RAISING)
    flags = ("--permission-mode", "bypassPermissions")
    session = find_session((await shoal("workflow", "run", "check.py", *flags)).err)
    file.write_text(RAISING.replace("echo first", "echo other > ran"))
    refused = await shoal("workflow", "resume", session, *flags)
    assert refused.code == 1
    assert "command: recorded 'echo first', now 'echo other > ran'" in refused.err
    assert f"run: shoal workflow resume {session} --from 1" in refused.err
    assert "rerun_from" not in refused.err
    assert not (shoal.project / "ran").exists()
    (shoal.project / "gate").touch()
    again = await shoal("workflow", "resume", session, "--from", "1", *flags)
    assert (again.code, again.text) == (0, "open\n"), again.err
    assert (shoal.project / "ran").exists()


@pytest.mark.slow
@pytest.mark.spec("WFL-11")
@pytest.mark.usefixtures("scripted_model")
async def test_the_deadline_of_the_command_ends_the_workflow(shoal: ShoalProgram) -> None:
    (shoal.project / "wait.py").write_text(BLOCKED)
    late = await shoal("workflow", "run", "wait.py", "--deadline", "2s")
    assert late.code == 4, late.err
    assert "the deadline of 2 s has passed" in late.err


@pytest.mark.spec("WFL-05", "WFL-06")
@pytest.mark.usefixtures("scripted_model")
@pytest.mark.parametrize(
    ("step", "expected", "code"),
    [
        ("99", "has no step 99. Its steps: 1 to 1.", 1),
        ("0", "Invalid value for '--from'", 2),
        ("-1", "Invalid value for '--from'", 2),
        ("1.5", "Invalid value for '--from'", 2),
        ("x", "Invalid value for '--from'", 2),
    ],
)
async def test_a_step_that_does_not_exist_is_refused(
    shoal: ShoalProgram, step: str, expected: str, code: int
) -> None:
    (shoal.project / "review.py").write_text(WORKFLOW)
    session = find_session((await shoal("workflow", "run", "review.py", 'files=["a.py"]')).err)
    refused = await shoal("workflow", "resume", session, "--from", step)
    assert refused.code == code
    assert expected in refused.err
