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
