"""Results of tool calls for hooks and SDK programs, in the shapes that Claude Code documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

_NUMBERED_LINE = re.compile(r" *(\d+)\t(.*)")
_ResponseBuilder: TypeAlias = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, Any]]


def build_tool_response(
    tool: str, arguments: Mapping[str, Any], text: str, data: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the result of a successful call: the tool's own data, its text, and the documented fields.

    `content` is the text of the result, unless Claude Code gives the field another meaning.
    """
    own = data or {}
    build_fields = _BUILDERS.get(tool)
    fields = {} if build_fields is None else build_fields(arguments, text, own)
    return {**own, "content": text, **fields}


def has_documented_response(tool: str) -> bool:
    """Return True if Claude Code documents the fields of the tool's result."""
    return tool in _BUILDERS


def _build_bash_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    if "shell_id" in data:
        return {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": data["shell_id"]}
    stdout = remove_command_notes(text, data)
    return {
        "stdout": "" if stdout == "(no output)" else stdout,
        # Both streams are in the order in which the command wrote them.
        "stderr": "",
        "interrupted": bool(data.get("timed_out")),
        "isImage": False,
    }


def remove_command_notes(text: str, data: Mapping[str, Any]) -> str:
    """Return the output of a command without the remarks that follow it."""
    notes = data.get("notes") or ()
    return text.removesuffix("\n" + "\n".join(notes)) if notes else text


def _build_read_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    matches = [_NUMBERED_LINE.fullmatch(line) for line in text.split("\n")]
    end = matches.index(None) if None in matches else len(matches)
    lines = [match for match in matches[:end] if match is not None]
    file = {
        "filePath": arguments.get("file_path", ""),
        "content": "\n".join(match[2] for match in lines) if lines else text,
        "numLines": len(lines),
        "startLine": int(lines[0][1]) if lines else 1,
        **({"totalLines": data["total_lines"]} if "total_lines" in data else {}),
    }
    return {"type": "text", "file": file}


def _build_write_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "create" if data.get("created") else "update",
        "filePath": arguments.get("file_path", ""),
        "content": arguments.get("content", ""),
        "success": True,
    }


def _build_edit_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "filePath": arguments.get("file_path", ""),
        "oldString": arguments.get("old_string", ""),
        "newString": arguments.get("new_string", ""),
        "replaceAll": bool(arguments.get("replace_all")),
        "userModified": False,
        "success": True,
    }


def _build_notebook_fields(
    arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    names = ("notebook_path", "new_source", "cell_id", "cell_type", "edit_mode")
    return {name: arguments[name] for name in names if name in arguments}


def _build_glob_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    count = data.get("count", 0)
    filenames = text.split("\n")[: data.get("shown", count)] if count else []
    return {"filenames": filenames, "numFiles": len(filenames), "truncated": len(filenames) < count}


def _build_grep_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    mode = arguments.get("output_mode", "files_with_matches")
    if mode != "files_with_matches":
        return {"mode": mode, "numFiles": 0, "filenames": [], "numLines": data.get("count", 0)}
    filenames = text.split("\n")[: data.get("shown", 0)]
    return {"mode": mode, "numFiles": len(filenames), "filenames": filenames}


def _build_web_fetch_fields(
    arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    return {"url": data.get("url") or arguments.get("url", ""), "result": text}


def _build_web_search_fields(
    arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    return {"query": arguments.get("query", ""), "results": data.get("results") or [text]}


def _build_todo_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"newTodos": data.get("todos", [])}


def _build_agent_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    report = data.get("content")
    blocks = [{"type": "text", "text": report if isinstance(report, str) else text}]
    return {"prompt": arguments.get("prompt", ""), "content": blocks}


def _build_question_fields(
    arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    return {"questions": arguments.get("questions", []), "answers": data.get("answers", {})}


def _build_plan_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"plan": arguments.get("plan", ""), "filePath": data.get("path", "")}


def _build_stop_fields(arguments: Mapping[str, Any], text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"message": text}


_BUILDERS: dict[str, _ResponseBuilder] = {
    "Agent": _build_agent_fields,
    "AskUserQuestion": _build_question_fields,
    "Bash": _build_bash_fields,
    "Edit": _build_edit_fields,
    "ExitPlanMode": _build_plan_fields,
    "Glob": _build_glob_fields,
    "Grep": _build_grep_fields,
    "KillShell": _build_stop_fields,
    "NotebookEdit": _build_notebook_fields,
    "Read": _build_read_fields,
    "TaskStop": _build_stop_fields,
    "TodoWrite": _build_todo_fields,
    "WebFetch": _build_web_fetch_fields,
    "WebSearch": _build_web_search_fields,
    "Write": _build_write_fields,
}
