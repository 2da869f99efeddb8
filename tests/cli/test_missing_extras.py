"""Runs in files where the packages of the extras for databases and clusters are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS_REMOVED = Path(__file__).parents[1] / "plugins" / "extras_removed"
SESSION = "b0000000-0000-4000-8000-0000000000e1"
SCRIPT = """
[[steps]]
match = "begin"
text = "I run a command."
tools = [{ name = "Bash", input = { command = "echo found > found.txt" } }]

[[steps]]
match = ""
text = "The command has ended."
"""


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXTRAS_REMOVED), os.environ["PYTHONPATH"]]))
    code = (
        "from importlib.util import find_spec; "
        "print(*(name for name in ('asyncpg', 'greenlet', 'ray', 'uvloop', 'click') if find_spec(name)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["click"]
    return dict(os.environ)


def run_shoal(cwd: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal", *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.fresh_interpreter
def test_a_run_in_files_needs_no_package_of_databases_and_clusters(
    tmp_path: Path, env: dict[str, str]
) -> None:
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT)
    mode = ("--permission-mode", "bypassPermissions")
    done = run_shoal(
        tmp_path, env, "-p", "begin", "--model", f"scripted:{script}", *mode, "--session-id", SESSION
    )
    assert done.returncode == 0, done.stderr
    assert "The command has ended." in done.stdout
    assert (tmp_path / "found.txt").read_text() == "found\n"
    again = run_shoal(
        tmp_path, env, "-p", "Go on.", "--resume", SESSION, "--model", f"scripted:{script}", *mode
    )
    assert again.returncode == 0, again.stderr
    listed = run_shoal(tmp_path, env, "sessions")
    assert "begin" in listed.stdout, listed.stderr


@pytest.mark.fresh_interpreter
def test_a_database_without_its_packages_names_the_command_that_installs_them(
    tmp_path: Path, env: dict[str, str]
) -> None:
    done = run_shoal(tmp_path, env | {"SHOAL_STORE": "postgresql://db/shoal"}, "-p", "begin")
    assert done.returncode != 0
    assert "pip install 'shoal[postgres]'" in done.stderr
    assert "Traceback" not in done.stderr
