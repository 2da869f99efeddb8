"""docs/reference/events.md: every event of a run with its fields, and the structures these hold."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, inspect

from reference_pages.doc_text import (
    DocumentedField,
    MissingDescription,
    describe_default,
    describe_type,
    format_code,
    list_fields,
    read_docstring,
    render_page,
    render_table,
)
from shoal.core.events import Event, JournaledEvent, LiveEvent

_OPENING = """
Everything that happens in a run is an event. *Journaled* events are appended to
`shoal/runs/SESSION/journal.jsonl` in the home before they are published, one JSON object per line that starts
with `at` (the time) and `type`. *Live* events are published but not stored. `shoal watch --json` prints them,
`session.subscribe` passes them to a callback as objects of the named class in `shoal.events`, and the control
socket sends them after `subscribe`.

Every event has `agent`, the id of its agent; it is `lead` for the lead. Previews are the first 200 \
characters;
the full text is in the transcript. Ignore unknown event types and unknown fields: they come from
a newer version.
"""


def build_events_page() -> str:
    journaled = [_render_event(kind) for kind in JournaledEvent.__subclasses__()]
    live = [_render_event(kind) for kind in LiveEvent.__subclasses__()]
    inner = [_render_structure(kind) for kind in _find_structures()]
    return render_page(
        "Events",
        _OPENING,
        "## Journaled",
        *journaled,
        "## Live",
        *live,
        "## Structures",
        *inner,
    )


def _render_event(kind: type[Event]) -> str:
    description = read_docstring(kind)
    if not description:
        raise MissingDescription(f"The event {kind.__name__} has no docstring. Write one in core/events.py.")
    fields = [field for field in list_fields(kind) if field.name != "agent"]
    return "\n\n".join(
        filter(None, (f"### `{_read_tag(kind)}`", f"`{kind.__name__}`: {description}", _render_rows(fields)))
    )


def _render_structure(kind: type[Struct]) -> str:
    head = f"### {kind.__name__}"
    tag = f"`type` is `{_read_tag(kind)}`." if _read_tag(kind) else ""
    return "\n\n".join(
        filter(
            None, (head, " ".join(filter(None, (read_docstring(kind), tag))), _render_rows(list_fields(kind)))
        )
    )


def _render_rows(fields: list[DocumentedField]) -> str:
    if not fields:
        return ""
    rows = [
        (
            format_code(field.name),
            describe_type(field.type, _make_link),
            "" if field.required else f"default {describe_default(field.default)}",
            field.description,
        )
        for field in fields
    ]
    return render_table(("field", "type", "", "meaning"), rows)


def _make_link(kind: type[Struct]) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _read_tag(kind: type[Struct]) -> str:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return str(info.tag or "")


def _find_structures() -> list[type[Struct]]:
    found: dict[type[Struct], None] = {}
    for kind in (*JournaledEvent.__subclasses__(), *LiveEvent.__subclasses__()):
        for field in list_fields(kind):
            _collect_structures(field.type, found)
    return sorted(found, key=lambda kind: kind.__name__)


def _collect_structures(kind: inspect.Type, found: dict[type[Struct], None]) -> None:
    if isinstance(kind, inspect.StructType) and kind.cls not in found:
        found[kind.cls] = None
    elif isinstance(kind, inspect.StructType):
        return
    for inner in _list_inner_types(kind):
        _collect_structures(inner, found)


def _list_inner_types(kind: inspect.Type) -> Iterator[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            yield from (field.type for field in fields)
        case inspect.UnionType(types=types):
            yield from types
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield item
        case inspect.DictType(value_type=value):
            yield value
        case inspect.Metadata(type=inner):
            yield inner
