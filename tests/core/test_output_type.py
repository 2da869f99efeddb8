"""Types of answers and tool parameters."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from shoal.core.output_type import OutputType, uses_pydantic


def test_a_type_is_described_while_another_thread_imports_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", ModuleType("pydantic"))
    for partial in (None, ModuleType("pydantic.fields")):
        if partial is None:
            monkeypatch.delitem(sys.modules, "pydantic.fields", raising=False)
        else:
            monkeypatch.setitem(sys.modules, "pydantic.fields", partial)
        assert not uses_pydantic(list[int])
        assert OutputType(list[int]).schema == {"type": "array", "items": {"type": "integer"}}
