"""Escaping of control tags in text from tools, files, web pages and agents, so that they have no effect.

A tag that only the runtime may use gets a backslash after its bracket: `<\\system-reminder>`. One that has
backslashes there already gets one more, so that `unescape_control_tags` restores the text exactly.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from shoal.core.text.lazy_patterns import compile_on_first_use

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
_BRACKET = compile_on_first_use(f"[{_BRACKETS}]")
_INVISIBLE = r"\x00-\x20\x7f"
_MAX_TAG_LENGTH = 160
"""Number of characters inspected after a bracket."""
_TYPED_COMMAND = compile_on_first_use(
    r"(?:<command-message>[^<]*</command-message>\s*)?<command-name>(?P<name>/?[^<]*)</command-name>\s*"
    r"(?:<command-message>[^<]*</command-message>\s*)?"
    r"(?:<command-args>(?P<arguments>.*?)</command-args>)?",
    re.DOTALL,
)
_COMMAND_OUTPUT = compile_on_first_use(
    r"<local-command-(?P<kind>stdout|stderr)>(?P<text>.*?)</local-command-(?P=kind)>", re.DOTALL
)
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһкмтпвгԛԝіΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεικνορτυχ‐‑‒–—―−⁃﹣－＿ǀ│｜∣",
    "aeopcyxijsdhkmtnbrqwiABEZHIKMNOPTYXaeiknoptux----------_||||",
)


def escape_control_tags(text: str) -> str:
    """Escape every control tag; return the same object if there is none."""
    if "<" not in text and text.isascii():
        return text
    positions = [at + 1 for at in _find_opening_angle_brackets(text) if _starts_control_tag(text, at + 1)]
    if not positions:
        return text
    pieces = [text[start:end] for start, end in zip([0, *positions], [*positions, len(text)], strict=True)]
    return "\\".join(pieces)


def unescape_control_tags(text: str) -> str:
    """Return the text that was given to `escape_control_tags`."""
    positions = [
        at + 1
        for at in _find_opening_angle_brackets(text)
        if text.startswith("\\", at + 1) and _starts_control_tag(text, at + 1)
    ]
    ends = [*positions, len(text)]
    starts = [0, *(mark + 1 for mark in positions)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def format_typed_command(text: str) -> str:
    """Return the line that the user typed if a message is a typed command; otherwise the text."""
    match = _TYPED_COMMAND.match(text)
    return text if match is None else _format_command_line(match)


def split_command_text(text: str) -> tuple[str, str]:
    """Return the line that the user typed, and the rest without the tags around a command's output.

    The line is empty if the text does not begin with a typed command.
    """
    match = _TYPED_COMMAND.match(text)
    line = "" if match is None else _format_command_line(match)
    rest = text if match is None else text[match.end() :].lstrip()
    if rest.startswith("<local-command-"):
        rest = _COMMAND_OUTPUT.sub(lambda output: unescape_control_tags(output["text"]), rest)
    return line, rest


def _format_command_line(match: re.Match[str]) -> str:
    return unescape_control_tags(" ".join(filter(None, (match["name"], match["arguments"]))))


def _find_opening_angle_brackets(text: str) -> list[int]:
    if text.isascii():
        found, position = [], text.find("<")
        while position >= 0:
            found.append(position)
            position = text.find("<", position + 1)
        return found
    return [match.start() for match in _BRACKET.finditer(text)]


def _starts_control_tag(text: str, position: int) -> bool:
    following = text[position : position + _MAX_TAG_LENGTH]
    if not following.isascii():
        following = _normalize_lookalikes(following)
    return _compile_control_tag_pattern().match(following) is not None


def _normalize_lookalikes(text: str) -> str:
    """Normalize text to what it looks like: narrow letters, no lookalikes, no invisible characters."""
    visible = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Mn", "Me"))
    normalized = unicodedata.normalize("NFKD", visible.translate(_LOOKALIKES)).translate(_LOOKALIKES)
    return "".join(c for c in normalized if not unicodedata.combining(c))


@cache
def _compile_control_tag_pattern() -> re.Pattern[str]:
    # Words may be separated by anything except letters, and letters by blanks and line ends.
    tags = "|".join(_build_obfuscated_tag_pattern(tag) for tag in _TAGS)
    tokens = "|".join(map(re.escape, _TOKENS))
    return re.compile(
        rf"[{_INVISIBLE}/\\!?]*(?:(?:{tags})(?![a-z0-9])|\|\s*/?(?:{tokens})\s*\|)", re.IGNORECASE
    )


def _build_obfuscated_tag_pattern(tag: str) -> str:
    words = (rf"[{_INVISIBLE}]*".join(word) for word in tag.split("-"))
    return rf"[{_INVISIBLE}_\-./\\:]*".join(words)
