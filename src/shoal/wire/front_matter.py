"""Parser for Markdown with front matter: entries with their lines, and the body.

Simple `key: value` lines are parsed like YAML without loading YAML. Common lines that are not valid YAML,
such as `description: Use it when: …`, are read as plain text with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import yaml

Value: TypeAlias = str | list[Any] | dict[str, Any] | None
"""A top-level scalar is its text: the field decides what it means."""

LONGEST = 65_536
"""Maximum characters of front matter."""
_MOST_NODES = 5_000
_DEEPEST = 32
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_BARE = re.compile(r"[A-Za-z0-9_./(][^\t]*")
_QUOTED = re.compile(r'"[^"\\]*"|\'[^\']*\'')
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_WRITTEN_AS = {
    **dict.fromkeys(("str", "timestamp", "value", "merge", "null", "bool", "int", "float"), "scalar"),
    "map": "mapping",
    "seq": "sequence",
}
"""Node kinds by tag: a tag can claim a kind that the node does not have."""
_STARTS_OTHER_THAN_TEXT = ('"', "'", "[", "{", "|", ">", "&", "!", "#")


class Entry(Struct, frozen=True, kw_only=True):
    key: str
    value: Value
    line: int


class Remark(Struct, frozen=True, kw_only=True):
    line: int
    key: str
    text: str


class Page(Struct, frozen=True, kw_only=True):
    entries: tuple[Entry, ...]
    body: str
    remarks: tuple[Remark, ...] = ()


class Unreadable(Exception):
    """Invalid front matter: the mistake, its line and its entry."""

    def __init__(self, what: str, *, line: int, key: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.key = key


def read_page(text: str, known: Collection[str]) -> Page:
    """Parse the text; `known_keys` start an entry if YAML parsing fails. Raises `InvalidFrontMatter`."""
    header, start, body = parts_of(text)
    entries, remarks = _entries(header, start, known)
    _refuse_twice(entries)
    return Page(entries=tuple(entries), body="\n".join(body).strip(), remarks=tuple(remarks))


def parts_of(text: str) -> tuple[list[str], int, list[str]]:
    """Return the header lines, the number of the first, and the body lines; raise `InvalidFrontMatter`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise Unreadable("the file is empty", line=1)
    if lines[first].rstrip() != "---":
        raise Unreadable("there is no front matter: the file does not begin with a line ---", line=first + 1)
    last = next((n for n in range(first + 1, len(lines)) if lines[n].rstrip() == "---"), None)
    if last is None:
        raise Unreadable("the front matter does not end: a second line --- is missing", line=first + 1)
    header = lines[first + 1 : last]
    if sum(map(len, header)) + len(header) > LONGEST:
        raise Unreadable(f"the front matter has more than {LONGEST:,} characters", line=first + 1)
    return header, first + 2, lines[last + 1 :]


def _entries(header: Sequence[str], start: int, known: Collection[str]) -> tuple[list[Entry], list[Remark]]:
    simple = _simple(header, start)
    if simple is not None:
        return simple, []
    try:
        return _composed("\n".join(header), start), []
    except Unreadable as problem:
        return _loose(header, start, known, problem)


def _refuse_twice(entries: Sequence[Entry]) -> None:
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.key in seen:
            what = f"it is there twice, first on line {seen[entry.key]}"
            raise Unreadable(what, line=entry.line, key=entry.key)
        seen[entry.key] = entry.line


def _simple(header: Sequence[str], start: int) -> list[Entry] | None:
    """Return the entries if YAML would read every line as the same text; otherwise None."""
    entries: list[Entry] = []
    for number, line in enumerate(header):
        if not line.strip() or line.startswith("#"):
            continue
        match = _KEY.fullmatch(line.rstrip(" "))
        if match is None or not line.isprintable():
            return None
        value: str | None = match[2] or ""
        assert value is not None
        if _QUOTED.fullmatch(value):
            value = value[1:-1]
        elif value in _NOTHING:
            value = None
        elif not _BARE.fullmatch(value) or ": " in value or " #" in value or value.endswith(":"):
            return None
        entries.append(Entry(key=match[1], value=value, line=start + number))
    return entries


def _loose(
    header: Sequence[str], start: int, known: Collection[str], problem: Unreadable
) -> tuple[list[Entry], list[Remark]]:
    """Parse entry by entry: as YAML if possible, else as plain text, else raise the YAML problem."""
    entries: list[Entry] = []
    remarks: list[Remark] = []
    for key, first, lines in _chunks(header, known):
        line = start + first
        try:
            found = _composed("\n".join(lines), line)
            if [entry.key for entry in found] == [key]:
                entries += found
                continue
            why = "its lines are not indented"
        except Unreadable as error:
            why = error.what
        value = lines[0].partition(":")[2].strip()
        if not value or value.startswith(_STARTS_OTHER_THAN_TEXT):
            raise Unreadable(why, line=problem.line if len(lines) > 1 else line, key=key) from problem
        text = "\n".join([value, *(following.strip() for following in lines[1:])]).strip()
        entries.append(Entry(key=key, value=text, line=line))
        told = f"not valid YAML ({why}), read as plain text; put it in quotes, or indented below `{key}: |`"
        remarks.append(Remark(line=line, key=key, text=told))
    if not entries:
        raise problem
    return entries, remarks


def _chunks(header: Sequence[str], known: Collection[str]) -> Iterator[tuple[str, int, list[str]]]:
    key, first = "", 0
    lines: list[str] = []
    for number, line in enumerate(header):
        match = _KEY.fullmatch(line)
        if match is not None and (match[1] in known or get_close_matches(match[1], known, n=1, cutoff=0.8)):
            if key:
                yield key, first, lines
            key, first, lines = match[1], number, [line]
        elif key and not line.startswith("#"):
            lines.append(line)
    if key:
        yield key, first, lines


def _composed(text: str, start: int) -> list[Entry]:
    """Parse the entries as YAML; only text, numbers, lists and mappings are constructed."""
    import yaml

    node = composed(text, start)
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise Unreadable("it is not a list of `key: value` lines", line=start)
    values = _Values(start)
    return [
        Entry(key=values.key(key), value=values.top(value), line=start + key.start_mark.line)
        for key, value in node.value
    ]


def composed(text: str, start: int) -> yaml.Node | None:
    """Return the YAML tree of text that starts at line `start` of its file; raise `InvalidFrontMatter`."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(yaml.parse(text, Loader=loader), start)
        node: yaml.Node | None = yaml.compose(text, Loader=loader)
    except UnicodeEncodeError as error:
        before = text[: error.start].count("\n")
        raise Unreadable("it holds bytes that are no text", line=start + before) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        raise Unreadable(str(what), line=start + (mark.line if mark is not None else 0)) from error
    return node


def _refuse_depth(events: Iterable[yaml.Event], start: int) -> None:
    """Reject deep nesting: composing is recursive, and in C too deep a text crashes the process."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                mark = event.start_mark
                raise Unreadable("it is nested too deeply", line=start + (mark.line if mark else 0))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Values:
    """Converts YAML nodes to values. Aliases can repeat a node many times, so the count is bounded."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._seen = 0

    def top(self, node: yaml.Node) -> Value:
        value = self.of(node)
        return value if value is None or isinstance(value, list | dict) else str(node.value)

    def key(self, node: yaml.Node) -> str:
        if not isinstance(node.value, str):
            raise self._unreadable("a key is a word", node)
        return node.value

    def of(self, node: yaml.Node, depth: int = 0) -> Any:
        self._seen += 1
        if self._seen > _MOST_NODES or depth > _DEEPEST:
            raise self._unreadable("it holds too much: aliases that repeat each other", node)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        written: str = getattr(node, "id", "")
        if written != _WRITTEN_AS.get(kind, written):
            raise self._unreadable(f"the tag {node.tag} is for something else than this", node)
        match kind:
            case "map":
                return {self.key(key): self.of(value, depth + 1) for key, value in node.value}
            case "seq":
                return [self.of(item, depth + 1) for item in node.value]
            case "str" | "timestamp" | "value" | "merge":
                return node.value
            case "null" | "bool" | "int" | "float":
                return _scalar(kind, node.value)
        raise self._unreadable(f"the tag {node.tag} is not understood", node)

    def _unreadable(self, what: str, node: yaml.Node) -> Unreadable:
        return Unreadable(what, line=self._start + node.start_mark.line)


def _scalar(kind: str, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        return text  # octal, hexadecimal, sexagesimal: not expected here
