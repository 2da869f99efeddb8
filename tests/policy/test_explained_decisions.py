"""What a person is told about a decision: reason, rule, parts of the command and suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from permission_helpers import create_engine, make_tool_use

from shoal.core.agents.subagents import OTHER_SESSION_PREFIX
from shoal.core.permissions.permission_changes import PermissionMode, SetPermissionModeSuggestion
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_explanation import PermissionExplanation, explain_permission_decision

RULES = {
    "deny": "Bash(rm:*) Read(.env) Edit(src/**) mcp__db__drop mcp__my_web WebFetch(domain:evil.com)"
    " Agent(spy) Skill(bad) mcp__jobs__run(kind:all) mcp__jobs__run(force:true)",
    "ask": "Bash(git push:*) mcp__db__write Write(docs/**)",
    "allow": "Bash(npm test:*) mcp__db WebFetch(domain:good.com) Read(//etc/hosts) Edit(//tmp/x/**)",
}
INSIDE, HARMLESS = "it reads inside the working directories", "it changes nothing outside the conversation"
UNKNOWN, SKIPPED = "Shoal does not know whether it is safe", "permissions are skipped"
PLAN = "plan mode allows no changes. Read what you need, then present a plan with ExitPlanMode."
NOT_ASKED = ", but this session does not ask questions. Do it in another way, or say what you need."
PROTECTED = "PROJECT/.git/x is protected: it controls what programs do, or contains keys"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in ("src", ".git"):
        (project / name).mkdir(parents=True)
    (project / "a.md").write_text("x")
    (project / "link").symlink_to("/etc")
    return project


def make_engine(project: Path, mode: PermissionMode = "default") -> PermissionEngine:
    engine = create_engine(project, mode, home=project.parent / "home", **RULES)
    engine.allow_plan_file(str(project / "plan.md"))
    return engine


def explain(engine: PermissionEngine, tool: str, **arguments: Any) -> PermissionExplanation:
    return explain_permission_decision(engine, make_tool_use(tool, **arguments))


def list_suggested_rules(explanation: PermissionExplanation) -> list[str]:
    rules = ((each, rule) for each in explanation.suggestions for rule in getattr(each, "rules", ()))
    return [f"{each.destination} {rule}" for each, rule in rules]


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    ("tool", "arguments", "decision", "reason"),
    [
        ("Read", {"file_path": "a.md"}, "allow", INSIDE),
        ("Glob", {"pattern": "*"}, "allow", INSIDE),
        ("Read", {"file_path": ".env"}, "deny", "Read(.env)"),
        ("Read", {"file_path": "/etc/hosts"}, "allow", "Read(//etc/hosts)"),
        ("Read", {"file_path": "/etc/passwd"}, "ask", "/etc/passwd is outside the working directories"),
        ("Read", {"file_path": "link/passwd"}, "ask", "/etc/passwd is outside the working directories"),
        ("Edit", {"file_path": "a.md"}, "ask", "it changes a file"),
        ("Edit", {"file_path": "src/x"}, "deny", "Edit(src/**)"),
        ("Write", {"file_path": "docs/x"}, "ask", "Write(docs/**)"),
        ("Write", {"file_path": "/tmp/x/y"}, "allow", "Edit(//tmp/x/**)"),
        ("Write", {"file_path": ".git/x"}, "ask", PROTECTED),
        ("mcp__db__read", {}, "allow", "mcp__db"),
        ("mcp__db__drop", {}, "deny", "mcp__db__drop"),
        ("mcp__db__write", {}, "ask", "mcp__db__write"),
        ("mcp__my_web__get", {}, "deny", "mcp__my_web"),
        ("mcp__my_webs__get", {}, "ask", UNKNOWN),
        ("mcp__jobs__run", {"kind": "all"}, "deny", "mcp__jobs__run(kind:all)"),
        ("mcp__jobs__run", {"kind": ["one", "all"]}, "deny", "mcp__jobs__run(kind:all)"),
        ("mcp__jobs__run", {"kind": {"first": "all"}}, "deny", "mcp__jobs__run(kind:all)"),
        ("mcp__jobs__run", {"kind": {"all": 1}}, "deny", "mcp__jobs__run(kind:all)"),
        ("mcp__jobs__run", {"force": True}, "deny", "mcp__jobs__run(force:true)"),
        ("mcp__jobs__run", {"force": False, "other": "all"}, "ask", UNKNOWN),
        ("mcp__jobs__run", {"kind": None}, "ask", UNKNOWN),
        ("mcp__jobs__other", {"kind": "all"}, "ask", UNKNOWN),
        ("ListMcpResourcesTool", {"server": "my web"}, "deny", "mcp__my_web"),
        ("ReadMcpResourceTool", {"server": "my.web", "uri": "x"}, "deny", "mcp__my_web"),
        ("ReadMcpResourceTool", {"server": "db", "uri": "x"}, "ask", UNKNOWN),
        ("ListMcpResourcesTool", {}, "ask", UNKNOWN),
        ("WebFetch", {"url": "https://evil.com/x"}, "deny", "WebFetch(domain:evil.com)"),
        ("WebFetch", {"url": "https://good.com/x"}, "allow", "WebFetch(domain:good.com)"),
        ("WebFetch", {"url": "https://other.com/x"}, "ask", UNKNOWN),
        ("WebSearch", {"query": "x"}, "ask", UNKNOWN),
        ("Agent", {"subagent_type": "spy"}, "deny", "Agent(spy)"),
        ("Agent", {"subagent_type": "other"}, "allow", HARMLESS),
        ("Skill", {"skill": "bad"}, "deny", "Skill(bad)"),
        ("Skill", {"skill": "good"}, "allow", HARMLESS),
        ("SendMessage", {"to": "ann"}, "allow", HARMLESS),
        ("TodoWrite", {}, "allow", HARMLESS),
        ("EnterWorktree", {}, "allow", HARMLESS),
        ("EnterWorktree", {"path": "x"}, "ask", UNKNOWN),
        ("ExitWorktree", {}, "allow", HARMLESS),
        ("ExitWorktree", {"discard_changes": True}, "ask", UNKNOWN),
        ("Unknown", {}, "ask", UNKNOWN),
        ("Bash", {"command": "ls"}, "allow", "every part of it is read-only"),
        ("Bash", {"command": "ls | npm test"}, "allow", "Bash(npm test:*)"),
        ("Bash", {"command": "git push"}, "ask", "Bash(git push:*)"),
        ("Bash", {"command": "echo x > a.md"}, "ask", "it writes a.md"),
        ("Bash", {"command": "cat /etc/passwd"}, "ask", "it reads /etc/passwd, outside the working"),
        ("Bash", {"command": "sudo x"}, "ask", "`sudo x`: sudo runs it with different privileges"),
        ("Bash", {"command": "env A=b x"}, "ask", "it gets the variable A, which may change what it does"),
        ("Bash", {"command": "cd src && touch y"}, "deny", "Edit(src/**)"),
        ("Bash", {"command": 5}, "deny", "command"),
        ("Bash", {}, "deny", "command"),
    ],
)
def test_a_decision_says_why(
    project: Path, tool: str, arguments: dict[str, Any], decision: str, reason: str
) -> None:
    explanation = explain(make_engine(project), tool, **arguments)
    assert (explanation.tool, explanation.mode, explanation.decision) == (tool, "default", decision)
    assert reason.replace("PROJECT", str(project)) in explanation.reason
    is_rule = reason[:1].isupper() and reason != UNKNOWN and "PROJECT" not in reason
    is_rule = is_rule or reason.startswith("mcp__")
    assert (explanation.rule, explanation.source) == ((reason, "a test") if is_rule else (None, None))
    if decision != "ask" or is_rule:
        assert explanation.suggestions == ()


@pytest.mark.spec("PRM-01")
@pytest.mark.parametrize(
    ("mode", "tool", "arguments", "decision", "reason"),
    [
        ("acceptEdits", "Bash", {"command": "touch x"}, "allow", "edits in the working directories are"),
        ("acceptEdits", "Bash", {"command": "npm install"}, "ask", "npm install may change something"),
        ("acceptEdits", "Edit", {"file_path": "a.md"}, "allow", "edits in the working directories are"),
        ("acceptEdits", "Edit", {"file_path": ".git/x"}, "ask", PROTECTED),
        ("acceptEdits", "Write", {"file_path": "/tmp/y"}, "ask", "/tmp/y is outside the working directories"),
        ("acceptEdits", "mcp__other__x", {}, "ask", UNKNOWN),
        ("plan", "Bash", {"command": "npm install"}, "deny", f"npm install may change something, and {PLAN}"),
        ("plan", "Bash", {"command": "ls"}, "allow", "every part of it is read-only"),
        ("plan", "Edit", {"file_path": "a.md"}, "deny", PLAN),
        ("plan", "Edit", {"file_path": "plan.md"}, "allow", "it writes the plan"),
        ("plan", "Write", {"file_path": "/tmp/x/y"}, "deny", PLAN),
        ("plan", "Read", {"file_path": "/etc/passwd"}, "ask", "/etc/passwd is outside the working"),
        ("plan", "mcp__db__read", {}, "deny", PLAN),
        ("plan", "WebFetch", {"url": "https://other.com/x"}, "ask", UNKNOWN),
        ("plan", "WebFetch", {"url": "https://good.com/x"}, "allow", "WebFetch(domain:good.com)"),
        ("dontAsk", "Bash", {"command": "touch x"}, "deny", f"touch writes files{NOT_ASKED}"),
        ("dontAsk", "Edit", {"file_path": "a.md"}, "deny", f"it changes a file{NOT_ASKED}"),
        ("dontAsk", "mcp__other__x", {}, "deny", f"{UNKNOWN}{NOT_ASKED}"),
        ("dontAsk", "mcp__db__read", {}, "allow", "mcp__db"),
        ("dontAsk", "mcp__db__write", {}, "deny", "mcp__db__write"),
        ("bypassPermissions", "Bash", {"command": "npm install"}, "allow", SKIPPED),
        ("bypassPermissions", "Bash", {"command": "git push"}, "ask", "Bash(git push:*)"),
        ("bypassPermissions", "Edit", {"file_path": ".git/x"}, "allow", SKIPPED),
        ("bypassPermissions", "Edit", {"file_path": "src/x"}, "deny", "Edit(src/**)"),
        ("bypassPermissions", "Read", {"file_path": "/etc/passwd"}, "allow", SKIPPED),
        ("bypassPermissions", "mcp__other__x", {}, "allow", SKIPPED),
        ("bypassPermissions", "mcp__db__drop", {}, "deny", "mcp__db__drop"),
    ],
)
def test_the_mode_decides_what_no_rule_decides(
    project: Path, mode: PermissionMode, tool: str, arguments: dict[str, Any], decision: str, reason: str
) -> None:
    explanation = explain(make_engine(project, mode), tool, **arguments)
    assert (explanation.mode, explanation.decision) == (mode, decision)
    assert reason.replace("PROJECT", str(project)) in explanation.reason


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    ("tool", "arguments", "rules"),
    [
        ("Bash", {"command": "npm install && ls"}, ["Bash(npm install && ls)", "Bash(npm install:*)"]),
        ("Bash", {"command": "sudo x"}, ["Bash(sudo x)", "Bash(sudo x)"]),
        ("Bash", {"command": "echo x > a.md"}, ["Bash(echo x > a.md)", "Bash(echo x)"]),
        ("Bash", {"command": "cat /etc/passwd"}, ["Bash(cat /etc/passwd)", "Bash(cat /etc/passwd)"]),
        ("Bash", {"command": f"npm install {'x' * 2_000}"}, []),
        ("Read", {"file_path": "/etc/passwd"}, ["Read(//etc/passwd)", "Read(//etc/passwd)"]),
        ("Read", {"file_path": "/etc"}, ["Read(//etc/**)", "Read(//etc/**)"]),
        ("Grep", {"pattern": "x", "path": "/etc"}, ["Grep(//etc/**)", "Grep(//etc/**)"]),
        ("Edit", {"file_path": "a.md"}, ["Edit(/**)", "Edit(/**)"]),
        ("Write", {"file_path": "/tmp/y"}, ["Write(//tmp/y)", "Write(//tmp/y)"]),
        ("Write", {"file_path": ".git/x"}, []),
        ("mcp__other__x", {}, ["mcp__other__x", "mcp__other__x"]),
        ("WebFetch", {"url": "https://a.org/x"}, ["WebFetch(domain:a.org)", "WebFetch(domain:a.org)"]),
        ("WebSearch", {"query": "x"}, ["WebSearch", "WebSearch"]),
    ],
)
def test_a_question_suggests_a_rule_for_the_session_and_one_to_keep(
    project: Path, tool: str, arguments: dict[str, Any], rules: list[str]
) -> None:
    explanation = explain(make_engine(project), tool, **arguments)
    assert explanation.decision == "ask"
    expected = [f"{place} {rule}" for place, rule in zip(("session", "localSettings"), rules, strict=False)]
    assert list_suggested_rules(explanation) == expected
    modes = [each.mode for each in explanation.suggestions if isinstance(each, SetPermissionModeSuggestion)]
    assert modes == (["acceptEdits"] if tool == "Edit" else [])


@pytest.mark.spec("PRM-02")
def test_each_part_of_a_command_has_its_own_decision(project: Path) -> None:
    explanation = explain(make_engine(project), "Bash", command="ls | npm test; git push && rm x; npm i")
    assert explanation.decision == "deny"
    assert [(part.text, part.decision, part.rule, part.source) for part in explanation.parts] == [
        ("ls", "allow", None, None),
        ("npm test", "allow", "Bash(npm test:*)", "a test"),
        ("git push", "ask", "Bash(git push:*)", "a test"),
        ("rm x", "deny", "Bash(rm:*)", "a test"),
        ("npm i", "ask", None, None),
    ]
    assert explanation.parts[0].reason == "ls is read-only"
    (inner, outer) = explain(make_engine(project), "Bash", command="echo $(pwd)").parts
    assert (inner.text, outer.text) == ("pwd", "echo $(pwd)")
    engine = make_engine(project)
    assert engine.decide_command_parts("ls\0") == ()
    assert engine.decide_command_parts(f"ls {'x' * 200_000}") == ()
    assert explain(engine, "Bash", command=5).parts == ()


@pytest.mark.spec("PRM-02")
def test_a_message_to_another_session_is_asked_about(project: Path) -> None:
    explanation = explain(make_engine(project), "SendMessage", to=f"{OTHER_SESSION_PREFIX}abc")
    assert explanation.decision == "ask"
    assert "abc" in explanation.reason
