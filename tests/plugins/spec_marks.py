"""The `spec` mark: records which rules of docs/spec.md passing tests show, at the end of a full run."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from full_runs import FullRunRecorder
from spec_table import REPORT, RULES, read_rules

PROPERTY = "spec"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report a mark with an unknown id as a collection error, under xdist too."""
    report = yield
    known = collector.config.stash[_rules_key]
    wrong = []
    for item in report.result or []:
        if isinstance(item, pytest.Item):
            ids = list(_list_marked_ids(item))
            item.user_properties += [(PROPERTY, rule) for rule in ids]
            unknown = [rule for rule in ids if rule not in known]
            wrong += [f"{item.nodeid}: there is no rule {rule!r} in docs/{RULES.name}" for rule in unknown]
    if wrong:
        report.outcome = "failed"
        report.longrepr = "\n".join(wrong)
        report.result = []
    return report


def _list_marked_ids(item: pytest.Item) -> Iterator[str]:
    seen = {str(rule) for mark in item.iter_markers("spec") for rule in mark.args or ["(none given)"]}
    yield from sorted(seen)


class SpecRecorder(FullRunRecorder):
    """Collects reports where they all arrive: in the only process, or in xdist's controller."""

    def __init__(self, target: Path) -> None:
        super().__init__()
        self.target = target
        self.passed: dict[str, list[str]] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.passed[report.nodeid] = [
                str(value) for name, value in report.user_properties if name == PROPERTY
            ]

    def write_results(self) -> None:
        try:
            self.target.write_text(json.dumps(self.build_report(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            sys.stderr.write(f"`make spec` cannot show this run: {error}\n")

    def build_report(self) -> dict[str, object]:
        # A test whose clean-up failed after it passed shows nothing.
        good = {name: ids for name, ids in self.passed.items() if name not in self.failed}
        rules: dict[str, list[str]] = {}
        for name in sorted(good):
            for rule in good[name]:
                rules.setdefault(rule, []).append(name)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return {
            "when": when,
            "passed": len(good),
            "failed": len(self.failed),
            "rules": dict(sorted(rules.items())),
        }


_rules_key = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_rules_key] = read_rules(config.rootpath / "docs" / RULES.name)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SpecRecorder(config.rootpath / REPORT.name), "spec-recorder")
