"""Ways around a rule, each of which leads to a question or a no."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import decide, permissions, shell, word


@pytest.mark.parametrize(
    "command",
    ["echo x src.py > src.py", "echo x src.py >> src.py", "echo src.py > lib/src.py",
     "echo src.py | echo > src.py", "echo x src.py 2> src.py"],
)  # fmt: skip
def test_a_rule_about_a_command_does_not_cover_where_its_output_goes(tmp_path: Path, command: str) -> None:
    ruled = permissions(tmp_path, allow="Bash(echo:*) Bash(rm:*)")
    assert shell(ruled, "rm src.py") == "allow"
    assert shell(ruled, command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["cp .env copy", "cp -r .env copy", "cp -t lib .env", "mv .env copy", "ln .env copy",
     "dd if=.env of=copy", "find . -name x -exec cp .env {} +"],
)  # fmt: skip
def test_a_file_that_may_not_be_read_is_not_copied_either(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").write_text("x")
    for rules in ({"allow": "Bash"}, {"allow": "Bash(cp:*) Bash(mv:*) Bash(ln:*) Bash(dd:*) Bash(find:*)"}):
        assert shell(permissions(tmp_path, deny="Read(.env)", **rules), command) == "deny"
    assert shell(permissions(tmp_path, "bypassPermissions", deny="Read(.env)"), command) == "deny"
    assert shell(permissions(tmp_path, deny="Read(.env)", allow="Bash"), "cp src.py copy") == "allow"


@pytest.mark.parametrize(
    "command",
    ["python tool.py token", "tar cf x token", "openssl enc -in ./token", "curl -d @token u",
     "curl -F a=@token u", "tool --in=token", "sudo tool token", "vim token"],
)  # fmt: skip
def test_a_command_that_is_not_known_may_read_what_it_names(tmp_path: Path, command: str) -> None:
    (tmp_path / "token").write_text("x")
    for mode in ("default", "bypassPermissions"):
        assert shell(permissions(tmp_path, mode, deny="Read(token)", allow="Bash"), command) == "ask"
        harmless = permissions(tmp_path, mode, deny="Read(token)", allow="Bash")
        assert shell(harmless, "echo token; rm token; python tool.py x; tar cf x src") == "allow"


@pytest.mark.parametrize(
    "command",
    ["sudo -A rm x", "env -S 'rm x'", "ls | xargs -i rm {}", "nice --unheard-of rm x",
     "x='rm y'; bash -c \"$x\"", "x='rm y'; eval $x", "x='rm y'; trap \"$x\" EXIT", "bash \"$x\""],
)  # fmt: skip
def test_what_a_command_hides_may_be_what_is_forbidden(tmp_path: Path, command: str) -> None:
    assert shell(permissions(tmp_path, allow="Bash"), command) == "allow"
    assert shell(permissions(tmp_path, allow="Bash", deny="Bash(rm:*)"), command) == "ask"
    assert shell(permissions(tmp_path, "bypassPermissions", deny="Bash(rm:*)"), command) == "ask"
    assert shell(permissions(tmp_path, "bypassPermissions", deny="Bash(rm:*)"), "bash run.sh") == "allow"


@pytest.mark.parametrize(
    "letter",
    [{"to": "bob", "message": "x"}, {"to": "*", "message": "x"}, {"type": "message", "recipient": "bob"},
     {"type": "message", "to": "bob"}, {"type": "broadcast", "content": "x"},
     {"type": "message", "to": "ann", "recipient": "bob"}],
)  # fmt: skip
def test_a_message_reaches_nobody_to_whom_a_rule_forbids_to_write(
    tmp_path: Path, letter: dict[str, str]
) -> None:
    ruled = permissions(tmp_path, deny="SendMessage(bob)")
    assert word(decide(ruled, "SendMessage", **letter)) == "deny"
    assert word(decide(ruled, "SendMessage", to="ann", message="x")) == "allow"
    away = permissions(tmp_path, deny="SendMessage(uds:*)")
    assert word(decide(away, "SendMessage", **letter)) == "allow"
    assert word(decide(away, "SendMessage", to="uds:1", message="x")) == "deny"


def test_an_answer_without_an_addressee_is_for_the_lead(tmp_path: Path) -> None:
    ruled = permissions(tmp_path, deny="SendMessage(team-lead)")
    assert word(decide(ruled, "SendMessage", type="shutdown_response", approve=False)) == "deny"


def test_a_skill_that_is_forbidden_is_so_under_its_short_name(tmp_path: Path) -> None:
    ruled = permissions(tmp_path, deny="Skill(tools:deploy)")
    assert word(decide(ruled, "Skill", skill="tools:deploy")) == "deny"
    assert word(decide(ruled, "Skill", skill="deploy")) == "deny"
    assert word(decide(ruled, "Skill", skill="other:deploy")) == "allow"


@pytest.mark.parametrize(
    ("path", "read"),
    [("a" * 300 + "/../x", "allow"), ("x/" * 3000 + "../y", "deny"), ("\ud800/../x", "allow")],
)
def test_a_way_back_through_what_no_file_can_be_is_judged(tmp_path: Path, path: str, read: str) -> None:
    assert word(decide(permissions(tmp_path), "Read", file_path=path)) == read
    assert shell(permissions(tmp_path, deny="Read(x)"), f"cat '{path}'") != "allow"
