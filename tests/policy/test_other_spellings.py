"""A rule that forbids a command holds for its other spellings: order of flags, aliases, links, scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from git_repository import run_git
from shoal.core.errors import SettingsError


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("*--no-verify*", "git commit --allow-empty -m x --no-verify"),
        ("*--no-verify*", "git commit --no-verify -m x"),
        ("* --force", "npm install left-pad --force"),
        ("curl*evil.example*", "curl -s http://evil.example/x"),
    ],
)
def test_a_star_in_a_deny_rule_matches_across_words(tmp_path: Path, rule: str, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=f"Bash({rule})")
    assert decide_command(engine, command) == "deny"
    assert decide_command(engine, "git commit -m x") == "allow"


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        (
            "rm -rf:*",
            ["rm -fr src", "rm -r -f src", "rm --recursive --force src", "rm -rfv src", "rm src -rf"],
        ),
        ("git push --force*", ["git push o HEAD --force", "git push -f o HEAD", "git push --forc o HEAD"]),
        ("python3 -c:*", ["python3 -Bc 'print(1)'", "python3 -I -c 'print(1)'", "python3.11 -c 'print(1)'"]),
        ("pip install:*", ["pip3 install ./p", "python3 -mpip install ./p", "python -m pip install ./p"]),
        ("gh pr merge:*", ["gh pr -R o/r merge 1"]),
        ("cargo publish:*", ["cargo +stable publish"]),
        ("make deploy:*", ["make A=b deploy"]),
    ],
)
def test_a_forbidden_command_with_its_flags_in_another_order_is_asked(
    tmp_path: Path, rule: str, commands: list[str]
) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=f"Bash({rule})")
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


@pytest.mark.parametrize(
    "command",
    [
        "rm -f a.o",
        "git push origin main",
        "git stash push",
        "git commit -m 'git push'",
        "pip list",
        "gh pr view 1",
    ],
)
def test_other_commands_of_a_forbidden_program_are_not_asked(tmp_path: Path, command: str) -> None:
    rules = "Bash(rm -rf:*),Bash(git push --force*),Bash(pip install:*),Bash(gh pr merge:*)"
    assert decide_command(create_engine(tmp_path, "bypassPermissions", deny=rules), command) == "allow"


def test_a_link_to_a_forbidden_program_is_that_program(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "t").symlink_to("/bin/touch")
    (tmp_path / "bin/tt").symlink_to("/bin/touch")
    (tmp_path / "ls").symlink_to("/bin/ls")
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    for command in (
        "./t x",
        "bin/tt x",
        "cd bin; ./tt x",
        "PATH=bin tt x",
        "export PATH=$PWD/bin:$PATH; tt x",
    ):
        assert decide_command(engine, command) == "deny", command
    assert decide_command(engine, "./ls x") == "allow"


def test_a_search_path_from_a_variable_may_hold_a_forbidden_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tt").symlink_to("/bin/touch")
    monkeypatch.setenv("TOOLS", str(tmp_path / "bin"))
    monkeypatch.setenv("EMPTY", str(tmp_path / "empty"))
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    for command in (
        "d=bin; PATH=$d:$PATH tt x",
        "PATH=$TOOLS:$PATH tt x",
        'export PATH="${TOOLS}:$PATH"; tt x',
        "export PATH=$(pwd)/bin:$PATH; tt x",
        "PATH=$(cat p):$PATH tt x",
        "PATH=`cat p`:$PATH tt x",
        "TOOLS=bin; PATH=$TOOLS:$PATH tt x",
        "PATH=b*n:$PATH tt x",
        "read PATH <<< bin; tt x",
        "printf -v PATH %s bin; tt x",
        "for PATH in bin; do tt x; done",
        "env PATH=$TOOLS tt x",
        "PATH=~/bin:$UNSET tt x",
    ):
        assert decide_command(engine, command) != "allow", command
    for command in (
        "PATH=$EMPTY:$PATH make",
        "export PATH=$PWD/node_modules/.bin:$PATH; tsc",
        "echo $PATH",
        "export PATH; make",
        'echo "PATH is $PATH"; make',
    ):
        assert decide_command(engine, command) == "allow", command


@pytest.mark.parametrize(
    "command",
    [
        "echo 'touch x' > go.sh; sh go.sh",
        "printf 'touch x' > go.sh && chmod +x go.sh && ./go.sh",
        "git grep -O'touch x;' hello",
        "gcc -wrapper touch,x -c a.c",
        """awk 'BEGIN{system("to" "uch x")}'""",
        """python3 -c 'import os; os.system("to" + "uch x")'""",
        """perl -e 'system("to" . "uch x")'""",
    ],
)
def test_code_that_may_run_a_forbidden_program_is_asked(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    assert decide_command(engine, command) == "ask"


def test_a_forbidden_git_command_behind_other_names_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "config", "alias.one", "two")
    run_git(tmp_path, "config", "alias.two", "push o HEAD")
    program = tmp_path / "bin" / "git-sendit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ngit push\n")
    program.chmod(0o755)
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(git push:*)")
    assert decide_command(engine, "git sendit") == "allow"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for command in (
        "git one",
        "git sendit",
        "HOME=/other git z o HEAD",
        "git -c help.autocorrect=immediate pus o HEAD",
        "git for-each-repo --config=my.repo push o HEAD",
    ):
        assert decide_command(engine, command) != "allow", command


def test_a_work_tree_outside_the_project_is_asked(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "elsewhere").mkdir()
    run_git(project, "init", "-q")
    run_git(project, "config", "core.worktree", str(project))
    assert decide_command(create_engine(project), "git diff") == "allow"
    run_git(project, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert decide_command(create_engine(project), "git diff") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p json && echo 'print(1)' > json/__init__.py && python3 -m json.tool package.json",
        "echo 'print(1)' > argparse.py; python3 -m json.tool package.json",
    ],
)
def test_python_is_asked_if_the_same_line_writes_a_module(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "acceptEdits")
    assert decide_command(engine, command) == "ask"
    assert decide_command(engine, "echo '{}' > a.json; python3 -m json.tool a.json") == "allow"


def test_find_does_not_run_git_in_unknown_directories_unasked(tmp_path: Path) -> None:
    engine = create_engine(tmp_path)
    assert decide_command(engine, "find . -name HEAD -execdir git status ';'") == "ask"


def test_jq_does_not_read_tests_outside_unasked(tmp_path: Path) -> None:
    assert decide_command(create_engine(tmp_path), "jq --run-tests ../out/secret") == "ask"


def test_a_whole_difference_may_show_files_that_a_rule_forbids(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    engine = create_engine(tmp_path, deny="Read(secret.txt)")
    assert decide_command(engine, "git log --full-diff -p README.md") != "allow"


CHANGES = [
    "git rm -f src/a.py", "git restore .", "git checkout .", "git apply p.diff", "git stash",
    "git mv src/a.py z.py",
    "git reset --hard HEAD~1", "patch -p1 < p.diff", "tar xf x.tar", "tar xf x.tar -C .", "unzip x.zip",
    "find src -name a.py -delete", "find . -name a.py -delete", "chmod 777 src/a.py", "ruff format src",
    "black src",
    "npx prettier --write src", "sed 'w src/a.py' o.txt", "sed -n 'wsrc/a.py' o.txt",
    "vim -es -c wq src/a.py",
    "awk '{print > \"src/a.py\"}' o.txt", "xargs sed -i s/1/2/ < names.txt", "rsync -a tt/ .", "cp -r tt/. .",
    "mktemp src/XXXXXX", "zip -m x.zip src/a.py", "env -C src rm a.py", "busybox rm src/a.py",
    "python3 -c \"open('src/a.py','w')\"", "git worktree add src/wt", "git clean -fdx src",
    "git merge topic", "git pull", "git pull --rebase origin main", "git rebase main",
    "git cherry-pick topic",
    "git revert HEAD", "git stash apply", "git stash pop", "git restore --source=topic src",
    "git checkout main", "git switch topic", "git checkout -b x topic", "git -C src pull",
    "git bisect start HEAD HEAD~3",
    "git update-index --cacheinfo 100644,abc,src/a.py", "git fast-import < x", "git submodule update",
    "pytest --junitxml=src/a.py", "pytest --junit-xml src/a.py", "pytest --basetemp src", "tool -o src/a.py",
    "tool -osrc/a.py", "pytest --cov-report=xml:src/a.py", "pytest -o cache_dir=src/c",
    "jest --outputFile=src/a",
    "pip install --target src x", "tool --output src/a.py", "mypy --html-report src x",
    "tool --log-file=src/a", "ruff format", "ruff check --fix", "pip install -t src x",
    "cargo install --root src x",
    "gh run download -D src", "docker cp c:/x src/", "aws s3 sync s3://b src", "docker run -v ./src:/s x",
    "xargs -a names rm", "$tool src/a.py", "coverage html -d src", "sass a.scss src/a.css",
    "poetry add x", "uv lock", "sd 1 2 src/a.py", "mdformat .", "fd -e py -x rm", "fd py -X sed -i s/1/2/",
    "make -C src", "cd src && make", "npm --prefix src run x", "dpkg -x a.deb src", "sort -T src o.txt",
]  # fmt: skip


@pytest.mark.spec("PRM-02")
def test_a_rule_that_forbids_changes_is_not_passed_by_commands_that_change_files(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    for name in ("src/a.py", "o.txt", "tt/src/a.py", "poetry.lock", "uv.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    run_git(tmp_path, "add", "src", "o.txt")
    engine = create_engine(tmp_path, "bypassPermissions", deny="Edit(src/**),Edit(*.lock)")
    assert [command for command in CHANGES if decide_command(engine, command) == "allow"] == []
    for command in (
        "pytest src",
        "python3 src/a.py",
        "git checkout -b topic",
        "git switch -c topic",
        "git fetch",
        "git submodule status",
        "pytest --cov=src --junitxml=out.xml",
        "docker run -v ./src:/s:ro x",
        "ruff check",
        "ruff check src",
        "black --check src",
        "eslint src",
        "prettier --check src",
        "poetry show",
        "chmod +x o.txt",
    ):
        assert decide_command(engine, command) == "allow", command
    other = create_engine(tmp_path, "bypassPermissions", deny="Edit(other/**)")
    for command in ("git stash", "ruff format src", "ruff format", "git rm -f src/a.py", "poetry add x"):
        assert decide_command(other, command) == "allow", command


def test_a_rule_that_forbids_reading_is_not_passed_by_wildcards(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "data.txt").write_text("x")
    engine = create_engine(tmp_path, "bypassPermissions", deny="Read(secret.txt)")
    for command in (
        "sort *.txt",
        "awk 1 *.txt",
        "sed -n p *.txt",
        "perl -pe 1 s*t",
        "zgrep C *",
        "rgrep C",
        "dd if=./s*",
    ):
        assert decide_command(engine, command) != "allow", command
    assert decide_command(engine, "sort d*.txt") == "allow"
    assert decide_command(engine, "sed 'rsecret.txt' data.txt") == "ask"
    for command in (
        "python3 -c \"print(open('sec' + 'ret.txt').read())\"",
        'python3 -c "import sys; print(open(sys.argv[1]).read())" x',
        "node -p \"require('fs').readFileSync(name)\"",
        "python3 -m http.server",
        "php -S localhost:9",
    ):
        assert decide_command(engine, command) == "ask", command
    for command in ("python3 -c \"print(open('data.txt').read())\"", "python3 -m json.tool data.txt"):
        assert decide_command(engine, command) == "allow", command


def test_a_rule_about_a_server_that_ends_with_underscores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Write mcp__srv for all tools of the server"):
        create_engine(tmp_path, deny="mcp__srv__")


@pytest.mark.parametrize(
    "command",
    [
        "find . -name .git -execdir git status ';'",
        "find . -name mark -execdir python3 -m json.tool package.json ';'",
        "find . -name l.txt -execdir cat l.txt ';'",
        "find . -name a.py -execdir grep -R x . ';'",
    ],
)
def test_a_command_of_find_that_runs_in_another_directory_is_asked(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path), command) == "ask"
    denied = create_engine(tmp_path, "bypassPermissions", deny="Read(secrets/**)")
    assert decide_command(denied, "find . -name key.txt -execdir cat key.txt ';'") == "ask"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("sed:*", "sed 'w .git/hooks/pre-commit' o.txt"),
        ("awk:*", "awk '{print > \".claude/settings.json\"}' o.txt"),
        ("curl:*", "curl --output-dir .git/hooks -O http://127.0.0.1:9/x"),
        ("zip:*", "zip -m x.zip .git/config"),
        ("chmod:*", "chmod +x .git/hooks/pre-commit"),
        ("pytest:*", "pytest --junitxml=.git/hooks/pre-commit"),
        ("pytest:*", "pytest --basetemp .git/hooks"),
        ("pytest:*", "pytest -o cache_dir=.claude/x"),
        ("pytest:*", "pytest --cov-report=html:.git/hooks"),
        ("tool:*", "tool -o.envrc"),
        ("tool:*", "tool --dir .vscode"),
        ("git:*", "git bundle create .git/hooks/x HEAD"),
        ("git:*", "git worktree add ../x"),
        ("find:*", "find /srv -name x -delete"),
        ("find:*", "find . -delete"),
    ],
)
def test_no_allow_rule_covers_a_change_of_a_protected_file(tmp_path: Path, rule: str, command: str) -> None:
    run_git(tmp_path, "init", "-q")
    engine = create_engine(tmp_path, allow=f"Bash({rule})")
    assert decide_command(engine, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "tool --env-file .env up",
        "tool --kubeconfig .kube/config x",
        "tool --ignore=.git src",
        "tool -o out.xml",
        "tool --cert a.pem --key b.key",
    ],
)
def test_an_allowed_program_may_name_a_protected_file_as_its_input(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path, allow="Bash(tool:*)"), command) == "allow"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("./deploy.sh:*", ".//deploy.sh now"),
        ("./deploy.sh:*", "src/../deploy.sh"),
        ("./deploy.sh:*", "cd src; ../deploy.sh"),
        ("/bin/touch:*", "/usr/bin/touch x"),
    ],
)
def test_a_forbidden_program_under_another_spelling_of_its_path_is_asked(
    tmp_path: Path, rule: str, command: str
) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=f"Bash({rule})")
    assert decide_command(engine, command) != "allow"
    assert decide_command(engine, "./build.sh") == "allow"


def test_an_allowed_relative_program_is_another_one_in_another_directory(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, allow="Bash(./run.sh)")
    assert decide_command(engine, "./run.sh") == "allow"
    assert decide_command(engine, "cd src && ./run.sh") == "ask"
