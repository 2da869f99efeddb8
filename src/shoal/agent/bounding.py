"""Limits of tool results in the conversation: bounded in size, with the runtime's control tags escaped.

The full text of a truncated result is stored in a file.
"""

from __future__ import annotations

import re

import msgspec

from shoal.core.messages import Text, ToolUse
from shoal.core.neutral import neutral
from shoal.core.ports import Results
from shoal.core.tools import Outcome

EMPTY = "(no output)"


def enterable(outcome: Outcome, call: ToolUse, results: Results, limit: int) -> Outcome:
    short = bounded(outcome, call, results, limit)
    if isinstance(short.content, str):
        text = neutral(short.content)
        return short if text is short.content else msgspec.structs.replace(short, content=text)
    return msgspec.structs.replace(
        short,
        content=tuple(
            Text(text=neutral(block.text)) if isinstance(block, Text) else block for block in short.content
        ),
    )


def bounded(outcome: Outcome, call: ToolUse, results: Results, limit: int) -> Outcome:
    if isinstance(outcome.content, str):
        if len(outcome.content) <= limit:
            # To a model, an empty result looks like a failure of the tool.
            return outcome if outcome.content else msgspec.structs.replace(outcome, content=EMPTY)
        return msgspec.structs.replace(outcome, content=_cut(outcome.content, call, results, limit))
    blocks = tuple(
        Text(text=_cut(block.text, call, results, limit))
        if isinstance(block, Text) and len(block.text) > limit
        else block
        for block in outcome.content
    )
    return msgspec.structs.replace(outcome, content=blocks or EMPTY)


def _cut(text: str, call: ToolUse, results: Results, limit: int) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{call.name}-{call.id}")[:100] + ".txt"
    whole = results.keep(name, text.encode("utf-8", "surrogateescape"))
    head, tail = text[: limit * 3 // 4], text[-limit // 4 :]
    return (
        f"{head}\n\n[… {len(text) - len(head) - len(tail):,} of {len(text):,} characters are left out here. "
        f"The whole result is in {whole}: read it in parts with Read, or search it with Grep. …]\n\n{tail}"
    )
