"""Git commands that only read are asked about if the repository's configuration makes git run a program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_command

from git_repository import run_git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return create_corpus_project(tmp_path)


def add_settings(project: Path, text: str) -> None:
    with (project / ".git/config").open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = ./x\n",
        "[core] fsmonitor=./x",
        "[core]\r\n\tFSMonitor = ./x\r\n",
        "[core]\n\tx = b\\\n[other]\n\tfsmonitor = ./x\n",
        "[core]\n# a comment \\\n\tfsmonitor = ./x\n",
        "[core]\n\tfsmonitor = \\\n./x\n",
        "[diff]\n\texternal = ./x\n",
        '[diff "a"]\n\ttextconv = ./x\n',
        '[filter "a"]\n\tclean = ./x\n',
        '[filter "lfs"]\n\tprocess = git-lfs filter-process; ./x\n',
        "[gpg]\n\tprogram = ./x\n",
        "[include]\n\tpath = ../x\n",
        "[core]\n\tsshCommand = ./x\n[extensions]\n\tpartialClone = origin\n",
    ],
)
def test_a_program_in_the_configuration_asks(project: Path, text: str) -> None:
    engine = create_engine(project)
    assert decide_command(engine, "git status") == "allow"
    add_settings(project, text)
    for command in ("git status", "/usr/bin/git diff", "git log -p", "ls && git show"):
        assert decide_command(engine, command) == "ask", command
    assert decide_command(create_engine(project, allow="Bash(git status:*)"), "git status") == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = true\n",
        "[core]\n\tfsmonitor\n",
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n',
        "[core]\n\thooksPath = .husky/_\n",
        "[alias]\n\tx = !./x\n",
    ],
)
def test_usual_settings_of_a_repository_do_not_ask(project: Path, text: str) -> None:
    add_settings(project, text)
    assert decide_command(create_engine(project), "git status && git diff && git log") == "allow"


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\tsshCommand = ssh -i key\n",
        "[credential]\n\thelper = !touch y\n",
        "[core]\n\taskPass = ./x\n",
    ],
)
def test_a_program_for_remotes_asks_only_if_git_contacts_one(project: Path, setting: str) -> None:
    add_settings(project, setting)
    assert decide_command(create_engine(project), "git log") == "allow"
    assert decide_command(create_engine(project), "git remote show origin") == "ask"


@pytest.mark.parametrize("directory", [".git/hooks", "tools/hooks"])
def test_a_hook_that_reading_commands_run_asks(project: Path, directory: str) -> None:
    if directory != ".git/hooks":
        add_settings(project, f"[core]\n\thooksPath = {directory}\n")
    hook = project / directory / "post-index-change"
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.touch(mode=0o755)
    assert decide_command(create_engine(project), "git status") == "ask"
    assert decide_command(create_engine(project), "git log") == "allow"


def test_the_configuration_around_the_project_and_of_submodules_and_worktrees_counts(project: Path) -> None:
    tree = project.parent / "tree"
    run_git(project, "worktree", "add", "-q", str(tree))
    inner = project / "sub"
    inner.mkdir()
    run_git(inner, "init", "-q")
    (inner / "a").touch()
    run_git(inner, "add", "a")
    run_git(inner, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "first")
    run_git(project, "add", "sub")
    assert decide_command(create_engine(project), "git status") == "allow"
    with (inner / ".git/config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./x\n")
    assert decide_command(create_engine(project), "git status") == "ask"
    assert decide_command(create_engine(project), "git log -p --submodule=diff") == "ask"
    assert decide_command(create_engine(tree), "git log") == "allow"
    add_settings(project, "[core]\n\tfsmonitor = ./x\n")
    for root in (tree, project / "src"):
        assert decide_command(create_engine(root), "git log") == "ask"


def test_a_bare_repository_as_project_counts(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "--bare")
    assert decide_command(create_engine(tmp_path), "git log") == "allow"
    with (tmp_path / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./x\n")
    assert decide_command(create_engine(tmp_path), "git log") == "ask"


@pytest.mark.spec("PRM-02")
def test_forbidding_rules_apply_to_aliases_of_git(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[alias]\n\tup = push\n")
    add_settings(project, "[alias]\n\tp = push --force\n\tst = status\n\tc = !curl x\n\te = !echo\n")
    engine = create_engine(project, "bypassPermissions", deny="Bash(git push:*),Bash(curl:*)")
    for command in ("git p", "git -C . p", "env git up origin", "git c", "git config alias.q push; git q"):
        assert decide_command(engine, command) != "allow", command
    for command in ("git st", "git e", "git pushx", "git log"):
        assert decide_command(engine, command) == "allow", command
    assert decide_command(engine, "git-push origin") == "deny"


@pytest.mark.parametrize("command", ["cd sub; git log", "cd sub && git status", "git -C sub status"])
def test_git_in_another_repository_of_the_project_is_asked(project: Path, command: str) -> None:
    (project / "sub").mkdir()
    assert decide_command(create_engine(project), command) == "allow"
    run_git(project / "sub", "init", "-q")
    assert decide_command(create_engine(project), command) == "ask"


@pytest.mark.parametrize("command", ["cd sub && git status", "git -C sub status"])
def test_git_is_asked_in_a_directory_that_the_same_line_may_make_a_repository(
    project: Path, command: str
) -> None:
    engine = create_engine(project, "acceptEdits", allow="Bash(mv:*)")
    head = "mkdir -p sub/objects sub/refs; echo 'ref: refs/heads/x' > sub/HEAD; echo '[core]' > sub/config"
    assert decide_command(engine, head) == "allow"
    assert decide_command(engine, f"{head}; {command}") == "ask"
    assert decide_command(engine, f"mv docs sub; {command}") == "ask"
    assert decide_command(engine, f"mkdir sub; touch sub/x; {command}") == "allow"


@pytest.mark.parametrize(
    ("setting", "command"),
    [("[man]\n\tviewer = x\n[man \"x\"]\n\tcmd = touch y\n", "git help log"),
     ("[web]\n\tbrowser = x\n[browser \"x\"]\n\tcmd = touch y\n", "git help log")],
)  # fmt: skip
def test_programs_that_show_a_manual_count(project: Path, setting: str, command: str) -> None:
    assert decide_command(create_engine(project), command) == "allow"
    add_settings(project, setting)
    assert decide_command(create_engine(project), command) == "ask"
    assert decide_command(create_engine(project), "git log") == "allow"


@pytest.mark.parametrize("name", ["cache", "logs-dir", "script-shell", "node-options", "anything"])
def test_npm_is_asked_if_settings_of_the_project_name_programs_or_directories(
    project: Path, name: str
) -> None:
    (project / "web").mkdir()
    (project / ".npmrc").write_text("; comment\nregistry = https://example.org\nsave-exact=true\n")
    engine = create_engine(project)
    for command in ("npm ls", "cd web && npm ls"):
        assert decide_command(engine, command) == "allow"
    (project / "web/.npmrc").write_text(f"{name} = x\n")
    assert decide_command(engine, "npm ls") == "allow"
    assert decide_command(engine, "cd web && npm ls") == "ask"
    (project / ".npmrc").write_text(f"{name}=x\n")
    assert decide_command(engine, "npm config list") == "ask"


def test_an_alias_that_only_git_can_resolve_is_asked_under_a_rule_that_forbids_a_command(
    project: Path,
) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Bash(git push:*)")
    assert decide_command(engine, "git pus") == "allow"
    add_settings(project, "[help]\n\tautocorrect = immediate\n")
    assert decide_command(engine, "git pus") == "ask"


def _make_other_repository(directory: Path) -> Path:
    other = directory / "other"
    other.mkdir()
    run_git(other, "init", "-q")
    (other / "secret.txt").write_text("secret\n")
    run_git(other, "add", "-A")
    run_git(other, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "first")
    return other


@pytest.mark.parametrize("kind", ["file", "link", "commondir", "objects", "alternates", "config"])
def test_a_repository_that_leads_outside_the_project_is_asked(tmp_path: Path, kind: str) -> None:
    other = _make_other_repository(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    own = project / ".git"
    if kind == "file":
        own.write_text(f"gitdir: {other}/.git\n")
    elif kind == "link":
        own.symlink_to(other / ".git")
    else:
        run_git(project, "init", "-q")
        assert decide_command(create_engine(project), "git log --oneline") == "allow"
        if kind == "commondir":
            (own / "commondir").write_text(f"{other}/.git\n")
        elif kind == "objects":
            shutil.rmtree(own / "objects")
            (own / "objects").symlink_to(other / ".git/objects")
        elif kind == "config":
            (own / "config").unlink()
            (own / "config").symlink_to(other / ".git/config")
        else:
            (own / "objects/info/alternates").write_text(f"{other}/.git/objects\n")
    engine = create_engine(project)
    for command in ("git log -p", "git show HEAD", "git status"):
        assert decide_command(engine, command) == "ask", command


def test_a_worktree_and_a_submodule_are_not_asked(tmp_path: Path) -> None:
    other = _make_other_repository(tmp_path)
    run_git(other, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert decide_command(create_engine(tmp_path / "tree"), "git log --oneline") == "allow"
    top = tmp_path / "top"
    top.mkdir()
    run_git(top, "init", "-q")
    run_git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "lib")
    assert decide_command(create_engine(top / "lib"), "git log --oneline") == "allow"


def test_the_settings_of_a_shared_directory_are_read(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    shared = tmp_path / "joint"
    shutil.copytree(tmp_path / ".git", shared)
    (tmp_path / ".git/commondir").write_text("../joint\n")
    assert decide_command(create_engine(tmp_path), "git status") == "allow"
    with (shared / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = ./evil\n")
    assert decide_command(create_engine(tmp_path), "git status") == "ask"
