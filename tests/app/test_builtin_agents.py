"""Built-in agents: their tools and the required content of their prompts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog
from shoal.app.definitions.bundled_docs import find_bundled_docs_directory, find_bundled_docs_index
from shoal.app.settings.claude_keys import find_claude_key
from shoal.core.agents.agent_definitions import select_definition_tools

OFFERED = (
    *("Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep", "Bash", "BashOutput", "KillShell", "WebFetch"),
    *("TodoWrite", "EnterPlanMode", "ExitPlanMode", "Agent", "mcp__web__get"),
)


@pytest.fixture
def definitions(tmp_path: Path) -> AgentCatalog:
    return load_agent_catalog(cwd=tmp_path, home=tmp_path / "home", managed=())


@pytest.mark.spec("DEF-04")
def test_the_catalog_has_six_built_in_agents_without_problems(definitions: AgentCatalog):
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
def test_each_built_in_agent_has_its_tools_and_none_is_missing(
    definitions: AgentCatalog, name: str, tools: tuple[str, ...]
):
    found = select_definition_tools(definitions.find(name).capabilities, OFFERED)
    assert (found.names, found.missing, found.only) == (tools, (), ())


@pytest.mark.spec("DEF-04")
def test_explore_uses_a_light_model_and_the_other_agents_inherit(definitions: AgentCatalog):
    assert {each.name: each.model for each in definitions.all() if each.model} == {"Explore": "haiku"}
    assert {each.name for each in definitions.all() if each.run.one_shot} == {"Explore", "Plan"}
    modes = {each.name: each.permission_mode for each in definitions.all() if each.permission_mode}
    assert modes == {"Plan": "plan"}


@pytest.mark.spec("DEF-04")
def test_the_guide_has_an_alias_unless_a_user_defines_an_agent_with_it(tmp_path: Path):
    definitions = load_agent_catalog(cwd=tmp_path, home=tmp_path / "home", managed=())
    assert definitions.find("claude-code-guide").name == "shoal-guide"
    assert "claude-code-guide" not in {each.name for each in definitions.all()}
    own = tmp_path / "home" / "agents" / "guide.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\nname: claude-code-guide\ndescription: mine\n---\nx")
    assert definitions.find("claude-code-guide").description == "mine"


@pytest.mark.parametrize(
    ("name", "phrases"),
    [
        ("general-purpose", ["Only your last message", "report", "Check your changes", "src/app.py:42"]),
        ("Explore", ["only read", "path:line", "Only your last message", "did not find", "in parallel"]),
        ("Plan", ["only read", "steps in order", "How to test", "Risks", "ExitPlanMode", "src/app.py:42"]),
        ("Bash", ["exit code", "Only your last message", "Never delete"]),
        ("statusline-setup", ["statusLine", "settings.json", "valid JSON", "Only your last message"]),
        ("shoal-guide", ["from its documentation", "Do not answer from memory", "Only your last message"]),
    ],
)
def test_each_prompt_contains_the_required_instructions(
    definitions: AgentCatalog, name: str, phrases: list[str]
):
    prompt = definitions.find(name).prompt
    assert [phrase for phrase in phrases if phrase not in prompt] == []


@pytest.mark.spec("CMP-107")
def test_the_agent_for_the_status_line_does_not_promise_an_effect(definitions: AgentCatalog):
    agent = definitions.find("statusline-setup")
    assert find_claude_key("statusLine").use == "not used"  # when it is used, change the agent's text
    assert "Shoal does not show" in agent.description
    assert "does not show this line; say so in your report" in agent.prompt


def test_every_prompt_is_short_and_treats_file_content_as_data(definitions: AgentCatalog):
    for each in definitions.all():
        assert len(each.prompt) < 2_500, each.name
        assert "{" not in re.sub(r"\{\"type\".*?\}", "", each.prompt), each.name
    untrusting = {each.name for each in definitions.all() if "data" in each.prompt}
    assert untrusting == {each.name for each in definitions.all()} - {"statusline-setup"}


@pytest.mark.spec("DEF-04")
def test_the_prompt_of_the_guide_names_the_documentation_directory(definitions: AgentCatalog):
    prompt = definitions.find("shoal-guide").prompt
    assert str(find_bundled_docs_directory()) in prompt
    assert str(find_bundled_docs_index()) in prompt
    assert find_bundled_docs_index().read_text().startswith("# Shoal documentation")
    pages = re.findall(r"`([\w-]+\.md)`", prompt)
    assert pages
    assert [page for page in pages if not (find_bundled_docs_directory() / page).is_file()] == []


def test_the_built_in_agents_are_read_without_loading_yaml():
    code = (
        "import sys; from pathlib import Path\n"
        "from shoal.app.definitions.agent_catalog import load_agent_catalog\n"
        "found = load_agent_catalog(cwd=Path('/'), home=Path('/nonexistent'), managed=()).all()\n"
        "print(len(found), 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "False"]
