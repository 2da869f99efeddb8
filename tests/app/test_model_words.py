"""The words sent to models: their size, their protocol, and that they do not depend on docstrings."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from request_recorder import count_bytes, extract_protocol, extract_schemas, record_session

from shoal.core.text.model_texts import ModelTexts

ROOT = Path(__file__).parents[2]

RECORDED_PROTOCOL = Path(__file__).with_name("recorded_protocol.json")
"""Recorded from the commit before the texts were rewritten."""
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "forks": {"shoal_settings": {"forks": True}, "attended": True},
    "coordinator": {"coordinator": True},
    "assistant": {"assistant": True},
}


@pytest.fixture(scope="module")
def recorded_protocol() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED_PROTOCOL.read_text())
    return found


async def test_tool_schemas_are_as_recorded(project: Path, recorded_protocol: dict[str, Any]) -> None:
    recorder = await record_session(project)
    assert extract_schemas(recorder.first["lead"]) == recorded_protocol["schemas"]


@pytest.mark.parametrize("mode", MODES)
async def test_protocol_words_are_as_recorded(
    project: Path, mode: str, recorded_protocol: dict[str, Any]
) -> None:
    recorder = await record_session(project, **MODES[mode])
    assert {
        speaker: extract_protocol(request, recorded_protocol["schemas"])
        for speaker, request in recorder.last.items()
    } == recorded_protocol["requests"][mode]


@pytest.mark.parametrize(
    ("speaker", "before"),
    # The bytes before the texts were rewritten: system prompt, tools and first message.
    [("lead", 23_462), ("child", 20_776), ("mate", 23_302)],
)
async def test_a_new_agent_is_sent_no_more_than_its_budget_of_bytes(
    project: Path, speaker: str, before: int
) -> None:
    recorder = await record_session(project)
    counted = count_bytes(recorder.first[speaker], project)
    assert sum(counted.values()) <= before * 0.8, counted


@pytest.mark.slow
def test_tools_are_described_the_same_without_docstrings(project: Path) -> None:
    script = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from request_recorder import encode_tool, record_session\n"
        "recorder = asyncio.run(record_session(Path(sys.argv[1])))\n"
        "print(json.dumps([encode_tool(each).decode() for each in recorder.first['lead'].tools]))\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    outputs = [
        subprocess.run(
            [sys.executable, *flags, "-c", script, str(project)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for flags in ([], ["-OO"])
    ]
    assert outputs[0] == outputs[1]
    assert all(json.loads(tool)["description"] for tool in json.loads(outputs[1]))


NOTICE_FILES = sorted((ROOT / "src" / "shoal").glob("**/prompts/notices.md"))


@pytest.mark.parametrize("file", NOTICE_FILES, ids=lambda file: file.parts[-3])
def test_every_notice_is_used_and_every_used_notice_exists(file: Path) -> None:
    package = file.parents[1]
    (module,) = [path for path in package.glob("*.py") if 'fill_section("notices"' in path.read_text()]
    function = next(
        node.name
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and 'fill_section("notices"' in ast.unparse(node).replace("'", '"')
    )
    used, literals = set[str](), set[str]()
    sections = ModelTexts(file.parent).load_sections("notices").keys() - {""}
    # The whole package takes seconds to parse.
    words = re.compile("|".join(map(re.escape, (f"{function}(", *(f'"{name}"' for name in sections)))))
    for path in package.glob("**/*.py"):
        if not words.search(text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                used |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    assert used <= sections
    assert sections <= literals


def test_every_text_of_a_tool_is_used_and_every_used_text_exists() -> None:
    package = ROOT / "src" / "shoal" / "tools"
    texts = ModelTexts(package / "prompts")
    used, literals = set[tuple[str, str]](), set[str]()
    for path in package.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(value)):
                    literals.add(value)
                case ast.Call(
                    func=ast.Name(id="load_tool_text" | "format_tool_text"),
                    args=[ast.Constant(value=str(tool)), ast.Constant(value=str(key))],
                ):
                    used.add((tool, key))
    stored = {
        (file.stem, section.removeprefix("text:"))
        for file in (package / "prompts").glob("*.md")
        for section in texts.load_sections(file.stem)
        if section.startswith("text:")
    }
    assert used <= stored
    assert {key for _, key in stored} <= literals


EXAMPLES = {
    "Agent": ["Find flaky tests", '"4 GB"'],
    "AskUserQuestion": ["Database", "SQLite"],
    "Bash": ["Run the parser tests", "60000"],
    "BashOutput": ["error|FAILED"],
    "CronCreate": ["0 9 * * 1-5"],
    "Edit": ["`x = 1`, not `12 x = 1`"],
    "ExitPlanMode": ["tool Bash, prompt: run the tests"],
    "Glob": ["**/*.py"],
    "Grep": [r"main\(\) \{", "**/*.{ts,tsx}"],
    "NotebookEdit": ["cell-3"],
    "Read": ['"3" or "1-5"'],
    "SendMessage": ['{"type": "fyi", "text": "Tests pass"}'],
    "Skill": ["123 --fast"],
    "TaskCreate": ["Fix the login test", '{"acceptance": "make test"}'],
    "TaskUpdate": ['["1", "2"]'],
    "TeamCreate": ['{"type": "shutdown_request"}'],
    "TodoWrite": ["Run the tests", "Running the tests"],
    "ToolSearch": ["+server word", "select:NAME,NAME"],
    "WebFetch": ["https://example.com/page"],
    "WebSearch": ['["python.org"]'],
    "Workflow": [
        'async def main(flow): return await flow.map("general-purpose", ["Check a.py", "Check b.py"])'
    ],
}
"""Tools that models easily call wrong, with the examples in their descriptions."""


@pytest.mark.parametrize("tool", EXAMPLES)
def test_a_tool_that_is_easily_called_wrong_has_an_example(tool: str) -> None:
    sections = ModelTexts(ROOT / "src" / "shoal" / "tools" / "prompts").load_sections(tool)
    described = [text for section, text in sections.items() if not section.startswith("text:")]
    assert [each for each in EXAMPLES[tool] if not any(each in text for text in described)] == []


def test_the_example_of_a_workflow_script_is_valid() -> None:
    compile(EXAMPLES["Workflow"][0], "script", "exec")
