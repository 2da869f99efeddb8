"""The marks of our tests: `spec` and its table, `needs` and what it names at the end, `exhaustive`."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

import proof_report
import spec_table
from tier_marks import count_processors

ROOT = Path(__file__).parents[1]
INI = """
[pytest]
testpaths = tests
pythonpath = {root}/scripts {root}/tests/plugins
addopts = --strict-markers -p no:cacheprovider -p xdist
markers =
    spec(*ids): rules
    needs(*names): programs
    exhaustive: takes long
    sampled(count): variations
    slow: takes seconds
    timeout(seconds): limit
"""

WORKERS = ["0", pytest.param("2", marks=pytest.mark.slow)]


class Suite:
    """A small project with tests of its own, run by a pytest of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tests").mkdir()
        (root / "docs").mkdir()
        (root / "pytest.ini").write_text(INI.format(root=ROOT))
        (root / "tests" / "conftest.py").write_text(
            'pytest_plugins = ["tier_marks", "needs_marks", "spec_marks", "proof_report"]\n'
        )
        (root / "docs" / "spec.md").write_text(
            "| id | rule |\n|---|---|\n| BOX-01 | Mail stays. |\n| BOX-02 | Mail is fast. |\n"
        )

    def run(
        self, tests: str, *arguments: str, full: bool = True, slow: bool = False
    ) -> subprocess.CompletedProcess[str]:
        (self.root / "tests" / "test_it.py").write_text("import pytest\n" + dedent(tests))
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=self.root,
            # Only what is tested here is loaded: these runs start fast.
            env=os.environ
            | {
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "TEST_ALL": "1" if full else "",
                "TEST_SLOW": "1" if slow else "",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def report_file(self) -> Path:
        return self.root / ".spec-report.json"

    @property
    def shown(self) -> dict[str, list[str]]:
        return json.loads(self.report_file.read_text())["rules"]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


ONE_OF_EACH = """
    @pytest.fixture
    def breaks_after():
        yield
        raise OSError
    @pytest.mark.spec("BOX-01")
    def test_good(): pass
    @pytest.mark.spec("BOX-02")
    def test_bad(): assert False
    @pytest.mark.spec("BOX-02")
    def test_skipped(): pytest.skip("not here")
    @pytest.mark.spec("BOX-02")
    def test_breaks_late(breaks_after): pass
    @pytest.mark.spec("BOX-02")
    @pytest.mark.xfail
    def test_passes_against_expectation(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_only_passed_tests_prove_a_rule(suite: Suite, workers: str):
    ran = suite.run(ONE_OF_EACH, "-n", workers)
    assert suite.shown == {"BOX-01": ["tests/test_it.py::test_good"]}, ran.stdout


@pytest.mark.parametrize("workers", WORKERS)
def test_an_unknown_rule_fails_the_run_and_is_named(suite: Suite, workers: str):
    ran = suite.run('@pytest.mark.spec("BOX-99")\ndef test_it(): pass', "-n", workers)
    assert ran.returncode != 0
    assert "tests/test_it.py::test_it: there is no rule 'BOX-99' in docs/spec.md" in ran.stdout
    assert not suite.report_file.exists()


@pytest.mark.parametrize(
    "selection", [["-k", "good"], ["tests/test_it.py"], ["tests/test_it.py::test_good"], ["-x"]]
)
def test_a_partial_test_run_does_not_change_the_report(suite: Suite, selection: list[str]):
    suite.report_file.write_text("untouched")
    suite.run(ONE_OF_EACH, *selection)
    assert suite.report_file.read_text() == "untouched"


def test_a_tree_that_cannot_be_written_does_not_end_a_run(suite: Suite):
    """Files and directories in the place of the caches and of the report stand for a read-only tree."""
    for name in (".hypothesis", ".pytest_cache"):
        (suite.root / name).touch()
    suite.report_file.mkdir()
    filters = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    lines = "".join(f"    {each}\n" for each in filters["filterwarnings"])
    ini = INI.format(root=ROOT).replace(" -p no:cacheprovider", " -p _hypothesis_pytestplugin")
    (suite.root / "pytest.ini").write_text(f"{ini}filterwarnings =\n{lines}")
    ran = suite.run("def test_good(): pass\ndef test_bad(): assert False", "-v")
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "INTERNALERROR" not in ran.stdout + ran.stderr
    assert "`make spec` cannot show this run" in ran.stderr


@pytest.mark.parametrize("workers", WORKERS)
def test_a_test_without_its_program_is_skipped_and_named_with_the_reason(suite: Suite, workers: str):
    tests = """
        @pytest.mark.needs("no-such-program")
        def test_a(): assert False
        @pytest.mark.needs("python3", "json")
        def test_b(): pass
    """
    ran = suite.run(tests, "-n", workers)
    assert ran.returncode == 0, ran.stdout
    closing = ran.stdout.partition("not run, and why")[2]
    assert "there is no program and no Python module no-such-program" in closing
    assert "tests/test_it.py::test_a" in closing
    assert "1 passed, 1 skipped" in closing


def test_a_test_of_the_sandbox_of_linux_is_skipped_elsewhere(suite: Suite):
    ran = suite.run("""
        import sys
        sys.platform = "posix"
        @pytest.mark.needs("bwrap")
        def test_a(): assert False
    """)
    assert ran.returncode == 0, ran.stdout
    assert "Shoal uses bwrap only on Linux" in ran.stdout.partition("not run, and why")[2]


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_a_long_test_runs_only_in_a_full_run_which_alone_changes_the_report(suite: Suite, workers: str):
    tests = """
        @pytest.mark.spec("BOX-01")
        def test_short(): pass
        @pytest.mark.spec("BOX-02")
        @pytest.mark.exhaustive
        def test_long(): pass
        @pytest.mark.parametrize("size", [1, pytest.param(1000, marks=pytest.mark.exhaustive)])
        def test_at_both_sizes(size): pass
    """
    ran = suite.run(tests, "-n", workers, full=False)
    assert "2 passed, 2 skipped" in ran.stdout
    assert "only `make test-all` runs these: 2 tests" in ran.stdout
    assert not suite.report_file.exists()
    ran = suite.run(tests, "-n", workers)
    assert "4 passed" in ran.stdout
    assert list(suite.shown) == ["BOX-01", "BOX-02"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_a_sampled_test_runs_few_variations_except_in_a_full_run(suite: Suite, workers: str):
    tests = """
        @pytest.mark.sampled(3)
        @pytest.mark.parametrize("size", range(9))
        def test_sizes(size): pass
    """
    ran = suite.run(tests, "-n", workers, "-v", full=False)
    assert "3 passed, 6 skipped" in ran.stdout
    run_lines = [line for line in ran.stdout.splitlines() if "PASSED" in line]
    assert sorted(int(re.search(r"test_sizes\[(\d)\]", line)[1]) for line in run_lines) == [0, 4, 8]
    assert "9 passed" in suite.run(tests, "-n", workers).stdout
    chosen = suite.run(tests, "-n", workers, "tests/test_it.py::test_sizes[1]", full=False)
    assert "1 passed" in chosen.stdout


@pytest.mark.parametrize("workers", WORKERS)
def test_a_slow_test_runs_if_it_is_chosen_and_in_a_full_run(suite: Suite, workers: str):
    tests = """
        @pytest.mark.slow
        def test_slow(): pass
        def test_fast(): pass
        @pytest.mark.sampled(1)
        @pytest.mark.parametrize("size", range(3))
        def test_sizes(size): pass
        @pytest.mark.slow
        @pytest.mark.exhaustive
        def test_large(): pass
    """
    ran = suite.run(tests, "-n", workers, full=False)
    assert "2 passed, 4 skipped" in ran.stdout
    assert "6 passed" in suite.run(tests, "-n", workers).stdout
    chosen = suite.run(tests, "-n", workers, "tests/test_it.py", full=False)
    assert "3 passed, 3 skipped" in chosen.stdout
    slow = suite.run(tests, "-n", workers, "-m", "slow or sampled", full=False, slow=True)
    assert "4 passed, 1 skipped" in slow.stdout


@pytest.mark.parametrize(
    ("arguments", "slow", "count"),
    [
        ((), False, 30),
        (("tests/test_it.py",), False, 100),
        (("-m", "slow or sampled or hypothesis"), True, 100),
    ],
)
def test_a_property_test_tries_fewer_examples_unless_it_is_chosen_or_slow_tests_run(
    suite: Suite, arguments: tuple[str, ...], slow: bool, count: int
):
    tests = f"""
        from hypothesis import given, settings, strategies

        @given(strategies.integers())
        def test_numbers(number):
            assert settings().max_examples == {count}
    """
    plugins = ("-p", "_hypothesis_pytestplugin", "-p", "example_counts")
    assert "1 passed" in suite.run(tests, *plugins, *arguments, full=False, slow=slow).stdout


@pytest.mark.parametrize(("mark", "timeout"), [("exhaustive", 1200), ("timeout(7)", 7)])
def test_a_long_test_has_more_time_unless_it_has_its_own_limit(suite: Suite, mark: str, timeout: int):
    tests = f"""
        @pytest.mark.{mark}
        @pytest.mark.exhaustive
        def test_long(request):
            assert request.node.get_closest_marker("timeout").args == ({timeout},)
    """
    assert "1 passed" in suite.run(tests).stdout


def test_the_table_lists_and_counts_the_tests_of_each_rule(suite: Suite):
    suite.run(ONE_OF_EACH)
    report = spec_table.read_report(suite.report_file)
    table = spec_table.build_rows(spec_table.read_rules(suite.root / "docs" / "spec.md"), report)
    text = spec_table.format_table(table, report, missing=False)
    assert "BOX-01   shown      test_it.py::test_good" in text
    assert "BOX-02   not shown  Mail is fast." in text
    assert "1 of 2 rules shown, 1 not shown." in text
    assert "1 passed, 2 failed" in text


def test_the_table_gives_the_reason_for_each_postponed_rule(suite: Suite):
    rules = suite.root / "docs" / "spec.md"
    later = "| BOX-03 | Mail flies. |\n\n- BOX-01: It was lost.\n- BOX-03: It has no wings.\n"
    rules.write_text(rules.read_text() + later)
    suite.run(ONE_OF_EACH)
    report = spec_table.read_report(suite.report_file)
    table = spec_table.build_rows(spec_table.read_rules(rules), report, spec_table.read_deferred(rules))
    assert [row["later"] for row in table] == [None, None, "It has no wings."], "what is shown is not left"
    for missing in (True, False):
        lines = spec_table.format_table(table, report, missing=missing).splitlines()
        at = lines.index("BOX-03   later      Mail flies.")
        assert lines[at + 1].strip() == "Why: It has no wings."
        assert "1 of 3 rules shown, 1 left for later (BOX-03), 1 not shown." in lines


def test_no_rule_is_postponed():
    assert spec_table.read_deferred() == {}


def test_the_table_reports_a_missing_test_run(tmp_path: Path):
    report = spec_table.read_report(tmp_path / "nothing")
    text = spec_table.format_table(
        spec_table.build_rows({"BOX-01": "Mail stays."}, report), report, missing=False
    )
    assert "There is no full test run yet" in text


def test_the_list_of_rules_is_complete_and_in_order():
    rules = list(spec_table.read_rules())
    sections: dict[str, list[int]] = {}
    for rule in rules:
        name, _, number = rule.partition("-")
        sections.setdefault(name, []).append(int(number))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sections.values())
    assert len(rules) == 365


@pytest.mark.parametrize("workers", WORKERS)
def test_a_proof_has_the_result_and_the_figure_of_every_test_of_a_rule(suite: Suite, workers: str) -> None:
    with (suite.root / "docs" / "spec.md").open("a") as rules:
        rules.write(
            "| USR-01 | Nothing is lost. |\n| USR-02 | Nothing is late. |\n| USR-03 | Nothing is heavy. |\n"
        )
    run = suite.run(
        """
        @pytest.mark.spec("USR-01")
        def test_large(record_property): record_property("measured", "9,000 messages")
        @pytest.mark.spec("USR-01", "BOX-01")
        def test_small(): pass
        @pytest.mark.spec("USR-01")
        def test_bad(): assert False
        @pytest.mark.spec("USR-02")
        def test_late(): pytest.skip("no clock")
        @pytest.mark.spec("USR-01")
        @pytest.mark.needs("shoal-no-such-program")
        def test_mail(): pass
        """,
        *("-n", workers, "--proof=docs/proof.md"),
    )
    assert run.returncode == 1, run.stdout + run.stderr
    page = (suite.root / "docs" / "proof.md").read_text()
    assert "| `tests/test_it.py::test_large` | passed | 9,000 messages | 0 |" in page
    assert "- **failed**: `tests/test_it.py::test_bad`" in page
    assert "- 1 more tests passed, for example:\n  - `tests/test_it.py::test_small`" in page
    assert "## USR-02\n\nNothing is late.\n\n- **skipped**: `tests/test_it.py::test_late`: no clock\n" in page
    missing = "there is no program and no Python module shoal-no-such-program"
    assert f"- **skipped**: `tests/test_it.py::test_mail`: {missing}\n" in page
    assert "## USR-03\n\nNothing is heavy.\n\nNo test with this rule has a result.\n" in page
    assert "- Rules with a failed test: USR-01\n" in page
    assert "- Rules with a skipped test: USR-01, USR-02\n" in page
    assert "- Rules without a passed test: USR-02, USR-03\n" in page
    assert "BOX-01" not in page


@pytest.mark.parametrize(
    ("arguments", "full"),
    [
        (("-k", "good"), True),
        (("tests/test_it.py",), True),
        (("-m", "not slow"), True),
        (("-x",), True),
        (("--collect-only",), True),
        ((), False),
        (("tests", "nowhere"), True),
    ],
    ids=["name", "file", "mark", "first failure", "no run", "fast tier", "wrong path"],
)
def test_a_run_of_some_tests_leaves_the_proof_of_all_tests_alone(
    suite: Suite, arguments: tuple[str, ...], full: bool
) -> None:
    proof = suite.root / "docs" / "proof.md"
    proof.write_text("the last full run\n")
    tests = "def test_good(): pass\ndef test_other(): pass\n"
    run = suite.run(tests, "--proof=docs/proof.md", *arguments, full=full)
    assert proof.read_text() == "the last full run\n"
    assert "proof.md is unchanged: only a run of all tests to the end writes it." in run.stderr
    suite.run(tests, "--proof=docs/proof.md")
    assert proof.read_text().startswith("# What the tests of both tiers show\n")


def test_a_proof_before_the_first_run_claims_nothing(tmp_path: Path) -> None:
    rules = {"USR-01": "Nothing is lost.", "BOX-01": "Mail stays.", "USR-02": "Nothing is late."}
    page = "\n".join(proof_report.ProofReport(tmp_path / "proof.md", rules).render_lines())
    assert page.endswith(
        "- When: not run yet\n"
        "\n## USR-01\n\nNothing is lost.\n\nNot run yet."
        "\n\n## USR-02\n\nNothing is late.\n\nNot run yet."
    )


STATED_SIZE = re.compile(r"(?<![\w-])(?:\d{2,3}|\d{1,3}(?:,\d{3})+)(?! (?:%|s|minutes)(?!\w))(?![\d,%])")
"""A number of things in a rule: neither a time nor a share."""


def find_measured_rules(tests: Path) -> set[str]:
    """Return the rules that have a test which records what it measured."""
    found: set[str] = set()
    for path in tests.rglob("test_*.py"):
        if "record_property" in (text := path.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                    each.arg == "record_property" for each in node.args.args
                ):
                    marks = " ".join(map(ast.unparse, node.decorator_list))
                    found.update(re.findall(r"USR-\d+", marks))
    return found


def test_the_proof_has_a_figure_for_every_rule_that_states_a_size():
    rules = {rule: text for rule, text in spec_table.read_rules().items() if rule.startswith("USR-")}
    sized = {rule for rule, text in rules.items() if STATED_SIZE.search(text)}
    assert {"USR-01", "USR-03", "USR-04", "USR-12", "USR-15", "USR-25", "USR-29"} < sized
    assert not sized & {"USR-07", "USR-09", "USR-21", "USR-26"}
    assert sized - find_measured_rules(ROOT / "tests") == set()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_at_most_as_many_long_tests_as_processors_run_at_once(suite: Suite) -> None:
    processors = count_processors()
    tests = f"""
        import os, time
        from pathlib import Path
        running = Path({str(suite.root)!r}, "running")
        @pytest.mark.exhaustive
        @pytest.mark.parametrize("number", range({3 * processors}))
        def test_long(number):
            running.mkdir(exist_ok=True)
            (running / str(os.getpid())).touch()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                assert len(list(running.iterdir())) <= {processors}
            (running / str(os.getpid())).unlink()
    """
    ran = suite.run(tests, "-n", str(2 * processors), "--dist", "load")
    assert ran.returncode == 0, ran.stdout
    assert f"{3 * processors} passed" in ran.stdout
