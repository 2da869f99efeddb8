"""A fixed clock, a home, and a factory of transcript writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_helpers import FixedClock, TranscriptWriter

# A failed contract rule then shows the values it compared.
pytest.register_assert_rewrite("shoal.testing.contracts")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def writer(tmp_path: Path) -> Callable[..., TranscriptWriter]:
    def create_writer(**how: Any) -> TranscriptWriter:
        return TranscriptWriter(tmp_path / "home", **how)

    return create_writer


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
