"""The option --shuffle SEED: modules in random order, and the tests of each module too.

A test that passes only after another one depends on what that one left. The same seed gives the same order,
in every worker process.
"""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run modules and their tests in a random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    names = list(modules)
    chance.shuffle(names)
    for name in names:
        chance.shuffle(modules[name])
    items[:] = [item for name in names for item in modules[name]]
