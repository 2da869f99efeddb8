"""Short descriptions of tool results for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.core.wording import count, many, one_line
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED

_STEPS = {"pending": ("☐", DIM), "in_progress": ("▸", BOLD), "completed": ("☑", DIM)}
_NOTE = re.compile(r"\[.*\]")


def outcome(tool: str, text: str, data: Any, *, is_error: bool) -> tuple[str, str]:
    """Return the description and its style. `data` is the tool's structured output; a journal has none."""
    facts: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if tool == "Bash":
        return _ran(text, facts, is_error=is_error)
    if is_error:
        return f"✗ {one_line(_first_line(text))}", RED
    if isinstance(facts.get("added"), int):
        return f"+{facts['added']} −{facts.get('removed', 0)}", GREEN
    return _came_to(tool, text, facts)


def _came_to(tool: str, text: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    match tool:
        case "Edit" | "Write" | "NotebookEdit":
            return "changed", GREEN
        case "Read":
            return many(_lines(text), "line"), DIM
        case "Grep" | "Glob" if isinstance(facts.get("count"), int):
            return f"{facts['count'] or 'nothing'} found", DIM
        case "TodoWrite" if isinstance(facts.get("todos"), list):
            done = sum(todo.get("status") == "completed" for todo in facts["todos"])
            return f"{done} of {len(facts['todos'])} done", DIM
        case "AskUserQuestion" if isinstance(facts.get("answers"), Mapping):
            return one_line("→ " + "; ".join(map(str, facts["answers"].values()))), GREEN
        case "Agent" if isinstance(facts.get("status"), str):
            return _reported(facts, facts["status"])
        case _:
            return one_line(_first_line(text)), DIM


def _reported(facts: Mapping[str, Any], status: str) -> tuple[str, str]:
    if status == "async_launched":
        return "→ works in the background", DIM
    if status == "teammate_spawned":
        return f"→ {facts.get('name', 'it')} has joined {facts.get('team_name', 'the team')}", GREEN
    calls, tokens = int(facts.get("totalToolUseCount") or 0), int(facts.get("totalTokens") or 0)
    took = f"{many(calls, 'call')} · {count(tokens)} tokens"
    return (f"→ done · {took}", GREEN) if status == "completed" else (f"✗ {status} · {took}", RED)


def todo_lines(data: Any) -> list[tuple[str, str]]:
    """Return the to-do items with their styles; empty for the output of any other tool."""
    todos = data.get("todos", ()) if isinstance(data, Mapping) else ()
    return [
        (f"{_STEPS[todo['status']][0]} {one_line(todo['content'])}", _STEPS[todo["status"]][1])
        for todo in todos
        if todo.get("status") in _STEPS
    ]


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
    """Return the last line of the command's output. The tool appends its own notes in brackets."""
    lines = [line for line in text.strip().split("\n") if not _NOTE.fullmatch(line.strip())]
    last = one_line(lines[-1]) if lines else ""
    return "" if last == "(no output)" else last


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
