"""The examples run as they are; the environment supplies a scripted model."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = EXAMPLES.parent / "bench" / "program_sizes"


def call(tool: str, **arguments: object) -> dict[str, Any]:
    return {"name": tool, "input": arguments}


@pytest.fixture(name="project")
def create_project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def build_environment(project: Path, script: Sequence[object]) -> dict[str, str]:
    path = project.parent / "script.json"
    path.write_text(json.dumps(script))
    return {**os.environ, "SHOAL_MODEL": f"scripted:{path}"}


def run_example(name: str, project: Path, script: Sequence[object], *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=project,
        env=build_environment(project, script),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_the_service_streams_an_answer_to_each_line(project: Path, unused_port: int) -> None:
    script = [{"match": "Hello", "text": "Hello to you."}, {"match": "Again", "text": "And again."}]
    service = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / "service.py"), str(unused_port), cwd=project,
        env=build_environment(project, script),
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            reader, writer = await connect(unused_port)
            writer.write(b"Hello\n")
            assert await reader.readline() == b"Hello to you.\n"
            writer.write(b"Again\n")
            assert await reader.readline() == b"And again.\n"
            writer.close()
    finally:
        service.terminate()
        await service.wait()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the service listens."""
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            await asyncio.sleep(0.05)


@pytest.fixture(name="unused_port")
def find_unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_typed_answer_is_a_list_of_objects(project: Path) -> None:
    answer = call("StructuredOutput", value=[{"file": "a.py", "line": 3, "why": "It divides by zero."}])
    script = [{"match": "Review", "tools": [answer]}, {"text": "Done."}]
    assert run_example("typed_output.py", project, script) == [
        "a.py:3: It divides by zero.",
        "2 requests",
    ]


def test_the_fan_out_reviews_each_file(project: Path) -> None:
    script = [{"pattern": r"Review (?P<file>\S+)", "repeat": True, "text": "{{file}} is fine."}]
    output = run_example("fan_out.py", project, script, "a.py", "b.py", "c.py")
    assert output == [f"{name}: {name} is fine." for name in ("a.py", "b.py", "c.py")]


TEAM_SCRIPT = [
    {
        "system": "You are ana",
        "match": "#1 Write hello.txt",
        "tools": [
            call("Write", file_path="hello.txt", content="hello\n"),
            call("TaskUpdate", taskId="1", status="completed"),
        ],
    },
    {
        "system": "You are ben",
        "match": "Task #2 is yours now",
        "tools": [call("TaskUpdate", taskId="2", status="completed")],
    },
    {"system": "You are", "repeat": True, "text": "That is all."},
]


@pytest.mark.spec("SRF-03")
def test_the_team_creates_spawns_collaborates_and_shuts_down(project: Path) -> None:
    output = run_example("team.py", project, TEAM_SCRIPT)
    assert output[-1] == "finished: True, $0.0"
    assert [line for line in output if "completed" in line] == ["#1 completed", "#2 completed"]
    assert (project / "hello.txt").read_text() == "hello\n"


@pytest.mark.slow
def test_an_unfinished_team_is_continued_by_another_program(project: Path) -> None:
    idle = [{"repeat": True, "text": "That is all."}]
    assert run_example("team.py", project, idle)[-1] == "finished: False, $0.0"
    assert run_example("resume_team.py", project, idle) == ["finished: False, $0.0"]


@pytest.mark.parametrize("name", ["own_model.py", "own_model_class.py"])
def test_a_model_of_the_program_answers(project: Path, name: str) -> None:
    assert run_example(name, project, []) == ["You said: Hello"]


def test_a_hook_forbids_a_command_and_another_sees_the_result(project: Path) -> None:
    (project / "keep.txt").write_text("x")
    script = [
        {"match": "Clean up", "tools": [call("Bash", command="rm keep.txt", description="Delete")]},
        {"match": "Nothing is deleted here", "tools": [call("Bash", command="ls", description="List")]},
        {"text": "It stays."},
    ]
    assert run_example("hooks.py", project, script) == ["Bash finished", "It stays."]
    assert (project / "keep.txt").exists()


def test_the_cells_of_the_notebook_run_one_after_the_other(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [{"match": "What is", "text": "Two files."}, {"match": "And which", "text": "The first."}]
    monkeypatch.setenv("SHOAL_MODEL", build_environment(project, script)["SHOAL_MODEL"])
    monkeypatch.chdir(project)
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {}
    loop = asyncio.new_event_loop()
    try:
        # A notebook runs each cell in a task of its own.
        shown = [loop.run_until_complete(run_cell(source, namespace)) for source in sources]
    finally:
        loop.close()
    assert [text for text in shown if isinstance(text, str)] == ["Two files.", "The first."]


async def run_cell(source: str, namespace: dict[str, Any]) -> object:
    """Run a cell and return the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.copy_location(
            ast.Assign(targets=[ast.Name("_", ast.Store())], value=last.value), last
        )
    code = compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, namespace)
    if isawaitable(running):
        await running
    return namespace.pop("_", None)


def test_the_example_of_a_test_passes(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_agent.py")],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.spec("API-01")
@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_imports_only_public_modules(path: Path) -> None:
    text = path.read_text()
    assert "shoal.core" not in text
    assert "shoal.app" not in text


@pytest.mark.spec("API-01")
def test_the_documentation_imports_only_public_modules() -> None:
    root = EXAMPLES.parent
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    internal = re.compile(r"^\s*(?:from|import) shoal\.(?!testing\b)", re.MULTILINE)
    assert [str(page) for page in pages if internal.search(page.read_text())] == []


@pytest.mark.slow
@pytest.mark.spec("API-07")
def test_the_examples_pass_mypy_in_strict_mode() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(map(str, EXAMPLES.glob("*.py")))],
        capture_output=True,
        text=True,
        check=False,
        cwd=EXAMPLES.parent,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout


def test_programs_are_at_most_two_lines_longer_than_the_shortest_of_the_others() -> None:
    counts = runpy.run_path(str(SIZES / "line_counts.py"))
    for job, lines in counts["count_programs"]().items():
        others = [count for library, count in lines.items() if library != "shoal" and count is not None]
        assert lines["shoal"] <= min(others) + 2, job
    page = (EXAMPLES.parent / "docs" / "comparison.md").read_text()
    assert counts["format_table"]() in page, "run python bench/program_sizes/line_counts.py"


@pytest.mark.parametrize(
    "path", sorted(SIZES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_programs_for_other_libraries_compile(path: Path) -> None:
    compile(path.read_text(), str(path), "exec")


def find_pyright() -> str | None:
    own = Path(sys.executable).parent / "pyright"
    return str(own) if own.exists() else shutil.which("pyright")


@pytest.mark.spec("API-07")
@pytest.mark.exhaustive
@pytest.mark.skipif(find_pyright() is None, reason="pyright is not installed (npm install pyright)")
def test_the_examples_pass_pyright(tmp_path: Path) -> None:
    program = find_pyright()
    assert program is not None
    done = subprocess.run(
        [program, "--pythonpath", sys.executable, *sorted(map(str, EXAMPLES.glob("*.py")))],
        capture_output=True,
        text=True,
        check=False,
        cwd=EXAMPLES.parent,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout


WRONG = """
import shoal

shoal.open(modelx="x")
shoal.open(mode="planx")
shoal.open(hooks={"PreToolUsex": []})
shoal.open(allowed_tools=["Readx"])
shoal.Agent("a", prompt="x", tools=["Grepx"])
shoal.Agent("a", prompt="x", isolation="vm")
shoal.Team("t", members=[], backend="processx")
shoal.run_sync("hi", output=int).output.upper()
shoal.Budget(usdd=1)
shoal.DenyAnswer(reasons="no")
shoal.Agent("a", prompt="x", outputt=int)
shoal.run_sync("hi", outpt=int)
shoal.Team("t", members=[], leed=None)
shoal.ModelCard(id="a", provider="b", prise=None)
"""

TYPES = """
from typing import assert_type

import shoal

writer = shoal.Agent("writer", prompt="You write.")
counter = shoal.Agent("counter", prompt="You count.", output=int)


async def use_session(session: shoal.Session[str]) -> None:
    assert_type(await session.run("x"), shoal.Result[str])
    assert_type((await session.run("x")).output, str)
    assert_type(await session.spawn(writer, "x"), shoal.AgentHandle[None])
    assert_type(await (await session.spawn(counter, "x")), shoal.Result[int])
    assert_type(await session.map(counter, ["x"]), list[shoal.Result[int]])
    assert_type(await session.map("general-purpose", ["x"], output=float), list[shoal.Result[float]])


@shoal.tool
def weigh(ship: str, *, unit: str = "t") -> int:
    return len(ship + unit)


@shoal.workflow
async def plan(flow: shoal.Workflow, files: list[str]) -> int:
    assert_type(await flow.agent(writer, "x"), str)
    assert_type(await flow.agent(counter, "x"), int)
    assert_type(await flow.agent("general-purpose", "x", output=float), float)
    assert_type(await flow.map(writer, files), list[str])
    assert_type(await flow.map(writer, files, default=None), list[str | None])
    assert_type(await flow.map(counter, files, default=None), list[int | None])
    assert_type(await flow.map(counter, files, default="x"), list[int | str])
    assert_type(await flow.map("general-purpose", files, default=None), list[str | None])
    assert_type(await flow.map(writer, files, output=float, default=None), list[float | None])

    async def count(name: str) -> int:
        return len(name)

    async def halve(number: int) -> float:
        return number / 2

    async def format_number(number: float) -> str:
        return str(number)

    assert_type(await flow.pipeline(files, count), list[int])
    assert_type(await flow.pipeline(files, count, halve), list[float])
    assert_type(await flow.pipeline(files, count, halve, format_number), list[str])
    assert_type((await flow.shell("ls")).exit_code, int)
    return 3


async def use_others(session: shoal.Session, question: shoal.PermissionQuestion) -> None:
    assert_type(await plan.run(session, ["a"]), int)
    assert_type(await plan.resume(session), int)
    assert_type(weigh("boat", unit="kg"), int)
    assert_type(question.allow(remember="session"), shoal.AllowAnswer)
    async with shoal.open(output=int) as opened:
        assert_type((await opened.run("x")).output, int)
    async with shoal.Team("repair", members=[writer]) as team:
        assert_type(await team.add_task("x", owner="ana"), shoal.Task)
        assert_type(await team.finished(), shoal.TeamReport)
"""


def run_mypy(path: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(EXAMPLES.parent / ".mypy_cache")]
    return subprocess.run(
        [*command, str(path)],
        capture_output=True, text=True, check=False, cwd=EXAMPLES.parent, timeout=170,
    ).stdout  # fmt: skip


def run_pyright(path: Path) -> str:
    program = find_pyright()
    assert program is not None
    return subprocess.run(
        [program, "--pythonpath", sys.executable, str(path)],
        capture_output=True, text=True, check=False, cwd=EXAMPLES.parent, timeout=170,
    ).stdout  # fmt: skip


CHECKERS = [
    pytest.param(run_mypy, r"wrong\.py:(\d+)", id="mypy"),
    pytest.param(
        run_pyright,
        r"wrong\.py:(\d+)",
        id="pyright",
        marks=[
            pytest.mark.exhaustive,
            pytest.mark.skipif(find_pyright() is None, reason="pyright is not installed"),
        ],
    ),
]


@pytest.mark.slow
@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("check_types", "location"), CHECKERS)
def test_unknown_options_events_modes_and_tools_are_type_errors(
    tmp_path: Path, check_types: Callable[[Path], str], location: str
) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    output = check_types(tmp_path / "wrong.py")
    found = [re.search(location, line) for line in output.splitlines() if "error" in line]
    assert {int(match[1]) for match in found if match} == set(range(4, 1 + len(WRONG.splitlines()))), output


@pytest.mark.slow
@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("check_types", "location"), CHECKERS)
def test_the_documented_spelling_of_other_answer_types_passes_type_checkers(
    tmp_path: Path, check_types: Callable[[Path], str], location: str
) -> None:
    page = (EXAMPLES.parent / "docs" / "how-to" / "use-as-a-library.md").read_text()
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Literal[" in each]
    checks = "assert_type(shoal.run_sync('x', output=Verdict).output.score, int | None)\n"
    (tmp_path / "spelling.py").write_text(f"{block}\nfrom typing import assert_type\n{checks}")
    output = check_types(tmp_path / "spelling.py")
    assert "Success" in output or "0 errors" in output, output
    (tmp_path / "block.py").write_text(block)
    names = runpy.run_path(str(tmp_path / "block.py"))
    assert names["grade"].output.convert("good") == "good"
    with pytest.raises(ValueError, match="Invalid enum value"):
        names["grade"].output.convert("fair")


@pytest.mark.slow
@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("check_types", "location"), CHECKERS)
def test_answers_have_the_types_that_were_asked_for(
    tmp_path: Path, check_types: Callable[[Path], str], location: str
) -> None:
    (tmp_path / "right.py").write_text(TYPES)
    output = check_types(tmp_path / "right.py")
    assert "Success" in output or "0 errors" in output, output
