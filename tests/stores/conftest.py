"""A clock with a fixed time, and a writer of transcripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import StandingClock, Writer

# So that a failed contract rule shows the values it compared.
pytest.register_assert_rewrite("shoal.testing.contracts")


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def writer(tmp_path: Path) -> Callable[..., Writer]:
    def make(**how: Any) -> Writer:
        return Writer(tmp_path / "home", **how)

    return make


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
