"""`shoal demo agents`: real agents in real worktrees on a real project, with a scripted mind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli_live.conftest import SHOAL, Place
from cli_live.terminal import Terminal, environment
from shoal.app.demo.harbour import TESTS, changes, lay_out

pytestmark = pytest.mark.needs("git")
AGENTS = ("berths", "fees", "tides")


def temporary(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


def told(text: str, pattern: str) -> list[str]:
    return re.findall(pattern, text, re.MULTILINE)


def at_work_below(directory: Path) -> list[str]:
    """Processes whose working directory is, or was, there."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                found.append(str((process / "cwd").readlink()))
    return [cwd for cwd in found if cwd.startswith(str(directory))]


@pytest.mark.needs("bwrap")
@pytest.mark.spec("ISO-01")
def test_three_agents_repair_the_project_for_real(place: Place, tmp_path: Path) -> None:
    terminal = place.shoal_at_terminal("demo", "agents", "--fast", "--keep", TMPDIR=str(temporary(tmp_path)))
    assert terminal.wait_for_end(bound=60) == 0, terminal.screen.text
    text = terminal.screen.text
    assert "words are scripted" in text
    assert "→ exit 1 · FAILED (failures=3)" in text
    assert "No sandbox" not in text
    for state in ("started in the background", "completed"):
        assert sorted(told(text, rf"^● agent (\w+) {state}")) == [*AGENTS]
    assert "All three are repaired" in text
    merged = told(text, r"^\$ shoal worktree merge agent-\w+  → main: harbour/(\w+)\.py$")
    assert sorted(merged) == [*AGENTS]
    assert "all 8 pass" in text
    (kept,) = (tmp_path / "tmp").iterdir()
    project = kept / "project"
    assert subprocess.run(TESTS, cwd=project, capture_output=True, check=False).returncode == 0
    assert [change.path for change in changes(project)] == [f"harbour/{name}.py" for name in AGENTS]
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
    assert len(list(kept.glob("home/projects/*/*.jsonl"))) == 1
    assert len(list(kept.glob("home/projects/*/*/subagents/*.jsonl"))) == 3


@pytest.mark.needs("bwrap")
def test_the_cost_of_each_agent_adds_up_to_the_whole(place: Place, tmp_path: Path) -> None:
    terminal = place.shoal_at_terminal("demo", "agents", "--fast", TMPDIR=str(temporary(tmp_path)))
    assert terminal.wait_for_end(bound=60) == 0, terminal.screen.text
    text = terminal.screen.text
    assert "at invented prices" in text
    rows = told(text, r"^  (lead|berths|fees|tides|in all) +(\d+) +\S+ +\$(\d+\.\d+)")
    assert [row[0] for row in rows] == ["lead", *AGENTS, "in all"]
    *parts, whole = rows
    assert sum(int(row[1]) for row in parts) == int(whole[1])
    assert abs(sum(float(row[2]) for row in parts) - float(whole[2])) < 0.001


def test_in_a_pipe_it_is_plain_text_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(temporary(tmp_path)), "SHOAL_HOME": str(place.home)}
    run = subprocess.run(
        [*SHOAL, "demo", "agents", "--fast"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert "+ free = nights // 7" in run.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(place.home.iterdir()) == []


def test_settings_of_the_person_do_not_reach_it(place: Place, tmp_path: Path) -> None:
    """A signing key, hooks and another model for agents are theirs, not the demo's."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (place.home / ".gitconfig").write_text(f"[commit]\n gpgsign = true\n[core]\n hooksPath = {hooks}\n")
    env = {
        "TMPDIR": str(temporary(tmp_path)),
        "SHOAL_HOME": str(place.home),
        "HOME": str(place.home),
        "GIT_DIR": str(tmp_path / "nowhere"),
        "SHOAL_SUBAGENT_MODEL": "openai:nobody",
    }
    run = subprocess.run(
        [*SHOAL, "demo", "agents", "--fast"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_where_no_sandbox_holds_it_says_so_and_goes_on(place: Place, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            link = programs / program.name
            if program.name not in ("bwrap", "sandbox-exec") and not link.is_symlink():
                link.symlink_to(program)
    tmp = str(temporary(tmp_path))
    terminal = place.shoal_at_terminal("demo", "agents", "--fast", PATH=str(programs), TMPDIR=tmp)
    assert terminal.wait_for_end(bound=60) == 0, terminal.screen.text
    assert "No sandbox can hold the agents in their worktrees here" in terminal.screen.text
    assert "worktree_guard: weak" in terminal.screen.text
    assert terminal.screen.text.count("Commands run without a sandbox") == 1
    assert "all 8 pass" in terminal.screen.text


@pytest.mark.parametrize("what", [(), ("agents",)])
def test_without_git_it_says_what_to_install(place: Place, tmp_path: Path, what: tuple[str, ...]) -> None:
    env = os.environ | {"TMPDIR": str(temporary(tmp_path)), "PATH": str(tmp_path)}
    run = subprocess.run([*SHOAL, "demo", *what], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "shoal: The demo's project is a git repository. Install git first.\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_narrow_terminal_without_colours_shows_whole_lines(place: Place, tmp_path: Path) -> None:
    env = environment(place.home, TMPDIR=str(temporary(tmp_path)), NO_COLOR="1")
    with Terminal([*SHOAL, "demo", "agents", "--fast"], cwd=place.project, env=env, columns=60) as terminal:
        assert terminal.wait_for_end(bound=60) == 0, terminal.screen.text
        assert max(map(len, terminal.screen.lines)) <= 59
        assert "m" not in terminal.screen.codes


def test_what_to_type_next_can_be_typed_where_the_demo_ran(place: Place, tmp_path: Path) -> None:
    program = place.project / "bin" / "shoal"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom shoal.surfaces.cli.main import main\nmain()\n")
    program.chmod(0o755)
    env = os.environ | {"TMPDIR": str(temporary(tmp_path)), "SHOAL_HOME": str(place.home)}
    near, installed = (
        subprocess.run(
            [name, "demo", "agents", "--fast"],
            cwd=place.project,
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


def test_a_home_of_ones_own_keeps_the_record_and_nothing_else(place: Place, tmp_path: Path) -> None:
    tmp, home = temporary(tmp_path), tmp_path / "own home"
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(place.home)}
    run = subprocess.run(
        [*SHOAL, "demo", "agents", "--fast", "--home", str(home)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    (record,) = told(run.stdout, r"^record +(.*)$")
    (session,) = told(run.stdout, rf"From another terminal: SHOAL_HOME='{home}' shoal watch (\w+)$")
    assert Path(record).is_file()
    watched = subprocess.run(
        [*SHOAL, "watch", session],
        env=env | {"SHOAL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in AGENTS:
        assert f"agent {name} completed" in watched.stdout
    assert list(tmp.iterdir()) == []
    assert list((home / "worktrees").iterdir()) == []


def test_a_demo_that_goes_wrong_fails(place: Place, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho nothing works today >&2\nexit 9\n")
    broken.chmod(0o755)
    path = f"{broken.parent}{os.pathsep}{os.environ['PATH']}"
    terminal = place.shoal_at_terminal("demo", "agents", "--fast", PATH=path, TMPDIR=str(temporary(tmp_path)))
    assert terminal.wait_for_end(bound=60) == 1
    assert "The demo failed" in terminal.screen.text


def test_each_agent_at_work_has_a_row_and_ctrl_c_leaves_nothing(place: Place, tmp_path: Path) -> None:
    tmp = temporary(tmp_path)
    terminal = place.shoal_at_terminal("demo", "agents", "--home", str(place.home), TMPDIR=str(tmp))
    terminal.wait_for("Edit harbour/berths.py")
    rows = told(terminal.screen.text, r"^  ● (\w+): Repair the \w+ · .* tokens · .* s$")
    assert sorted(rows) == [*AGENTS]
    terminal.type("\x03")
    assert terminal.wait_for_end() == 130
    assert list(tmp.iterdir()) == []
    assert list((place.home / "worktrees").iterdir()) == []
    assert at_work_below(tmp) == []


def test_it_clears_up_when_it_is_ended_from_outside(place: Place, tmp_path: Path) -> None:
    tmp = temporary(tmp_path)
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(place.home)}
    with subprocess.Popen([*SHOAL, "demo", "agents"], env=env, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "started in the background" in line:
                break
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=20)
    assert demo.returncode == 143
    assert list(tmp.iterdir()) == []


def test_the_project_fails_one_test_in_each_file_before(tmp_path: Path) -> None:
    lay_out(tmp_path / "project")
    for name in AGENTS:
        words = [*TESTS, f"tests.test_{name}"]
        before = subprocess.run(words, cwd=tmp_path / "project", capture_output=True, text=True, check=False)
        assert before.stderr.splitlines()[-1] == "FAILED (failures=1)"
    assert changes(tmp_path / "project") == []
