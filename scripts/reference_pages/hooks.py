"""docs/reference/hooks.md: every event that hooks receive, and the answers they may give."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from reference_pages.words import Wordless, code, fields_of, own_words, page, table, type_words
from shoal.core.hook_events import ALWAYS, OCCASIONS, OF_AGENTS, Occasion
from shoal.core.hooks import EVENTS, IN_A_ROW, MATCHED, PARTING_SECONDS, USUAL_SECONDS, HookEvent
from shoal.wire.hook_output import LIMIT, _Answer, _Said, _Specific

_OPENING = f"""
A hook is a program of yours, an address or a function that is told of events. [Hooks](../hooks.md) says
how one is set up; this is what each event tells, as one JSON object on standard input, and what may be
answered. A command that ends with 0 goes on, and its standard output is read where it is a JSON object;
with 2 it blocks, with standard error as the reason; anything else is shown to the person and blocks
nothing, unless the hook has `"onFailure": "block"`. It has {USUAL_SECONDS:g} seconds, {PARTING_SECONDS:g}
at `SessionEnd`, unless its `timeout` says otherwise. Nobody waits for a command with `"async": true` or
`"asyncRewake": true`, nor for one whose first line is `{{"async": true, "asyncTimeout": milliseconds}}`: it
decides nothing, and what it tells comes
[later](../hooks.md#hooks-in-the-background).
"""
_ANSWER = f"""
## Answers

An object with any of these fields, as JSON from a command or an address, or as a dict from a function. At
most {LIMIT:,} characters of a text enter a conversation. After `UserPromptSubmit` and `SessionStart` text
that is no JSON is context for the model. Of several hooks the strictest decision counts, the first
refusal, and all contexts.
"""


def hooks_page() -> str:
    if set(OCCASIONS) != set(EVENTS):
        raise Wordless(f"core/hook_events.py and core/hooks.py differ: {set(OCCASIONS) ^ set(EVENTS)}")
    overview = table(
        ("event", "when", "matched on"),
        [(f"[`{name}`](#{name.lower()})", OCCASIONS[name].when, _matched(name)) for name in EVENTS],
    )
    common = (
        "## Every event\n\n"
        + table(("field", "meaning"), _rows(ALWAYS))
        + "\n\nFor every agent but the lead also:\n\n"
        + table(("field", "meaning"), _rows(OF_AGENTS))
    )
    answers = [_ANSWER.strip(), _fields(_Said), "### `hookSpecificOutput`", _fields(_Specific)]
    answers += ["### `hookSpecificOutput.decision`", _fields(_Answer)]
    return page("Hooks", _OPENING, overview, common, *(_event(name) for name in EVENTS), *answers)


def _event(name: HookEvent) -> str:
    occasion: Occasion = OCCASIONS[name]
    parts = [f"## {name}", occasion.when]
    if rows := _rows(occasion.told) + [
        (key, f"{words} At times.") for key, words in _rows(occasion.at_times)
    ]:
        parts.append(table(("field", "meaning"), rows))
    blocked = occasion.blocked
    if str(IN_A_ROW) not in blocked and "in a row" in blocked:
        raise Wordless(f"{name} says another number than {IN_A_ROW} times in a row.")
    parts.append(f"Blocked: {blocked[0].lower()}{blocked[1:]}")
    return "\n\n".join(parts)


def _matched(name: HookEvent) -> str:
    return code(MATCHED[name]) if name in MATCHED else ""


def _rows(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(key if key.startswith("`") else code(key), words) for key, words in fields.items()]


def _fields(kind: type[Struct]) -> str:
    rows = []
    for field in fields_of(kind):
        if not field.words:
            raise Wordless(f"{kind.__name__}.{field.name} has no words: write some below it in the code.")
        rows.append((code(field.name), type_words(field.type).removesuffix(" or unset"), field.words))
    return f"{own_words(kind)}\n\n{table(('field', 'type', 'meaning'), rows)}"
