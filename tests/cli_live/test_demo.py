"""`shoal demo`: real tools on a real project, with a scripted mind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from cli_live.conftest import Place
from shoal.app.demo.harbour import TESTS, changes, lay_out


def temporary(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


def test_the_demo_repairs_its_project_for_real(place: Place, tmp_path: Path) -> None:
    terminal = place.shoal_at_terminal("demo", "--fast", "--keep", TMPDIR=str(temporary(tmp_path)))
    assert terminal.wait_for_end(bound=60) == 0, terminal.screen.text
    text = terminal.screen.text
    assert "words are scripted" in text
    assert "→ exit 1 · FAILED (failures=3)" in text
    assert "→ exit 1 · FAILED (failures=1)" in text
    assert "→ exit 0 · OK" in text
    assert "all 6 pass" in text
    (kept,) = (tmp_path / "tmp").iterdir()
    assert subprocess.run(TESTS, cwd=kept / "project", capture_output=True, check=False).returncode == 0
    assert [change.path for change in changes(kept / "project")] == ["harbour/berths.py", "harbour/fees.py"]
    transcript = re.search(r"record *(\S+\.jsonl)", text.replace("\n", ""))
    assert transcript is not None
    assert len(list(kept.glob("home/projects/*/*.jsonl"))) == 1
    # Only paths, which stay whole to be copied, are wrapped by the terminal.
    before_paths = text[: text.index("\nproject")].splitlines()
    assert all(len(line) <= 79 for line in before_paths)


def test_in_a_pipe_it_is_plain_text_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(temporary(tmp_path)), "SHOAL_HOME": str(place.home)}
    argv = [sys.executable, "-c", "from shoal.surfaces.cli.main import main; main()", "demo", "--fast"]
    run = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert "+ free = nights // 7" in run.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(place.home.iterdir()) == []


def test_what_to_type_next_can_be_typed_where_the_demo_ran(place: Place, tmp_path: Path) -> None:
    program = place.project / "bin" / "shoal"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom shoal.surfaces.cli.main import main\nmain()\n")
    program.chmod(0o755)
    env = os.environ | {"TMPDIR": str(temporary(tmp_path)), "SHOAL_HOME": str(place.home)}
    near, installed = (
        subprocess.run(
            [name, "demo", "--fast"], cwd=place.project, env=env, capture_output=True, text=True, check=True
        ).stdout.splitlines()[-2:]
        for name in ("bin/shoal", str(program))
    )
    assert near[0].startswith("next     bin/shoal doctor  ")
    assert near[1].startswith("         pip install .  ")
    assert installed[0].startswith("next     shoal doctor  ")
    assert installed[1].startswith('         shoal "fix the tests"  ')


def test_a_demo_that_goes_wrong_fails(place: Place, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho nothing works today >&2\nexit 9\n")
    broken.chmod(0o755)
    path = f"{broken.parent}{os.pathsep}{os.environ['PATH']}"
    terminal = place.shoal_at_terminal("demo", "--fast", PATH=path, TMPDIR=str(temporary(tmp_path)))
    assert terminal.wait_for_end(bound=60) == 1
    assert "The demo failed" in terminal.screen.text


def test_ctrl_c_ends_the_demo_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    terminal = place.shoal_at_terminal("demo", TMPDIR=str(temporary(tmp_path)))
    terminal.wait_for("I run the")
    terminal.type("\x03")
    assert terminal.wait_for_end() == 130
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_project_fails_its_tests_before(tmp_path: Path) -> None:
    lay_out(tmp_path / "project")
    before = subprocess.run(TESTS, cwd=tmp_path / "project", capture_output=True, text=True, check=False)
    assert before.stderr.splitlines()[-1] == "FAILED (failures=3)"
    assert changes(tmp_path / "project") == []
