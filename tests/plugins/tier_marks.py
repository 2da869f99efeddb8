"""The marks `slow`, `sampled` and `exhaustive`: tests that `make test` leaves to other targets.

CI also runs `make test-slow`: the slow tests, all variations of the sampled ones, and all examples of
property tests.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "TEST_ALL"
SLOW_VARIABLE = "TEST_SLOW"
VARIABLES = (VARIABLE, SLOW_VARIABLE)
EXHAUSTIVE_SECONDS = 1200
SKIP_REASON = "only `make test-all` runs these"
SLOW_REASON = "only `make test-slow` and `make test-all` run these"


def is_full_tier() -> bool:
    return bool(os.environ.get(VARIABLE))


def is_slow_tier() -> bool:
    return bool(os.environ.get(SLOW_VARIABLE))


def has_usual_paths(config: pytest.Config) -> bool:
    """Return True unless paths or names of tests were given."""
    usual = {(config.rootpath / path).resolve() for path in config.getini("testpaths")}
    return {(config.invocation_params.dir / arg).resolve() for arg in config.args} == usual


def is_quick_run(config: pytest.Config) -> bool:
    """Return True for `make test` without chosen paths or names."""
    return (
        has_usual_paths(config)
        and not config.getoption("keyword")
        and not is_slow_tier()
        and not is_full_tier()
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_slow_tier():
        for item in _list_items_beyond_sample(items):
            item.add_marker(pytest.mark.exhaustive)
    if is_quick_run(config):
        for item in items:
            if item.get_closest_marker("slow") is not None:
                item.add_marker(pytest.mark.skip(reason=SLOW_REASON))
    for item in items:
        if item.get_closest_marker("exhaustive") is None:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(EXHAUSTIVE_SECONDS))
        if not is_full_tier():
            item.add_marker(pytest.mark.skip(reason=SKIP_REASON))


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for `-n auto`: most tests wait for other processes half of their time."""
    return 2 * count_processors()


# First, because the time limit of a test begins in this hook, too.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run as many long tests at once as there are processors, however many workers there are."""
    is_long = is_full_tier() and item.get_closest_marker("exhaustive") is not None
    if not is_long or not hasattr(item.config, "workerinput"):
        return (yield)
    with _hold_processor(Path(item.config.option.basetemp).parent):
        return (yield)


@contextmanager
def _hold_processor(directory: Path) -> Iterator[None]:
    """Lock one of as many files as there are processors; if all are locked, wait for the last one."""
    for number in range(count_processors()):
        fd = os.open(directory / f"processor-{number}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            is_last = number == count_processors() - 1
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if is_last else fcntl.LOCK_NB))
            except BlockingIOError:
                continue
            yield
            return
        finally:
            os.close(fd)


def count_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _list_items_beyond_sample(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the variations that the `sampled` mark of their test leaves to `make test-all`.

    The others are evenly spaced. A variation that is chosen by its name alone is always run.
    """
    variations: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            variations.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in variations.values():
        mark = group[0].get_closest_marker("sampled")
        assert mark is not None
        (count,) = mark.args
        kept = {number * (len(group) - 1) // max(count - 1, 1) for number in range(count)}
        yield from (item for number, item in enumerate(group) if number not in kept)
