"""Writes the bytecode files of test modules before the workers of a parallel run start.

pytest rewrites the assertions of a module when it first imports it. For all test modules that takes twice as
long as the rest of the collection, and the workers import the same modules at the same time, so that each of
them would do it.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

HEADER_BYTES = 16
"""Magic number, flags and the hash of the source."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", default=None):
        write_bytecode_files(config, list_test_modules(config))


def list_test_modules(config: pytest.Config) -> list[Path]:
    modules: set[Path] = set()
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        modules.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return sorted(modules)


def write_bytecode_files(config: pytest.Config, modules: list[Path]) -> None:
    """Rewrite the modules whose bytecode file is missing or old, in one process for each core."""
    old = [path for path in modules if path.is_file() and not _has_bytecode_file(path)]
    count = min(os.cpu_count() or 1, len(old))
    children = []
    for number in range(count):
        if (pid := os.fork()) == 0:
            try:
                for path in old[number::count]:
                    _write_bytecode_file(config, path)
            finally:
                os._exit(0)  # what could not be written is rewritten by each worker
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def get_bytecode_path(module: Path) -> Path:
    return rewrite.get_cache_dir(module) / f"{module.stem}{rewrite.PYC_TAIL}"


def _has_bytecode_file(module: Path) -> bool:
    try:
        with get_bytecode_path(module).open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError:
        return False
    return header[8:] == importlib.util.source_hash(module.read_bytes())


def _write_bytecode_file(config: pytest.Config, module: Path) -> None:
    target = get_bytecode_path(module)
    if rewrite.try_makedirs(target.parent):
        source_hash, code = rewrite._rewrite_test(module, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, target)
