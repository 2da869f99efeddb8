"""Permissions: what the rules and the mode say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from judging import ME, decide, permissions, shell, standing, use, word

from shoal.core.decisions import Allow, Ask, Deny
from shoal.core.errors import SettingsError
from shoal.core.permissions import AddDirectories, AddRules, Mode, RuleValue, SetMode, for_session
from shoal.core.questions import Allowed, Denied
from shoal.policy.answers import SessionAnswers
from shoal.policy.permissions import RulePermissions
from shoal.workspaces.local import LocalWorkspace


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
def test_a_mode_decides_what_no_rule_speaks_of(
    tmp_path: Path, mode: Mode, name: str, arguments: dict[str, str], expected: str
) -> None:
    assert mode in get_args(Mode)
    assert word(decide(permissions(tmp_path, mode), name, **arguments)) == expected


@pytest.mark.spec("PRM-02")
def test_deny_beats_ask_and_ask_beats_allow(tmp_path: Path) -> None:
    rules = permissions(
        tmp_path, allow="Bash Read Write", ask="Bash(git push:*) Write", deny="Write(secret/**)"
    )
    assert isinstance(decide(rules, "Bash", command="make"), Allow)
    assert isinstance(decide(rules, "Bash", command="git push origin"), Ask)
    assert isinstance(decide(rules, "Write", file_path="a.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="secret/a.py"), Deny)
    assert isinstance(decide(rules, "Write", file_path="x/../secret/deep/a.py"), Deny)
    others = permissions(
        tmp_path,
        allow="WebFetch mcp__db",
        ask="WebFetch(domain:a.example) mcp__db__add",
        deny="mcp__db__drop",
    )
    assert isinstance(decide(others, "WebFetch", url="https://b.example"), Allow)
    assert isinstance(decide(others, "WebFetch", url="https://a.example"), Ask)
    assert isinstance(decide(others, "mcp__db__read"), Allow)
    assert isinstance(decide(others, "mcp__db__add"), Ask)
    assert isinstance(decide(others, "mcp__db__drop"), Deny)


def test_a_decision_names_the_rule_and_where_it_stands(tmp_path: Path) -> None:
    rules = permissions(tmp_path, allow="Edit(/docs/**)", ask="WebFetch", deny="Bash(rm:*)")
    allowed = decide(rules, "Edit", file_path="docs/a.md")
    assert (allowed.rule, allowed.source) == ("Edit(/docs/**)", "a test")
    asked = decide(rules, "WebFetch", url="https://a.example")
    assert (asked.rule, asked.source) == ("WebFetch", "a test")
    denied = decide(rules, "Bash", command="ls; rm x")
    assert (denied.rule, denied.source) == ("Bash(rm:*)", "a test")
    assert decide(rules, "Read", file_path="a").rule is None


@pytest.mark.spec("PRM-06")
def test_deny_rules_hold_even_where_permissions_are_skipped(tmp_path: Path) -> None:
    denied = "Bash(rm:*) Edit(/secret/**) WebFetch(domain:a.example) mcp__db"
    rules = permissions(tmp_path, "bypassPermissions", deny=denied, ask="Read(/odd/**)")
    assert shell(rules, "cd x && rm -rf y") == "deny"
    assert shell(rules, "make") == "allow"
    assert word(decide(rules, "Write", file_path="secret/x")) == "deny"
    assert shell(rules, "echo x > secret/x") == "deny"
    assert word(decide(rules, "WebFetch", url="https://a.example/x")) == "deny"
    assert word(decide(rules, "mcp__db__drop")) == "deny"
    assert word(decide(rules, "Read", file_path="odd/x")) == "ask"


@pytest.mark.spec("PRM-03", "HOM-04")
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "delegate", "bubble"])
def test_outside_the_working_and_granted_directories_everything_asks(tmp_path: Path, mode: Mode) -> None:
    project, granted, other = (tmp_path / name for name in ("project", "granted", "other"))
    for directory in (project, granted, other):
        directory.mkdir()
    rules = RulePermissions(
        LocalWorkspace(project, granted=[granted]), mode=mode, standing=standing(allow="Read Edit Write")
    )
    for name in ("Read", "Edit", "Write"):
        assert word(decide(rules, name, file_path=str(granted / "a"))) == "allow"
        assert word(decide(rules, name, file_path=str(other / "a"))) == "ask"
    for name in ("Grep", "Glob"):
        assert word(decide(rules, name, pattern="x", path=str(granted))) == "allow"
        assert word(decide(rules, name, pattern="x", path=str(other))) == "ask"
    assert word(decide(rules, "NotebookEdit", notebook_path=str(other / "a.ipynb"))) == "ask"
    assert shell(rules, f"echo x > {other}/a") == "ask"
    assert shell(rules, f"cat {granted}/a") == "allow"
    assert shell(rules, f"cat {other}/a") == "ask"
    assert shell(rules, f"cd {other} && ls") == "ask"
    named = RulePermissions(LocalWorkspace(project), mode=mode, standing=standing(allow=f"Read(/{other}/**)"))
    assert word(decide(named, "Read", file_path=str(other / "a"))) == "allow"
    assert shell(named, f"cat {other}/a") == "allow"


def test_in_plan_mode_no_allow_rule_makes_a_change_possible(tmp_path: Path) -> None:
    rules = permissions(tmp_path, "plan", allow="Bash Write Edit(/**) mcp__x Bash(make:*)")
    for name, arguments in (
        ("Bash", {"command": "make"}),
        ("Write", {"file_path": "a"}),
        ("Edit", {"file_path": "a"}),
        ("mcp__x__y", {}),
    ):
        assert word(decide(rules, name, **arguments)) == "deny", name


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "delegate", "bubble"])
@pytest.mark.parametrize(
    "path",
    [".git/config", ".git", ".GIT/hooks/pre-commit", "sub/.git/HEAD", ".claude/settings.json", ".bashrc",
     "a/.zshrc", ".profile", ".ssh/config", ".gnupg/x", ".aws/credentials", "id_rsa", "certs/server.key",
     "server.pem", ".env", ".env.local", ".envrc", ".gitconfig", ".gitmodules", ".netrc", ".npmrc",
     ".mcp.json", ".cargo/config", ".cargo/config.toml", "a/rust-toolchain", "rust-toolchain.toml",
     ".vscode/tasks.json", ".config/fish/config.fish"],
)  # fmt: skip
def test_protected_files_are_never_changed_without_asking(tmp_path: Path, mode: Mode, path: str) -> None:
    rules = permissions(tmp_path, mode, allow="Edit Write Edit(/**) Bash Bash(echo:*)")
    asked = decide(rules, "Write", file_path=path)
    assert isinstance(asked, Ask), path
    assert asked.suggestions == ()
    assert isinstance(decide(rules, "Edit", file_path=str(tmp_path / path)), Ask)
    assert shell(rules, f"echo x > {path}") == "ask"
    assert word(decide(permissions(tmp_path, "bypassPermissions"), "Write", file_path=path)) == "allow"


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/workflows/a.yml", ".env.example", "keys.py", "a.pem.md"]
)
def test_files_beside_protected_ones_are_like_any_other(tmp_path: Path, path: str) -> None:
    assert word(decide(permissions(tmp_path, "acceptEdits"), "Write", file_path=path)) == "allow"


def test_a_link_does_not_hide_what_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "harmless").symlink_to(".git")
    (tmp_path / "notes.txt").symlink_to(".git/config")
    rules = permissions(tmp_path, "acceptEdits")
    assert word(decide(rules, "Write", file_path="harmless/config")) == "ask"
    assert word(decide(rules, "Write", file_path="notes.txt")) == "ask"
    assert shell(rules, "echo x > harmless/config") == "ask"


def test_a_link_put_in_the_place_of_a_file_counts_for_the_next_call(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    rules = permissions(tmp_path, "acceptEdits")
    for _ in range(2):
        assert word(decide(rules, "Edit", file_path="src/config")) == "allow"
        assert shell(rules, "echo x > src/config") == "allow"
        (tmp_path / "src").rename(tmp_path / "aside")
        (tmp_path / "src").symlink_to(".git")
        assert word(decide(rules, "Edit", file_path="src/config")) == "ask"
        assert shell(rules, "echo x > src/config") == "ask"
        (tmp_path / "src").unlink()
        (tmp_path / "aside").rename(tmp_path / "src")


def test_the_keys_of_shoal_are_out_of_reach_in_every_mode(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (home / "shoal" / "keys").mkdir(parents=True)
    (home / "shoal" / "keys" / "team").touch()
    project.mkdir()
    (project / "k").symlink_to(home / "shoal" / "keys")
    for mode in get_args(Mode):
        rules = permissions(project, mode, home=home, allow="Read(//**) Edit(//**)")
        assert word(decide(rules, "Read", file_path=str(home / "shoal/keys/team"))) == "deny"
        assert word(decide(rules, "Read", file_path="k/team")) == "deny"
        assert word(decide(rules, "Write", file_path=str(home / "shoal/keys/team"))) == "deny"
        rules = permissions(project, mode, home=home, allow="Read(//**) Edit(//**) Bash")
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
            assert shell(rules, command) == ("deny" if looked_into else "allow")
    assert (
        word(decide(permissions(project, "acceptEdits", home=home), "Write", file_path=str(home / "x")))
        == "ask"
    )


@pytest.mark.parametrize(
    "command",
    ["git status; rm x", "git status && rm x", "git $(rm x)", "git `rm x`", "git status > x", "git a\nrm x",
     "git status | sh", "gitx", "git' 'status; x", "git \\\n; rm x", "./git status", "sudo git push"],
)  # fmt: skip
def test_an_allowed_beginning_never_covers_a_second_command(tmp_path: Path, command: str) -> None:
    assert shell(permissions(tmp_path, allow="Bash(git:*)"), command) == "ask"


def test_results_kept_for_the_agent_can_be_read_back(tmp_path: Path) -> None:
    results = tmp_path / "results"
    project = tmp_path / "project"
    project.mkdir()
    rules = RulePermissions(LocalWorkspace(project), readable=[results])
    assert isinstance(decide(rules, "Read", file_path=str(results / "x.txt")), Allow)
    assert isinstance(decide(rules, "Write", file_path=str(results / "x.txt")), Ask)


@pytest.mark.spec("PRM-09")
def test_an_answer_for_the_session_covers_the_same_command_only(tmp_path: Path) -> None:
    rules = permissions(tmp_path)
    rules.remember(use("Bash", command="make test"), Allowed(remember="session"))
    kept = decide(rules, "Bash", command="make test")
    assert (word(kept), kept.source) == ("allow", "this session")
    assert shell(rules, "make deploy") == "ask"
    assert shell(rules, "make test; make deploy") == "ask"


@pytest.mark.parametrize(
    "command", ["rm *.o", "echo '*' > $X", "docker run a:*", "find . -name \\*.pyc -delete"]
)
def test_a_command_with_stars_is_remembered_as_it_is_and_as_no_pattern(tmp_path: Path, command: str) -> None:
    rules = permissions(tmp_path)
    assert shell(rules, command) == "ask"
    rules.remember(use("Bash", command=command), Allowed(remember="session"))
    assert shell(rules, command) == "allow"
    assert shell(rules, command.replace("*", "wide")) == "ask"


def test_an_answer_once_or_no_changes_nothing(tmp_path: Path) -> None:
    rules = permissions(tmp_path)
    rules.remember(use("Bash", command="make"), Allowed())
    rules.remember(use("Bash", command="make"), Denied(reason="no"))
    assert shell(rules, "make") == "ask"


def remembered(root: Path, name: str, **arguments: Any) -> RulePermissions:
    rules = permissions(root)
    rules.remember(use(name, **arguments), Allowed(remember="session"))
    return rules


def test_an_answer_for_the_session_about_a_file_here_covers_no_file_elsewhere(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "Write", file_path="a.py")
    assert isinstance(decide(rules, "Write", file_path="deep/b.py"), Allow)
    assert isinstance(decide(rules, "Edit", file_path="a.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="../b.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="/etc/hosts"), Ask)


def test_an_answer_for_the_session_about_a_file_elsewhere_covers_that_file_only(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "Read", file_path="/etc/hosts")
    assert isinstance(decide(rules, "Read", file_path="/etc/hosts"), Allow)
    assert isinstance(decide(rules, "Read", file_path="/etc/passwd"), Ask)
    starred = remembered(tmp_path, "Read", file_path="/etc/*")
    assert isinstance(decide(starred, "Read", file_path="/etc/*"), Allow)
    assert isinstance(decide(starred, "Read", file_path="/etc/x"), Ask)


def test_an_answer_for_the_session_about_a_page_covers_its_site_only(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "WebFetch", url="https://docs.example.org/a", prompt="?")
    assert isinstance(decide(rules, "WebFetch", url="https://docs.example.org/b"), Allow)
    for url in (
        "https://example.org/",
        "https://a.docs.example.org/",
        "https://docs.example.org@evil.net/",
        "x",
    ):
        assert isinstance(decide(rules, "WebFetch", url=url), Ask)


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
def test_a_question_says_what_an_answer_for_the_session_allows(
    tmp_path: Path, name: str, arguments: dict[str, str], rule: str
) -> None:
    decision = decide(permissions(tmp_path), name, **arguments)
    assert isinstance(decision, Ask)
    assert for_session(decision.suggestions) == rule


def test_edits_are_accepted_in_a_project_that_lies_below_a_settings_directory(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "worktrees" / "one"
    project.mkdir(parents=True)
    for home in (None, tmp_path / ".claude"):
        rules = permissions(project, "acceptEdits", home=home)
        assert isinstance(decide(rules, "Write", file_path="a.py"), Allow)
        assert isinstance(decide(rules, "Write", file_path=".claude/settings.json"), Ask)
        assert isinstance(decide(rules, "Write", file_path=str(tmp_path / ".claude/settings.json")), Ask)


@pytest.mark.spec("PRM-04")
def test_a_question_comes_with_what_would_make_it_needless(tmp_path: Path) -> None:
    rules = permissions(tmp_path)

    def suggestions(name: str, **arguments: str) -> tuple[object, ...]:
        asked = decide(rules, name, **arguments)
        assert isinstance(asked, Ask)
        return asked.suggestions

    assert suggestions("Edit", file_path="src/a.py") == (
        AddRules(rules=(RuleValue(tool_name="Edit", rule_content="/**"),), destination="session"),
        SetMode(mode="acceptEdits", destination="session"),
        AddRules(rules=(RuleValue(tool_name="Edit", rule_content="/src/**"),), destination="localSettings"),
    )
    writing = (RuleValue(tool_name="Write", rule_content="/**"),)
    assert suggestions("Write", file_path="a.py") == (
        AddRules(rules=writing, destination="session"),
        SetMode(mode="acceptEdits", destination="session"),
        AddRules(rules=writing, destination="localSettings"),
    )
    etc = (RuleValue(tool_name="Read", rule_content="//etc/hostname"),)
    assert suggestions("Read", file_path="/etc/hostname") == (
        AddRules(rules=etc, destination="session"),
        AddRules(rules=etc, destination="localSettings"),
        AddDirectories(directories=("/etc",), destination="session"),
    )
    assert suggestions("Grep", pattern="x", path="/etc")[-1] == AddDirectories(directories=("/etc",))
    assert suggestions("Write", file_path="/srv/a/b.txt")[-1] == AddDirectories(directories=("/srv/a",))
    for top in (suggestions("Read", file_path="/vmlinuz"), suggestions("Glob", pattern="*", path="/")):
        assert not any(isinstance(each, AddDirectories) for each in top), "never the whole disk"
    whole, parts = suggestions("Bash", command="git add x && git commit -m y | make")
    assert isinstance(whole, AddRules)
    assert isinstance(parts, AddRules)
    assert [str(rule) for rule in whole.rules] == ["Bash(git add x && git commit -m y | make)"]
    assert [str(rule) for rule in parts.rules] == ["Bash(git add:*)", "Bash(git commit:*)", "Bash(make)"]
    domain, _ = suggestions("WebFetch", url="https://docs.example/x")
    assert isinstance(domain, AddRules)
    assert str(domain.rules[0]) == "WebFetch(domain:docs.example)"


@pytest.mark.spec("PRM-04")
def test_every_suggestion_taken_over_makes_the_same_call_pass(tmp_path: Path) -> None:
    calls = (
        use("Edit", file_path="src/a.py"),
        use("Write", file_path="top.py"),
        use("Write", file_path=str(tmp_path.parent / "o[d]d*" / "x.py")),
        use("Read", file_path="/etc/hostname"),
        use("Grep", pattern="x", path="/etc"),
        use("Bash", command="make test"),
        use("Bash", command="cd sub && rm -rf 'a b' ; git push origin main"),
        use("WebFetch", url="https://docs.example/x"),
        use("mcp__srv__do", x=1),
    )
    (tmp_path / "sub").mkdir()
    for call in calls:
        for destination in ("session", "localSettings"):
            rules = permissions(tmp_path)
            asked = rules.decide(call, None, ME)
            assert isinstance(asked, Ask)
            for each in asked.suggestions:
                if each.destination == destination:
                    rules.apply(each)
            assert isinstance(rules.decide(call, None, ME), Allow), (call, destination)


@pytest.mark.spec("PRM-04", "PRM-03")
def test_a_suggested_directory_taken_over_opens_what_lies_in_it_and_no_more(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for directory in (project, other):
        directory.mkdir()
    rules = permissions(project, "acceptEdits")
    asked = decide(rules, "Read", file_path=str(other / "a"))
    assert isinstance(asked, Ask)
    (suggested,) = [each for each in asked.suggestions if isinstance(each, AddDirectories)]
    rules.apply(suggested)
    for name in ("Read", "Write"):
        assert word(decide(rules, name, file_path=str(other / "b"))) == "allow"
        assert word(decide(rules, name, file_path=str(tmp_path / "c"))) == "ask"


def test_answers_with_changes_of_their_own_are_applied(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    rules = permissions(project, "acceptEdits")
    rules.remember(
        use("Read", file_path=str(other)),
        Allowed(
            updates=(
                AddDirectories(directories=(str(other),)),
                AddRules(rules=(RuleValue(tool_name="Bash", rule_content="make:*"),), behavior="deny"),
            )
        ),
    )
    assert word(decide(rules, "Write", file_path=str(other / "x"))) == "allow"
    assert shell(rules, "make x") == "deny"


def test_a_change_that_cannot_be_is_told_and_neither_kept_nor_in_the_way(tmp_path: Path) -> None:
    kept: list[object] = []
    told: list[str] = []
    rules = RulePermissions(LocalWorkspace(tmp_path), answers=SessionAnswers(kept.append, told.append))
    bad = (RuleValue(tool_name="Bash", rule_content="a:* b"),)
    updates = (
        AddRules(rules=bad, destination="localSettings"),
        AddRules(rules=bad),
        SetMode(mode="bypassPermissions"),
        AddRules(rules=(RuleValue(tool_name="Bash", rule_content="make"),)),
    )
    rules.remember(use("Bash", command="make"), Allowed(updates=updates))
    assert (kept, rules.mode, len(told)) == ([], "default", 3)
    assert shell(rules, "make") == "allow"


@pytest.mark.spec("AGT-07", "USR-05")
def test_a_child_has_its_parents_rules_and_answers_and_a_mode_of_its_own(tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    project = tmp_path / "project"
    project.mkdir()
    worktree.mkdir()
    parent = permissions(project, "acceptEdits", ask="Bash(git push:*)", deny="Edit(/secret/**)")
    child = parent.child(LocalWorkspace(worktree), mode="default")
    assert word(decide(child, "Edit", file_path="a")) == "ask"
    assert word(decide(child, "Edit", file_path="secret/a")) == "deny"
    assert word(decide(child, "Edit", file_path=str(project / "secret/a"))) == "deny"
    assert shell(child, f"echo x > {project}/secret/a") == "deny"
    assert word(decide(child, "Edit", file_path=str(project / "a"))) == "ask"
    assert shell(child, "git push") == "ask"
    parent.remember(use("Bash", command="make test"), Allowed(remember="session"))
    assert shell(child, "make test") == "allow"
    child.remember(use("Bash", command="make lint"), Allowed(remember="session"))
    assert shell(parent, "make lint") == "allow"


@pytest.mark.spec("PRM-07")
def test_skipping_permissions_needs_the_persons_leave(tmp_path: Path) -> None:
    rules = permissions(tmp_path)
    with pytest.raises(SettingsError, match="--dangerously-skip-permissions"):
        rules.set_mode("bypassPermissions")
    assert rules.mode == "default"
    enabled = RulePermissions(LocalWorkspace(tmp_path), may_skip=True)
    enabled.set_mode("bypassPermissions")
    assert shell(enabled, "rm -rf x") == "allow"


def test_an_answer_for_settings_is_handed_over_to_be_kept(tmp_path: Path) -> None:
    kept: list[object] = []
    rules = RulePermissions(LocalWorkspace(tmp_path), answers=SessionAnswers(kept.append))
    rules.remember(use("Bash", command="git push origin"), Allowed(remember="settings"))
    assert [str(each.rules[0]) for each in kept if isinstance(each, AddRules)] == ["Bash(git push:*)"]


def test_one_that_only_runs_in_a_sandbox_need_not_be_asked_about(tmp_path: Path) -> None:
    rules = permissions(tmp_path, ask="Bash(git push:*)")
    rules.sandboxed = lambda call: "unsafe" not in call.input
    assert shell(rules, "make") == "allow"
    assert shell(rules, "git push") == "ask"
    assert word(decide(rules, "Bash", command="make", unsafe=True)) == "ask"
