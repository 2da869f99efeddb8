"""What a tool call came to, in a few words for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.surfaces.cli.paint import DIM, GREEN, RED, cut, one_line

_EXIT = re.compile(r"exit(?:ed)?(?: with)?(?: status| code)?:? +(-?\d+)", re.IGNORECASE)
_WIDEST = 60


def outcome(
    tool: str, given: Mapping[str, Any], text: str, data: Any, *, is_error: bool
) -> tuple[str, str]:
    """Words and their style. `data` is what the tool gave programs, where anything."""
    facts: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if tool == "Bash" and (status := exit_status(text, facts)) is not None:
        return f"→ exit {status}", GREEN if status == 0 else RED
    if is_error:
        return f"✗ {cut(one_line(_first_line(text)), _WIDEST)}", RED
    match tool:
        case "Edit" | "NotebookEdit":
            return _changed(given, text, facts), GREEN
        case "Write":
            return f"+{_lines(str(given.get('content', '')))}", GREEN
        case "Read":
            return _many(_lines(text), "line"), DIM
        case "Grep" | "Glob":
            return _found(text, facts), DIM
        case "TodoWrite":
            return _many(len(given.get("todos") or ()), "item"), DIM
        case "Bash":
            return "→ runs in the background" if given.get("run_in_background") else "→ done", DIM
        case _:
            return cut(one_line(_first_line(text)), _WIDEST), DIM


def exit_status(text: str, facts: Mapping[str, Any]) -> int | None:
    for key in ("exit_code", "exit_status", "exitCode", "status", "exit"):
        if isinstance(facts.get(key), int):
            return int(facts[key])
    found = _EXIT.search(text[-400:]) or _EXIT.search(text[:400])
    return int(found[1]) if found else None


def _changed(given: Mapping[str, Any], text: str, facts: Mapping[str, Any]) -> str:
    added, removed = facts.get("added"), facts.get("removed")
    if not (isinstance(added, int) and isinstance(removed, int)):
        added, removed = _difference(str(given.get("old_string", "")), str(given.get("new_string", "")))
    return f"+{added} −{removed}"


def _difference(old: str, new: str) -> tuple[int, int]:
    import difflib

    added = removed = 0
    opcodes = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines()).get_opcodes()
    for kind, old_from, old_to, new_from, new_to in opcodes:
        if kind != "equal":
            removed += old_to - old_from
            added += new_to - new_from
    return added, removed


def _found(text: str, facts: Mapping[str, Any]) -> str:
    for key in ("matches", "files", "count"):
        if isinstance(facts.get(key), int):
            return _many(int(facts[key]), "match", "matches")
    return _many(_lines(text), "line")


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
