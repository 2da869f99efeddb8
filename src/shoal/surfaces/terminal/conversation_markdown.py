"""A conversation rendered as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from shoal.core.conversation.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.text.text_format import strip_terminal_codes


def render_conversation_markdown(messages: Sequence[Message], session: str) -> Iterator[str]:
    yield f"# Session {session}\n"
    speaker = ""
    for message in messages:
        for block in message.content:
            author = "You" if message.role == "user" else "Agent"
            match block:
                case TextBlock(text=text) if text.strip():
                    if author != speaker:
                        yield f"## {author}\n"
                    speaker = author
                    yield f"{strip_terminal_codes(text).strip()}\n"
                case ImageBlock():
                    yield "*(an image)*\n"
                case ToolUseBlock(name=name, input=tool_input):
                    speaker = "Agent"
                    yield f"**{strip_terminal_codes(name)}**\n"
                    yield _fence_text(
                        json.dumps(tool_input, indent=2, ensure_ascii=False, default=str), "json"
                    )
                case ToolResultBlock():
                    yield _fence_text(extract_tool_result_text(block))
                case _:
                    pass


def _fence_text(text: str, kind: str = "") -> str:
    """Wrap the text in a code fence that is longer than any fence inside it."""
    text = strip_terminal_codes(text).rstrip("\n")
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text}\n{fence}\n"
