"""Permissions: what the rules and the mode say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

import pytest
from permission_helpers import (
    AGENT,
    create_engine,
    decide_call,
    decide_command,
    make_tool_use,
    name_decision,
    parse_rules,
)

from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionMode,
    SetPermissionModeSuggestion,
    SuggestedPermissionRule,
    format_session_permission_rules,
)
from shoal.core.permissions.permission_decisions import AllowDecision, AskDecision, DenyDecision
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer
from shoal.policy.permission_answers import RememberedPermissionAnswers
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace


@pytest.mark.spec("PRM-01", "PRM-06")
@pytest.mark.parametrize(
    ("mode", "name", "arguments", "expected"),
    [
        ("default", "Read", {"file_path": "a.py"}, "allow"),
        ("default", "Read", {"file_path": "/etc/hostname"}, "ask"),
        ("default", "Grep", {"pattern": "x"}, "allow"),
        ("default", "Grep", {"pattern": "x", "path": "/etc"}, "ask"),
        ("default", "Write", {"file_path": "a.py"}, "ask"),
        ("default", "Bash", {"command": "ls"}, "allow"),
        ("default", "Bash", {"command": "make"}, "ask"),
        ("default", "TodoWrite", {}, "allow"),
        ("default", "mcp__web__search", {}, "ask"),
        ("bubble", "Write", {"file_path": "a.py"}, "ask"),
        ("bubble", "Read", {"file_path": "a.py"}, "allow"),
        ("acceptEdits", "Write", {"file_path": "a.py"}, "allow"),
        ("acceptEdits", "NotebookEdit", {"notebook_path": "a.ipynb"}, "allow"),
        ("acceptEdits", "Write", {"file_path": "../a.py"}, "ask"),
        ("acceptEdits", "Bash", {"command": "rm -rf ."}, "ask"),
        ("acceptEdits", "Bash", {"command": "echo x > a.txt"}, "allow"),
        ("acceptEdits", "Bash", {"command": "mkdir -p a/b"}, "allow"),
        ("acceptEdits", "Bash", {"command": "echo x > ../a.txt"}, "ask"),
        ("delegate", "Write", {"file_path": "a.py"}, "allow"),
        ("delegate", "Bash", {"command": "make"}, "ask"),
        ("plan", "Read", {"file_path": "a.py"}, "allow"),
        ("plan", "Write", {"file_path": "a.py"}, "deny"),
        ("plan", "Bash", {"command": "ls"}, "allow"),
        ("plan", "Bash", {"command": "ls > x"}, "deny"),
        ("plan", "Bash", {"command": "make"}, "deny"),
        ("plan", "mcp__web__search", {}, "deny"),
        ("dontAsk", "Bash", {"command": "make"}, "deny"),
        ("dontAsk", "Read", {"file_path": "a.py"}, "allow"),
        ("dontAsk", "Read", {"file_path": "/etc/hostname"}, "deny"),
        ("bypassPermissions", "Bash", {"command": "rm -rf x"}, "allow"),
        ("bypassPermissions", "Write", {"file_path": "/elsewhere"}, "allow"),
        ("bypassPermissions", "mcp__web__search", {}, "allow"),
    ],
)
def test_the_mode_decides_when_no_rule_matches(
    tmp_path: Path, mode: PermissionMode, name: str, arguments: dict[str, str], expected: str
) -> None:
    assert mode in get_args(PermissionMode)
    assert name_decision(decide_call(create_engine(tmp_path, mode), name, **arguments)) == expected


@pytest.mark.spec("PRM-02")
def test_deny_beats_ask_and_ask_beats_allow(tmp_path: Path) -> None:
    rules = create_engine(
        tmp_path, allow="Bash Read Write", ask="Bash(git push:*) Write", deny="Write(secret/**)"
    )
    assert isinstance(decide_call(rules, "Bash", command="make"), AllowDecision)
    assert isinstance(decide_call(rules, "Bash", command="git push origin"), AskDecision)
    assert isinstance(decide_call(rules, "Write", file_path="a.py"), AskDecision)
    assert isinstance(decide_call(rules, "Write", file_path="secret/a.py"), DenyDecision)
    assert isinstance(decide_call(rules, "Write", file_path="x/../secret/deep/a.py"), DenyDecision)
    others = create_engine(
        tmp_path,
        allow="WebFetch mcp__db",
        ask="WebFetch(domain:a.example) mcp__db__add",
        deny="mcp__db__drop",
    )
    assert isinstance(decide_call(others, "WebFetch", url="https://b.example"), AllowDecision)
    assert isinstance(decide_call(others, "WebFetch", url="https://a.example"), AskDecision)
    assert isinstance(decide_call(others, "mcp__db__read"), AllowDecision)
    assert isinstance(decide_call(others, "mcp__db__add"), AskDecision)
    assert isinstance(decide_call(others, "mcp__db__drop"), DenyDecision)


def test_a_decision_names_the_rule_and_its_source(tmp_path: Path) -> None:
    rules = create_engine(tmp_path, allow="Edit(/docs/**)", ask="WebFetch", deny="Bash(rm:*)")
    allowed = decide_call(rules, "Edit", file_path="docs/a.md")
    assert (allowed.rule, allowed.source) == ("Edit(/docs/**)", "a test")
    asked = decide_call(rules, "WebFetch", url="https://a.example")
    assert (asked.rule, asked.source) == ("WebFetch", "a test")
    denied = decide_call(rules, "Bash", command="ls; rm x")
    assert (denied.rule, denied.source) == ("Bash(rm:*)", "a test")
    assert decide_call(rules, "Read", file_path="a").rule is None


@pytest.mark.spec("PRM-06")
def test_deny_rules_apply_even_when_permissions_are_bypassed(tmp_path: Path) -> None:
    denied = "Bash(rm:*) Edit(/secret/**) WebFetch(domain:a.example) mcp__db"
    rules = create_engine(tmp_path, "bypassPermissions", deny=denied, ask="Read(/odd/**)")
    assert decide_command(rules, "cd x && rm -rf y") == "deny"
    assert decide_command(rules, "make") == "allow"
    assert name_decision(decide_call(rules, "Write", file_path="secret/x")) == "deny"
    assert decide_command(rules, "echo x > secret/x") == "deny"
    assert name_decision(decide_call(rules, "WebFetch", url="https://a.example/x")) == "deny"
    assert name_decision(decide_call(rules, "mcp__db__drop")) == "deny"
    assert name_decision(decide_call(rules, "Read", file_path="odd/x")) == "ask"


@pytest.mark.spec("PRM-03", "HOM-04")
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "delegate", "bubble"])
def test_every_file_outside_the_allowed_directories_asks(tmp_path: Path, mode: PermissionMode) -> None:
    project, granted, other = (tmp_path / name for name in ("project", "granted", "other"))
    for directory in (project, granted, other):
        directory.mkdir()
    rules = PermissionEngine(
        LocalWorkspace(project, granted=[granted]), mode=mode, rules=parse_rules(allow="Read Edit Write")
    )
    for name in ("Read", "Edit", "Write"):
        assert name_decision(decide_call(rules, name, file_path=str(granted / "a"))) == "allow"
        assert name_decision(decide_call(rules, name, file_path=str(other / "a"))) == "ask"
    for name in ("Grep", "Glob"):
        assert name_decision(decide_call(rules, name, pattern="x", path=str(granted))) == "allow"
        assert name_decision(decide_call(rules, name, pattern="x", path=str(other))) == "ask"
    assert name_decision(decide_call(rules, "NotebookEdit", notebook_path=str(other / "a.ipynb"))) == "ask"
    assert decide_command(rules, f"echo x > {other}/a") == "ask"
    assert decide_command(rules, f"cat {granted}/a") == "allow"
    assert decide_command(rules, f"cat {other}/a") == "ask"
    assert decide_command(rules, f"cd {other} && ls") == "ask"
    named = PermissionEngine(
        LocalWorkspace(project), mode=mode, rules=parse_rules(allow=f"Read(/{other}/**)")
    )
    assert name_decision(decide_call(named, "Read", file_path=str(other / "a"))) == "allow"
    assert decide_command(named, f"cat {other}/a") == "allow"


def test_no_allow_rule_permits_a_change_in_plan_mode(tmp_path: Path) -> None:
    rules = create_engine(tmp_path, "plan", allow="Bash Write Edit(/**) mcp__x Bash(make:*)")
    for name, arguments in (
        ("Bash", {"command": "make"}),
        ("Write", {"file_path": "a"}),
        ("Edit", {"file_path": "a"}),
        ("mcp__x__y", {}),
    ):
        assert name_decision(decide_call(rules, name, **arguments)) == "deny", name


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "delegate", "bubble"])
@pytest.mark.parametrize(
    "path",
    [".git/config", ".git", ".GIT/hooks/pre-commit", "sub/.git/HEAD", ".claude/settings.json", ".bashrc",
     "a/.zshrc", ".profile", ".ssh/config", ".gnupg/x", ".aws/credentials", "id_rsa", "certs/server.key",
     "server.pem", ".env", ".env.local", ".envrc", ".gitconfig", ".gitmodules", ".netrc", ".npmrc",
     ".mcp.json", ".cargo/config", ".cargo/config.toml", "a/rust-toolchain", "rust-toolchain.toml",
     ".vscode/tasks.json", ".config/fish/config.fish"],
)  # fmt: skip
def test_protected_files_are_never_changed_without_asking(
    tmp_path: Path, mode: PermissionMode, path: str
) -> None:
    rules = create_engine(tmp_path, mode, allow="Edit Write Edit(/**) Bash Bash(echo:*)")
    asked = decide_call(rules, "Write", file_path=path)
    assert isinstance(asked, AskDecision), path
    assert asked.suggestions == ()
    assert isinstance(decide_call(rules, "Edit", file_path=str(tmp_path / path)), AskDecision)
    assert decide_command(rules, f"echo x > {path}") == "ask"
    assert (
        name_decision(decide_call(create_engine(tmp_path, "bypassPermissions"), "Write", file_path=path))
        == "allow"
    )


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/workflows/a.yml", ".env.example", "keys.py", "a.pem.md"]
)
def test_files_next_to_protected_ones_are_ordinary_files(tmp_path: Path, path: str) -> None:
    assert (
        name_decision(decide_call(create_engine(tmp_path, "acceptEdits"), "Write", file_path=path)) == "allow"
    )


def test_a_link_does_not_hide_a_protected_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "harmless").symlink_to(".git")
    (tmp_path / "notes.txt").symlink_to(".git/config")
    rules = create_engine(tmp_path, "acceptEdits")
    assert name_decision(decide_call(rules, "Write", file_path="harmless/config")) == "ask"
    assert name_decision(decide_call(rules, "Write", file_path="notes.txt")) == "ask"
    assert decide_command(rules, "echo x > harmless/config") == "ask"


def test_a_link_that_replaced_a_file_is_followed_in_the_next_call(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    rules = create_engine(tmp_path, "acceptEdits")
    for _ in range(2):
        assert name_decision(decide_call(rules, "Edit", file_path="src/config")) == "allow"
        assert decide_command(rules, "echo x > src/config") == "allow"
        (tmp_path / "src").rename(tmp_path / "aside")
        (tmp_path / "src").symlink_to(".git")
        assert name_decision(decide_call(rules, "Edit", file_path="src/config")) == "ask"
        assert decide_command(rules, "echo x > src/config") == "ask"
        (tmp_path / "src").unlink()
        (tmp_path / "aside").rename(tmp_path / "src")


def test_team_keys_are_denied_in_every_mode(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (home / "shoal" / "keys").mkdir(parents=True)
    (home / "shoal" / "keys" / "team").touch()
    project.mkdir()
    (project / "k").symlink_to(home / "shoal" / "keys")
    for mode in get_args(PermissionMode):
        rules = create_engine(project, mode, home=home, allow="Read(//**) Edit(//**)")
        assert name_decision(decide_call(rules, "Read", file_path=str(home / "shoal/keys/team"))) == "deny"
        assert name_decision(decide_call(rules, "Read", file_path="k/team")) == "deny"
        assert name_decision(decide_call(rules, "Write", file_path=str(home / "shoal/keys/team"))) == "deny"
        rules = create_engine(project, mode, home=home, allow="Read(//**) Edit(//**) Bash")
        for command in (
            f"cat {home}/shoal/keys/team",
            "git status; cat k/team",
            f"cat {home}/shoal/k*/team",
            f"cat < {home}/shoal/keys/team",
            f"echo x > {home}/shoal/keys/team",
            f"sh -c 'cp {home}/shoal/keys/team .'",
        ):
            # Where permissions are skipped, a command is only looked into when its text says a reason to.
            looked_into = mode != "bypassPermissions" or "keys" in command
            assert decide_command(rules, command) == ("deny" if looked_into else "allow")
    assert (
        name_decision(
            decide_call(create_engine(project, "acceptEdits", home=home), "Write", file_path=str(home / "x"))
        )
        == "ask"
    )


@pytest.mark.parametrize(
    "command",
    ["git status; rm x", "git status && rm x", "git $(rm x)", "git `rm x`", "git status > x", "git a\nrm x",
     "git status | sh", "gitx", "git' 'status; x", "git \\\n; rm x", "./git status", "sudo git push"],
)  # fmt: skip
def test_an_allowed_prefix_never_covers_a_second_command(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path, allow="Bash(git:*)"), command) == "ask"


def test_stored_results_of_the_agent_can_be_read(tmp_path: Path) -> None:
    results = tmp_path / "results"
    project = tmp_path / "project"
    project.mkdir()
    rules = PermissionEngine(LocalWorkspace(project))
    rules.allow_reading(results)
    assert isinstance(decide_call(rules, "Read", file_path=str(results / "x.txt")), AllowDecision)
    assert isinstance(decide_call(rules, "Write", file_path=str(results / "x.txt")), AskDecision)


@pytest.mark.spec("PRM-09")
def test_a_session_answer_covers_only_the_same_command(tmp_path: Path) -> None:
    rules = create_engine(tmp_path)
    rules.remember_permission_answer(
        make_tool_use("Bash", command="make test"), AllowAnswer(remember="session")
    )
    stored = decide_call(rules, "Bash", command="make test")
    assert (name_decision(stored), stored.source) == ("allow", "this session")
    assert decide_command(rules, "make deploy") == "ask"
    assert decide_command(rules, "make test; make deploy") == "ask"


@pytest.mark.parametrize(
    "command", ["rm *.o", "echo '*' > $X", "docker run a:*", "find . -name \\*.pyc -delete"]
)
def test_a_remembered_command_with_asterisks_is_not_a_pattern(tmp_path: Path, command: str) -> None:
    rules = create_engine(tmp_path)
    assert decide_command(rules, command) == "ask"
    rules.remember_permission_answer(make_tool_use("Bash", command=command), AllowAnswer(remember="session"))
    assert decide_command(rules, command) == "allow"
    assert decide_command(rules, command.replace("*", "wide")) == "ask"


def test_a_one_time_or_negative_answer_adds_no_rule(tmp_path: Path) -> None:
    rules = create_engine(tmp_path)
    rules.remember_permission_answer(make_tool_use("Bash", command="make"), AllowAnswer())
    rules.remember_permission_answer(make_tool_use("Bash", command="make"), DenyAnswer(reason="no"))
    assert decide_command(rules, "make") == "ask"


def test_an_answer_with_an_unknown_scope_adds_no_rule(tmp_path: Path) -> None:
    stored: list[object] = []
    rules = PermissionEngine(LocalWorkspace(tmp_path), answers=RememberedPermissionAnswers(stored.append))
    answer = AllowAnswer(remember=cast("Any", "sessoin"))
    rules.remember_permission_answer(make_tool_use("Bash", command="make"), answer)
    assert stored == []
    assert decide_command(rules, "make") == "ask"


def create_engine_with_answer(root: Path, name: str, **arguments: Any) -> PermissionEngine:
    rules = create_engine(root)
    rules.remember_permission_answer(make_tool_use(name, **arguments), AllowAnswer(remember="session"))
    return rules


def test_a_session_answer_for_a_file_inside_covers_no_file_outside(tmp_path: Path) -> None:
    rules = create_engine_with_answer(tmp_path, "Write", file_path="a.py")
    assert isinstance(decide_call(rules, "Write", file_path="deep/b.py"), AllowDecision)
    assert isinstance(decide_call(rules, "Edit", file_path="a.py"), AskDecision)
    assert isinstance(decide_call(rules, "Write", file_path="../b.py"), AskDecision)
    assert isinstance(decide_call(rules, "Write", file_path="/etc/hosts"), AskDecision)


def test_a_session_answer_for_a_file_outside_covers_only_that_file(tmp_path: Path) -> None:
    rules = create_engine_with_answer(tmp_path, "Read", file_path="/etc/hosts")
    assert isinstance(decide_call(rules, "Read", file_path="/etc/hosts"), AllowDecision)
    assert isinstance(decide_call(rules, "Read", file_path="/etc/passwd"), AskDecision)
    starred = create_engine_with_answer(tmp_path, "Read", file_path="/etc/*")
    assert isinstance(decide_call(starred, "Read", file_path="/etc/*"), AllowDecision)
    assert isinstance(decide_call(starred, "Read", file_path="/etc/x"), AskDecision)


def test_a_session_answer_for_a_page_covers_only_its_host(tmp_path: Path) -> None:
    rules = create_engine_with_answer(tmp_path, "WebFetch", url="https://docs.example.org/a", prompt="?")
    assert isinstance(decide_call(rules, "WebFetch", url="https://docs.example.org/b"), AllowDecision)
    for url in (
        "https://example.org/",
        "https://a.docs.example.org/",
        "https://docs.example.org@evil.net/",
        "x",
    ):
        assert isinstance(decide_call(rules, "WebFetch", url=url), AskDecision)


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("Write", {"file_path": "a.py"}, "Write(/**)"),
        ("Write", {"file_path": "/etc/hosts"}, "Write(//etc/hosts)"),
        ("Bash", {"command": "make test"}, "Bash(make test)"),
        ("WebFetch", {"url": "https://example.org/x"}, "WebFetch(domain:example.org)"),
        ("Write", {"file_path": ".git/config"}, ""),
    ],
)
def test_a_question_describes_what_a_session_answer_allows(
    tmp_path: Path, name: str, arguments: dict[str, str], rule: str
) -> None:
    decision = decide_call(create_engine(tmp_path), name, **arguments)
    assert isinstance(decision, AskDecision)
    assert format_session_permission_rules(decision.suggestions) == rule


def test_accept_edits_works_in_a_project_below_a_settings_directory(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "worktrees" / "one"
    project.mkdir(parents=True)
    for home in (None, tmp_path / ".claude"):
        rules = create_engine(project, "acceptEdits", home=home)
        assert isinstance(decide_call(rules, "Write", file_path="a.py"), AllowDecision)
        assert isinstance(decide_call(rules, "Write", file_path=".claude/settings.json"), AskDecision)
        assert isinstance(
            decide_call(rules, "Write", file_path=str(tmp_path / ".claude/settings.json")), AskDecision
        )


@pytest.mark.spec("PRM-04")
def test_a_question_suggests_rules_that_would_avoid_it(tmp_path: Path) -> None:
    rules = create_engine(tmp_path)

    def suggestions(name: str, **arguments: str) -> tuple[object, ...]:
        asked = decide_call(rules, name, **arguments)
        assert isinstance(asked, AskDecision)
        return asked.suggestions

    assert suggestions("Edit", file_path="src/a.py") == (
        AddPermissionRulesSuggestion(
            rules=(SuggestedPermissionRule(tool_name="Edit", rule_content="/**"),), destination="session"
        ),
        SetPermissionModeSuggestion(mode="acceptEdits", destination="session"),
        AddPermissionRulesSuggestion(
            rules=(SuggestedPermissionRule(tool_name="Edit", rule_content="/src/**"),),
            destination="localSettings",
        ),
    )
    writing = (SuggestedPermissionRule(tool_name="Write", rule_content="/**"),)
    assert suggestions("Write", file_path="a.py") == (
        AddPermissionRulesSuggestion(rules=writing, destination="session"),
        SetPermissionModeSuggestion(mode="acceptEdits", destination="session"),
        AddPermissionRulesSuggestion(rules=writing, destination="localSettings"),
    )
    etc = (SuggestedPermissionRule(tool_name="Read", rule_content="//etc/hostname"),)
    assert suggestions("Read", file_path="/etc/hostname") == (
        AddPermissionRulesSuggestion(rules=etc, destination="session"),
        AddPermissionRulesSuggestion(rules=etc, destination="localSettings"),
        AddDirectoriesPermissionSuggestion(directories=("/etc",), destination="session"),
    )
    assert suggestions("Grep", pattern="x", path="/etc")[-1] == AddDirectoriesPermissionSuggestion(
        directories=("/etc",)
    )
    assert suggestions("Write", file_path="/srv/a/b.txt")[-1] == AddDirectoriesPermissionSuggestion(
        directories=("/srv/a",)
    )
    for top in (suggestions("Read", file_path="/vmlinuz"), suggestions("Glob", pattern="*", path="/")):
        assert not any(isinstance(each, AddDirectoriesPermissionSuggestion) for each in top), (
            "never the whole disk"
        )
    whole, parts = suggestions("Bash", command="git add x && git commit -m y | make")
    assert isinstance(whole, AddPermissionRulesSuggestion)
    assert isinstance(parts, AddPermissionRulesSuggestion)
    assert [str(rule) for rule in whole.rules] == ["Bash(git add x && git commit -m y | make)"]
    assert [str(rule) for rule in parts.rules] == ["Bash(git add:*)", "Bash(git commit:*)", "Bash(make)"]
    domain, _ = suggestions("WebFetch", url="https://docs.example/x")
    assert isinstance(domain, AddPermissionRulesSuggestion)
    assert str(domain.rules[0]) == "WebFetch(domain:docs.example)"


@pytest.mark.spec("PRM-04")
def test_every_accepted_suggestion_allows_the_same_call(tmp_path: Path) -> None:
    calls = (
        make_tool_use("Edit", file_path="src/a.py"),
        make_tool_use("Write", file_path="top.py"),
        make_tool_use("Write", file_path=str(tmp_path.parent / "o[d]d*" / "x.py")),
        make_tool_use("Read", file_path="/etc/hostname"),
        make_tool_use("Grep", pattern="x", path="/etc"),
        make_tool_use("Bash", command="make test"),
        make_tool_use("Bash", command="cd sub && rm -rf 'a b' ; git push origin main"),
        make_tool_use("WebFetch", url="https://docs.example/x"),
        make_tool_use("mcp__srv__do", x=1),
    )
    (tmp_path / "sub").mkdir()
    for call in calls:
        for destination in ("session", "localSettings"):
            rules = create_engine(tmp_path)
            asked = rules.decide_tool_call(call, None, AGENT)
            assert isinstance(asked, AskDecision)
            for each in asked.suggestions:
                if each.destination == destination:
                    rules.apply_permission_update(each)
            assert isinstance(rules.decide_tool_call(call, None, AGENT), AllowDecision), (call, destination)


@pytest.mark.spec("PRM-04", "PRM-03")
def test_an_accepted_directory_suggestion_allows_only_that_directory(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for directory in (project, other):
        directory.mkdir()
    rules = create_engine(project, "acceptEdits")
    asked = decide_call(rules, "Read", file_path=str(other / "a"))
    assert isinstance(asked, AskDecision)
    (suggested,) = [
        each for each in asked.suggestions if isinstance(each, AddDirectoriesPermissionSuggestion)
    ]
    rules.apply_permission_update(suggested)
    for name in ("Read", "Write"):
        assert name_decision(decide_call(rules, name, file_path=str(other / "b"))) == "allow"
        assert name_decision(decide_call(rules, name, file_path=str(tmp_path / "c"))) == "ask"


def test_permission_updates_in_an_answer_are_applied(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    rules = create_engine(project, "acceptEdits")
    rules.remember_permission_answer(
        make_tool_use("Read", file_path=str(other)),
        AllowAnswer(
            updates=(
                AddDirectoriesPermissionSuggestion(directories=(str(other),)),
                AddPermissionRulesSuggestion(
                    rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="make:*"),), behavior="deny"
                ),
            )
        ),
    )
    assert name_decision(decide_call(rules, "Write", file_path=str(other / "x"))) == "allow"
    assert decide_command(rules, "make x") == "deny"


def test_an_invalid_permission_update_is_reported_and_ignored(tmp_path: Path) -> None:
    stored: list[object] = []
    problems: list[str] = []
    rules = PermissionEngine(
        LocalWorkspace(tmp_path), answers=RememberedPermissionAnswers(stored.append, problems.append)
    )
    bad = (SuggestedPermissionRule(tool_name="Bash", rule_content="a:* b"),)
    updates = (
        AddPermissionRulesSuggestion(rules=bad, destination="localSettings"),
        AddPermissionRulesSuggestion(rules=bad),
        SetPermissionModeSuggestion(mode="bypassPermissions"),
        AddPermissionRulesSuggestion(rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="make"),)),
    )
    rules.remember_permission_answer(make_tool_use("Bash", command="make"), AllowAnswer(updates=updates))
    assert (stored, rules.mode, len(problems)) == ([], "default", 3)
    assert decide_command(rules, "make") == "allow"


@pytest.mark.spec("AGT-07", "USR-05")
def test_a_child_has_the_rules_and_answers_of_its_parent_and_its_own_mode(tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    project = tmp_path / "project"
    project.mkdir()
    worktree.mkdir()
    parent = create_engine(project, "acceptEdits", ask="Bash(git push:*)", deny="Edit(/secret/**)")
    child = parent.create_child(LocalWorkspace(worktree), mode="default")
    assert name_decision(decide_call(child, "Edit", file_path="a")) == "ask"
    assert name_decision(decide_call(child, "Edit", file_path="secret/a")) == "deny"
    assert name_decision(decide_call(child, "Edit", file_path=str(project / "secret/a"))) == "deny"
    assert decide_command(child, f"echo x > {project}/secret/a") == "deny"
    assert name_decision(decide_call(child, "Edit", file_path=str(project / "a"))) == "ask"
    assert decide_command(child, "git push") == "ask"
    parent.remember_permission_answer(
        make_tool_use("Bash", command="make test"), AllowAnswer(remember="session")
    )
    assert decide_command(child, "make test") == "allow"
    child.remember_permission_answer(
        make_tool_use("Bash", command="make lint"), AllowAnswer(remember="session")
    )
    assert decide_command(parent, "make lint") == "allow"


@pytest.mark.spec("PRM-07")
def test_bypassing_permissions_must_be_enabled_by_the_user(tmp_path: Path) -> None:
    rules = create_engine(tmp_path)
    with pytest.raises(SettingsError, match="--dangerously-skip-permissions"):
        rules.set_mode("bypassPermissions")
    assert rules.mode == "default"
    enabled = PermissionEngine(LocalWorkspace(tmp_path), can_bypass=True)
    enabled.set_mode("bypassPermissions")
    assert decide_command(enabled, "rm -rf x") == "allow"


def test_an_answer_for_settings_is_passed_on_to_be_stored(tmp_path: Path) -> None:
    stored: list[object] = []
    rules = PermissionEngine(LocalWorkspace(tmp_path), answers=RememberedPermissionAnswers(stored.append))
    rules.remember_permission_answer(
        make_tool_use("Bash", command="git push origin"), AllowAnswer(remember="settings")
    )
    assert [str(each.rules[0]) for each in stored if isinstance(each, AddPermissionRulesSuggestion)] == [
        "Bash(git push:*)"
    ]


def test_a_sandboxed_command_does_not_ask(tmp_path: Path) -> None:
    class SandboxWithSetting:
        def __init__(self, *, auto_allow: bool) -> None:
            self.can_skip_permission_question = auto_allow

    def create_sandboxed_engine(*, auto_allow: bool) -> PermissionEngine:
        sandbox = SandboxWithSetting(auto_allow=auto_allow)
        rules = parse_rules(ask="Bash(git push:*)")
        return PermissionEngine(LocalWorkspace(tmp_path), rules=rules, sandbox=sandbox)

    rules = create_sandboxed_engine(auto_allow=True)
    assert decide_command(rules, "make") == "allow"
    assert decide_command(rules, "git push") == "ask"
    assert decide_command(create_sandboxed_engine(auto_allow=False), "make") == "ask"
    child = rules.create_child(LocalWorkspace(tmp_path), mode="default")
    assert decide_command(child, "make") == "allow"
    own_sandbox = SandboxWithSetting(auto_allow=False)
    child = rules.create_child(LocalWorkspace(tmp_path), mode="default", sandbox=own_sandbox)
    assert decide_command(child, "make") == "ask"
