"""Changes to JSON text that keep comments, trailing commas and the layout of everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.wire.json_comments import decode_commented_json, find_json_comments

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = re.compile(r"\n([ \t]+)\S")
_Edit: TypeAlias = tuple[int, int, str]
"""Start and end of the replaced text, and the new text."""


class UneditableJsonError(ValueError):
    """The text cannot be changed without a loss."""


class _JsonEntry(Struct, kw_only=True):
    """Position of an entry of an object or a list; `start` is that of the key if it has one."""

    key: Any
    start: int
    value_start: int
    end: int
    comma: int | None = None
    """Position of the comma after the entry."""
    entries: list[_JsonEntry] | None = None
    """Entries of an object or a list; None for any other value."""


def edit_json_text(text: str, value: Any) -> str:
    """Return the JSON text, changed as little as possible so that its value is `value`.

    Raises `UneditableJsonError` if comments or commas prevent it, `ValueError` if the text is not JSON.
    """
    old, _ = decode_commented_json(text)
    value = json.loads(json.dumps(value))  # with lists instead of tuples
    editor = _JsonTextEditor(text)
    try:
        editor.change_document(old, value)
        changed = editor.apply_edits()
        is_same = decode_commented_json(changed)[0] == value
    except (ValueError, IndexError, RecursionError) as error:
        raise UneditableJsonError from error
    if not is_same or (_is_strict_json(text) and not _is_strict_json(changed)):
        raise UneditableJsonError
    return changed


def detect_json_indent(text: str) -> str | None:
    """Return the first indent in the text; None if the text is on one line."""
    match = _INDENT.search(text)
    return match[1] if match else None


class _JsonTextEditor:
    def __init__(self, text: str) -> None:
        self._text = text
        self._comments = find_json_comments(text)
        self._edits: list[_Edit] = []
        self._tokens = [*_iter_tokens(text, self._comments)]
        has_blanks = [text[end].isspace() for start, end in self._tokens[:-1] if text[start] == ":"]
        self._blank = " " if any(has_blanks) or not has_blanks else ""
        """Blank after a colon, and after a comma in a line."""
        self._indent = "  "

    def change_document(self, old: Any, new: Any) -> None:
        entry, _ = self._parse_value(0)
        self._indent = next(self._iter_indents(entry, 1), self._indent)
        is_inline = "\n" not in self._text.strip() and self._text.strip() != "{}"
        self._change_value(entry, old, new, depth=0, is_inline=is_inline)

    def _iter_indents(self, entry: _JsonEntry, depth: int) -> Iterator[str]:
        """Yield the indent of each entry that starts a line, divided by its depth."""
        for each in entry.entries or ():
            before = self._text[self._text.rfind("\n", 0, each.start) + 1 : each.start]
            if before and before.isspace() and len(before) % depth == 0:
                yield before[: len(before) // depth]
            yield from self._iter_indents(each, depth + 1)

    def _parse_value(self, index: int) -> tuple[_JsonEntry, int]:
        start, end = self._tokens[index]
        entry = _JsonEntry(key=None, start=start, value_start=start, end=end)
        opener = self._text[start]
        if opener not in "{[":
            return entry, index + 1
        entry.entries, index = self._parse_entries(index + 1, has_keys=opener == "{")
        entry.end = self._tokens[index][1]
        return entry, index + 1

    def _parse_entries(self, index: int, *, has_keys: bool) -> tuple[list[_JsonEntry], int]:
        entries: list[_JsonEntry] = []
        while self._text[self._tokens[index][0]] not in "}]":
            start, end = self._tokens[index]
            if self._text[start] == ",":
                entries[-1].comma = start
                index += 1
                continue
            entry, following = self._parse_value(index + 2 if has_keys else index)
            entry.start = start
            entry.key = json.loads(self._text[start:end]) if has_keys else len(entries)
            entries.append(entry)
            index = following
        return entries, index

    def _change_value(self, entry: _JsonEntry, old: Any, new: Any, *, depth: int, is_inline: bool) -> None:
        """Change a value; `is_inline` is True if everything around it is in one line."""
        if old == new and type(old) is type(new):
            return
        surroundings = is_inline
        if entry.entries:
            is_inline = "\n" not in self._text[entry.value_start : entry.end]
        if isinstance(old, dict) and isinstance(new, dict) and entry.entries is not None:
            kept = [each for each in entry.entries if each.key in new]
            for each in kept:
                self._change_value(each, old[each.key], new[each.key], depth=depth + 1, is_inline=is_inline)
            added = [
                f"{json.dumps(key, ensure_ascii=False)}:{self._blank}"
                f"{self._format_value(value, depth + 1, is_inline=is_inline)}"
                for key, value in new.items()
                if key not in old
            ]
            self._remove_entries(entry.entries, kept, has_added=bool(added))
            self._add_entries(entry, kept, added, depth, is_inline=is_inline)
        elif isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
            added = [self._format_value(each, depth + 1, is_inline=is_inline) for each in new[len(old) :]]
            self._add_entries(entry, entry.entries or [], added, depth, is_inline=is_inline)
        elif isinstance(old, list) and isinstance(new, list) and [each for each in old if each in new] == new:
            entries = entry.entries or []
            kept = [each for each in entries if old[each.key] in new]
            self._remove_entries(entries, kept, has_added=False)
        else:
            text = self._format_value(new, depth, is_inline=surroundings)
            self._edits.append((entry.value_start, entry.end, text))

    def _remove_entries(
        self, entries: Sequence[_JsonEntry], kept: Sequence[_JsonEntry], *, has_added: bool
    ) -> None:
        for entry in entries:
            if entry in kept:
                continue
            end = entry.end
            if entry.comma is not None:
                end = self._skip_blanks(entry.end, entry.comma + 1)
            self._edits.append((*self._extend_to_lines(entry.start, end), ""))
            if entry.comma is not None and end <= entry.comma:
                self._edits.append((entry.comma, entry.comma + 1, ""))
            is_last = entry is entries[-1] and entry.comma is None
            if is_last and kept and kept[-1].comma is not None and not has_added:
                self._edits.append((kept[-1].comma, kept[-1].comma + 1, ""))

    def _skip_blanks(self, start: int, end: int) -> int:
        """Return `end` if only blanks are before the comma there; otherwise `start`."""
        return end if not self._text[start : end - 1].strip() else start

    def _extend_to_lines(self, start: int, end: int) -> tuple[int, int]:
        """Return the range with the rest of its lines if nothing else is in them."""
        line_start = self._text.rfind("\n", 0, start) + 1
        line_end = self._text.find("\n", end)
        is_alone = not self._text[line_start:start].strip() and line_end >= 0
        if is_alone and not self._text[end:line_end].strip():
            return line_start, line_end + 1
        return start, end

    def _add_entries(
        self, parent: _JsonEntry, kept: list[_JsonEntry], added: list[str], depth: int, *, is_inline: bool
    ) -> None:
        if not added:
            return
        # An empty object may have a line for a comment.
        is_multiline = not is_inline or "\n" in self._text[parent.value_start : parent.end]
        separator = f"\n{self._indent * (depth + 1)}" if is_multiline else self._blank
        if not kept:
            inner = (separator if is_multiline else "") + f",{separator}".join(added)
            closing = f"\n{self._indent * depth}" if is_multiline else ""
            has_line_end = "\n" in self._text[parent.value_start + 1 : parent.end - 1]
            position = parent.value_start + 1
            self._edits.append((position, position, inner + ("" if has_line_end else closing)))
            return
        last = kept[-1]
        has_comma = last.comma is not None
        position = self._find_end_of_line((last.comma or 0) + 1 if has_comma else last.end, parent.end - 1)
        has_trailing_comma = (parent.entries or [])[-1].comma is not None
        new_text = separator + f",{separator}".join(added) + ("," if has_trailing_comma else "")
        if has_comma:
            self._edits.append((position, position, new_text))
        elif position == last.end:
            self._edits.append((position, position, f",{new_text}"))
        else:
            self._edits += ((last.end, last.end, ","), (position, position, new_text))

    def _find_end_of_line(self, position: int, limit: int) -> int:
        """Return the end of the line if only comments follow in it; otherwise `position`."""
        current = position
        while current < limit and self._text[current] != "\n":
            comment = next((end for start, end in self._comments if start == current), None)
            if comment is None and not self._text[current].isspace():
                return position
            current = comment or current + 1
        return current if current < limit else position

    def _format_value(self, value: Any, depth: int, *, is_inline: bool) -> str:
        if is_inline and depth:
            return json.dumps(value, ensure_ascii=False, separators=(f",{self._blank}", f":{self._blank}"))
        text = json.dumps(value, indent=self._indent, ensure_ascii=False)
        return text.replace("\n", f"\n{self._indent * depth}")

    def apply_edits(self) -> str:
        text, limit = self._text, len(self._text) + 1
        # From the end, so that positions stay valid; two removals may overlap.
        for start, end, new in sorted(self._edits, key=lambda edit: edit[:2], reverse=True):
            if new and end > limit:
                raise UneditableJsonError
            text = text[:start] + new + text[max(start, min(end, limit)) :]
            limit = start
        return text


def _iter_tokens(text: str, comments: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    position = 0
    for start, end in [*comments, (len(text), len(text))]:
        for token in _TOKEN.finditer(text, position, start):
            yield token.span()
        position = end


def _is_strict_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
