"""The `exhaustive` mark: the test runs only in `make test-all`, and has more time."""

from __future__ import annotations

import os

import pytest

VARIABLE = "TEST_ALL"
EXHAUSTIVE_SECONDS = 1200
SKIP_REASON = "only `make test-all` runs these"


def is_full_tier() -> bool:
    return bool(os.environ.get(VARIABLE))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("exhaustive") is None:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(EXHAUSTIVE_SECONDS))
        if not is_full_tier():
            item.add_marker(pytest.mark.skip(reason=SKIP_REASON))
