"""docs/reference/hooks.md: every event that hooks receive, and the answers they may give."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from reference_pages.doc_text import (
    MissingDescription,
    describe_type,
    format_code,
    list_fields,
    read_docstring,
    render_page,
    render_table,
)
from shoal.core.extensions.hook_events import (
    AGENT_FIELDS,
    COMMON_FIELDS,
    HOOK_EVENT_DESCRIPTIONS,
    LATER_FIELDS,
    HookEventDescription,
)
from shoal.core.extensions.hooks import (
    HOOK_EVENTS,
    MATCHER_FIELDS,
    MAX_WAKES_IN_A_ROW,
    PROGRAM_HOOK_SECONDS,
    SESSION_END_HOOK_SECONDS,
    HookEvent,
)
from shoal.wire.hook_output_codec import (
    MAX_TEXT_LENGTH,
    _EventSpecificHookOutputSchema,
    _HookOutputSchema,
    _HookPermissionAnswerSchema,
)

_OPENING = f"""
A hook is your own program, a URL or a function that runs on events. [Hooks](../hooks.md) explains how to set
one up. This page lists the JSON object that each event sends on standard input, and the possible answers. If
a command exits with 0, the agent continues, and Shoal reads standard output if it is a JSON object. If it
exits with 2, it blocks, and standard error is the reason. Shoal shows any other exit code to the user and
does not block, unless the hook has `"onFailure": "block"`. The time limit is {PROGRAM_HOOK_SECONDS:g} \
seconds, or {SESSION_END_HOOK_SECONDS:g}
at `SessionEnd`; change it with `timeout`. Shoal does not wait for a command with `"async": true` or
`"asyncRewake": true`, or whose first line is `{{"async": true, "asyncTimeout": milliseconds}}`. Such a
command cannot decide anything, and its output arrives [later](../hooks.md#hooks-in-the-background).
"""
_ANSWER = f"""
## Answers

A hook answers with an object that has any of these fields: as JSON from a command or a URL, or as a dict
from a function. At most {MAX_TEXT_LENGTH:,} characters of a text enter a conversation. After
`UserPromptSubmit` and `SessionStart`, text
that is not JSON becomes context for the model. If several hooks answer, Shoal uses the strictest decision,
the first reason for a refusal, and all contexts.
"""


def build_hooks_page() -> str:
    if set(HOOK_EVENT_DESCRIPTIONS) != set(HOOK_EVENTS):
        raise MissingDescription(
            "core/extensions/hook_events.py and core/extensions/hooks.py differ: "
            f"{set(HOOK_EVENT_DESCRIPTIONS) ^ set(HOOK_EVENTS)}"
        )
    overview = render_table(
        ("event", "when", "matched on"),
        [
            (f"[`{name}`](#{name.lower()})", HOOK_EVENT_DESCRIPTIONS[name].when, _format_matched(name))
            for name in HOOK_EVENTS
        ],
    )
    common = (
        "## Every event\n\n"
        + render_table(("field", "meaning"), _make_rows(COMMON_FIELDS) + _make_rows(LATER_FIELDS))
        + "\n\nFor every agent except the lead:\n\n"
        + render_table(("field", "meaning"), _make_rows(AGENT_FIELDS))
    )
    answers = [
        _ANSWER.strip(),
        _render_fields(_HookOutputSchema),
        "### `hookSpecificOutput`",
        _render_fields(_EventSpecificHookOutputSchema),
    ]
    answers += ["### `hookSpecificOutput.decision`", _render_fields(_HookPermissionAnswerSchema)]
    return render_page(
        "Hooks", _OPENING, overview, common, *(_render_event(name) for name in HOOK_EVENTS), *answers
    )


def _render_event(name: HookEvent) -> str:
    description: HookEventDescription = HOOK_EVENT_DESCRIPTIONS[name]
    parts = [f"## {name}", description.when]
    if rows := _make_rows(description.fields) + [
        (key, f"{words} Sometimes absent.") for key, words in _make_rows(description.optional_fields)
    ]:
        parts.append(render_table(("field", "meaning"), rows))
    blocked = description.on_block
    if str(MAX_WAKES_IN_A_ROW) not in blocked and "in a row" in blocked:
        raise MissingDescription(f"{name} has another number than {MAX_WAKES_IN_A_ROW} times in a row.")
    parts.append(f"If a hook blocks, {blocked[0].lower()}{blocked[1:]}")
    return "\n\n".join(parts)


def _format_matched(name: HookEvent) -> str:
    return format_code(MATCHER_FIELDS[name]) if name in MATCHER_FIELDS else ""


def _make_rows(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(key if key.startswith("`") else format_code(key), words) for key, words in fields.items()]


def _render_fields(kind: type[Struct]) -> str:
    rows = []
    for field in list_fields(kind):
        if not field.description:
            raise MissingDescription(
                f"{kind.__name__}.{field.name} has no description. Write a docstring below it in the code."
            )
        rows.append(
            (format_code(field.name), describe_type(field.type).removesuffix(" or unset"), field.description)
        )
    return f"{read_docstring(kind)}\n\n{render_table(('field', 'type', 'meaning'), rows)}"
