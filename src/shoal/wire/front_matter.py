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

FrontMatterValue: TypeAlias = str | list[Any] | dict[str, Any] | None
"""A top-level scalar is its text: the field decides what it means."""

MAX_HEADER_LENGTH = 65_536
"""Maximum characters of front matter."""
_MAX_NODES = 5_000
_MAX_DEPTH = 32
_KEY_LINE = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_BARE_VALUE = re.compile(r"[A-Za-z0-9_./(][^\t]*")
_QUOTED_VALUE = re.compile(r'"[^"\\]*"|\'[^\']*\'')
_NULL_VALUES = frozenset({"", "~", "null", "Null", "NULL"})
_NODE_KINDS = {
    **dict.fromkeys(("str", "timestamp", "value", "merge", "null", "bool", "int", "float"), "scalar"),
    "map": "mapping",
    "seq": "sequence",
}
"""Node kinds by tag: a tag can claim a kind that the node does not have."""
_NON_TEXT_PREFIXES = ('"', "'", "[", "{", "|", ">", "&", "!", "#")


class FrontMatterEntry(Struct, frozen=True, kw_only=True):
    key: str
    value: FrontMatterValue
    line: int


class FrontMatterWarning(Struct, frozen=True, kw_only=True):
    line: int
    key: str
    text: str


class FrontMatterDocument(Struct, frozen=True, kw_only=True):
    entries: tuple[FrontMatterEntry, ...]
    body: str
    warnings: tuple[FrontMatterWarning, ...] = ()


class InvalidFrontMatterError(Exception):
    """Invalid front matter: the mistake, its line and its entry."""

    def __init__(self, problem: str, *, line: int, key: str | None = None) -> None:
        super().__init__(problem)
        self.what = problem
        self.line = line
        self.key = key


class MissingFrontMatterError(InvalidFrontMatterError):
    """A text without front matter."""


def parse_front_matter(text: str, known_keys: Collection[str]) -> FrontMatterDocument:
    """Parse the text; `known_keys` start an entry if YAML parsing fails. Raises `InvalidFrontMatterError`."""
    header, start, body = split_front_matter(text)
    entries, warnings = _parse_front_matter_entries(header, start, known_keys)
    _reject_duplicate_keys(entries)
    return FrontMatterDocument(entries=tuple(entries), body="\n".join(body).strip(), warnings=tuple(warnings))


def split_front_matter(text: str) -> tuple[list[str], int, list[str]]:
    """Return header lines, the number of the first, and body lines; raise `InvalidFrontMatterError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise InvalidFrontMatterError("the file is empty", line=1)
    if lines[first].rstrip() != "---":
        raise MissingFrontMatterError(
            "there is no front matter: the file does not begin with a --- line", line=first + 1
        )
    last = next((n for n in range(first + 1, len(lines)) if lines[n].rstrip() == "---"), None)
    if last is None:
        raise InvalidFrontMatterError(
            "the front matter does not end: the second --- line is missing", line=first + 1
        )
    header = lines[first + 1 : last]
    if sum(map(len, header)) + len(header) > MAX_HEADER_LENGTH:
        raise InvalidFrontMatterError(
            f"the front matter has more than {MAX_HEADER_LENGTH:,} characters", line=first + 1
        )
    return header, first + 2, lines[last + 1 :]


def _parse_front_matter_entries(
    header: Sequence[str], start: int, known_keys: Collection[str]
) -> tuple[list[FrontMatterEntry], list[FrontMatterWarning]]:
    simple = _parse_plain_front_matter_lines(header, start)
    if simple is not None:
        return simple, []
    try:
        return _parse_yaml_front_matter("\n".join(header), start), []
    except InvalidFrontMatterError as problem:
        return _parse_front_matter_loosely(header, start, known_keys, problem)


def _reject_duplicate_keys(entries: Sequence[FrontMatterEntry]) -> None:
    first_lines: dict[str, int] = {}
    for entry in entries:
        if entry.key in first_lines:
            problem = f"it occurs twice, first on line {first_lines[entry.key]}"
            raise InvalidFrontMatterError(problem, line=entry.line, key=entry.key)
        first_lines[entry.key] = entry.line


def _parse_plain_front_matter_lines(header: Sequence[str], start: int) -> list[FrontMatterEntry] | None:
    """Return the entries if YAML would read every line as the same text; otherwise None."""
    entries: list[FrontMatterEntry] = []
    for number, line in enumerate(header):
        if not line.strip() or line.startswith("#"):
            continue
        match = _KEY_LINE.fullmatch(line.rstrip(" "))
        if match is None or not line.isprintable():
            return None
        value: str | None = match[2] or ""
        assert value is not None
        if _QUOTED_VALUE.fullmatch(value):
            value = value[1:-1]
        elif value in _NULL_VALUES:
            value = None
        elif not _BARE_VALUE.fullmatch(value) or ": " in value or " #" in value or value.endswith(":"):
            return None
        entries.append(FrontMatterEntry(key=match[1], value=value, line=start + number))
    return entries


def _parse_front_matter_loosely(
    header: Sequence[str], start: int, known_keys: Collection[str], problem: InvalidFrontMatterError
) -> tuple[list[FrontMatterEntry], list[FrontMatterWarning]]:
    """Parse entry by entry: as YAML if possible, else as plain text, else raise the YAML problem."""
    entries: list[FrontMatterEntry] = []
    warnings: list[FrontMatterWarning] = []
    for key, first, lines in _split_front_matter_by_key(header, known_keys):
        line = start + first
        try:
            found = _parse_yaml_front_matter("\n".join(lines), line)
            if [entry.key for entry in found] == [key]:
                entries += found
                continue
            reason = "its lines are not indented"
        except InvalidFrontMatterError as error:
            reason = error.what
        value = lines[0].partition(":")[2].strip()
        if not value or value.startswith(_NON_TEXT_PREFIXES):
            raise InvalidFrontMatterError(
                reason, line=problem.line if len(lines) > 1 else line, key=key
            ) from problem
        text = "\n".join([value, *(following.strip() for following in lines[1:])]).strip()
        entries.append(FrontMatterEntry(key=key, value=text, line=line))
        warning_text = (
            f"not valid YAML ({reason}), read as plain text; put it in quotes, or indented below `{key}: |`"
        )
        warnings.append(FrontMatterWarning(line=line, key=key, text=warning_text))
    if not entries:
        raise problem
    return entries, warnings


def _split_front_matter_by_key(
    header: Sequence[str], known_keys: Collection[str]
) -> Iterator[tuple[str, int, list[str]]]:
    key, first = "", 0
    lines: list[str] = []
    for number, line in enumerate(header):
        match = _KEY_LINE.fullmatch(line)
        if match is not None and (
            match[1] in known_keys or get_close_matches(match[1], known_keys, n=1, cutoff=0.8)
        ):
            if key:
                yield key, first, lines
            key, first, lines = match[1], number, [line]
        elif key and not line.startswith("#"):
            lines.append(line)
    if key:
        yield key, first, lines


def _parse_yaml_front_matter(text: str, start: int) -> list[FrontMatterEntry]:
    """Parse the entries as YAML; only text, numbers, lists and mappings are constructed."""
    import yaml

    node = compose_yaml(text, start)
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise InvalidFrontMatterError("it is not a list of `key: value` lines", line=start)
    values = _YamlNodeConverter(start)
    return [
        FrontMatterEntry(
            key=values.convert_key(key),
            value=values.convert_top_value(value),
            line=start + key.start_mark.line,
        )
        for key, value in node.value
    ]


def compose_yaml(text: str, start: int) -> yaml.Node | None:
    """Return the YAML tree of text that starts at line `start` of a file; raise `InvalidFrontMatterError`."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml_depth(yaml.parse(text, Loader=loader), start)
        node: yaml.Node | None = yaml.compose(text, Loader=loader)
    except UnicodeEncodeError as error:
        preceding_lines = text[: error.start].count("\n")
        raise InvalidFrontMatterError(
            "it contains bytes that are not valid text", line=start + preceding_lines
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        raise InvalidFrontMatterError(
            str(problem), line=start + (mark.line if mark is not None else 0)
        ) from error
    return node


def _check_yaml_depth(events: Iterable[yaml.Event], start: int) -> None:
    """Reject deep nesting: composing is recursive, and in C too deep a text crashes the process."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                mark = event.start_mark
                raise InvalidFrontMatterError(
                    "it is nested too deeply", line=start + (mark.line if mark else 0)
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _YamlNodeConverter:
    """Converts YAML nodes to values. Aliases can repeat a node many times, so the count is bounded."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._seen = 0

    def convert_top_value(self, node: yaml.Node) -> FrontMatterValue:
        value = self.convert_node(node)
        return value if value is None or isinstance(value, list | dict) else str(node.value)

    def convert_key(self, node: yaml.Node) -> str:
        if not isinstance(node.value, str):
            raise self._build_error("a key must be a string", node)
        return node.value

    def convert_node(self, node: yaml.Node, depth: int = 0) -> Any:
        self._seen += 1
        if self._seen > _MAX_NODES or depth > _MAX_DEPTH:
            raise self._build_error("it is too large or nested too deeply, counting repeated aliases", node)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        node_type: str = getattr(node, "id", "")
        if node_type != _NODE_KINDS.get(kind, node_type):
            raise self._build_error(f"the tag {node.tag} does not match this value", node)
        match kind:
            case "map":
                return {
                    self.convert_key(key): self.convert_node(value, depth + 1) for key, value in node.value
                }
            case "seq":
                return [self.convert_node(item, depth + 1) for item in node.value]
            case "str" | "timestamp" | "value" | "merge":
                return node.value
            case "null" | "bool" | "int" | "float":
                return _parse_yaml_scalar(kind, node.value)
        raise self._build_error(f"the tag {node.tag} is unknown", node)

    def _build_error(self, problem: str, node: yaml.Node) -> InvalidFrontMatterError:
        return InvalidFrontMatterError(problem, line=self._start + node.start_mark.line)


def _parse_yaml_scalar(kind: str, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        return text  # octal, hexadecimal, sexagesimal: not expected here
