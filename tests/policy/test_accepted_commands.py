"""File commands that run unasked where edits are accepted, and attempts to misuse them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from shoal.core.permissions.permission_changes import PermissionMode


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project with links that lead out, protected files in directories, and files next to it."""
    root = tmp_path / "outer/project"
    files = (
        "a.txt", "b.txt", "src/m.py", "src/n.py", "build/x.o", "build/deep/y.o", "git", "conf/git/config",
        "repo/.git/HEAD", "vendor/.env", "t/.husky/pre-commit", "t/x", "lefthook", "secrets/k.txt",
        "locked/a.txt", "linked/plain", "in/deep/er/f", "-rf.txt", "dotted/.bazelrc", "plain/a.txt",
    )  # fmt: skip
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("x\n")
    (root / "out").symlink_to(outside)
    (root / "outfile").symlink_to(outside / "f")
    (root / "linked/away").symlink_to(outside)
    (root / "in/deep/er/up").symlink_to("../../../a.txt")
    (root / "in/deep/up").symlink_to("../../a.txt")
    (root / "into").mkdir()
    (root / "into/a.txt").symlink_to(outside / "f")
    (root / "target/src").mkdir(parents=True)
    (root / "target/src/m.py").symlink_to(outside / "f")
    return root


ACCEPTED = [
    "mv a.txt c.txt", "mv a.txt b.txt src", "mv src lib", "mv src/ lib/", "cp a.txt c.txt",
    "cp -r src lib", "cp -a src/. lib", "cp -p a.txt src/", "rm a.txt", "rm -f a.txt nothere",
    "rm -rf build", "rm -r build/deep src", "rm build/*.o", "mv src/*.py build", "cp src/m* build/",
    "rmdir build/deep", "mkdir -p x/y && mv a.txt x/y/", "mkdir x", "touch x",
    "sed -i s/a/b/ a.txt", "sed -i.bak -e 's/a/b/g' -e '/x/d' a.txt src/m.py", "sed -n -i 1,3p a.txt",
    "sed -Ei 's/(a)/b/' a.txt", "sed --in-place 's|a|b|' a.txt", "cd src && mv m.py o.py",
    "sort a.txt > t1 && mv t1 a.txt", "cp a.txt c.txt && rm a.txt && ls",
    "for f in a b; do rm $f.txt; done",
    "rm -- -rf.txt", "rm a.txt b.txt > log.txt",
]  # fmt: skip


@pytest.mark.spec("PRM-06")
@pytest.mark.parametrize("mode", ["acceptEdits", "delegate"])
@pytest.mark.parametrize(
    "command",
    ACCEPTED,
)
def test_file_commands_inside_the_project_run_unasked(
    project: Path, mode: PermissionMode, command: str
) -> None:
    assert decide_command(create_engine(project, mode), command) == "allow"
    assert decide_command(create_engine(project), command) == "ask"
    assert decide_command(create_engine(project, "plan"), command) == "deny"


ATTEMPTS = {
    "outside": [
        "mv a.txt ../x", "mv ../x .", "cp a.txt /tmp", "rm ../x", "rm -rf ~/x", "cp ~/.bashrc .",
        "mv a.txt ~",
        "rm /etc/hostname", "sed -i s/a/b/ ../x", "cd .. && rm x", "cd /tmp && mv a b", "rm $X", "rm ${X}/a",
        "mv a.txt \"$X\"", "rm -rf .", "rm -rf ./", "rm -rf ..", "rm -rf *", "rm -rf ./*", "rm -rf $(pwd)",
        "rm -rf /", "rm -rf src/../..", "rmdir ..", "cp -r ../.. x", "touch ../x", "mkdir -p ../x/y",
    ],
    "protected": [
        "rm -rf .git", "mv a.txt .git/hooks/pre-commit", "cp a.txt .envrc", "rm .claude/settings.json",
        "mv .claude x", "sed -i s/a/b/ .git/config", "cp a.txt .mcp.json", "touch .npmrc", "rm .env",
        "mv lefthook lefthook.yml", "sed -i.yml s/a/b/ lefthook", "mv git .config", "mv git .config/",
        "mkdir .config && mv git .config", "mv conf .config", "cp -r conf .config", "cp -r conf/. .config",
        "mv repo moved", "cp -r repo moved", "rm -rf repo", "rm -r vendor", "mv vendor x", "cp -r t/. .",
        "cp -r t x", "mv t/.husky .", "cp a.txt src/.GIT", "mv t/* .git", "rm -rf dotted", "cp -r dotted/. .",
        "cp a.txt id_rsa", "mv a.txt server.pem",
    ],
    "links": [
        "cp a.txt out", "cp a.txt out/x", "mv a.txt out/", "rm out/f", "rm -rf out/", "cp a.txt outfile",
        "cp a.txt into", "cp a.txt into/", "cp -r src target", "cp -r src/. target/src", "cp -rL linked x",
        "mv linked x && cp a.txt x/away/f", "cp -r linked x", "mv out x", "cp -a out x", "mv into/* src",
        "mv in/deep/er .", "mv in/deep/er/up .", "mv in/deep/er/u* .", "sed -i s/a/b/ outfile",
        "mv in/deep/up x && cp b.txt x", "rm out/*", "mkdir out/x", "touch out/x", "mv -f out/f x",
        "ln -s /etc e", "ln -s /etc e && cp a.txt e/x", "cp -s /etc/hostname x",
    ],
    "chains": [
        "mv conf x && mv x .config", "mkdir t9 && cp a.txt t9/git && mv t9 .config",
        "mkdir t9 && echo x > t9/git && mv t9 .config", "cp -r conf x; mv x .config",
        "mv src x && mv x y",
    ],
    "other effects": [
        "sed -i 's/a/id/e' a.txt", "sed -i '1e id' a.txt", "sed -i 's/a/b/w ../x' a.txt",
        "sed -i 'w ../x' a.txt",
        "sed -i 'r /etc/passwd' a.txt", "sed -i -f s.sed a.txt", "sed --in-place='../*' s/a/b/ a.txt",
        "sed -i'../*' s/a/b/ a.txt", "sed -i'bak/*' s/a/b/ a.txt", "sed -i \"$X\" a.txt", "cp -t .git a.txt",
        "cp --target-directory=.git a.txt", "mv -t .git a.txt", "cp -b a.txt b.txt",
        "cp -S .x -b a.txt b.txt",
        "mv --suffix=x a.txt b.txt", "cp --parents a.txt src", "mv *.txt src", "rm *.txt", "X=1 rm a.txt",
        "PATH=. rm a.txt", "rm() { id; }; rm a.txt", "alias rm=id; rm a.txt", "sudo rm a.txt",
        "find . -name x | xargs rm", "find . -exec rm {} +", "sh -c 'rm a.txt'", "env rm a.txt", "./rm a.txt",
        "make && rm a.txt", "rm a.txt; curl example.org", "rm a.txt & make", "echo $(rm a.txt; make)",
        "rm -rf build --no-preserve-root", "cp a.txt /dev/sda", "mv a.txt b.txt > ../log",
    ],
}  # fmt: skip


@pytest.mark.spec("PRM-06", "CMP-024")
@pytest.mark.parametrize("command", [each for commands in ATTEMPTS.values() for each in commands])
def test_other_file_commands_still_ask(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "acceptEdits"), command) == "ask"


_FILE_PROGRAM = re.compile(r"\b(mv|cp|rm|rmdir|touch|mkdir)((?: -\w+)*) (?=[^-|;&])")


def test_two_dashes_before_the_files_change_no_decision(project: Path) -> None:
    engine = create_engine(project, "acceptEdits")
    commands = [
        *ACCEPTED,
        *(each for kind in ("outside", "protected", "links", "chains") for each in ATTEMPTS[kind]),
    ]
    dashed = {each: _FILE_PROGRAM.sub(r"\1\2 -- ", each) for each in commands}
    decisions = {
        each: (decide_command(engine, each), decide_command(engine, dashed[each])) for each in dashed
    }
    assert sum(each != other for each, other in dashed.items()) > 80
    assert {each: both for each, both in decisions.items() if both[0] != both[1]} == {}


@pytest.mark.spec("PRM-06", "CMP-021")
@pytest.mark.parametrize(
    ("rules", "commands"),
    [
        (
            {"deny": "Read(secrets/**)"},
            ["cp secrets/k.txt x", "mv secrets x", "cp -r secrets x", "mv secrets/k.txt x",
             "cp a.txt secrets",
             "cp a.txt secrets/k.txt", "sed -i s/a/b/ secrets/k.txt", "mv a.txt secrets/", "cp secrets/k* x",
             "rm secrets/k.txt", "rm -r secrets", "rm secrets/*", "cd secrets && rm -f k.txt"],
        ),
        (
            {"deny": "Edit(locked/**)"},
            ["cp a.txt locked", "mv a.txt locked/", "mv locked x", "rm -r locked", "rm locked/a.txt",
             "cp plain/a.txt locked", "cp -r plain/. locked", "mv plain/a* locked", "rm locked/*",
             "sed -i s/a/b/ locked/a.txt", "cd locked && rm a.txt", "rmdir locked/x", "touch locked/x",
             "mkdir t9 && cp a.txt t9/a.txt && mv t9 locked"],
        ),
        ({"ask": "Edit(locked/**)"}, ["rm -r locked", "mv a.txt locked/", "cp -r plain/. locked"]),
        ({"deny": "Bash(rm:*)"}, ["rm a.txt", "cp a.txt x && rm a.txt", "cd src; rm m.py"]),
        ({"ask": "Bash(mv:*)"}, ["mv a.txt x", "ls && mv a.txt x"]),
        ({"ask": "Bash"}, ["rm a.txt", "cp a.txt x"]),
        ({"deny": "Edit"}, ["rm a.txt", "cp a.txt x", "mv a.txt x", "sed -i s/a/b/ a.txt"]),
        ({"deny": "Edit(*.lock)"}, ["cp a.txt x.lock", "mv a.txt src/y.lock", "sed -i.lock s/a/b/ a.txt"]),
    ],
)  # fmt: skip
def test_rules_hold_for_accepted_commands(project: Path, rules: dict[str, str], commands: list[str]) -> None:
    engine = create_engine(project, "acceptEdits", **rules)
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


@pytest.mark.spec("PRM-06")
def test_a_directory_with_too_many_files_to_check_is_asked_about(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.policy.accepted_commands._MAX_ENTRIES", 2)
    engine = create_engine(project, "acceptEdits")
    assert decide_command(engine, "rm -rf build") == "ask"
    assert decide_command(engine, "rm -rf plain") == "allow"


@pytest.mark.spec("PRM-06")
def test_a_command_that_a_rule_allows_may_not_redirect_an_accepted_one(project: Path) -> None:
    engine = create_engine(project, "acceptEdits", allow="Bash(ln:*) Bash(make:*)")
    assert decide_command(engine, "ln -s b.txt e") == "allow"
    assert decide_command(engine, "ln -s .. e && cp a.txt e/x") == "ask"
    assert decide_command(engine, "make && rm a.txt") == "ask"
    assert decide_command(create_engine(project, "acceptEdits", allow="Bash(rm:*)"), "rm a.txt") == "allow"
