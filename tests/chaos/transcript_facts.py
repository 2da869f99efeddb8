"""Facts from the files of a run: a transcript, the effects of commands, leftover files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

_EFFECT = re.compile(r"\becho ([\w -]+?) >> ")


class RecordedCall(Struct, frozen=True):
    tool: str
    input: dict[str, Any]
    result: str | None
    """None if the call has no result."""
    ok: bool


class TranscriptFacts(Struct, frozen=True):
    """The calls and texts of an agent's transcript."""

    delivered: list[str]
    calls: list[RecordedCall]
    final_texts: list[str]
    """Replies without a tool call."""
    user_texts: list[str]


def read_transcript(path: Path) -> TranscriptFacts:
    uses: dict[str, tuple[str, dict[str, Any]]] = {}
    results: dict[str, tuple[str, bool]] = {}
    tale = TranscriptFacts([], [], [], [])
    for entry in _read_entries(path):
        if entry.get("delivered"):
            tale.delivered.append(entry["delivered"])
        content = entry.get("message", {}).get("content", [])
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in uses:
                    # An agent that was started again under the same name counts from the start.
                    tale.calls.append(_make_call(*uses.pop(block["id"]), results.pop(block["id"], None)))
                uses[block["id"]] = (block["name"], block["input"])
            elif block["type"] == "tool_result":
                results[block["tool_use_id"]] = (str(block["content"]), not block.get("is_error"))
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        if entry.get("type") == "assistant" and not any(block["type"] == "tool_use" for block in blocks):
            tale.final_texts.append(text)
        elif entry.get("type") == "user" and text:
            tale.user_texts.append(text)
    tale.calls.extend(_make_call(tool, given, results.get(ident)) for ident, (tool, given) in uses.items())
    return tale


def _make_call(tool: str, given: dict[str, Any], returned: tuple[str, bool] | None) -> RecordedCall:
    result, ok = returned or (None, False)
    return RecordedCall(tool, given, result, ok)


def _read_entries(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # a line whose writer was killed in the middle of it


def find_effect_faults(directory: Path, calls: Sequence[RecordedCall]) -> Iterator[str]:
    """Check that a command ran once, or at most once if its end is unknown."""
    found = [directory / "project/effects.txt", *(directory / "home").glob("worktrees/*/*/effects.txt")]
    traces = Counter(line for file in found if file.exists() for line in file.read_text().splitlines())
    asked: dict[str, list[RecordedCall]] = {}
    for call in calls:
        effect = _EFFECT.search(str(call.input.get("command", ""))) if call.tool == "Bash" else None
        if effect is not None:
            asked.setdefault(effect.group(1), []).append(call)
    for mark, all_of_it in asked.items():
        count = traces.pop(mark, 0)
        if not sum(call.ok for call in all_of_it) <= count <= len(all_of_it):
            yield f"the command of {mark!r} was asked for {len(all_of_it)} times and ran {count} times"
    yield from (f"nobody asked for {trace!r}, and it was run" for trace in traces)


def find_file_faults(home: Path, expected: Sequence[str], *, project_marker: str) -> Iterator[str]:
    """Find leftover and half-written files; `project_marker` marks files of a project."""
    for path in sorted(home.rglob("*")):
        inside = str(path.relative_to(home))
        if path.is_dir() and path.suffix != ".lock":
            continue
        if not any(re.fullmatch(pattern, inside) for pattern in expected):
            yield f"left behind: {inside}"
        # Written before the transcript: half of it belongs to an agent that never started.
        unborn = path.name.endswith(".meta.json") and not _has_transcript(path)
        if path.suffix == ".json" and project_marker not in inside and not unborn:
            try:
                json.loads(path.read_bytes())
            except ValueError:
                yield f"half written: {inside}"


def _has_transcript(meta: Path) -> bool:
    transcript = meta.with_name(meta.name.replace(".meta.json", ".jsonl"))
    return transcript.exists() and transcript.stat().st_size > 0
