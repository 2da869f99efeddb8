"""JSON values of workflow steps."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

import shoal
from shoal.app.workflows.json_values import to_json_value
from shoal.core.errors import RunFailed, WorkflowError


class Unknown:
    """A type that JSON does not have."""


def test_a_value_is_refused_while_another_thread_imports_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", ModuleType("pydantic"))
    with pytest.raises(WorkflowError, match="Unknown is not a JSON type"):
        to_json_value(Unknown(), "The returned value")


class Color(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Ship:
    name: str
    crew: dict[int, str] = field(default_factory=dict)
    more: Any = None


class Cargo(msgspec.Struct):
    tons: float
    when: datetime


class Port(BaseModel):
    name: str
    ships: tuple[Ship, ...] = ()
    more: Any = None


WHEN = datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))
KEPT: list[tuple[Any, Any]] = [
    ({"a": [1, 2.5, None, True, "é"], "b": {}}, Any),
    ({1: "a", 2: "b"}, dict[int, str]),
    ((1, "a"), tuple[int, str]),
    (("a", "b"), tuple[str, ...]),
    (Point(1, 2), Point),
    (b"\x00\xff", bytes),
    (WHEN, datetime),
    (date(2026, 3, 1), date),
    (Decimal("1.50"), Decimal),
    (Color.RED, Color),
    (Path("a/b"), Path),
    (2**70, int),
    (1, float),
    (Ship("ana", {1: "cook"}), Ship),
    ([Ship("ana"), Ship("bea", {2: "mate"})], list[Ship]),
    (Cargo(tons=2, when=WHEN), Cargo),
    (Port(name="k", ships=(Ship("ana"),)), Port),
    (None, str | None),
]
REFUSED: list[tuple[Any, Any, str]] = [
    ({1: "a"}, Any, r"would be different after a resume: \{1: 'a'\} is read back as \{'1': 'a'\}. Annotate"),
    ({1: "a", "1": "b"}, dict, "different after a resume"),
    ({"a": {None: 1}}, Any, "different after a resume|cannot be stored"),
    ({(1, 2): "a"}, Any, "cannot be stored as JSON|different after a resume"),
    ((1, 2), Any, r"\(1, 2\) is read back as \[1, 2\]"),
    (("a", "b"), list[str], "different after a resume"),
    (Point(1, 2), Any, "different after a resume"),
    ({"a", "b"}, set[str], "a set may have a different order after a resume, so pass a sorted list"),
    ({"a"}, Any, "different after a resume"),
    (Ship("ana", more={1}), Ship, "different after a resume"),
    (frozenset({1}), frozenset[int], "a set may have a different order"),
    (b"ab", Any, "b'ab' is read back as 'YWI='"),
    (float("nan"), float, "cannot be stored as JSON"),
    ([float("inf")], Any, "cannot be stored as JSON"),
    (WHEN, Any, "is read back as '2026-03-01T12:30:00"),
    (Color.RED, Any, "different after a resume"),
    (Ship("ana"), Any, "different after a resume"),
    (Ship("ana", more=(1,)), Ship, "different after a resume"),
    (Ship("ana", more={1: 2}), Ship, "different after a resume"),
    (Port(name="k"), Any, "different after a resume"),
    (Port(name="k", more=(1,)), Port, "different after a resume"),
    (OrderedDict(a=1), Any, "different after a resume"),
    (Unknown(), Any, "Unknown is not a JSON type"),
    ("\ud800", str, "cannot be stored as JSON"),
]
sailor = shoal.Agent("sailor", prompt="You sail.", tools=[])


def make_workflow(kind: Any, seen: list[Any]) -> Any:
    async def keep(flow: shoal.Workflow, value: Any) -> str:
        seen.append(value)
        return await flow.agent(sailor, "sail")

    keep.__annotations__["value"] = kind
    return shoal.workflow(keep)


@pytest.mark.spec("WFL-02")
@pytest.mark.parametrize(("value", "kind"), KEPT, ids=map(str, range(len(KEPT))))
async def test_an_argument_is_the_same_after_a_resume(tmp_path: Path, value: Any, kind: Any) -> None:
    seen: list[Any] = []
    workflow = make_workflow(kind, seen)
    model = shoal.ScriptedModel([shoal.errors.BadRequest("no")])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        with pytest.raises(RunFailed):
            await workflow.run(session, value)
        name = session.id
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"]), resume=name) as session:
        assert await workflow.resume(session) == "ok"
    first, second = seen
    assert first == second == value
    assert type(first) is type(second)
    assert repr(first) == repr(second)


@pytest.mark.spec("WFL-02")
@pytest.mark.parametrize(
    ("value", "kind", "problem"), REFUSED, ids=[f"{index}" for index in range(len(REFUSED))]
)
async def test_an_argument_that_would_differ_after_a_resume_is_refused(
    tmp_path: Path, value: Any, kind: Any, problem: str
) -> None:
    seen: list[Any] = []
    workflow = make_workflow(kind, seen)
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        with pytest.raises(WorkflowError, match=problem) as caught:
            await workflow.run(session, value)
    assert "The argument 'value' of keep" in str(caught.value)
    assert seen == []
