"""An allow rule with an open end does not cover a subcommand that runs any command, unless it names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

CASES = [
    ("docker", ["docker exec c ls", "docker run i ls", "docker -H h exec c ls"],
     ["docker ps", "docker build ."]),
    ("kubectl", ["kubectl exec p -- ls", "kubectl run a --image=i"],
     ["kubectl get pods", "kubectl delete po x"]),
    ("tmux", ["tmux new 'ls'", "tmux send-keys -t a ls Enter", "tmux run-shell ls", "tmux if true ls",
              "tmux \\; pipe-pane cat", "tmux source-file x"], ["tmux ls", "tmux capture-pane -p"]),
    ("gdb", ["gdb -ex 'shell ls' a", "gdb -batch -ex '!ls'", "gdb -ex 'python import os'"],
     ["gdb -batch -ex bt a core", "gdb -p 1"]),
    ("npx", ["npx -c 'ls'", "npx --call ls"], ["npx tsc --noEmit", "npx eslint ."]),
    ("npm", ["npm exec -c 'ls'"], ["npm test", "npm exec eslint"]),
    ("ssh", ["ssh -o ProxyCommand=ls h", "ssh -oProxyCommand=ls h"], ["ssh h ls", "ssh h"]),
    ("screen", ["screen -dm ls", "screen -X stuff ls"], ["screen -ls"]),
    ("crontab", ["crontab x", "crontab -"], ["crontab -l"]),
    ("at", ["at now", "at -f x now"], ["at -l"]),
]  # fmt: skip


@pytest.mark.parametrize(("program", "asked", "covered"), CASES)
def test_a_rule_for_a_program_does_not_cover_the_commands_that_it_runs(
    tmp_path: Path, program: str, asked: list[str], covered: list[str]
) -> None:
    engine = create_engine(tmp_path, allow=f"Bash({program}:*)")
    assert [command for command in asked if decide_command(engine, command) == "allow"] == []
    assert [command for command in covered if decide_command(engine, command) != "allow"] == []


@pytest.mark.parametrize(
    "rule", ["docker exec:*", "kubectl exec:*", "tmux send-keys:*", "tmux new-session:*", "npx -c:*"]
)
def test_a_rule_that_names_the_subcommand_covers_it(tmp_path: Path, rule: str) -> None:
    assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), f"{rule[:-2]} ls") == "allow"


@pytest.mark.parametrize(
    "command",
    ["npx rimraf x; npx rm x", "npx -c 'rm x'", "ssh h rm x", "docker exec c rm x",
     "docker run i sh -c 'rm x'",
     "tmux new 'rm x'", "tmux send-keys 'rm x' Enter", "tmux send-keys r 'm x' Enter", "gdb -ex 'shell rm x'",
     "kubectl exec p -- rm x", "kubectl exec p -- sh -c '$(echo r)m x'"],
)  # fmt: skip
def test_a_deny_rule_holds_for_the_inner_command(tmp_path: Path, command: str) -> None:
    programs = (
        "npx",
        "ssh",
        "docker exec",
        "docker run",
        "tmux new",
        "tmux send-keys",
        "gdb",
        "kubectl exec",
    )
    allow = " ".join(f"Bash({program}:*)" for program in programs)
    assert decide_command(create_engine(tmp_path, allow=allow, deny="Bash(rm:*)"), command) != "allow"
