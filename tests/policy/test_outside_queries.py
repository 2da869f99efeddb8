"""In default mode, questions about files outside the project and to other machines are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_command


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_corpus_project(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize(
    "command",
    ["test -f /root/x", "[ -r ../x ]", "[[ -e ~/x ]]", "[ ! -d /srv ]", "test a -nt /etc/passwd",
     "[[ /srv -ef a ]]",
     "[ -L /etc/localtime ] && echo x", "if [ -s ../x ]; then ls; fi", "[[ -f README.md && -d /srv ]]",
     "cd src && test -f ../../x", "[ -f \"$HOME/.netrc\" ]", "date -r /etc/passwd", "date --reference=../x",
     "whereis -B /root -f id", "which /root/x", "type /srv/x", "find . -newer /etc/passwd",
     "find . -samefile ../x",
     "getent passwd", "getent group", "getent shadow", "git config --global -l", "git config -l",
     "git config --list",
     "git config --get-regexp .", "git config --get http.extraheader",
     "git config --get-urlmatch http https://h",
     "git config --system --list --show-origin", "git var -l", "git config url.x.insteadOf"],
)  # fmt: skip
def test_a_question_about_a_file_outside_is_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "ask"


def test_the_times_of_a_file_outside_are_not_copied_unasked(project: Path) -> None:
    engine = create_engine(project, "acceptEdits")
    assert decide_command(engine, "touch a -r /etc/shadow") == "ask"
    assert decide_command(engine, "touch a") == "allow"


@pytest.mark.parametrize(
    "command",
    ["test -f README.md", "[ -d src ] && ls", "[[ -f README.md && -d src ]]", "test README.md -nt src",
     "date -u",
     "whereis ls", "which python3", "type ls", "find . -newer README.md", "getent hosts localhost",
     "git config user.name", "git config --get user.email", "git config --local -l", "git var GIT_EDITOR",
     "for f in src/*.py; do [ -f \"$f\" ] && wc -l \"$f\"; done", "git remote show -n origin"],
)  # fmt: skip
def test_a_question_about_the_project_is_not_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "allow"


@pytest.mark.parametrize(
    "command",
    ["git remote show origin", "git ls-remote", "git ls-remote origin", "git fetch --dry-run",
     "pip list --outdated",
     "pip list -o", "pip3 list --uptodate", "pip index versions x", "pip download x", "npm outdated",
     "npm view x",
     "npm ping", "npm search x", "npm audit", "cargo search x", "gem list -r", "gem search x",
     "go list -m -u all",
     "go list -m -versions x", "brew info x", "brew search x", "brew outdated", "docker search x",
     "docker pull x",
     "gh pr view https://example.com/o/r/pull/1", "gh pr list -R example.com/o/r", "gh api /user",
     "uv pip list --outdated",
     "curl h", "ping h", "nslookup h", "dig h", "host h", "whois h", "cat < /dev/tcp/h/80", "ssh h",
     "nc h 1"],
)  # fmt: skip
def test_a_command_that_contacts_another_machine_is_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "ask"


@pytest.mark.parametrize(
    "command", ["gh pr view 12", "gh pr list -R o/r", "kubectl get pods", "docker ps", "pip list"]
)
def test_a_query_to_a_service_that_the_user_set_up_is_not_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "allow"


def test_the_version_of_rust_is_asked_where_a_file_names_a_toolchain(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    (project / "src").mkdir(exist_ok=True)
    engine = create_engine(project)
    for command in ("cargo --version", "rustc --version", "cd src && cargo --version"):
        assert decide_command(engine, command) == "allow", command
    (project / "rust-toolchain.toml").write_text("[toolchain]\npath = 'evil'\n")
    for command in ("cargo --version", "rustc --version", "cd src && cargo --version"):
        assert decide_command(engine, command) == "ask", command


def test_go_is_asked_where_its_files_name_modules_to_download(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "cmd").mkdir(parents=True)
    engine = create_engine(project)
    commands = ["go list ./...", "go doc fmt", "cd cmd && go list ./..."]
    (project / "go.mod").write_text("module a\n\ngo 1.22\n")
    assert {decide_command(engine, each) for each in (*commands, "go version")} == {"allow"}
    (project / "go.mod").write_text("module a\n\ngo 1.22\n\nrequire example.org/b v1.0.0\n")
    assert {decide_command(engine, each) for each in commands} == {"ask"}
    assert decide_command(engine, "go version") == "allow"
    (project / "go.work").write_text("go 1.22\ntoolchain go1.99\n")
    assert decide_command(engine, "go version") == "ask"


@pytest.mark.parametrize(
    ("name", "content"),
    [(".venv/bin/python", "x"), ("uv.toml", "x"), ("pyproject.toml", "[tool.uv]\npython-downloads = 'x'\n"),
     (".python-version", "x"), ("pyproject.toml", "tool.uv.pip.python = './x'\n"),
     ("pyproject.toml", "[ tool . uv ]\n"), ("pyproject.toml", "[tool]\nuv = {pip = {python = './x'}}\n"),
     ("pyproject.toml", '[tool."\\u0075v".pip]\npython = "./x"\n'), ("pyproject.toml", "not [ toml"),
     ("pyproject.toml", "#" * 100_000 + "\n[tool.uv]\n")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["uv python list", "uv pip list", "uv pip show x", "uv pip freeze"])
def test_uv_is_asked_where_it_would_use_the_environment_or_settings_of_the_project(
    tmp_path: Path, name: str, content: str, command: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    engine = create_engine(project)
    (project / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    assert decide_command(engine, command) == "allow"
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(content)
    assert decide_command(engine, command) == "ask"
    assert decide_command(engine, "uv --version") == "allow"


@pytest.mark.parametrize("operand", ["./run.sh", "run.sh", "pip", "/usr/bin/env", "3.12"])
def test_uv_runs_no_program_that_a_list_of_interpreters_names(tmp_path: Path, operand: str) -> None:
    assert decide_command(create_engine(tmp_path), f"uv python list {operand}") == "ask"
