"""Shared fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# `make check` must give the same result for the same sources: examples come from the test, not from chance,
# and a failure is reported at once. The profile `explore` looks for new ones; `long` for many, in tests/fuzz.
settings.register_profile(
    "steady", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
settings.register_profile("explore", deadline=None)
settings.register_profile("long", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Tests start thousands of programs. Without bytecode files each of them compiles the sources again, which
# doubles the processor time of the whole run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The tiers first: the other marks import them.
pytest_plugins = [
    "tier_marks",
    "example_counts",
    "needs_marks",
    "spec_marks",
    "proof_report",
    "default_encodings",
    "run_directory",
    "rewritten_tests",
    "program_forks",
    "shuffled_order",
    "tmux_server",
    "postgres_server",
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In a background run: the programs that tests start would not receive Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SRC = Path(__file__).parents[1] / "src"


# As in `shoal` itself: with Python's thresholds, looking for garbage takes a fifth of the time of tests.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules with the mark `one_worker` first: the first worker starts with them.

    Workers that have nothing left take tests from the end of what another one has to do.
    """
    items.sort(key=lambda item: item.get_closest_marker("one_worker") is None)


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: all of them stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the collected tests out of later garbage collections: they take 300 MB and live until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


_directory_numbers = count()


def _make_directory(factory: pytest.TempPathFactory, name: str) -> Path:
    """Make a directory with a new number. pytest reads the names of all directories to find one.

    With the thousands of directories of a worker, that was a quarter of the fixed cost of a test.
    """
    directory = factory.getbasetemp() / f"{name}{next(_directory_numbers)}"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for one test, like the fixture of pytest."""
    return _make_directory(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test its own home, without the user's keys and the flags of the make that runs it."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "CLAUDE", "SHOAL_", "OLLAMA_", "MAKE", "MFLAGS")):
            monkeypatch.delenv(name)
    # Tests skip permissions in throw-away directories, and may run as root.
    monkeypatch.setenv("IS_SANDBOX", "1")
    monkeypatch.setenv("SHOAL_HOME", str(_make_directory(tmp_path_factory, "home")))
    # The start-up files of the user's shell may do anything, and a test may end while they run.
    monkeypatch.setenv("HOME", str(_make_directory(tmp_path_factory, "person")))
    # Child processes find the same sources as the tests do, and what a plugin wants them to load.
    more = os.environ.get("TESTS_PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SRC), *([more] if more else [])]))
