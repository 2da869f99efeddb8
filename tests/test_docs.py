"""The documentation is correct: Python examples compile, links lead somewhere, commands and flags exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest

from needs_marks import explain_missing
from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.app.teams.team_templates import read_team_template_file as read_template
from shoal.surfaces.cli.main import _resolve_command
from shoal.testing import make_tool_call, messages_server, run_in_thread
from shoal.wire.hook_codec import parse_hooks_setting
from shoal.wire.settings_codec import (
    PerFileSettingsSchema,
    SettingsSchema,
    describe_unknown_shoal_settings,
    parse_settings_document,
)

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = ("|", ">", ">>", "&&", "&", ";")
"""After these the words are not those of the command any more."""
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def list_code_blocks(language: str) -> list[tuple[str, str]]:
    """Every fenced block of that language: where it stands, and its text."""
    return [
        (f"{page.relative_to(ROOT)}:{page.read_text()[: match.start()].count(chr(10)) + 1}", match[2])
        for page in PAGES
        for match in _BLOCK.finditer(page.read_text())
        if match[1] == language
    ]


def list_commands() -> list[tuple[str, str]]:
    """Every line a reader would type: those of console blocks that start with a dollar sign."""
    return [
        (where, line.removeprefix("$ "))
        for where, text in list_code_blocks("console")
        for line in text.replace("\\\n> ", " ").splitlines()
        if line.startswith("$ ")
    ]


SHOAL = [(where, line) for where, line in list_commands() if re.search(r"(^|\| )shoal\b", line)]
MAKE = [(where, line) for where, line in list_commands() if line.startswith("make")]


@pytest.mark.parametrize(
    ("where", "code"), list_code_blocks("python"), ids=lambda value: value.split("\n")[0]
)
def test_a_python_example_compiles(where: str, code: str):
    compile(code, where, "exec")


def list_programs() -> list[tuple[str, str]]:
    """Examples that can be run as they stand; those of the pages that are followed are run there."""
    return [
        (where, code)
        for where, code in list_code_blocks("python")
        if code.rstrip().endswith("asyncio.run(main())") and "how-to" not in where
    ]


SAMPLES = {"boolean": True, "string": "fine", "integer": 1, "number": 1.5, "array": [], "object": {}}


def give_short_answer(request: Mapping[str, Any]) -> Any:
    """Reply with a text, or with an answer in the format that an agent owes."""
    owed = [tool for tool in request.get("tools", ()) if tool["name"] == "StructuredOutput"]
    if not owed or len(request["messages"]) > 1:
        return "That is all."
    fields = owed[0]["input_schema"]["properties"].items()
    return make_tool_call("StructuredOutput", **{name: SAMPLES[field["type"]] for name, field in fields})


@pytest.mark.parametrize(("where", "code"), list_programs(), ids=lambda value: value.split("\n")[0])
def test_a_whole_program_runs(where: str, code: str, tmp_path: Path):
    """Against a provider on loopback, whose model has little to say."""
    if "claude_agent_sdk" in code and (reason := explain_missing("claude_agent_sdk")):
        pytest.skip(reason)
    (tmp_path / "shoal").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shoal "$@"\n')
    (tmp_path / "shoal").chmod(0o755)
    with run_in_thread(messages_server(give_short_answer)) as server:
        env = os.environ | {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "any",
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        }
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    assert server.replies_sent > 0


def test_the_agents_example_prints_each_review(tmp_path: Path):
    (code,) = [
        text
        for where, text in list_code_blocks("python")
        if where.startswith("README") and "session.map" in text
    ]
    script = [
        {"match": "Which modules", "text": "Two: a and b."},
        {"match": "Review src/a.py", "text": "The parser is sound."},
        {"match": "Review src/b.py", "text": "The printer is slow."},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    env = os.environ | {"SHOAL_MODEL": f"scripted:{tmp_path / 'script.json'}"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["Two: a and b.", "The parser is sound.", "The printer is slow."]


@pytest.mark.spec("API-01")
def test_no_example_imports_the_inside_of_the_package():
    found = {
        where: imports
        for where, code in list_code_blocks("python")
        if (imports := re.findall(r"(?:from|import) shoal\.(?!testing\b)\S+", code))
    }
    assert found == {}


def test_a_link_to_a_file_leads_to_an_existing_file():
    targets = [(page, target) for page in PAGES for target in _LINK.findall(page.read_text())]
    assert [f"{page}: {target}" for page, target in targets if not (page.parent / target).exists()] == []


def test_a_link_into_a_page_leads_to_an_existing_heading():
    targets = [
        (page, page.parent / path if path else page, name)
        for page in PAGES
        for path, name in _ANCHOR.findall(page.read_text())
    ]
    lost = [
        f"{page}: {path}#{name}"
        for page, path, name in targets
        if path.suffix == ".md" and name not in list_anchors(path)
    ]
    assert lost == []


@cache
def list_anchors(page: Path) -> set[str]:
    """The names under which the headings of a page are found, as the usual viewers make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_tests_that_a_page_names_exist():
    named = {path for page in PAGES for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page.read_text())}
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_page_installs_shoal_in_the_same_way():
    installs = [(where, line) for where, line in list_commands() if line.startswith("pip install")]
    first = {line for _, line in installs if "[" not in line and "sdk" not in line}
    assert first == {"pip install ."}, installs


def test_the_index_leads_to_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in _LINK.findall(index.read_text())}
    pages = {path.resolve() for path in ROOT.glob("docs/**/*.md") if "decisions" not in path.parts}
    assert {str(path) for path in pages - linked - {index}} == set()


def test_the_wheel_carries_the_documents():
    """Inside the package, where the agent that answers questions about Shoal finds them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert carried.pop("docs") == "shoal/docs"
    inside = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*")}
    assert {target.removeprefix("shoal/docs/") for target in carried.values()} & inside == set()


@pytest.mark.parametrize(("where", "text"), list_code_blocks("json"), ids=lambda value: value.split("\n")[0])
def test_settings_shown_in_the_docs_are_valid(where: str, text: str):
    """JSON of other kinds, as messages and the answers of hooks, has keys of its own."""
    try:
        raw = json.loads(text)
    except ValueError:
        raw = [json.loads(line) for line in text.splitlines()]
    keys = {*SettingsSchema.__struct_encode_fields__, *PerFileSettingsSchema.__struct_encode_fields__}
    if isinstance(raw, dict) and set(raw) <= keys:
        document = parse_settings_document(text, name=where, kind="user", path=None)
        assert list(describe_unknown_shoal_settings(document)) == []
        assert parse_hooks_setting(raw.get("hooks", {}), document.locate_key).problems == ()


@pytest.mark.parametrize(
    ("where", "text"), list_code_blocks("markdown"), ids=lambda value: value.split("\n")[0]
)
def test_agents_and_templates_shown_in_the_docs_are_valid(where: str, text: str, tmp_path: Path):
    (tmp_path / "shown.md").write_text(text)
    if "\nroles:" in text:
        found = read_template(tmp_path / "shown.md")
        assert found.problem is None, found.problem
    elif text.startswith("---\nname:") and "skills.md" not in where:
        made = load_agent_catalog(cwd=tmp_path, home=tmp_path / "home", managed=())
        (tmp_path / "home" / "agents").mkdir(parents=True)
        (tmp_path / "shown.md").rename(tmp_path / "home" / "agents" / "shown.md")
        assert (made.problems, made.warnings) == ((), ())


@pytest.mark.parametrize(("where", "line"), MAKE, ids=lambda value: value)
def test_make_targets_shown_in_the_docs_exist(where: str, line: str):
    targets = [word for word in shlex.split(line)[1:] if "=" not in word]
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_shoal_commands_shown_in_the_docs_are_valid():
    problems = []
    for where, line in SHOAL:
        words = shlex.split(line, comments=True)
        arguments = list(takewhile(lambda word: word not in _ENDS, words[words.index("shoal") + 1 :]))
        if arguments[:1] != ["help"]:
            command, name, rest = _resolve_command(arguments)
            try:
                parse_command(command, name, rest)
            except (AssertionError, click.UsageError) as error:
                problems.append(f"{where}: {line}: {error}")
    assert problems == []


def parse_command(command: click.Command, name: str, arguments: list[str]) -> None:
    """Raises `click.UsageError` for an option, or a sub-command, that is not there."""
    context = click.Context(command, info_name=name, **command.context_settings)
    if isinstance(command, click.Group) and (sub := next((a for a in arguments if a[0] != "-"), None)):
        assert sub in command.commands, f"{name} has no sub-command {sub}"
        arguments.remove(sub)
        parse_command(command.commands[sub], f"{name} {sub}", arguments)
    else:
        command.make_parser(context).parse_args(arguments)
