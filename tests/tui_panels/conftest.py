"""A fixed time zone and directory for every screen snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_view_scenario import EndedRunController


@pytest.fixture(autouse=True)
def _use_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def controller(tmp_path: Path) -> EndedRunController:
    return EndedRunController(tmp_path)


@pytest.fixture
def snapshots() -> Path:
    return Path(__file__).parent / "snapshots"
