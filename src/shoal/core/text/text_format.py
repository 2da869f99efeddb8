"""Formatting of text and numbers for display; the result cannot control a terminal."""

from __future__ import annotations

from itertools import groupby

from shoal.core.text.lazy_patterns import compile_on_first_use

_ESCAPE_SEQUENCE = compile_on_first_use(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"
)
# Control characters, marks that change the reading order of text, and characters without width. The joiners
# U+200C and U+200D are parts of words and emoji.
_CONTROL_CHARACTERS = compile_on_first_use(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNSHOWABLE_CHARACTERS = compile_on_first_use(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
# Runs of blanks that could push the rest of a line off the screen.
_LONG_BLANK_RUN = compile_on_first_use("(?:[^\\S\n\u2028\u2029]|[\u115f\u1160\u2800\u3164\uffa0]){41,}")
_MAX_EMPTY_LINES = 5
# Comments, tags, entities, escapes, targets of links, tables that are cut, and code that is not wrapped.
_HIDING_MARKDOWN = compile_on_first_use(r"[<&|\[\]\\]|~~~|(?m:^(?: {4}|\t))")
_PLAIN_FENCE = compile_on_first_use(r" {0,3}```[\w+.-]* *")
_MAX_CODE_WIDTH = 60


def hides_text_as_markdown(text: str) -> bool:
    """Return True if a part of the text could be invisible when it is rendered as Markdown."""
    lines = text.removesuffix("\n").split("\n")
    return (
        bool(_HIDING_MARKDOWN.search(text))
        or split_into_visible_lines(text) != lines
        or _has_hiding_code_block(lines)
    )


def _has_hiding_code_block(lines: list[str]) -> bool:
    """Return True for words after the language, lines that may be cut, and a block without an end."""
    is_inside = False
    for line in lines:
        if line.lstrip().startswith("```"):
            if not _PLAIN_FENCE.fullmatch(line):
                return True
            is_inside = not is_inside
        elif is_inside and len(line) > _MAX_CODE_WIDTH:
            return True
    return is_inside


def split_into_visible_lines(text: str) -> list[str]:
    """Split a text that a person approves into lines, without leaving out any of it.

    Control characters are written as escapes. Long runs of blanks and of empty lines, which could move text
    off the screen, are replaced by their length.
    """
    lines: list[str] = []
    all_lines = text.removesuffix("\n").split("\n")
    for is_empty, group in groupby(all_lines, key=lambda line: not line.strip()):
        group_lines = list(group)
        if is_empty and len(group_lines) > _MAX_EMPTY_LINES:
            lines.append(f"[… {len(group_lines)} empty lines …]")
        else:
            lines.extend(map(_make_line_visible, group_lines))
    return lines


def find_unshowable_character(text: str) -> str | None:
    """Return the first character that people cannot see, or that changes how others look; None if none."""
    match = _UNSHOWABLE_CHARACTERS.search(text)
    return None if match is None else match[0]


def make_visible_in_one_line(text: str) -> str:
    """Like `split_into_visible_lines`, but write the end of a line as an escape."""
    return "\\n".join(map(_make_line_visible, text.split("\n")))


def _make_line_visible(line: str) -> str:
    if line.isprintable() and len(line) <= 40:
        return line
    line = _LONG_BLANK_RUN.sub(lambda match: _describe_blank_run(match[0]), line)
    return _UNSHOWABLE_CHARACTERS.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), line.expandtabs(4)
    )


def _describe_blank_run(blanks: str) -> str:
    noun = "spaces" if blanks.strip(" ") == "" else "blank characters"
    return f"[… {len(blanks)} {noun} …]"


def strip_terminal_codes(text: str) -> str:
    """Remove everything that a terminal would interpret: text of models and programs is only displayed."""
    if text.isprintable():
        return text
    return _CONTROL_CHARACTERS.sub("", _ESCAPE_SEQUENCE.sub("", text).expandtabs(4))


def strip_control_characters(text: str) -> str:
    """Remove control characters only: the rest of a sequence and tabs stay in place."""
    return text if text.isprintable() else _CONTROL_CHARACTERS.sub("", text)


def to_one_line(text: str) -> str:
    return " ".join(strip_terminal_codes(text).split())


def format_token_count(number: int) -> str:
    """Format a number of tokens: 940, 12.4k, 3.1M."""
    if number < 1_000:
        return str(number)
    if number < 999_950:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def format_count_with_noun(number: int, noun: str) -> str:
    """Format a number with its noun: 1 call, 2 calls."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_duration(value: float) -> str:
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_dollars(usd: float | None) -> str:
    if usd is None:
        return "price unknown"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"
