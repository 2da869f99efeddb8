"""A conversation rendered as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from shoal.core.messages import Image, Message, Text, ToolResult, ToolUse, result_text
from shoal.core.wording import clean


def pages(messages: Sequence[Message], session: str) -> Iterator[str]:
    yield f"# Session {session}\n"
    speaker = ""
    for message in messages:
        for block in message.content:
            whose = "You" if message.role == "user" else "Agent"
            match block:
                case Text(text=text) if text.strip():
                    if whose != speaker:
                        yield f"## {whose}\n"
                    speaker = whose
                    yield f"{clean(text).strip()}\n"
                case Image():
                    yield "*(an image)*\n"
                case ToolUse(name=name, input=given):
                    speaker = "Agent"
                    yield f"**{clean(name)}**\n"
                    yield _fenced(json.dumps(given, indent=2, ensure_ascii=False, default=str), "json")
                case ToolResult():
                    yield _fenced(result_text(block))
                case _:
                    pass


def _fenced(text: str, kind: str = "") -> str:
    """Wrap the text in a code fence that is longer than any fence inside it."""
    text = clean(text).rstrip("\n")
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text}\n{fence}\n"
