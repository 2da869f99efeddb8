"""The option `--proof FILE`: writes which tests show the rules about users (USR), and what they measured.

A test records what it measured with `record_property("measured", text)`.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spec_table import RULES, read_rules

PREFIX = "USR-"
MOST_TESTS = 6
"""Of tests without a figure, so many are named for each rule."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof", metavar="FILE", help="write which tests show the USR rules, and their figures"
    )


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--proof")
    if target and not hasattr(config, "workerinput"):
        rules = read_rules(config.rootpath / "docs" / RULES.name)
        config.pluginmanager.register(ProofReport(config.rootpath / target, rules), "proof-report")


class ProofReport:
    """Collects reports where they all arrive: in the only process, or in xdist's controller."""

    def __init__(self, target: Path, rules: dict[str, str]) -> None:
        self.target = target
        self.rules = {rule: text for rule, text in rules.items() if rule.startswith(PREFIX)}
        self.reports: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A failed set-up or clean-up counts, a passed one does not replace the result of the call.
        if report.when == "call" or not report.passed:
            self.reports[report.nodeid] = report

    def pytest_sessionfinish(self) -> None:
        self.target.write_text("\n".join(self.render_lines()) + "\n", encoding="utf-8")

    def render_lines(self) -> list[str]:
        lines = [
            "# What the tests of both tiers show",
            "",
            "`make test-all` writes this page. For each rule about users in [the specification](spec.md),",
            "it has the tests that show the rule, their results, and what they measured.",
            "",
            f"- When: {datetime.now(UTC).date().isoformat()}",
            f"- Machine: {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
            f"- Tests with a result: {len(self.reports):,}; failed: {self._count('failed')}; "
            f"skipped: {self._count('skipped')}",
        ]
        for rule, text in self.rules.items():
            lines += ["", f"## {rule}", "", text, "", *self._render_rule(rule)]
        return lines

    def _count(self, outcome: str) -> int:
        return sum(report.outcome == outcome for report in self.reports.values())

    def _render_rule(self, rule: str) -> list[str]:
        reports = sorted(
            (each for each in self.reports.values() if ("spec", rule) in each.user_properties),
            key=lambda each: each.nodeid,
        )
        if not reports:
            return ["No test with this rule has a result."]
        measured = [each for each in reports if _get_measurement(each)]
        others = [each for each in reports if each not in measured]
        failed = [each for each in others if each.failed]
        passed = [each for each in others if each.passed]
        lines = []
        if measured:
            lines += ["| Test | Result | Measured | Seconds |", "|---|---|---|---|"]
            lines += [
                f"| `{each.nodeid}` | {each.outcome} | {_get_measurement(each)} | {each.duration:.0f} |"
                for each in measured
            ]
            lines.append("")
        lines += [f"- **failed**: `{each.nodeid}`" for each in failed]
        lines.append(f"- {len(passed)} {'more ' * bool(measured)}tests passed, for example:")
        lines += [f"  - `{each.nodeid}`" for each in passed[:MOST_TESTS]]
        return lines if passed else lines[:-1]


def _get_measurement(report: pytest.TestReport) -> str:
    return "; ".join(str(value) for name, value in report.user_properties if name == "measured")
