"""Ways around a rule, each of which leads to a question or a no."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import permissions, shell


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
    ["sudo -A rm x", "env -S 'rm x'", "ls | xargs -i rm {}", "nice --unheard-of rm x",
     "x='rm y'; bash -c \"$x\"", "x='rm y'; eval $x", "x='rm y'; trap \"$x\" EXIT", "bash \"$x\""],
)  # fmt: skip
def test_what_a_command_hides_may_be_what_is_forbidden(tmp_path: Path, command: str) -> None:
    assert shell(permissions(tmp_path, allow="Bash"), command) == "allow"
    assert shell(permissions(tmp_path, allow="Bash", deny="Bash(rm:*)"), command) == "ask"
    assert shell(permissions(tmp_path, "bypassPermissions", deny="Bash(rm:*)"), command) == "ask"
    assert shell(permissions(tmp_path, "bypassPermissions", deny="Bash(rm:*)"), "bash run.sh") == "allow"
