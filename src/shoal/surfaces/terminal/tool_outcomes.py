"""Short descriptions of tool results for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.core.text.text_format import format_count_with_noun, format_token_count, to_one_line
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, RED

_STEPS = {"pending": ("☐", DIM), "in_progress": ("▸", BOLD), "completed": ("☑", DIM)}
_NOTE = re.compile(r"\[.*\]")


def describe_tool_outcome(tool: str, text: str, data: Any, *, is_error: bool) -> tuple[str, str]:
    """Return the description and its style. `data` is the tool's structured output; a journal has none."""
    facts: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if tool == "Bash":
        return _describe_command_result(text, facts, is_error=is_error)
    if is_error:
        return f"✗ {to_one_line(_get_first_line(text))}", RED
    if isinstance(facts.get("added"), int):
        return f"+{facts['added']} −{facts.get('removed', 0)}", GREEN
    return _describe_tool_success(tool, text, facts)


def _describe_tool_success(tool: str, text: str, data: Mapping[str, Any]) -> tuple[str, str]:
    match tool:
        case "Edit" | "Write" | "NotebookEdit":
            return "changed", GREEN
        case "Read":
            return format_count_with_noun(_count_lines(text), "line"), DIM
        case "Grep" | "Glob" if isinstance(data.get("count"), int):
            return f"{data['count'] or 'nothing'} found", DIM
        case "TodoWrite" if isinstance(data.get("todos"), list):
            completed_count = sum(todo.get("status") == "completed" for todo in data["todos"])
            return f"{completed_count} of {len(data['todos'])} done", DIM
        case "AskUserQuestion" if isinstance(data.get("answers"), Mapping):
            return to_one_line("→ " + "; ".join(map(str, data["answers"].values()))), GREEN
        case "Agent" if isinstance(data.get("status"), str):
            return _describe_agent_result(data, data["status"])
        case _:
            return to_one_line(_get_first_line(text)), DIM


def _describe_agent_result(data: Mapping[str, Any], status: str) -> tuple[str, str]:
    if status == "async_launched":
        return "→ working in the background", DIM
    if status == "teammate_spawned":
        return f"→ {data.get('name', 'it')} has joined {data.get('team_name', 'the team')}", GREEN
    calls, tokens = int(data.get("totalToolUseCount") or 0), int(data.get("totalTokens") or 0)
    usage = f"{format_count_with_noun(calls, 'call')} · {format_token_count(tokens)} tokens"
    return (f"→ done · {usage}", GREEN) if status == "completed" else (f"✗ {status} · {usage}", RED)


def format_todo_lines(data: Any) -> list[tuple[str, str]]:
    """Return the to-do items with their styles; empty for the output of any other tool."""
    todos = data.get("todos", ()) if isinstance(data, Mapping) else ()
    return [
        (f"{_STEPS[todo['status']][0]} {to_one_line(todo['content'])}", _STEPS[todo["status"]][1])
        for todo in todos
        if todo.get("status") in _STEPS
    ]


def _describe_command_result(text: str, data: Mapping[str, Any], *, is_error: bool) -> tuple[str, str]:
    if "shell_id" in data:
        return "→ running in the background", DIM
    if data.get("timed_out"):
        return "→ stopped because it took too long", RED
    status = data.get("exit_code")
    if not isinstance(status, int):
        return (f"✗ {to_one_line(_get_first_line(text))}", RED) if is_error else ("→ exit 0", GREEN)
    last = _get_last_output_line(text)
    return f"→ exit {status}{f' · {last}' if last else ''}", GREEN if status == 0 else RED


def _get_last_output_line(text: str) -> str:
    """Return the last line of the command's output. The tool appends its own notes in brackets."""
    lines = [line for line in text.strip().split("\n") if not _NOTE.fullmatch(line.strip())]
    last = to_one_line(lines[-1]) if lines else ""
    return "" if last == "(no output)" else last


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _get_first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
