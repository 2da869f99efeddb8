"""Rules about files, and protected files, hold for the commands that another program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

RUNNERS = (
    "taskset 1 {}", "strace {}", "strace -f -o log {}", "chrt 1 {}", "prlimit {}", "setarch {}", "linux64 {}",
    "choom -n 1 {}", "setpriv --nnp {}", "runuser -u x {}", "watch {}", "ssh-agent {}", "dbus-run-session {}",
    "npm exec -- {}", "uv run {}", "poetry run {}", "systemd-run {}", "cmake -E env {}",
    "/usr/bin/taskset 1 {}",
)  # fmt: skip
"""Programs with the words of a command behind them."""
TEXT_RUNNERS = (
    "su -c '{}'", "script -qc '{}' /dev/null", "unshare -r sh -c '{}'", "taskset 1 sh -c '{}'",
    "flock a -c '{}'",
    "strace sh -c '{}'", "setpriv --nnp sh -c '{}'", "git -c alias.z='!{}' z", "npm exec -c '{}'",
    "sed '1e {}' a", "awk 'BEGIN{{system(\"{}\")}}'", "tar xf t.tar --to-command='{}'",
    "split --filter='{}' a",
    "gdb -batch -ex '!{}'", "gdb -batch -ex 'shell {}'", "compgen -C '{}'", "ssh -oProxyCommand='{}' h",
    "ssh -o ProxyCommand='{}' h", "tmux new -d '{}'", "sqlite3 :memory: '.shell {}'", "ed -s <<< '!{}'",
    "vim -es +'r !{}' +q", "python3 -c 'import os;os.system(\"{}\")'", "perl -e 'system(\"{}\")'",
    "find . -maxdepth 0 -exec sh -c '{}' \\;", "strace taskset 1 su -c '{}'", "watch '{}'",
    "parallel '{}' ::: a",
)  # fmt: skip
"""Programs with the text of a command in one word."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (".github", ".git/hooks", "sub", "secrets"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".env", "a", "secrets/key"):
        (tmp_path / name).write_text("K\n")
    return tmp_path


@pytest.mark.spec("PRM-06")
@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize("runner", RUNNERS + TEXT_RUNNERS)
def test_no_runner_hides_a_forbidden_change(project: Path, runner: str, kind: str) -> None:
    engine = create_engine(project, "bypassPermissions", **{kind: "Edit(.github/**)"})
    assert decide_command(engine, runner.format("touch .github/n")) != "allow"
    # An archive may hold any file.
    other = "ask" if runner.startswith("tar") else "allow"
    assert decide_command(engine, runner.format("touch other/n")) == other


@pytest.mark.parametrize("runner", RUNNERS + TEXT_RUNNERS)
def test_no_runner_hides_a_protected_file(project: Path, runner: str) -> None:
    engine = create_engine(project, "default", allow="Bash")
    assert decide_command(engine, runner.format("touch .git/hooks/x")) == "ask"
    other = "ask" if runner.startswith("tar") else "allow"
    assert decide_command(engine, runner.format("touch other/x")) == other


@pytest.mark.parametrize("runner", TEXT_RUNNERS)
@pytest.mark.parametrize(
    "command", ["cat .e*", "cd sub; cat ../.env", "grep -r K .", "cat $HOME/.ssh/id_rsa", "cat secr*/*"]
)
def test_no_runner_hides_a_forbidden_read(project: Path, runner: str, command: str) -> None:
    rules = "Read(./.env), Read(secrets/**), Read(~/.ssh/**)"
    engine = create_engine(project, "bypassPermissions", deny=rules)
    assert decide_command(engine, runner.format(command)) != "allow"


@pytest.mark.parametrize(
    "command",
    ["unshare -r sh -c 'echo x > .git/hooks/x'", "git -c alias.z='!echo x > .git/hooks/y' z",
     "cmake -E copy evil.sh .git/hooks/pre-commit", "cmake -E touch .git/hooks/x",
     "cmake -E rename a .git/hooks/x", "strace touch .claude/settings.json",
     "cd .git && strace touch hooks/x",
     "su -c 'cd .git; touch hooks/x'", "su -c 'echo ( > .git/hooks/x'"],
)  # fmt: skip
def test_protected_files_are_asked_with_any_rule(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "default", allow="Bash"), command) == "ask"
    assert decide_command(create_engine(project, "acceptEdits", allow="Bash(cmake:*)"), command) == "ask"


def test_text_that_cannot_be_read_is_asked_under_a_rule_about_files(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(.github/**)")
    assert decide_command(engine, "su -c 'echo ( x'") == "ask"


@pytest.mark.parametrize(
    "command",
    ["uv run pytest tests", "uv run python -c 'import x; print(x(1))'", "npx tsc --noEmit",
     "watch 'git status'",
     "poetry run ruff check .", "timeout 5 strace -c ls", "awk '{print $1}' a", "ssh h 'cat .e*'",
     "docker run --rm img sh -c 'cat .e*'", "python3 -c 'print(\"a b > c\")'", "make test"],
)  # fmt: skip
def test_daily_uses_of_runners_are_not_asked(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(.github/**), Read(secrets/**)")
    assert decide_command(engine, command) == "allow"
