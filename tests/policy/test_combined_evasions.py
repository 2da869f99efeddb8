"""A forbidden command stays forbidden under every combination of wrappers, spellings and constructs."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

WRAPPERS = (
    "", "env ", "env -i A=1 ", "nice -n 5 ", "timeout -k 1 5 ", "sudo -u x ", "command ", "exec ", "nohup ",
    "time ", "xargs -n1 ", "setsid ", "stdbuf -o0 ", "busybox ", "watch ", "flock l ", "strace -f ",
    "builtin command ", "unshare ", "ionice -c3 ", "doas ", "parallel ", "A=1 B=2 ",
)  # fmt: skip
UNKNOWN_WRAPPERS = ("unknown-wrapper ", "unknown-wrapper -n 5 -- ")
SPELLINGS = (
    "mkfs x", "m''kfs x", "/sbin/mkfs x", "$'mkfs' x", "$'mk\\146s' x", "\\mkfs x", "sh -c 'mkfs x'",
    "bash -ec 'mk\"\"fs x'", "bash <<< 'mkfs x'", "python3 -c 'import os; os.system(\"mkfs x\")'",
    "find . -exec mkfs {} +",
)  # fmt: skip
UNKNOWN_SPELLINGS = ("${z:-mkfs} x", "mk${z}fs x", "/sbin/mkf? x", "$(echo mkfs) x")
CONTEXTS = (
    "{}", "if {}; then :; fi", "echo \"$({})\"", "( {} ) & wait", "ls && {} 2>/dev/null", "f() {{ {}; }}; f",
    "cat <<E\n$({})\nE", "for i in 1; do {}; done", "case a in a) {};; esac", "true | {} | cat", "! {}",
    "cd src\n{}", "[[ -f a ]] || {}", "let q=1; {}", "a=(1 2); {}", "cat <({})",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_no_combination_escapes_a_rule_when_permissions_are_skipped(tmp_path: Path, kind: str) -> None:
    (tmp_path / "src").mkdir()
    engine = create_engine(tmp_path, "bypassPermissions", **{kind: "Bash(mkfs:*)"})
    combinations = [
        *product(WRAPPERS, (*SPELLINGS, *UNKNOWN_SPELLINGS), CONTEXTS),
        *product(UNKNOWN_WRAPPERS, SPELLINGS, CONTEXTS),
    ]
    assert len(combinations) > 5_000
    commands = [context.format(wrapper + text) for wrapper, text, context in combinations]
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []
    harmless = [
        context.format(wrapper + "ls x")
        for wrapper, context in product((*WRAPPERS, *UNKNOWN_WRAPPERS), CONTEXTS)
    ]
    assert [command for command in harmless if decide_command(engine, command) != "allow"] == []
