"""Rules about files, and protected files, hold for the commands that another program runs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision

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
    "parallel '{}' ::: a", "GIT_PAGER='{}' git -p log", "EDITOR='{}' git commit", "export PAGER='{}'; man ls",
    "npm run env -- sh -c '{}'", "npm pkg set scripts.z='{}'; npm run z", "rsync -e '{}' a h:b",
    "make -f - <<< $'a:\\n\\t{}'", "make --eval='$(info $(shell {}))'",
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
     "su -c 'cd .git; touch hooks/x'", "su -c 'echo ( > .git/hooks/x'",
     "cmake -E chdir .git touch hooks/x", "uv run --directory .git touch hooks/x", "tar cf.git/hooks/x a",
     "echo 'touch .git/hooks/x' | at now"],
)  # fmt: skip
def test_protected_files_are_asked_with_any_rule(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "default", allow="Bash"), command) == "ask"
    assert decide_command(create_engine(project, "acceptEdits", allow="Bash(cmake:*)"), command) == "ask"


def test_text_that_cannot_be_read_is_asked_under_a_rule_about_files(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(.github/**)")
    for command in ("su -c 'echo ( x'", "echo 'touch x' | at now", "crontab <<< '* * * * * touch x'"):
        assert decide_command(engine, command) == "ask"


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


@pytest.mark.parametrize(
    "command",
    ["sed --expression='1e rm x' a", "sed --expr='1e rm x' a", "sed -n -e'1e rm x' a",
     "sed -f - a <<< '1e rm x'",
     "sed -f- a <<< '1e rm x'", "sed -f /dev/stdin a <<< '1e rm x'", "sed --file=- a <<< '1e rm x'",
     "sed -f <(echo '1e rm x') a", "printf '1e rm x' | sed -nf - a"],
)  # fmt: skip
def test_a_script_of_sed_in_a_flag_or_the_input_is_matched(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "bypassPermissions", deny="Bash(rm:*)"), command) != "allow"


@pytest.mark.parametrize(
    "script", ["1r.env", "/a/r.env", "1R.env", "$r .env", "/a/,/b/r.env", "1{r.env\n}", "s/a/b/;1r.env"]
)
def test_files_that_sed_reads_are_found_after_an_address(project: Path, script: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Read(./.env)")
    assert decide_command(engine, f"sed '{script}' a") != "allow"
    assert decide_command(engine, f"sed --expression='{script}' a") != "allow"
    assert decide_command(engine, f"sed '{script.replace('.env', 'other')}' a") == "allow"


def test_files_that_sed_and_tar_write_are_found_in_any_form(project: Path) -> None:
    commands = ["sed '1w.git/hooks/x' a", "sed -f - a <<< 'w .git/hooks/x'", "tar -czf.git/hooks/x a"]
    engine = create_engine(project, "default", allow="Bash")
    assert [decide_command(engine, command) for command in commands] == ["ask"] * 3
    engine = create_engine(project, "bypassPermissions", deny="Edit(.git/hooks/**)")
    assert "allow" not in [decide_command(engine, command) for command in commands]
    for command in ("sed -i s/a/b/ a", "sed -n 1p a > b", "sed -f a.sed a"):
        assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize(
    "command",
    ["make test 'X!=touch PWN'", "make test 'X != touch PWN'", "make test -f - <<< x", "make test -f- <<< x",
     "make test --file=- <<< x", "make test --makefile - <<< x", "make test -kf /dev/stdin <<< x",
     "make test 'X=>/tmp/o'", "make test 'X=a\nb'"],
)  # fmt: skip
def test_a_rule_about_make_does_not_cover_code_in_words_or_the_input(project: Path, command: str) -> None:
    engine = create_engine(project, "default", allow="Bash(make test:*)")
    assert decide_command(engine, command.replace("\\n", "\n")) == "ask"
    assert decide_command(engine, "make test -f a X=1 -j4") == "allow"


def test_flags_that_let_an_archive_or_patch_write_outside_are_asked(project: Path) -> None:
    with zipfile.ZipFile(project / "a.zip", "w") as archive:
        archive.writestr("../PWN", "x")
    (project / "a.patch").write_text("--- a/x\n+++ b/../../PWN\n@@ -0,0 +1 @@\n+x\n")
    engine = create_engine(project, "default", allow="Bash(unzip:*), Bash(git apply:*)")
    for command in ("unzip -: a.zip", "unzip -o: a.zip", "git apply --unsafe-paths a.patch"):
        assert decide_command(engine, command) == "ask"
    assert [decide_command(engine, command) for command in ("unzip a.zip", "git apply a.patch")] == [
        "allow"
    ] * 2


@pytest.mark.parametrize(
    "command", ["/proc/1/root/bin/ls", "PATH=/proc/1/cwd ls", "cd /proc/1/root; git checkout ."]
)
def test_a_path_that_cannot_be_looked_at_is_asked(project: Path, command: str) -> None:
    try:
        Path("/proc/1/root").readlink()
    except OSError:
        rules = "Bash(rm:*), Edit(.github/**)"
        assert decide_command(create_engine(project, "bypassPermissions", deny=rules), command) == "ask"
    else:
        pytest.skip("This user may read the links of every process.")


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize("rule", ["mcp__srv", "mcp__srv__*", "mcp__*"])
@pytest.mark.parametrize("tool", ["ReadMcpResourceTool", "ListMcpResourcesTool"])
def test_a_rule_about_a_server_holds_for_its_resources(
    project: Path, tool: str, rule: str, kind: str
) -> None:
    for mode in ("bypassPermissions", "default"):
        engine = create_engine(project, mode, allow=tool, **{kind: rule})
        assert name_decision(decide_call(engine, tool, server="srv", uri="x:y")) == kind
    engine = create_engine(project, "bypassPermissions", **{kind: "mcp__srv, mcp__other__get*"})
    assert name_decision(decide_call(engine, tool, server="other", uri="x:y")) == "allow"


def test_a_skill_is_forbidden_by_a_prefix(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Skill(deploy:*)")
    for skill in ("deploy", "deploy:production", "Deploy:x"):
        assert name_decision(decide_call(engine, "Skill", skill=skill)) == "deny"
    assert name_decision(decide_call(engine, "Skill", skill="review")) == "allow"
