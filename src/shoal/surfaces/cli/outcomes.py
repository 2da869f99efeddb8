"""What a tool call came to, in a few words for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.surfaces.cli.paint import DIM, GREEN, RED, one_line

_NOTE = re.compile(r"\[.*\]")


def outcome(tool: str, text: str, data: Any, *, is_error: bool) -> tuple[str, str]:
    """Words and their style. `data` is what the tool gave programs; a journal has none."""
    facts: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if tool == "Bash":
        return _ran(text, facts, is_error=is_error)
    if is_error:
        return f"✗ {one_line(_first_line(text))}", RED
    if isinstance(facts.get("added"), int):
        return f"+{facts['added']} −{facts.get('removed', 0)}", GREEN
    match tool:
        case "Edit" | "Write" | "NotebookEdit":
            return "changed", GREEN
        case "Read":
            return _many(_lines(text), "line"), DIM
        case "Grep" | "Glob":
            return _many(_lines(text), "line") if facts or text else "nothing", DIM
        case _:
            return one_line(_first_line(text)), DIM


def _ran(text: str, facts: Mapping[str, Any], *, is_error: bool) -> tuple[str, str]:
    if "shell_id" in facts:
        return "→ runs in the background", DIM
    if facts.get("timed_out"):
        return "→ ended: it took too long", RED
    status = facts.get("exit_code")
    if not isinstance(status, int):
        return (f"✗ {one_line(_first_line(text))}", RED) if is_error else ("→ exit 0", GREEN)
    last = _last_line(text)
    return f"→ exit {status}{f' · {last}' if last else ''}", GREEN if status == 0 else RED


def _last_line(text: str) -> str:
    """Of what the command itself wrote: the tool's own notes stand in brackets behind it."""
    lines = [line for line in text.strip().split("\n") if not _NOTE.fullmatch(line.strip())]
    last = one_line(lines[-1]) if lines else ""
    return "" if last == "(no output)" else last


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _many(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
