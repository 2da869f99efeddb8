"""The agents that come with Shoal: the tools each has, and what its prompt must say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.app.definitions.definitions import Definitions, definitions_for
from shoal.app.definitions.own_documents import documents_directory, index
from shoal.core.definitions import tool_names

OFFERED = (
    *("Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep", "Bash", "BashOutput", "KillShell", "WebFetch"),
    *("TodoWrite", "EnterPlanMode", "ExitPlanMode", "Agent", "mcp__web__get"),
)


@pytest.fixture
def definitions(tmp_path: Path) -> Definitions:
    return definitions_for(cwd=tmp_path, home=tmp_path / "home", managed=())


@pytest.mark.spec("DEF-04")
def test_six_are_there_and_nothing_is_wrong_with_them(definitions: Definitions):
    names = {each.name for each in definitions.all()}
    assert names == {"general-purpose", "Explore", "Plan", "Bash", "statusline-setup", "shoal-guide"}
    assert definitions.problems == ()
    assert definitions.warnings == ()
    assert all(each.source.kind == "builtin" and each.prompt for each in definitions.all())


@pytest.mark.spec("DEF-04")
@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("general-purpose", OFFERED),
        ("Explore", ("Read", "Glob", "Grep", "WebFetch")),
        ("Plan", ("Read", "Glob", "Grep", "WebFetch", "ExitPlanMode")),
        ("Bash", ("Bash", "BashOutput", "KillShell")),
        ("statusline-setup", ("Read", "Edit")),
        ("shoal-guide", ("Read", "Glob", "Grep", "WebFetch")),
    ],
)
def test_each_has_its_fitting_tools_and_misses_none(
    definitions: Definitions, name: str, tools: tuple[str, ...]
):
    found = tool_names(definitions.find(name), OFFERED)
    assert (found.names, found.missing, found.only) == (tools, (), ())


@pytest.mark.spec("DEF-04")
def test_explore_takes_a_light_model_and_the_others_inherit(definitions: Definitions):
    assert {each.name: each.model for each in definitions.all() if each.model} == {"Explore": "haiku"}
    assert {each.name for each in definitions.all() if each.one_shot} == {"Explore", "Plan"}
    modes = {each.name: each.permission_mode for each in definitions.all() if each.permission_mode}
    assert modes == {"Plan": "plan"}


@pytest.mark.spec("DEF-04")
def test_the_guide_is_found_under_its_other_name_unless_a_person_has_one(tmp_path: Path):
    definitions = definitions_for(cwd=tmp_path, home=tmp_path / "home", managed=())
    assert definitions.find("claude-code-guide").name == "shoal-guide"
    assert "claude-code-guide" not in {each.name for each in definitions.all()}
    own = tmp_path / "home" / "agents" / "guide.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\nname: claude-code-guide\ndescription: mine\n---\nx")
    assert definitions.find("claude-code-guide").description == "mine"


@pytest.mark.parametrize(
    ("name", "phrases"),
    [
        ("general-purpose", ["Only your last message", "report", "Check what you changed", "src/app.py:42"]),
        ("Explore", ["only read", "path:line", "Only your last message", "did not find", "side by side"]),
        ("Plan", ["only read", "steps in order", "How to test", "Risks", "ExitPlanMode", "src/app.py:42"]),
        ("Bash", ["exit code", "Only your last message", "Never delete"]),
        ("statusline-setup", ["statusLine", "settings.json", "valid JSON", "Only your last message"]),
        ("shoal-guide", ["own documents", "Do not answer from memory", "Only your last message"]),
    ],
)
def test_a_prompt_says_what_the_agent_must_know(definitions: Definitions, name: str, phrases: list[str]):
    prompt = definitions.find(name).prompt
    assert [phrase for phrase in phrases if phrase not in prompt] == []


def test_every_prompt_is_short_and_treats_what_it_reads_as_data(definitions: Definitions):
    for each in definitions.all():
        assert len(each.prompt) < 2_500, each.name
        assert "{" not in re.sub(r"\{\"type\".*?\}", "", each.prompt), each.name
    untrusting = {each.name for each in definitions.all() if "data" in each.prompt}
    assert untrusting == {each.name for each in definitions.all()} - {"statusline-setup"}


@pytest.mark.spec("DEF-04")
def test_the_guide_is_told_where_the_documents_are(definitions: Definitions):
    prompt = definitions.find("shoal-guide").prompt
    assert str(documents_directory()) in prompt
    assert str(index()) in prompt
    assert index().read_text().startswith("# Documentation")
    pages = re.findall(r"`([\w-]+\.md)`", prompt)
    assert pages
    assert [page for page in pages if not (documents_directory() / page).is_file()] == []


def test_the_built_in_agents_are_read_without_loading_yaml():
    code = (
        "import sys; from pathlib import Path\n"
        "from shoal.app.definitions.definitions import definitions_for\n"
        "found = definitions_for(cwd=Path('/'), home=Path('/nonexistent'), managed=()).all()\n"
        "print(len(found), 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "False"]
