"""The tags and field names of everything that Shoal writes for somebody else to read.

`pinned_formats.json` holds them as they are on disk, on sockets and in JSON output. A class can be renamed
freely; a renamed tag or field makes files and programs of today unreadable, and fails here. To accept a
deliberate change, run `FORMATS=write make test ARGS="-k pinned_formats"` and read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TypeAlias, get_args

import msgspec.inspect as inspected
import pytest
from msgspec import Struct

import shoal
from reference_pages.tools import _seen
from shoal.app.agents.brief import Brief, Opened
from shoal.app.models.trying import Trial
from shoal.app.outside.background_runs import Outcome, Standing
from shoal.app.picture.rows import (
    AgentRow,
    CostRow,
    Frame,
    LetterRow,
    NoteRow,
    QuestionRow,
    RunRow,
    SpendPoint,
    TaskRow,
)
from shoal.app.quarters.machine import Fact
from shoal.app.settings.config_view import Shown, Trusted
from shoal.app.teams.export import Person, TaskChange
from shoal.app.views.agents import Fact as AgentFact
from shoal.app.views.hooks import HookShown, HooksSeen
from shoal.app.views.models import ModelRow, ModelsView, ProviderRow
from shoal.app.views.permissions import RuleShown, View
from shoal.app.views.plugins import PluginRow
from shoal.core.agents import Completion, Evidence, Glimpse, KeptWork, Order, Ran, Reached, Resolved
from shoal.core.bodies import Granted, PermissionUpdate, Rule, _Body
from shoal.core.caps import Limits, Refusal
from shoal.core.definitions import Problem, Source
from shoal.core.errors import ModelError
from shoal.core.events import Journaled, Live
from shoal.core.mcp import ServerStanding
from shoal.core.messages import Base64Source, Block, Message, UrlSource
from shoal.core.permissions import RuleValue, Suggestion
from shoal.core.questions import Answer, Choice, Option, Question
from shoal.core.requests import Reply, Request, ToolSchema
from shoal.core.schedules import Schedule
from shoal.core.shells import ShellEnd, ShellFacts
from shoal.core.templates import Flaw, Origin
from shoal.core.usage import LongPrompt, ModelCard, Price, Spent, Usage
from shoal.core.worktrees import Owner, WorktreeRecord
from shoal.models.catalogue import CardEntry, LongEntry, _Catalogue
from shoal.models.replay import Exchange
from shoal.policy.explain import Explanation, PartExplained
from shoal.stores.files.subagents import Remembered
from shoal.surfaces.mcp.server import TOOLS, TeamTools
from shoal.surfaces.web.board import NewTask, TaskWish
from shoal.surfaces.web.live import Delta, Grown
from shoal.surfaces.web.questions import QuestionLine
from shoal.surfaces.web.runs import RunLine
from shoal.surfaces.web.steering import NewMode, Whom, Words
from shoal.surfaces.web.transcripts import Page
from shoal.team.purse_afar import Rules as BudgetRules
from shoal.testing.replies import Fault
from shoal.testing.script import ServerStep
from shoal.tools.askuser import Answerable, Asked
from shoal.tools.messages import _Structured
from shoal.tools.plan import Wish
from shoal.tools.todo import Todo
from shoal.wire import hook_output, mail, roster, settings, tasks, transcript
from shoal.wire.control import Command, Gap, Response
from shoal.wire.journal import _Stamp
from shoal.wire.outpost import Down, Up
from shoal.wire.script import ScriptedCall, Step, Voice
from shoal.wire.stream_json import Denial, Line, ModelSpent
from shoal.wire.stream_tasks import TaskUsage
from shoal.wire.trust import Said
from shoal.workspaces.checkpoint_index import Change, _Undone
from shoal.workspaces.checkpoints import ChangedFile, LeftAlone, TurnChanges, UndoReport

PINNED = Path(__file__).with_name("pinned_formats.json")
Kind: TypeAlias = type[Struct]
Table: TypeAlias = dict[str, dict[str, list[str]]]


def _literals(kind: inspected.Type) -> Iterator[str]:
    """Yield the words that a field may hold, where it is a closed set of them."""
    match kind:
        case inspected.LiteralType(values=values):
            yield from map(str, values)
        case inspected.UnionType(types=types):
            for each in types:
                yield from _literals(each)
        case inspected.CollectionType(item_type=item) | inspected.VarTupleType(item_type=item):
            yield from _literals(item)


def _values(kind: Kind, name: str) -> list[str]:
    info = inspected.type_info(kind)
    assert isinstance(info, inspected.StructType)
    return next((sorted(_literals(each.type)) for each in info.fields if each.encode_name == name), [])


def _leaves(base: Kind) -> Iterator[Kind]:
    """Yield the classes below `base` that have no class below them."""
    for kind in base.__subclasses__():
        if kind.__subclasses__():
            yield from _leaves(kind)
        else:
            yield kind


def _by_tag(kinds: Iterable[Kind]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for kind in dict.fromkeys(kinds):
        tag = str(kind.__struct_config__.tag)
        assert tag not in found, f"{kind} and {found[tag]} have the tag {tag!r}"
        found[tag] = kind
    return found


def _by_subtype(kinds: Iterable[Kind]) -> dict[str, Kind]:
    """Return lines of stream-json by type and subtype: many share the type `system`."""
    return {"/".join((str(kind.__struct_config__.tag), *_values(kind, "subtype"))): kind for kind in kinds}


FORMATS: dict[str, Mapping[str, Kind]] = {
    "journal": _by_tag(_leaves(Journaled)),
    "journal line": {"stamp": _Stamp},
    "live events": _by_tag(_leaves(Live)),
    "event parts": {
        "completion": Completion,
        "evidence": Evidence,
        "command": Ran,
        "kept work": KeptWork,
        "schedule": Schedule,
        "shell": ShellFacts,
        "shell end": ShellEnd,
        "usage": Usage,
    },
    "control": _by_tag(_leaves(Command)),
    "control answers": {"response": Response, "gap": Gap, "agent": Glimpse, "delivery": Reached},
    "member protocol, up": _by_tag(get_args(Up)),
    "member protocol, down": _by_tag(get_args(Down)),
    "member protocol, parts": {
        "bootstrap": Brief,
        "options": Opened,
        "order": Order,
        "resolved": Resolved,
        "budget": BudgetRules,
        "limits": Limits,
        "refusal": Refusal,
        "model": ModelCard,
        "price": Price,
        "price of long prompts": LongPrompt,
    },
    "questions": _by_tag(get_args(Question)),
    "answers": _by_tag(get_args(Answer)),
    "question parts": {"choice": Choice, "option": Option, "rule": RuleValue},
    "permission updates": _by_tag(get_args(Suggestion)),
    "content blocks": _by_tag(_leaves(Block)),
    "image sources": _by_tag((Base64Source, UrlSource)),
    "transcript": {"message": Message, "answer": transcript._Answer},
    "mail": {"message": mail._Form},
    "mail bodies": _by_tag(_leaves(_Body)),
    "mail body updates": _by_tag(get_args(PermissionUpdate)),
    "mail body parts": {"granted": Granted, "rule": Rule},
    "team file": {"team": roster._TeamForm, "whole": roster._WholeForm, "member": roster._MemberForm},
    "tasks": {"task": tasks._Form},
    "sub-agents": {"meta": Remembered},
    "checkpoints": {"change": Change, "undone": _Undone},
    "worktrees": {"record": WorktreeRecord, "owner": Owner},
    "trust": {"decision": Said},
    "settings": {
        "document": settings.Known,
        "permissions": settings.Rules,
        "shoal": settings.Own,
        "sandbox": settings.SandboxSettings,
        "telemetry": settings.TelemetrySettings,
        "agent limits": settings.AgentLimits,
        "model": settings.ModelFacts,
    },
    "hook output": {
        "output": hook_output._Said,
        "specific": hook_output._Specific,
        "answer": hook_output._Answer,
    },
    "stream-json": _by_subtype(_leaves(Line)),
    "stream-json parts": {"model usage": ModelSpent, "denial": Denial, "task usage": TaskUsage},
    "run view": {
        "frame": Frame,
        "run": RunRow,
        "agent": AgentRow,
        "task": TaskRow,
        "letter": LetterRow,
        "question": QuestionRow,
        "cost": CostRow,
        "spend": SpendPoint,
        "note": NoteRow,
    },
    "web": {
        "run": RunLine,
        "question": QuestionLine,
        "transcript": Page,
        "delta": Delta,
        "grown": Grown,
        "new task": NewTask,
        "task change": TaskWish,
        "new mode": NewMode,
        "agent": Whom,
        "words": Words,
    },
    "command output": {
        "doctor fact": Fact,
        "agent fact": AgentFact,
        "definition problem": Problem,
        "definition source": Source,
        "template problem": Flaw,
        "template origin": Origin,
        "setting": Shown,
        "setting with trust": Trusted,
        "hooks": HooksSeen,
        "hook": HookShown,
        "models": ModelsView,
        "model": ModelRow,
        "provider": ProviderRow,
        "model trial": Trial,
        "permissions": View,
        "permission rule": RuleShown,
        "explanation": Explanation,
        "explained part": PartExplained,
        "plugin": PluginRow,
        "mcp server": ServerStanding,
        "team person": Person,
        "team task change": TaskChange,
        "spent": Spent,
        "undo": UndoReport,
        "undo, turn": TurnChanges,
        "undo, file": ChangedFile,
        "undo, left alone": LeftAlone,
    },
    "mcp tools": {"run status": Standing, "run result": Outcome},
    "tool input parts": {
        "question": Asked,
        "question option": Answerable,
        "todo": Todo,
        "plan prompt": Wish,
    },
    "tool input messages": _by_tag(get_args(_Structured)),
    "recordings": {"exchange": Exchange, "request": Request, "reply": Reply, "tool": ToolSchema},
    "scripts": {"step": Step, "server step": ServerStep, "call": ScriptedCall, "voice": Voice},
    "script faults": _by_tag(_leaves(Fault)),
    "model catalogue": {"catalogue": _Catalogue, "model": CardEntry, "long prompts": LongEntry},
}


def _fields(kind: Kind) -> list[str]:
    """Return the tag and the encoded fields, each with the words it may hold where those are a closed set."""
    info = inspected.type_info(kind)
    assert isinstance(info, inspected.StructType)
    named = ((each.encode_name, sorted(_literals(each.type))) for each in info.fields)
    tag = [f"{info.tag_field}: {info.tag}"] if info.tag_field else []
    return tag + [f"{name}: {' | '.join(words)}" if words else name for name, words in named]


def _parts(kind: Any) -> Iterator[Kind]:
    """Yield every struct that is encoded as a part of `kind`."""
    waiting, seen = [inspected.type_info(kind)], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, inspected.StructType):
            if each.cls in seen:
                continue
            seen.add(each.cls)
            yield each.cls
            waiting += [field.type for field in each.fields]
        elif isinstance(each, inspected.UnionType):
            waiting += each.types
        elif isinstance(each, inspected.DictType):
            waiting += [each.key_type, each.value_type]
        elif isinstance(each, inspected.TupleType):
            waiting += each.item_types
        elif isinstance(each, inspected.CollectionType | inspected.VarTupleType):
            waiting.append(each.item_type)


def _now() -> Table:
    found = {
        group: {label: _fields(kind) for label, kind in kinds.items()} for group, kinds in FORMATS.items()
    }
    return found | {
        "tool input": _tool_inputs(),
        "mcp tool input": _mcp_inputs(),
        "model test": {"error": sorted(_error_names(ModelError))},
    }


def _tool_inputs() -> dict[str, list[str]]:
    """Return the parameters of the built-in tools as a model is told of them: names of Python arguments."""
    told = {name: schema for schemas in _seen().told.values() for name, schema in schemas.items()}
    return {name: list(told[name].input_schema.get("properties", {})) for name in sorted(told)}


def _mcp_inputs() -> dict[str, list[str]]:
    return {name: list(signature(getattr(TeamTools, name)).parameters)[1:] for name in TOOLS}


def _error_names(base: type[ModelError]) -> Iterator[str]:
    """Yield the names that `shoal models test --json` gives as `error`: they are those of classes."""
    yield base.__name__
    for kind in base.__subclasses__():
        yield from _error_names(kind)


def _write(table: Table) -> None:
    lines = [
        f" {json.dumps(group)}: {{\n"
        + ",\n".join(f"  {json.dumps(label)}: {json.dumps(fields)}" for label, fields in formats.items())
        + "\n }"
        for group, formats in table.items()
    ]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def test_every_pinned_format_is_as_it_was() -> None:
    now = _now()
    if os.environ.get("FORMATS") == "write":
        _write(now)
    pinned: Table = json.loads(PINNED.read_text())
    assert list(now) == list(pinned)
    changed = {
        f"{group}: {label}": {"pinned": pinned[group].get(label), "now": now[group].get(label)}
        for group in pinned
        for label in pinned[group] | now[group]
        if pinned[group].get(label) != now[group].get(label)
    }
    assert not changed, json.dumps(changed, indent=1)


@pytest.mark.parametrize("group", FORMATS)
def test_every_part_of_a_pinned_format_is_pinned_too(group: str) -> None:
    missing = {part for kind in FORMATS[group].values() for part in _parts(kind)} - _pinned()
    assert not missing, f"parts of {group} that no table above names: {missing}"


def test_every_struct_with_a_tag_is_pinned() -> None:
    for module in walk_packages(shoal.__path__, "shoal."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    tagged = {kind for kind in _leaves(Struct) if kind.__struct_config__.tag is not None}
    assert {kind for kind in tagged if kind.__module__.startswith("shoal.")} <= _pinned()


def _pinned() -> set[Kind]:
    return {kind for kinds in FORMATS.values() for kind in kinds.values()}
