"""`shoal demo agents`: real agents in real worktrees on a real project, with a scripted model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli_live.conftest import SHOAL_COMMAND, CliProject
from cli_live.pty_terminal import PtyTerminal, build_environment
from shoal.app.demo.demo_project import TEST_COMMAND, find_demo_project_changes, write_demo_project

pytestmark = pytest.mark.needs("git")
AGENTS = ("berths", "fees", "tides")


def make_temporary_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "tmp"
    directory.mkdir()
    return directory


def find_lines(text: str, pattern: str) -> list[str]:
    return re.findall(pattern, text, re.MULTILINE)


def find_working_directories(directory: Path) -> list[str]:
    """Return the working directories of processes at or below this directory."""
    cwds = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                cwds.append(str((process / "cwd").readlink()))
    return [cwd for cwd in cwds if cwd.startswith(str(directory))]


@pytest.mark.needs("bwrap")
@pytest.mark.spec("ISO-01")
def test_three_agents_repair_the_project_and_their_costs_add_up(
    cli_project: CliProject, tmp_path: Path
) -> None:
    terminal = cli_project.start_shoal_terminal(
        "demo", "agents", "--fast", "--keep", TMPDIR=str(make_temporary_directory(tmp_path))
    )
    assert terminal.wait_for_end(timeout=60) == 0, terminal.screen.text
    text = terminal.screen.text
    assert "replies are scripted" in text
    assert "→ exit 1 · FAILED (failures=3)" in text
    assert "No sandbox" not in text
    for state in ("started in the background", "completed"):
        assert sorted(find_lines(text, rf"^● agent (\w+) {state}")) == [*AGENTS]
    assert "All three are repaired" in text
    merged = find_lines(text, r"^\$ shoal worktree merge agent-\w+  → main: harbour/(\w+)\.py$")
    assert sorted(merged) == [*AGENTS]
    assert "all 8 pass" in text
    check_costs(text)
    (demo_directory,) = (tmp_path / "tmp").iterdir()
    project = demo_directory / "project"
    assert subprocess.run(TEST_COMMAND, cwd=project, capture_output=True, check=False).returncode == 0
    assert [change.path for change in find_demo_project_changes(project)] == [
        f"harbour/{name}.py" for name in AGENTS
    ]
    git = ["git", "-C", str(project)]
    log = subprocess.run(
        [*git, "log", "--topo-order", "--format=%P|%s"], capture_output=True, text=True, check=True
    ).stdout
    base = log.splitlines()[-1]
    assert base == "|A small harbour"
    # Three commits on the first one, side by side, and merges that bring them in.
    assert sum(len(line.partition("|")[0].split()) == 2 for line in log.splitlines()) >= 2
    trees = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(trees.splitlines()) == 1
    assert len(list(demo_directory.glob("home/projects/*/*.jsonl"))) == 1
    assert len(list(demo_directory.glob("home/projects/*/*/subagents/*.jsonl"))) == 3


def check_costs(text: str) -> None:
    """Check that the costs of the agents add up to the total."""
    assert "at example prices" in text
    rows = find_lines(text, r"^  (lead|berths|fees|tides|total) +(\d+) +\S+ +\$(\d+\.\d+)")
    assert [row[0] for row in rows] == ["lead", *AGENTS, "total"]
    *parts, whole = rows
    assert sum(int(row[1]) for row in parts) == int(whole[1])
    assert abs(sum(float(row[2]) for row in parts) - float(whole[2])) < 0.001


@pytest.mark.slow
def test_the_agents_demo_in_a_pipe_prints_plain_text_and_leaves_no_files(
    cli_project: CliProject, tmp_path: Path
) -> None:
    env = os.environ | {
        "TMPDIR": str(make_temporary_directory(tmp_path)),
        "SHOAL_HOME": str(cli_project.home),
    }
    run = subprocess.run(
        [*SHOAL_COMMAND, "demo", "agents", "--fast"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert "+ free = nights // 7" in run.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(cli_project.home.iterdir()) == []


@pytest.mark.slow
def test_the_demo_ignores_the_users_settings(cli_project: CliProject, tmp_path: Path) -> None:
    """A signing key, hooks and an agent model of the user do not reach the demo."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (cli_project.home / ".gitconfig").write_text(f"[commit]\n gpgsign = true\n[core]\n hooksPath = {hooks}\n")
    env = {
        "TMPDIR": str(make_temporary_directory(tmp_path)),
        "SHOAL_HOME": str(cli_project.home),
        "HOME": str(cli_project.home),
        "GIT_DIR": str(tmp_path / "nowhere"),
        "SHOAL_SUBAGENT_MODEL": "openai:nobody",
    }
    run = subprocess.run(
        [*SHOAL_COMMAND, "demo", "agents", "--fast"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_the_demo_warns_and_continues_without_a_sandbox(cli_project: CliProject, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            link = programs / program.name
            if program.name not in ("bwrap", "sandbox-exec") and not link.is_symlink():
                link.symlink_to(program)
    tmp = str(make_temporary_directory(tmp_path))
    terminal = cli_project.start_shoal_terminal("demo", "agents", "--fast", PATH=str(programs), TMPDIR=tmp)
    assert terminal.wait_for_end(timeout=60) == 0, terminal.screen.text
    assert "No sandbox can confine the agents to their worktrees here" in terminal.screen.text
    assert "(worktree_guard: weak)" in " ".join(terminal.screen.text.split())
    assert terminal.screen.text.count("Commands run without a sandbox") == 1
    assert "all 8 pass" in terminal.screen.text


@pytest.mark.parametrize("arguments", [(), ("agents",)])
def test_the_demo_without_git_says_what_to_install(
    cli_project: CliProject, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    env = os.environ | {"TMPDIR": str(make_temporary_directory(tmp_path)), "PATH": str(tmp_path)}
    run = subprocess.run(
        [*SHOAL_COMMAND, "demo", *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert (
        run.stderr
        == "shoal: The demo project is a git repository, but git is not installed. Install git first.\n"
    )
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_narrow_terminal_without_colours_shows_whole_lines(cli_project: CliProject, tmp_path: Path) -> None:
    env = build_environment(cli_project.home, TMPDIR=str(make_temporary_directory(tmp_path)), NO_COLOR="1")
    with PtyTerminal(
        [*SHOAL_COMMAND, "demo", "agents", "--fast"], cwd=cli_project.project, env=env, columns=60
    ) as terminal:
        assert terminal.wait_for_end(timeout=60) == 0, terminal.screen.text
        assert max(map(len, terminal.screen.lines)) <= 59
        assert "m" not in terminal.screen.codes


@pytest.mark.slow
def test_suggested_commands_match_how_the_demo_was_started(cli_project: CliProject, tmp_path: Path) -> None:
    program = cli_project.project / "bin" / "shoal"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom shoal.surfaces.cli.main import main\nmain()\n")
    program.chmod(0o755)
    env = os.environ | {
        "TMPDIR": str(make_temporary_directory(tmp_path)),
        "SHOAL_HOME": str(cli_project.home),
    }
    near, installed = (
        subprocess.run(
            [name, "demo", "agents", "--fast"],
            cwd=cli_project.project,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-2:]
        for name in ("bin/shoal", str(program))
    )
    assert near[0].startswith("next     bin/shoal doctor  ")
    assert near[1].startswith("         pip install .  ")
    assert installed[0].startswith("next     shoal doctor  ")
    assert installed[1].startswith('         shoal "fix the tests"  ')


@pytest.mark.slow
def test_a_chosen_home_keeps_the_run_and_other_files_are_removed(
    cli_project: CliProject, tmp_path: Path
) -> None:
    tmp, home = make_temporary_directory(tmp_path), tmp_path / "own home"
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(cli_project.home)}
    run = subprocess.run(
        [*SHOAL_COMMAND, "demo", "agents", "--fast", "--home", str(home)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    (record,) = find_lines(run.stdout, r"^record +(.*)$")
    (session,) = find_lines(run.stdout, rf"From another terminal: SHOAL_HOME='{home}' shoal watch (\w+)$")
    assert Path(record).is_file()
    watched = subprocess.run(
        [*SHOAL_COMMAND, "watch", session],
        env=env | {"SHOAL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in AGENTS:
        assert f"agent {name} completed" in watched.stdout
    assert list(tmp.iterdir()) == []
    assert list((home / "worktrees").iterdir()) == []


def test_a_failing_demo_exits_with_an_error(cli_project: CliProject, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho nothing works today >&2\nexit 9\n")
    broken.chmod(0o755)
    path = f"{broken.parent}{os.pathsep}{os.environ['PATH']}"
    terminal = cli_project.start_shoal_terminal(
        "demo", "agents", "--fast", PATH=path, TMPDIR=str(make_temporary_directory(tmp_path))
    )
    assert terminal.wait_for_end(timeout=60) == 1
    assert "The demo failed" in terminal.screen.text


@pytest.mark.slow
def test_each_agent_at_work_has_a_row_and_ctrl_c_leaves_nothing(
    cli_project: CliProject, tmp_path: Path
) -> None:
    tmp = make_temporary_directory(tmp_path)
    terminal = cli_project.start_shoal_terminal(
        "demo", "agents", "--home", str(cli_project.home), TMPDIR=str(tmp)
    )
    rows: set[str] = set()

    def has_shown_every_agent(text: str) -> bool:
        # One may end before another begins.
        rows.update(find_lines(text, r"^  ● (\w+): Repair the \w+ · .* tokens · .* s$"))
        return rows >= {*AGENTS}

    terminal.wait_for(has_shown_every_agent)
    assert rows == {*AGENTS}
    terminal.type_text("\x03")
    assert terminal.wait_for_end() == 130
    assert list(tmp.iterdir()) == []
    assert list((cli_project.home / "worktrees").iterdir()) == []
    assert find_working_directories(tmp) == []


@pytest.mark.slow
def test_the_demo_cleans_up_when_it_is_terminated(cli_project: CliProject, tmp_path: Path) -> None:
    tmp = make_temporary_directory(tmp_path)
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(cli_project.home)}
    with subprocess.Popen(
        [*SHOAL_COMMAND, "demo", "agents"], env=env, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "started in the background" in line:
                break
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=20)
    assert demo.returncode == 143
    assert list(tmp.iterdir()) == []


def test_the_demo_project_starts_with_one_failing_test_per_file(tmp_path: Path) -> None:
    write_demo_project(tmp_path / "project")
    for name in AGENTS:
        words = [*TEST_COMMAND, f"tests.test_{name}"]
        before = subprocess.run(words, cwd=tmp_path / "project", capture_output=True, text=True, check=False)
        assert before.stderr.splitlines()[-1] == "FAILED (failures=1)"
    assert find_demo_project_changes(tmp_path / "project") == []
