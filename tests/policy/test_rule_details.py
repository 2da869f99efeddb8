"""Details of rules that decide between two commands that look alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from shoal.policy.shell.shell_syntax import MAX_SIGNS


def decide_with_denial(project: Path, rule: str, command: str) -> str:
    return decide_command(create_engine(project, "bypassPermissions", deny=rule), command)


@pytest.mark.parametrize(
    ("rule", "similar", "other"),
    [
        ("Bash(kubectl delete pods web)", "kubectl delete pod/web", "kubectl delete pod/db"),
        ("Bash(kubectl delete pods web)", "kubectl delete po web", "kubectl delete po db"),
        ("Edit(out)", "awk '{print > \"out\"}' f", "awk '{print > \"more\"}' f"),
        ("Edit(out)", "awk '{print >> \"out\"; x = 1}' f", "awk '{print >> \"more\"; x = 1}' f"),
        ("Bash(tool -f:*)", "tool --f", "tool --g"),
        (
            "Bash(rm:*)",
            'cat() { echo rm x; }; eval "$(cat <<E\nls\nE\n)"',
            'eval "$(cat <<E\nls\nE\n)"',
        ),
        ("Bash(rm:*)", 'python3 -c \'open("s", "w")\'; sh s', 'python3 -c \'open("s", "w")\'; mv a b'),
        ("Bash(rm:*)", "npm i $X; npm run x", "npm ci; npm run x"),
        ("Read(secret)", "tool -xsecret", "tool xxsecret --secret"),
        ("Bash(rm:*)", "echo 'rm x' > s.sh; source s.sh", "echo 'ls x' > s.sh; source s.sh"),
        ("Bash(rm:*)", "cp a s.sh; . s.sh", "cp a s.sh; ls s.sh"),
        ("Read(secret)", "git log -L1,5:secret", "git log -L1,5:other"),
        ("Read(secret)", "git log -L 1,5:secret", "git log -L 1,5:other"),
        ("Read(secret)", "yq e . secret", "yq e secret a"),
    ],
)
def test_a_command_with_the_same_effect_is_stopped_and_a_similar_one_is_not(
    tmp_path: Path, rule: str, similar: str, other: str
) -> None:
    assert decide_with_denial(tmp_path, rule, similar) != "allow"
    assert decide_with_denial(tmp_path, rule, other) == "allow"


@pytest.mark.parametrize(
    "command", ["install {} d", "scp h:{} d", "cp {} d", "rsync {} d", "install -t d {}"]
)
def test_a_directory_with_a_protected_file_takes_no_copies(tmp_path: Path, command: str) -> None:
    for name in ("d/k", "e/j"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert decide_with_denial(tmp_path, "Edit(**/k)", command.format("src/x")) != "allow"
    assert decide_with_denial(tmp_path, "Edit(**/k)", command.format("src/x").replace(" d", " e")) == "allow"


def test_a_redirection_to_several_files_is_asked_about(tmp_path: Path) -> None:
    assert decide_command(create_engine(tmp_path), "cat < {a,b}") == "ask"
    assert decide_with_denial(tmp_path, "Edit(b)", "ls > {a,b}") == "ask"


def test_only_links_that_find_passes_on_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "out").symlink_to("/etc/hostname")
    for search, decision in (("-name '*.txt'", "allow"), ("-type f", "allow"), ("-name 'o*'", "ask")):
        command = f"find . {search} | xargs cat"
        assert decide_command(create_engine(tmp_path), command) == decision


def test_only_the_files_that_a_command_changes_are_denied(tmp_path: Path) -> None:
    assert decide_with_denial(tmp_path, "Edit(locked/**)", "find locked -delete") == "deny"
    assert decide_with_denial(tmp_path, "Edit(locked/**)", "find locked -fprint list") == "ask"
    assert decide_with_denial(tmp_path, "Edit(a)", "sed -i p a") == "deny"
    assert decide_with_denial(tmp_path, "Edit(p)", "sed -i p a") == "ask"
    assert decide_with_denial(tmp_path, "Edit(1)", "go build -o 1") == "deny"
    assert decide_with_denial(tmp_path, "Edit(1)", "go test -count=1") == "ask"
    for command in ("tar cf a.tar x", "tar -v -cf a.tar x", "tar -f a.tar -c x", "tar x -c --file=a.tar"):
        assert decide_with_denial(tmp_path, "Edit(a.tar)", command) == "deny"


def test_a_new_file_is_no_setting_of_a_command_that_has_none(tmp_path: Path) -> None:
    for name in ("HEAD", "config", "objects/x", "refs/x"):
        (tmp_path / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".git" / name).touch()
    (tmp_path / "src").mkdir()
    engine = create_engine(tmp_path, allow="Bash(touch:*)")
    assert decide_command(engine, "touch HEAD && git log && cd src && ls") == "allow"
    assert decide_command(engine, "touch HEAD && cd src && git log") == "ask"


@pytest.mark.parametrize("rule", ["Read", "Bash(notes.txt)", "Glob(notes.txt)"])
def test_a_denial_of_another_call_does_not_forbid_writing(tmp_path: Path, rule: str) -> None:
    for each, decision in (("Read(notes.txt)", "deny"), (rule, "allow")):
        engine = create_engine(tmp_path, "acceptEdits", deny=each)
        written = decide_call(engine, "Write", file_path="notes.txt", content="x")
        assert name_decision(written) == decision


def test_a_program_behind_a_link_is_denied_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "tidy").symlink_to("/bin/rm")
    for command in ("./tidy x", f"{tmp_path}/tidy x", "PATH=.:$PATH tidy x"):
        assert decide_with_denial(tmp_path, "Bash(rm:*)", command) == "deny"
    assert decide_with_denial(tmp_path, "Bash(mv:*)", "./tidy x") == "allow"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"]
)
def test_an_address_is_denied_in_every_spelling(tmp_path: Path, host: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="WebFetch(domain:127.0.0.1)")
    assert name_decision(decide_call(engine, "WebFetch", url=f"http://{host}/x", prompt="")) == "deny"


@pytest.mark.parametrize("host", ["127.0.0.2", "[::1]", "[::ffff:127.0.0.2]", "example.com"])
def test_another_address_is_not_denied(tmp_path: Path, host: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="WebFetch(domain:127.0.0.1)")
    assert name_decision(decide_call(engine, "WebFetch", url=f"http://{host}/x", prompt="")) == "allow"


def test_only_a_command_of_many_signs_is_not_judged(tmp_path: Path) -> None:
    engine = create_engine(tmp_path)
    assert decide_command(engine, "echo " + "x" * 2 * MAX_SIGNS) == "allow"
    assert decide_command(engine, "echo " + "x;" * 2 * MAX_SIGNS) == "ask"


@pytest.mark.parametrize("program", ["git", "docker", "kubectl", "npm", "systemctl", "ip"])
def test_a_program_of_many_commands_without_one_is_asked_about(tmp_path: Path, program: str) -> None:
    assert decide_command(create_engine(tmp_path), program) == "ask"
