"""docs/reference/events.md: every event of a run with its fields, and the structures these hold."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec import inspect as shapes

from reference_pages.words import (
    Field,
    Wordless,
    code,
    default_words,
    fields_of,
    own_words,
    page,
    table,
    type_words,
)
from shoal.core.events import Event, Journaled, Live

_OPENING = """
What happens in a run is told as events. *Journaled* ones are appended to
`shoal/runs/SESSION/journal.jsonl` in the home before anybody is told, one JSON object a line, with `at`
(the time) and `type` in front; *live* ones are told to whoever looks just then and kept nowhere. `shoal
watch --json` prints them, `session.watch` of the library gives them as the classes of `shoal.events`,
whose names are these without underscores (`agent_ended` is `AgentEnded`), and the control socket sends
them after `subscribe`.

Every event has `agent`: whose it is, `lead` for the lead. Previews are the first 200 characters; the
whole is in the transcript. An event of a type that is not known, or with more fields, is of a newer
version: pass it over.
"""


def events_page() -> str:
    journaled = [_event(kind) for kind in Journaled.__subclasses__()]
    live = [_event(kind) for kind in Live.__subclasses__()]
    inner = [_structure(kind) for kind in _structures()]
    return page(
        "Events",
        _OPENING,
        "## Journaled",
        *journaled,
        "## Live",
        *live,
        "## What they hold",
        *inner,
    )


def _event(kind: type[Event]) -> str:
    words = own_words(kind)
    if not words:
        raise Wordless(f"The event {kind.__name__} has no docstring: write one in core/events.py.")
    fields = [field for field in fields_of(kind) if field.name != "agent"]
    return "\n\n".join(filter(None, (f"### `{_tag(kind)}`", words, _rows(fields))))


def _structure(kind: type[Struct]) -> str:
    head = f"### {kind.__name__}"
    tag = f"`type` is `{_tag(kind)}`." if _tag(kind) else ""
    return "\n\n".join(
        filter(None, (head, " ".join(filter(None, (own_words(kind), tag))), _rows(fields_of(kind))))
    )


def _rows(fields: list[Field]) -> str:
    if not fields:
        return ""
    rows = [
        (
            code(field.name),
            type_words(field.type, _link),
            "" if field.required else f"default {default_words(field.default)}",
            field.words,
        )
        for field in fields
    ]
    return table(("field", "type", "", "meaning"), rows)


def _link(kind: type[Struct]) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _tag(kind: type[Struct]) -> str:
    info = shapes.type_info(kind)
    assert isinstance(info, shapes.StructType)
    return str(info.tag or "")


def _structures() -> list[type[Struct]]:
    found: dict[type[Struct], None] = {}
    for kind in (*Journaled.__subclasses__(), *Live.__subclasses__()):
        for field in fields_of(kind):
            _gather(field.type, found)
    return sorted(found, key=lambda kind: kind.__name__)


def _gather(kind: shapes.Type, found: dict[type[Struct], None]) -> None:
    if isinstance(kind, shapes.StructType) and kind.cls not in found:
        found[kind.cls] = None
    elif isinstance(kind, shapes.StructType):
        return
    for inner in _inside(kind):
        _gather(inner, found)


def _inside(kind: shapes.Type) -> Iterator[shapes.Type]:
    match kind:
        case shapes.StructType(fields=fields):
            yield from (field.type for field in fields)
        case shapes.UnionType(types=types):
            yield from types
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            yield item
        case shapes.DictType(value_type=value):
            yield value
        case shapes.Metadata(type=inner):
            yield inner
