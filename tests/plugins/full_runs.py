"""Runs of all tests, of both tiers: only these count as a result of the whole suite."""

from __future__ import annotations

import pytest

import tier_marks


class FullRunRecorder:
    """Base of plugins that write a file at the end of a full run, and leave it alone after any other."""

    def __init__(self) -> None:
        self._is_partial = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_partial |= report.failed

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._is_partial |= bool(items)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and not self._is_partial and is_full_run(session.config):
            self.write_results()
        else:
            self.keep_results()

    def write_results(self) -> None:
        raise NotImplementedError

    def keep_results(self) -> None:
        """Leave the file alone; a run that left out tests or was interrupted ends with this."""


def is_full_run(config: pytest.Config) -> bool:
    """Return True if this run covers all tests: both tiers, default paths, no selection."""
    if not tier_marks.is_full_tier():
        return False
    # Under xdist the controller sees no deselected items, so the options are checked too.
    selecting = ("keyword", "markexpr", "lf", "stepwise", "deselect", "maxfail", "collectonly")
    if any(config.getoption(name, default=None) for name in selecting):
        return False
    return tier_marks.has_usual_paths(config)
