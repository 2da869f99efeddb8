"""Lets property tests try fewer examples in `make test`; in `make test-slow`, or if chosen, they try all."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

import tier_marks

QUICK_EXAMPLES = 30


def pytest_configure(config: pytest.Config) -> None:
    # Test modules read the number when they are imported.
    if tier_marks.is_quick_run(config) and "HYPOTHESIS_PROFILE" not in os.environ:
        settings.register_profile("quick", settings(), max_examples=QUICK_EXAMPLES)
        settings.load_profile("quick")
