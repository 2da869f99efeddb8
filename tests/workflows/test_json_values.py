"""JSON values of workflow steps."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from shoal.app.workflows.json_values import to_json_value
from shoal.core.errors import WorkflowError


class Unknown:
    """A type that JSON does not have."""


def test_a_value_is_refused_while_another_thread_imports_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", ModuleType("pydantic"))
    with pytest.raises(WorkflowError, match="Unknown is not a JSON type"):
        to_json_value(Unknown(), "The returned value")
