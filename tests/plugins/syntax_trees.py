"""Syntax trees of modules, parsed once for all tests of a test module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest


@cache
def parse_module(path: Path) -> ast.Module:
    """Parse a module. Callers must not change the tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def forget_syntax_trees() -> Iterator[None]:
    """Free the trees after the last test of the module: those of the whole package take 150 MB."""
    yield
    parse_module.cache_clear()
