"""The set-up behind `make demo` and `make test`: it is stamped, and it fails in plain sentences."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The parts of a fresh clone that the set-up reads."""
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def set_up(clone: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(clone / "scripts" / "setup_env.py"), *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


def compute_fingerprint(clone: Path) -> str:
    code = "import setup_env; print(setup_env.compute_fingerprint())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=clone / "scripts", capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("purpose", ["run", "test"])
def test_an_existing_test_setup_is_reused(clone: Path, purpose: str):
    (clone / ".venv").mkdir()
    (clone / ".venv" / ".shoal-test").write_text(compute_fingerprint(clone))
    done = set_up(clone, purpose)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_changed_requirements_list_repeats_the_setup(clone: Path):
    before = compute_fingerprint(clone)
    with (clone / "pyproject.toml").open("a") as project:
        project.write("\n# changed\n")
    assert compute_fingerprint(clone) != before


@pytest.mark.exhaustive
def test_a_setup_without_available_packages_fails_with_a_message_and_no_stamp(clone: Path):
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(clone), "PIP_CONFIG_FILE": os.devnull}
    done = set_up(clone, "run", **offline)
    assert done.returncode == 1
    assert done.stderr.startswith("Set-up failed: ")
    assert "Traceback" not in done.stderr
    assert not (clone / ".venv" / ".shoal-run").exists()


@pytest.mark.parametrize("target", ["demo", "test", "spec"])
def test_a_machine_with_an_old_python_gets_a_message(clone: Path, target: str):
    done = subprocess.run(["make", "PYTHON=", target], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Shoal needs Python 3.11 or newer, and none was found." in done.stderr


def test_make_uses_a_newer_python_if_python3_is_too_old(clone: Path, tmp_path: Path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3.14").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    with (clone / "Makefile").open("a") as makefile:
        makefile.write("\nwhich-python:\n\t@echo $(PYTHON)\n")
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "which-python"], cwd=clone, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "python3.14\n"


@pytest.mark.parametrize(
    ("failing", "named"),
    [("pytest", "tests"), ("tests.chaos", "chaos"), ("tests.load", "load"), ("none", "")],
)
def test_make_test_all_runs_every_step_and_fails_if_one_has_failed(
    clone: Path, failing: str, named: str
) -> None:
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    (clone / ".venv" / ".shoal-test").write_text(compute_fingerprint(clone))
    (programs / "python").write_text(f'#!/bin/sh\necho "$@" >> "{clone}/steps"\n[ "$2" != {failing} ]\n')
    (programs / "python").chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={sys.executable}", "test-all"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    steps = (clone / "steps").read_text().splitlines()
    assert [step.split()[1] for step in steps] == ["pytest", "tests.chaos", "tests.load"]
    # As two words, pytest would take an existing file for a path of tests, and not find the option.
    assert " --proof=docs/proof.md" in steps[0]
    assert (done.returncode != 0) == bool(named), done.stderr
    assert (f"Failed: {named}\n" in done.stderr) == bool(named)


RUN_MAKEFILE = """
test-certain:
	@"{python}" -m pytest -p no:cacheprovider -p shuffled_order $(ARGS)
"""
RUN_TESTS = """
import os
from pathlib import Path

def test_good():
    # The parent of make is the program that repeats the runs.
    parent = os.getppid()
    while "certain_runs" not in Path(f"/proc/{parent}/cmdline").read_text():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    with Path("children").open("a") as children:
        children.write(Path(f"/proc/{parent}/task/{parent}/children").read_text() + "\\n")

def test_good_and_fast(): pass

def test_bad(request):
    with Path("seeds").open("a") as seeds:
        seeds.write(request.config.getoption("--shuffle") + "\\n")
    assert request.config.getoption("--shuffle") != "8"
"""


@pytest.fixture
def small_project(clone: Path, tmp_path: Path) -> Path:
    """A small project whose tests fail in one order."""
    (clone / "Makefile").write_text(RUN_MAKEFILE.format(python=sys.executable))
    (clone / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}/tests/plugins\n")
    (clone / "test_it.py").write_text(RUN_TESTS)
    (clone / "docs").mkdir()
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *command], cwd=clone, check=True
        )
    return clone


def repeat_runs(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(project / "scripts" / "certain_runs.py"), *arguments],
        cwd=project,
        env=os.environ
        | {
            "PYTHONPATH": f"{ROOT}/tests/plugins",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(project),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.needs("git")
def test_repeated_runs_have_other_orders_and_busy_loops_and_retry_nothing(small_project: Path) -> None:
    done = repeat_runs(small_project, "--runs", "3", "--seed", "7", "--busy", "2", "--keep")
    assert done.returncode == 1, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:5]]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=small_project, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert [[row[at] for at in (0, 2, 3, 4, 6, 7)] for row in rows] == [
        ["1", commit, "7", "2", "3", "none"],
        ["2", commit, "8", "2", "2", "`test_it.py::test_bad`"],
        ["3", commit, "9", "2", "3", "none"],
    ]
    assert (small_project / "seeds").read_text().split() == ["7", "8", "9"]
    assert "Run 2 failed. Its output is in " in done.stderr
    assert "2 of 3 runs passed." in done.stdout
    children = [line.split() for line in (small_project / "children").read_text().splitlines()]
    assert [len(each) for each in children] == [3, 3, 3]
    assert not any(Path("/proc", pid).exists() for each in children for pid in each)
    page = (small_project / "docs" / "certain-runs.md").read_text()
    assert page.splitlines()[-3:] == done.stdout.splitlines()[2:5]


@pytest.mark.slow
@pytest.mark.needs("git")
def test_repeated_runs_of_some_tests_are_not_kept(small_project: Path) -> None:
    done = repeat_runs(small_project, "--runs", "1", "--keep", "-k", "good")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--keep is only for runs of all tests, without -k good" in done.stderr
    (small_project / "test_it.py").write_text("raise ValueError\n")
    done = repeat_runs(small_project, "--runs", "1", "--seed", "7")
    assert done.returncode == 1
    assert "+ | 7 | 0 |" in done.stdout
    assert "| 0 | `test_it.py` |" in done.stdout
