"""The option `--proof FILE`: writes which tests show the rules about users (USR), and what they measured.

Only a run of all tests writes the page. A test records what it measured with
`record_property("measured", text)`.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from full_runs import FullRunRecorder
from needs_marks import get_skip_reason
from spec_table import RULES, read_rules

PREFIX = "USR-"
MOST_TESTS = 6
"""Of tests without a figure, so many are named for each rule."""
NOT_RUN = "not run yet"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof",
        metavar="FILE",
        help="after a run of all tests, write which of them show the USR rules, and their figures",
    )


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--proof")
    if target and not hasattr(config, "workerinput"):
        rules = read_rules(config.rootpath / "docs" / RULES.name)
        config.pluginmanager.register(ProofReport(config.rootpath / target, rules), "proof-report")


class ProofReport(FullRunRecorder):
    """Collects reports where they all arrive: in the only process, or in xdist's controller."""

    def __init__(self, target: Path, rules: dict[str, str]) -> None:
        super().__init__()
        self.target = target
        self.rules = {rule: text for rule, text in rules.items() if rule.startswith(PREFIX)}
        self.reports: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A failed set-up or clean-up counts, a passed one does not replace the result of the call.
        if report.when == "call" or not report.passed:
            self.reports[report.nodeid] = report

    def write_results(self) -> None:
        self.target.write_text("\n".join(self.render_lines()) + "\n", encoding="utf-8")

    def keep_results(self) -> None:
        sys.stderr.write(f"{self.target} is unchanged: only a run of all tests to the end writes it.\n")

    def render_lines(self) -> list[str]:
        lines = [
            "# What the tests of both tiers show",
            "",
            "A full run of `make test-all` writes this page. For each rule about users in",
            "[the specification](spec.md), it has the tests that show the rule, their results, and what they",
            "measured.",
            "",
            *self._render_run(),
        ]
        for rule, text in self.rules.items():
            lines += ["", f"## {rule}", "", text, "", *self._render_rule(rule)]
        return lines

    def _render_run(self) -> list[str]:
        if not self.reports:
            return [f"- When: {NOT_RUN}"]
        return [
            f"- When: {datetime.now(UTC).date().isoformat()}",
            f"- Machine: {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
            f"- Tests with a result: {len(self.reports):,}; failed: {self._count('failed')}; "
            f"skipped: {self._count('skipped')}",
            f"- Rules with a failed test: {self._list_rules_with('failed')}",
            f"- Rules with a skipped test: {self._list_rules_with('skipped')}",
            f"- Rules without a passed test: {self._list_rules_without_passed()}",
        ]

    def _count(self, outcome: str) -> int:
        return sum(report.outcome == outcome for report in self.reports.values())

    def _list_rules_with(self, outcome: str) -> str:
        return _join_names(
            rule for rule in self.rules if any(each.outcome == outcome for each in self._list_reports(rule))
        )

    def _list_rules_without_passed(self) -> str:
        return _join_names(
            rule for rule in self.rules if not any(each.passed for each in self._list_reports(rule))
        )

    def _list_reports(self, rule: str) -> list[pytest.TestReport]:
        return sorted(
            (each for each in self.reports.values() if ("spec", rule) in each.user_properties),
            key=lambda each: each.nodeid,
        )

    def _render_rule(self, rule: str) -> list[str]:
        if not self.reports:
            return [f"{NOT_RUN.capitalize()}."]
        reports = self._list_reports(rule)
        if not reports:
            return ["No test with this rule has a result."]
        measured = [each for each in reports if _get_measurement(each)]
        others = [each for each in reports if each not in measured]
        passed = [each for each in others if each.passed]
        lines = []
        if measured:
            lines += ["| Test | Result | Measured | Seconds |", "|---|---|---|---|"]
            lines += [
                f"| `{each.nodeid}` | {each.outcome} | {_get_measurement(each)} | {each.duration:.0f} |"
                for each in measured
            ]
            lines.append("")
        lines += [f"- **failed**: `{each.nodeid}`" for each in others if each.failed]
        lines += [
            f"- **skipped**: `{each.nodeid}`: {get_skip_reason(each)}" for each in others if each.skipped
        ]
        if passed:
            lines.append(f"- {len(passed)} {'more ' * bool(measured)}tests passed, for example:")
            lines += [f"  - `{each.nodeid}`" for each in passed[:MOST_TESTS]]
        return lines


def _join_names(rules: Iterable[str]) -> str:
    return ", ".join(rules) or "none"


def _get_measurement(report: pytest.TestReport) -> str:
    return "; ".join(str(value) for name, value in report.user_properties if name == "measured")
