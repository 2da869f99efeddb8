"""Rules as they are written, and the patterns in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from shoal.core.errors import SettingsError
from shoal.policy.path_patterns import convert_path_pattern_to_regex
from shoal.policy.permission_rules import parse_permission_rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Bash(", "is not a permission rule"),
        ("", "is not a permission rule"),
        ("two words", "is not a permission rule"),
        ("Bash()", "it is empty"),
        ("Read( )", "it is empty"),
        ("Read(src/[ab)", "not closed"),
        ("Read([z-a])", "not a valid character set"),
        ("Edit(!src/**)", "cannot be negated"),
        ("Edit(../other/**)", r"cannot contain `\.\.`"),
        ("Read(a\0b)", "NUL byte"),
        ("Bash(git:* push)", "allowed only at the end"),
        ("Bash(:*)", "there is no command before"),
        ("WebFetch(example.com)", "domain:example.com"),
        ("WebFetch(domain:)", "domain:example.com"),
        ("WebFetch(domain:a b)", "domain:example.com"),
        ("mcp__server__tool(x)", "takes none"),
        ("*(x)", "takes none"),
    ],
)
def test_an_invalid_rule_is_reported_with_its_source_and_reason(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        parse_permission_rule(text, "settings.json:7")
    assert "settings.json:7" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src/**", "/p/src/a/b.py", True),
        ("src/**", "/p/src", True),
        ("src/**", "/p/srcs/a", False),
        ("src/**", "/p/lib/src/a", False),
        ("/src/*.py", "/p/src/a.py", True),
        ("/src/*.py", "/p/src/deep/a.py", False),
        ("./src", "/p/src/deep/a.py", True),
        ("*.py", "/p/deep/er/a.py", True),
        ("*.py", "/q/a.py", False),
        (".env", "/p/deep/.env", True),
        ("secret/", "/p/x/secret/a", True),
        ("**/test_?.py", "/p/a/test_1.py", True),
        ("**/test_?.py", "/p/test_12.py", False),
        ("[a-c].txt", "/p/b.txt", True),
        ("[!a-c].txt", "/p/b.txt", False),
        ("//etc/**", "/etc/passwd", True),
        ("//etc/**", "/p/etc/passwd", False),
        ("a\\*b", "/p/a*b", True),
        ("a\\*b", "/p/axb", False),
        ("a.b", "/p/axb", False),
        ("a(b)+c", "/p/a(b)+c", True),
        ("**", "/p/x/y", True),
        ("//**", "/anything/at/all", True),
    ],
)
def test_file_patterns_follow_gitignore(pattern: str, path: str, fits: bool) -> None:
    found = re.compile(convert_path_pattern_to_regex(pattern, "/p", "/home/me"), re.DOTALL).fullmatch(path)
    assert (found is not None) is fits


def test_a_tilde_is_the_home_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of-the-process")
    assert re.fullmatch(convert_path_pattern_to_regex("~/notes/**", "/p", "/home/me"), "/home/me/notes/a")


@pytest.mark.spec("PRM-02")
def test_read_and_edit_rules_apply_to_all_file_tools_and_to_commands(tmp_path: Path) -> None:
    rules = create_engine(tmp_path, deny="Read(/secret/**) Edit(/fixed/**)", allow="Bash")
    for name, key in (("Read", "file_path"), ("Glob", "path"), ("Grep", "path")):
        assert name_decision(decide_call(rules, name, **{key: "secret/a"})) == "deny", name
    for name, key in (("Edit", "file_path"), ("Write", "file_path"), ("NotebookEdit", "notebook_path")):
        assert name_decision(decide_call(rules, name, **{key: "fixed/a"})) == "deny", name
    assert decide_command(rules, "cat secret/a") == "deny"
    assert decide_command(rules, "cat < secret/a") == "deny"
    assert decide_command(rules, "ls | tee fixed/a") == "deny"
    assert decide_command(rules, "cat $x") == "ask"


@pytest.mark.parametrize(
    ("rule", "url", "allowed", "denied"),
    [
        ("WebFetch(domain:a.example)", "https://a.example/x", True, True),
        ("WebFetch(domain:a.example)", "https://A.EXAMPLE./x", True, True),
        ("WebFetch(domain:a.example)", "https://b.a.example/x", False, True),
        ("WebFetch(domain:a.example)", "https://xa.example/x", False, False),
        ("WebFetch(domain:a.example)", "https://a.example@evil.example/", False, False),
        ("WebFetch(domain:a.example)", "https://evil.example/a.example", False, False),
        ("WebFetch(domain:*.a.example)", "https://b.a.example/x", True, True),
        ("WebFetch(domain:*.a.example)", "https://a.example/x", False, False),
        ("WebFetch(domain:a.example)", "not an address", False, True),
    ],
)
def test_a_denied_domain_includes_its_subdomains(
    tmp_path: Path, rule: str, url: str, allowed: bool, denied: bool
) -> None:
    assert (
        name_decision(decide_call(create_engine(tmp_path, allow=rule), "WebFetch", url=url)) == "allow"
    ) is allowed
    assert (
        name_decision(decide_call(create_engine(tmp_path, deny=rule), "WebFetch", url=url)) == "deny"
    ) is denied


def test_rules_apply_to_mcp_servers_and_agent_types(tmp_path: Path) -> None:
    rules = create_engine(tmp_path, allow="mcp__web mcp__db__read mcp__all__*", deny="Agent(writer)")
    assert name_decision(decide_call(rules, "mcp__web__fetch")) == "allow"
    assert name_decision(decide_call(rules, "mcp__website__fetch")) == "ask"
    assert name_decision(decide_call(rules, "mcp__db__read")) == "allow"
    assert name_decision(decide_call(rules, "mcp__db__read_all")) == "ask"
    assert name_decision(decide_call(rules, "mcp__all__x")) == "allow"
    assert name_decision(decide_call(rules, "Agent", subagent_type="writer")) == "deny"
    assert name_decision(decide_call(rules, "Task", subagent_type="writer")) == "deny"
    assert name_decision(decide_call(rules, "Agent", subagent_type="reader")) == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "decision"),
    [
        ("Bash(git push:*)", "git push", "allow"),
        ("Bash(git push:*)", "git push origin main", "allow"),
        ("Bash(git push:*)", "git 'push' x", "allow"),
        ("Bash(git push:*)", "git pushx", "ask"),
        ("Bash(git push:*)", "git push origin > out.txt", "ask"),
        ("Bash(git push:*)", "git push $x", "ask"),
        ("Bash(git push:*)", "X=1 git push", "ask"),
        ("Bash(git push:*)", "time git push", "allow"),
        ("Bash(git push:*)", "ls | head && git push", "allow"),
        ("Bash(git push:*)", "git push; make", "ask"),
        ("Bash(git push *)", "git push origin", "allow"),
        ("Bash(git push *)", "git pull origin", "ask"),
        ("Bash(git * main)", "git push origin main", "allow"),
        ("Bash(git * main)", "git push origin dev", "ask"),
        ("Bash(git push origin-*)", "git push origin-2", "allow"),
        ("Bash(git push origin-*)", "git push origin-2 --force", "ask"),
        ("Bash(make test)", "make test", "allow"),
        ("Bash(make test)", "make  'test'", "allow"),
        ("Bash(make test)", "make tests", "ask"),
        ("Bash(make test)", "make test deploy", "ask"),
        ("Bash(rm:*)", "rm a b", "allow"),
        ("Bash(rm:*)", "rm ../a", "ask"),
        ("Bash(rm:*)", "rm -r .git", "ask"),
        ("Bash(rm:*)", "cd sub && rm a", "allow"),
        ("Bash(sudo make:*)", "sudo make install", "allow"),
        ("Bash(make:*)", "sudo make install", "ask"),
        ("Bash(make:*)", "find . -exec make {} \\;", "ask"),
        ("Bash", "make $(x) | y > z", "allow"),
    ],
)
def test_an_allow_rule_covers_the_simple_commands_it_names(
    tmp_path: Path, rule: str, command: str, decision: str
) -> None:
    (tmp_path / "sub").mkdir()
    assert decide_command(create_engine(tmp_path, allow=rule), command) == decision


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("rm x", "deny"),
        ("/bin/rm x", "deny"),
        ("echo a; rm x", "deny"),
        ("sudo rm x", "deny"),
        ("env A=1 rm x", "deny"),
        ("A=1 rm x", "deny"),
        ("xargs rm", "deny"),
        ("find . -exec rm {} +", "deny"),
        ("sh -c 'rm x'", "deny"),
        ("echo $(rm x)", "deny"),
        ("r''m x", "deny"),
        ("$cmd x", "ask"),
        ("$(echo rm) x", "ask"),
        ("echo rm", "allow"),
        ("echo farm", "allow"),
        ("if rm", "ask"),
    ],
)
def test_a_deny_rule_finds_its_command_anywhere_and_asks_if_unsure(
    tmp_path: Path, command: str, decision: str
) -> None:
    assert decide_command(create_engine(tmp_path, deny="Bash(rm:*)"), command) == decision
    skipping = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*)")
    assert decide_command(skipping, command) == decision
