"""Mutants are tried in forked processes, and only failures that they cause count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.mutation import results
from tests.mutation.call_records import CallRecords
from tests.mutation.fork_runner import PLAN_VARIABLE, Attempt, AttemptResult
from tests.mutation.mutants import Mutant, MutantFinder
from tests.mutation.results import RoomResult, write_report
from tests.mutation.rooms import ROOT

TOY = """
def double(number):
    return number * 2

def is_big(number):
    return number > 10

def make_table():
    return [1, 2]

TABLE = make_table()
"""
TOY_TESTS = """
import subprocess
import sys
import toy

def test_double():
    assert toy.double(3) == 6

def test_double_in_another_program():
    assert subprocess.check_output([sys.executable, "-c", "import toy; print(toy.double(3))"]) == b"6\\n"

def test_big():
    assert toy.is_big(20)

def test_table():
    assert toy.TABLE

def test_broken():
    assert toy.double(3) == 7
"""


def find_mutant(before: str, after: str) -> Mutant:
    found = MutantFinder(Path("toy.py"), TOY.encode()).find()
    return next(mutant for mutant in found if (mutant.before, mutant.after) == (before, after))


def try_mutants(directory: Path, *attempts: Attempt) -> list[AttemptResult]:
    (directory / "toy.py").write_text(TOY)
    (directory / "test_toy.py").write_text(TOY_TESTS)
    plan = directory / "plan.json"
    plan.write_bytes(msgspec.json.encode(attempts))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "tests.mutation.fork_runner", "-p", "no:cacheprovider"],
        cwd=directory,
        env={**os.environ, PLAN_VARIABLE: str(plan), "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert (directory / "toy.py").read_text() == TOY
    lines = plan.with_suffix(".results").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=AttemptResult) for line in lines]


def name_tests(*names: str) -> dict[str, float]:
    return {f"test_toy.py::test_{name}": 0.1 for name in names}


def test_a_mutant_is_killed_by_the_test_that_fails_because_of_it(tmp_path: Path) -> None:
    product, comparison = find_mutant("number * 2", "(number + 2)"), find_mutant("10", "11")
    found = try_mutants(
        tmp_path,
        Attempt(product, name_tests("big", "double")),
        Attempt(product, name_tests("double_in_another_program")),
        Attempt(comparison, name_tests("double", "big")),
        Attempt(product, name_tests("broken", "double")),
        Attempt(product, name_tests("broken")),
    )
    assert [(each.outcome, each.test.partition("::test_")[2]) for each in found] == [
        ("killed", "double"),
        ("killed", "double_in_another_program"),
        ("survived", ""),
        ("killed", "double"),
        ("untested", ""),
    ]


def test_a_function_that_is_called_during_the_import_needs_a_new_interpreter(tmp_path: Path) -> None:
    (found,) = try_mutants(tmp_path, Attempt(find_mutant("[1, 2]", "None"), name_tests("table")))
    assert found.outcome == "fresh"


def test_a_later_recording_replaces_what_is_known_of_its_tests() -> None:
    records = CallRecords({"calls": {"f": ["a", "b"], "g": ["a"]}, "seconds": {"a": 1, "b": 2}})
    records.add(CallRecords({"calls": {"g": ["b"], "h": ["c"]}, "seconds": {"b": 3, "c": 4}}))
    assert records.calls == {"f": ["a"], "g": ["a", "b"], "h": ["c"]}
    assert records.seconds == {"a": 1, "b": 3, "c": 4}


def test_the_report_lists_survivors_with_their_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(results, "REASONS", tmp_path / "reasons.toml")
    (tmp_path / "reasons.toml").write_text('"a.py f: 1 -> 2" = "Only a default."\n')
    outcomes = {
        "a.py:5:3 f: 1 -> 2": "survived",
        "a.py:9:1 g: x -> y": "untested",
        "a.py:10:1 h: x -> y": "timeout",
    }
    results.save_result(RoomResult("leases", 7, outcomes, 40, 1_234))
    write_report(tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| leases | 7 | 1 of 3 | 33% | 1 | 1,234 | 40 |" in text
    assert "- `a.py:5:3 f: 1 -> 2`: Only a default." in text
    assert "- `a.py:9:1 g: x -> y`: No recorded test calls the function." in text
    assert "h: x -> y" not in text


def test_a_page_keeps_the_rooms_that_were_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "mutants.md"
    monkeypatch.setattr(results, "RESULTS", tmp_path / "here.json")
    results.save_result(RoomResult("budget", 7, {"a.py:1:2 f: 1 -> 2": "survived", "b": "killed"}, 20, 1_234))
    results.save_result(RoomResult("hooks", 8, {"c": "killed"}, 10, 99))
    write_report(page)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "elsewhere.json")
    results.save_result(RoomResult("hooks", 9, {"d.py:3:4 g: True -> None": "survived"}, 10, 100))
    write_report(page)
    text = page.read_text()
    assert (
        "| budget | 7 | 1 of 2 | 50% | 0 | 1,234 | 20 |\n| hooks | 9 | 0 of 1 | 0% | 0 | 100 | 10 |" in text
    )
    assert text.endswith(
        "### Budget\n\n- `a.py:1:2 f: 1 -> 2`: No test notices it yet.\n\n"
        "### Hooks\n\n- `d.py:3:4 g: True -> None`: No test notices it yet.\n"
    )
