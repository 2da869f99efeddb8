"""Agent definitions as people write them: files of the ecosystem, the JSON form, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from shoal.core.agents.agent_definitions import (
    AgentCapabilities,
    AgentDefinition,
    AgentRunRules,
    DefinitionSource,
)
from shoal.core.agents.subagents import ResourceRequest
from shoal.core.errors import InvalidAgentDefinition
from shoal.wire.agent_definition_codec import (
    DEFINITION_FIELDS,
    ParsedAgentDefinition,
    parse_agent_definition,
    parse_json_agent_definitions,
)

SOURCE = DefinitionSource(kind="project", path=Path("/p/reviewer.md"))
EVERYTHING = """\
---
name: reviewer
description: Looks at changes
tools: Read, Grep, Bash(git log:*, git diff:*)
disallowedTools:
  - Edit
  - Bash(rm:*)
model: sonnet
effort: high
permissionMode: plan
background: yes
isolation: worktree
resources: {cpus: 2, labels: {disk: fast}}
maxTurns: 12
color: purple
memory: project
requiredMcpServers: [github]
mcpServers:
  - slack
  - docs:
      command: docs-server
      args: [--port, 80]
hooks:
  PreToolUse:
    - matcher: Bash
      hooks: [{type: command, command: ./check.sh, timeout: 5}]
skills: style, tests
initialPrompt: Look at the last commit first.
acceptance: make check
maxBudgetUsd: 0.5
oneShot: true
instructions: no
---
You review changes.

Be brief.
"""


def parse_text(text: str) -> ParsedAgentDefinition:
    return parse_agent_definition(text, SOURCE, name="reviewer")


def parse_header(header: str) -> AgentDefinition:
    return parse_text(f"---\nname: a\ndescription: b\n{header}\n---\nbody\n").definition


def get_error(text: str) -> InvalidAgentDefinition:
    with pytest.raises(InvalidAgentDefinition) as error:
        parse_text(text)
    return error.value


@pytest.mark.spec("DEF-01", "DEF-02")
def test_every_field_is_read_and_the_body_is_the_prompt():
    parsed = parse_text(EVERYTHING)
    assert parsed.warnings == ()
    assert parsed.definition == AgentDefinition(
        name="reviewer",
        description="Looks at changes",
        prompt="You review changes.\n\nBe brief.",
        source=replace(SOURCE, lines=parsed.definition.source.lines),
        capabilities=AgentCapabilities(
            tools=("Read", "Grep", "Bash(git log:*, git diff:*)"),
            disallowed_tools=("Edit", "Bash(rm:*)"),
            required_mcp_servers=("github",),
            mcp_servers=("slack", {"docs": {"command": "docs-server", "args": ["--port", 80]}}),
            skills=("style", "tests"),
        ),
        run=AgentRunRules(
            initial_prompt="Look at the last commit first.",
            background=True,
            isolation="worktree",
            resources=ResourceRequest(cpus=2.0, labels={"disk": "fast"}),
            max_turns=12,
            max_budget_usd=0.5,
            acceptance="make check",
            one_shot=True,
        ),
        model="sonnet",
        effort="high",
        permission_mode="plan",
        color="purple",
        memory="project",
        hooks={
            "PreToolUse": [
                {
                    "matcher": "Bash",
                    "hooks": [{"type": "command", "command": "./check.sh", "timeout": 5}],
                }
            ]
        },
        instructions=False,
    )


@pytest.mark.spec("DEF-02")
def test_the_json_form_has_the_same_fields():
    page = parse_text(EVERYTHING).definition
    fields = yaml.safe_load(EVERYTHING.split("---")[1])
    (parsed,) = parse_json_agent_definitions({fields.pop("name"): {**fields, "prompt": page.prompt}})
    assert parsed.warnings == ()
    assert replace(parsed.definition, source=page.source) == page


def test_each_field_has_its_line_number():
    source = parse_text(EVERYTHING).definition.source
    assert source.locate_field("tools") == "/p/reviewer.md:4"
    assert source.locate_field("one_shot") == "/p/reviewer.md:31"
    assert len(source.lines) == len(DEFINITION_FIELDS)
    assert parse_header("color: red").source.locate_field("tools") is None


def test_the_example_has_every_field():
    assert [field for field in DEFINITION_FIELDS if f"\n{field}:" not in EVERYTHING] == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("tools: Read, Grep", ("Read", "Grep")),
        ("tools: Read Grep", ("Read", "Grep")),
        ('tools: ["Read", "Bash(git log:*)"]', ("Read", "Bash(git log:*)")),
        ("tools: [Read, Bash(git:*)]", ("Read", "Bash(git:*)")),
        ("tools: Bash(a, b), mcp__x__*, mcp__y, *", ("Bash(a, b)", "mcp__x__*", "mcp__y", "*")),
        ("tools: '*'", ("*",)),
        ("tools: All tools", ("*",)),
        ("tools: *", ("*",)),
        ("tools: []", ()),
        ("tools:", None),
        ("tools: ~", None),
    ],
)
def test_tools_are_a_list_or_comma_separated_names(written: str, read: tuple[str, ...] | None):
    assert parse_header(written).capabilities.tools == read


@pytest.mark.parametrize("written", ["model: inherit", "model:", "color: red"])
def test_model_inherit_reads_as_no_model(written: str):
    assert parse_header(written).model is None


@pytest.mark.spec("DEF-11")
@pytest.mark.parametrize(("written", "read"), [("low", "low"), ("max", "max"), ("16000", 16_000)])
def test_effort_is_a_level_or_a_number(written: str, read: str | int):
    assert parse_header(f"effort: {written}").effort == read


@pytest.mark.parametrize(
    ("written", "read"), [("true", True), ("yes", True), ('"true"', True), ("false", False), ("off", False)]
)
def test_a_boolean_is_read_quoted_or_unquoted(written: str, read: bool):
    assert parse_header(f"background: {written}").run.background is read


@pytest.mark.parametrize("name", ["7", "on", "null-checker", "Code Reviewer", "prüfer"])
def test_a_name_stays_text_if_yaml_reads_another_type(name: str):
    assert parse_text(f"---\nname: {name}\ndescription: b\n---\nx").definition.name == name


@pytest.mark.spec("DEF-02")
@pytest.mark.parametrize(
    ("header", "line", "field", "what"),
    [
        ("description: b", 1, "name", "missing"),
        ("name: a", 1, "description", "missing"),
        ("name:\ndescription: b", 1, "name", "missing"),
        ("name: a\ndescription: ''", 3, "description", "empty"),
        ("name: a/b\ndescription: b", 2, "name", "is not a valid name"),
        ("name: ns:b\ndescription: b", 2, "name", "is not a valid name"),
        (f"name: {'a' * 101}\ndescription: b", 2, "name", "at most 100"),
        ("name: a\ndescription: [b]", 3, "description", "expected a string, got a list"),
        ("name: a\ndescription: b\ntools: {a: b}", 4, "tools", "expected a list, got a mapping"),
        ("name: a\ndescription: b\ntools: [1]", 4, "tools", "it contains 1"),
        ("name: a\ndescription: b\ntools: Bash(git", 4, "tools", "parentheses"),
        ("name: a\ndescription: b\ntools: Read; Grep", 4, "tools", "'Read;' is not a tool"),
        ("name: a\ndescription: b\n\nmaxTurns: many", 5, "maxTurns", "integer"),
        ("name: a\ndescription: b\nmaxTurns: 0", 4, "maxTurns", "integer"),
        ("name: a\ndescription: b\nmaxTurns: -1", 4, "maxTurns", "integer"),
        ("name: a\ndescription: b\neffort: hihg", 4, "effort", "low, medium, high, xhigh, max"),
        ("name: a\ndescription: b\nbackground: perhaps", 4, "background", "true or false"),
        ("name: a\ndescription: b\nisolation: worktrees", 4, "isolation", "did you mean worktree?"),
        (
            "name: a\ndescription: b\npermissionMode: acceptedits",
            4,
            "permissionMode",
            "did you mean acceptEdits?",
        ),
        ("name: a\ndescription: b\nmemory: team", 4, "memory", "user, project, local"),
        ("name: a\ndescription: b\nhooks: [x]", 4, "hooks", "mapping"),
        ("name: a\ndescription: b\nhooks:\n  Stop: x", 4, "hooks", "expected a list of hooks for Stop"),
        ("name: a\ndescription: b\nmcpServers: [[x]]", 4, "mcpServers", "expected the name of a server"),
        ("name: a\ndescription: b\nmaxBudgetUsd: -3", 4, "maxBudgetUsd", "greater than 0"),
        ("name: a\ndescription: b\nskills: {x: y}", 4, "skills", "expected a list"),
        ("name: a\ndescription: b\nmodel: ' '", 4, "model", "empty"),
        ("name: a\ndescription: b\nname: c", 4, "name", "twice"),
    ],
)
def test_an_invalid_value_raises_an_error_with_file_line_and_field(
    header: str, line: int, field: str, what: str
):
    error = get_error(f"---\n{header}\n---\nbody\n")
    assert (error.path, error.line, error.field) == (SOURCE.path, line, field)
    assert str(error).startswith(f"/p/reviewer.md:{line}: {field}: ")
    assert what in str(error)


WILD = """\
---
name: 界面-designer
description: Use this agent when the user needs screens: new ones, or old ones made better.

Examples:

<example>
Context: The user wants a task list.
user: "Show the tasks: all of them"
assistant: "I'll use the designer agent"
<commentary>It is about a screen, so: the designer.</commentary>
</example>

model: opus
color: yellow
tools: All tools
skills:
  - navigation
  - research/method (@someone)
---

You design screens.
"""


def test_a_typical_hand_written_file_is_accepted():
    parsed = parse_text(WILD.replace("\n", "\r\n"))
    found = parsed.definition
    assert found.name == "界面-designer"
    assert found.description.startswith("Use this agent when the user needs screens: new ones")
    assert found.description.endswith("</example>")
    assert '\nuser: "Show the tasks: all of them"\n' in found.description
    assert (found.model, found.color, found.capabilities.tools) == ("opus", "yellow", ("*",))
    assert found.capabilities.skills == ("navigation", "research/method (@someone)")
    assert found.prompt == "You design screens."
    assert [warning.partition(": not valid")[0] for warning in parsed.warnings] == [
        "/p/reviewer.md:3: description"
    ]


@pytest.mark.spec("DEF-02")
def test_an_unknown_field_gives_a_warning_with_a_suggestion():
    parsed = parse_text("---\nname: a\ndescription: b\nmaxturns: 3\nwho: me\n---\nbody\n")
    assert parsed.warnings == (
        "/p/reviewer.md:4: maxturns: unknown field; it is ignored; did you mean maxTurns?",
        "/p/reviewer.md:5: who: unknown field; it is ignored",
    )
    assert parsed.definition.run.max_turns is None


@pytest.mark.spec("CMP-078")
def test_an_unknown_color_is_dropped_and_the_agent_is_kept():
    parsed = parse_text("---\nname: a\ndescription: b\ncolor: mauve\n---\nbody\n")
    assert parsed.definition.color is None
    assert parsed.warnings[0].startswith("/p/reviewer.md:4: color: 'mauve' is not a known color")
    assert parse_header("color: '#FF8800'").color == "#FF8800"


def test_a_file_without_a_body_gives_a_warning():
    assert "no prompt" in parse_text("---\nname: a\ndescription: b\n---\n").warnings[0]


def test_a_description_written_on_one_line_gets_its_line_breaks():
    parsed = parse_text(
        "---\nname: a\ndescription: One.\\n\\nExamples: <example>user: x</example>\n---\nbody\n"
    )
    assert parsed.definition.description == "One.\n\nExamples: <example>user: x</example>"
    assert "description: not valid YAML" in parsed.warnings[0]


def test_a_problem_has_the_name_of_the_agent_or_else_of_the_file():
    assert get_error("---\nname: alice\ndescription: b\nmaxTurns: x\n---\n").problem.name == "alice"
    assert get_error("nothing").problem.name == "reviewer"


def test_the_json_form_has_the_same_fields_and_the_prompt():
    given = {
        "reviewer": {
            "description": "Looks",
            "prompt": "You look.",
            "tools": ["Read", "Bash(git:*)"],
            "model": "inherit",
            "maxTurns": 3,
            "background": True,
            "mcpServers": {"docs": {"command": "x"}},
            "effort": 500,
        },
        "other": {"description": "d", "prompt": "p"},
    }
    for form in (given, json.dumps(given), json.dumps(given, indent=1)):
        first, second = (parsed.definition for parsed in parse_json_agent_definitions(form))
        assert first == AgentDefinition(
            name="reviewer",
            description="Looks",
            prompt="You look.",
            source=first.source,
            capabilities=AgentCapabilities(
                tools=("Read", "Bash(git:*)"), mcp_servers=({"docs": {"command": "x"}},)
            ),
            run=AgentRunRules(max_turns=3, background=True),
            effort=500,
        )
        assert (second.name, second.prompt, second.source.kind) == ("other", "p", "flag")


@pytest.mark.spec("DEF-02")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "--agents:1: not valid JSON"),
        ("[]", "--agents: expected a JSON object such"),
        ("7", "--agents: expected a JSON object such"),
        ({"a": 1}, "--agents: a: expected an object with its fields"),
        ({"a": {"prompt": "p"}}, "--agents: a.description: it is missing"),
        ({"a": {"description": "d"}}, "--agents: a.prompt: it is missing"),
        ({"a/b": {"description": "d", "prompt": "p"}}, "--agents: a/b: 'a/b' is not a valid name"),
        (
            {"a": {"description": "d", "prompt": "p", "maxTurns": True}},
            "--agents: a.maxTurns: expected an integer",
        ),
        ({"a": {"description": 5, "prompt": "p"}}, "--agents: a.description: expected a string, got 5"),
        (
            '{"a": {\n "description": "d",\n "prompt": "p",\n "tools": 5}}',
            "--agents:4: a.tools: expected a list",
        ),
    ],
)
def test_an_error_in_the_json_form_names_the_field(given: Any, told: str):
    with pytest.raises(InvalidAgentDefinition) as error:
        parse_json_agent_definitions(given)
    assert str(error.value).startswith(told)


def test_an_unknown_field_of_the_json_form_gives_a_warning():
    (parsed,) = parse_json_agent_definitions({"a": {"description": "d", "prompt": "p", "tool": "x"}})
    assert parsed.warnings == ("--agents: a.tool: unknown field; it is ignored; did you mean tools?",)


@pytest.mark.parametrize("key", ["disallowed-tools", "disallowed_tools", "disalowedTools", "permissionmode"])
def test_a_misspelled_field_that_narrows_is_an_error(key: str) -> None:
    with pytest.raises(InvalidAgentDefinition, match=rf"a\.{key}: unknown field; write "):
        parse_json_agent_definitions({"a": {"description": "d", "prompt": "p", key: "plan"}})
