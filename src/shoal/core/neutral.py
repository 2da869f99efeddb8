"""Escaping of control tags in text from tools, files, web pages and agents, so that they have no effect.

A tag that only the runtime may use gets a backslash after its bracket: `<\\system-reminder>`. One that has
backslashes there already gets one more, so that `unescape_control_tags` restores the text exactly.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_TAGS = (
    "system-reminder",
    "system-message",
    "system-prompt",
    "system-notification",
    "teammate-message",
    "agent-message",
    "task-notification",
    "channel",
    "task-reminder",
    "scheduled-prompt",
    "fork-boilerplate",
    "user-message",
    "user-prompt-submit-hook",
    "human-turn",
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "tool-use",
    "tool-result",
    "function-calls",
    "function-results",
    "invoke",
    "antml",
    "session-start-hook",
    "permission-granted",
    "shutdown-request",
    "plan-approval",
)
_TOKENS = (
    "im_start",
    "im_end",
    "im_sep",
    "system",
    "user",
    "assistant",
    "endoftext",
    "begin_of_text",
    "end_of_text",
    "start_header_id",
    "end_header_id",
    "eot_id",
    "eom_id",
    "python_tag",
    "tool",
    "channel",
    "message",
    "return",
    "start",
    "end",
)
# Characters that look like a bracket.
_BRACKETS = "<＜﹤‹〈⟨〈˂ᐸ≺❮❰⧼🡠"
_BRACKET = re.compile(f"[{_BRACKETS}]")
_UNSEEN = r"\x00-\x20\x7f"
_LONGEST = 160
"""Characters after a bracket that are inspected."""
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһкмтпвгԛԝіΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεικνορτυχ‐‑‒–—―−⁃﹣－＿ǀ│｜∣",
    "aeopcyxijsdhkmtnbrqwiABEZHIKMNOPTYXaeiknoptux----------_||||",
)


def neutral(text: str) -> str:
    """Escape every control tag; return the same object if there is none."""
    marks = [at + 1 for at in _brackets(text) if _opens_control(text, at + 1)]
    if not marks:
        return text
    pieces = [text[start:end] for start, end in zip([0, *marks], [*marks, len(text)], strict=True)]
    return "\\".join(pieces)


def original(text: str) -> str:
    """Return the text that was given to `escape_control_tags`."""
    marks = [
        at + 1 for at in _brackets(text) if text.startswith("\\", at + 1) and _opens_control(text, at + 1)
    ]
    ends = [*marks, len(text)]
    starts = [0, *(mark + 1 for mark in marks)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _brackets(text: str) -> list[int]:
    if text.isascii():
        found, at = [], text.find("<")
        while at >= 0:
            found.append(at)
            at = text.find("<", at + 1)
        return found
    return [match.start() for match in _BRACKET.finditer(text)]


def _opens_control(text: str, at: int) -> bool:
    behind = text[at : at + _LONGEST]
    if not behind.isascii():
        behind = _plain(behind)
    return _control().match(behind) is not None


def _plain(text: str) -> str:
    """Normalize text to what it looks like: narrow letters, no lookalikes, no invisible characters."""
    seen = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Mn", "Me"))
    bare = unicodedata.normalize("NFKD", seen.translate(_LOOKALIKES)).translate(_LOOKALIKES)
    return "".join(c for c in bare if not unicodedata.combining(c))


@cache
def _control() -> re.Pattern[str]:
    # Words may be separated by anything except letters, and letters by blanks and line ends.
    tags = "|".join(_spread(tag) for tag in _TAGS)
    tokens = "|".join(map(re.escape, _TOKENS))
    return re.compile(rf"[{_UNSEEN}/\\!?]*(?:(?:{tags})(?![a-z0-9])|\|\s*/?(?:{tokens})\s*\|)", re.IGNORECASE)


def _spread(tag: str) -> str:
    words = (rf"[{_UNSEEN}]*".join(word) for word in tag.split("-"))
    return rf"[{_UNSEEN}_\-./\\:]*".join(words)
