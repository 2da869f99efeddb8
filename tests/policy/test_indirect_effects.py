"""Options, settings and code with which a command does more than a rule about it allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git log:*", "git log --output x"),
        ("git log:*", "git log --output=x"),
        ("git diff:*", "git diff --output Makefile HEAD"),
        ("git:*", "git show --output x"),
        ("sort:*", "sort -o x a"),
        ("sort:*", "sort a -ox"),
        ("tree:*", "tree -o x"),
        ("shuf:*", "shuf --out=x a"),
        ("npm test:*", "npm test --prefix /tmp/other"),
        ("npm test:*", "npm test --prefix=../other"),
        ("npm test:*", "npm test -C ~/other"),
        ("npm run build:*", "npm run build -C../other"),
        ("yarn test:*", "yarn test --cwd /tmp/other"),
        ("make test:*", "make test -C /tmp/other"),
        ("make test:*", "make test -f ../other.mk"),
        ("cargo test:*", "cargo test --manifest-path /tmp/other/Cargo.toml"),
        ("make test:*", "make test SHELL=./x"),
        ("make test:*", "make test CC='touch x;'"),
        ("make test:*", "make test --eval='$(shell touch x)'"),
        ("pytest:*", "pytest --rootdir /tmp/other"),
        ("pytest:*", "pytest --basetemp=.."),
        ("pytest:*", "pytest --junitxml=../out.xml"),
        ("mypy:*", "mypy --junit-xml ../out.xml a.py"),
        ("cargo test:*", "cargo test --target-dir /tmp/other"),
        ("uv run pytest:*", "uv run pytest --directory /tmp/other"),
    ],
)
def test_a_rule_does_not_cover_an_output_file_or_another_project(
    tmp_path: Path, rule: str, command: str
) -> None:
    assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), command) == "ask"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git log --output:*", "git log --output x"),
        ("git log:*", "git log --output-indicator-new=+ -p"),
        ("sort -o:*", "sort -o x a"),
        ("npm --prefix /tmp/other test:*", "npm --prefix /tmp/other test"),
        ("npm test:*", "npm test --prefix web"),
        ("npm test:*", "npm test -- --prefix other"),
        ("npm test -- --prefix /tmp/other:*", "npm test -- --prefix /tmp/other"),
        ("make test:*", "make test -C sub -j4"),
        ("make test:*", "make test V=1 CFLAGS='-O2 -g'"),
        ("pytest:*", "pytest -c pytest.ini tests"),
        ("pytest:*", "pytest --junitxml=out.xml --basetemp=build/tmp"),
        ("pytest:*", "pytest -o log_cli=true -k 'a or b' > /dev/null"),
    ],
)
def test_a_rule_that_names_it_or_a_directory_in_the_project_is_enough(
    tmp_path: Path, rule: str, command: str
) -> None:
    assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "npm pkg set scripts.z='rm x' && npm run z",
        "npm pkg set 'scripts.z=r''m x'; npm run z",
        """npm pkg set --json scripts='{"z":"rm x"}' && npm test""",
        "npm set-script z 'rm x' && npm run z",
        "pnpm pkg set scripts.z='rm x' && pnpm z",
        "wcurl http://127.0.0.1/x",
    ],
)
def test_a_script_that_the_same_line_adds_to_a_package_is_asked(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Bash(rm:*),Bash(curl:*)")
    assert decide_command(engine, command) != "allow"


@pytest.mark.parametrize(
    "command", ["npm pkg get scripts && npm test", "npm pkg set version=1.0.1", "npm install && npm test"]
)
def test_other_uses_of_package_managers_are_not_asked(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Bash(rm:*)")
    assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "sed -i'locked/*' s/a/b/ a",
        "sed --in-place='locked/*' s/a/b/ a",
        "perl -pi'locked/*' -e1 a",
        "gcc -MD -MF locked/x -c a.c",
        "gcc -MFlocked/x -MD -c a.c",
        "gcc -Wp,-MD,locked/x -c a.c",
        "clang -Wl,-Map,locked/x a.c",
        "git mailinfo locked/m locked/p < mail",
        "history -w locked/x",
        "python3 -m tarfile -e a.tar",
        "python3 -m trace --count -C locked a.py",
        "python3 -m json.tool a locked/x",
        "python3 -m gzip locked/f",
        """python3 -c 'import shutil as s;s.copy("a","loc"+"ked/x")'""",
        """python3 -c 'import os;os.rename("a","loc"+"ked/x")'""",
        """python3 -c 'import os;os.remove("loc"+"ked/f")'""",
        """python3 -c 'open("loc"+"ked/f","w")'""",
        """python3 - <<< 'open("loc"+"ked/f","w")'""",
        """node -e 'fs.writeFileSync("loc"+"ked/x","")'""",
        """ruby -e 'File.write("loc"+"ked/x","")'""",
    ],
)
def test_a_command_that_may_write_to_a_denied_directory_is_not_allowed(tmp_path: Path, command: str) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked/f").touch()
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, command) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "sed -i.bak s/a/b/ a",
        "sed -i 's/a*/b/' a",
        "sed -i -e 's/a/b/' src/a",
        "perl -pi -e 's/a*/b/' a",
        "gcc -MD -MF build/x -Wall -fPIC -c a.c",
        "python3 -m json.tool locked/f",
        """python3 -c 'open("x","w").write("a"+"b")'""",
        """python3 -c 'import os;os.remove("x")'""",
        """python3 -c 'print([1].copy(), "a".replace("a", "b"))'""",
        """node -e 'fs.writeFileSync("x","a"+"b")'""",
    ],
)
def test_a_command_that_names_other_files_is_allowed(tmp_path: Path, command: str) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked/f").touch()
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git commit -Fsecret",
        "git tag -Fsecret t",
        "git ls-files --others --exclude-from=secret",
        "git -c core.excludesFile=secret status",
        "git -c commit.template=secret commit",
        """perl -e 'open F,"<sec"."ret";print<F>'""",
        """python3 -c 'import linecache;print(linecache.getlines("sec"+"ret"))'""",
        """python3 -c 'import shutil;shutil.copy("sec"+"ret","x")'""",
        """python3 -c 'import os;os.link("sec"+"ret","x")'""",
        """python3 - <<< 'print(open("sec"+"ret").read())'""",
    ],
)
def test_a_command_that_may_read_a_denied_file_is_not_allowed(tmp_path: Path, command: str) -> None:
    (tmp_path / "secret").touch()
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Read(secret)")
    assert decide_command(engine, command) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git commit -Fmessage",
        "git log --format=%s --author=me",
        "git -c user.name=me commit -m x",
        """perl -e 'open F,"<x";print<F>'""",
        """python3 - <<< 'print(open("x").read())'""",
    ],
)
def test_a_command_that_reads_another_file_is_allowed(tmp_path: Path, command: str) -> None:
    (tmp_path / "secret").touch()
    engine = create_engine(tmp_path, mode="bypassPermissions", deny="Read(secret)")
    assert decide_command(engine, command) == "allow"
