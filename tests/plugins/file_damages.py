"""Damages of state files: parts that are missing, other types, and other things in place of a file."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FileChange = Callable[[Path], object]
WRONG_VALUES: tuple[Any, ...] = ("text", 5, [1], {"a": 1}, None, True)


def replace_by_link(path: Path, other: Path) -> None:
    path.rename(other)
    path.symlink_to(other)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_socket(path: Path) -> None:
    path.unlink()
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # the whole path may be too long


def replace_by_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def replace_by_link_to_other_file(path: Path) -> None:
    """Replace the file with a link to another file, with content that nobody should read."""
    path.unlink()
    other = path.with_name("other-file")
    other.write_text("theirs\n")
    path.symlink_to(other)


ENTRY_DAMAGES: dict[str, FileChange] = {
    "directory": replace_by_directory,
    "dangling link": replace_by_dangling_link,
    "link": replace_by_link_to_other_file,
    "pipe": replace_by_pipe,
    "socket": replace_by_socket,
}


def _cut(numerator: int, denominator: int) -> FileChange:
    def cut_file(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: max(1, len(content) * numerator // denominator)])

    return cut_file


def _fill_middle(filler: bytes) -> FileChange:
    def fill_file(path: Path) -> None:
        content = path.read_bytes()
        start, size = len(content) // 3, max(1, len(content) // 4)
        path.write_bytes(content[:start] + filler * size + content[start + size :])

    return fill_file


def _write(content: bytes) -> FileChange:
    return lambda path: path.write_bytes(content)


CONTENT_DAMAGES: dict[str, FileChange] = {
    "first byte": _cut(0, 1),
    "first third": _cut(1, 3),
    "first two thirds": _cut(2, 3),
    "all but the end": lambda path: path.write_bytes(path.read_bytes().rstrip()[:-1]),
    "emptied": _write(b""),
    "nuls": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "nuls in the middle": _fill_middle(b"\0"),
    "bytes in the middle": _fill_middle(b"\xff"),
    "random bytes": _write(bytes(range(256))),
    "string": _write(b'"text"\n'),
    "number": _write(b"5\n"),
    "null": _write(b"null\n"),
    "list": _write(b"[1]\n"),
    "object": _write(b'{"a": 1}\n'),
    "list of lists": _write(b"[[], {}]\n"),
    "deep nesting": _write(b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"\n"),
}


_TEXT_FIELDS = ("text", "content", "preview", "description", "subject", "prompt", "reason", "summary")


def _add_to_texts(odd: str) -> FileChange:
    """Return a change that appends characters to each text that a person or a model wrote."""

    def change_texts(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: change_texts(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [change_texts(each, key) for each in value]
        is_text = key in (
            "text",
            "content",
            "preview",
            "description",
            "subject",
            "prompt",
            "reason",
            "summary",
        )
        return value + odd if isinstance(value, str) and is_text else value

    def change_file(path: Path) -> None:
        content = path.read_bytes()
        lines = [json.dumps(change_texts(json.loads(line))).encode() for line in _split_documents(content)]
        path.write_bytes(b"\n".join(lines) + (b"\n" if content.endswith(b"\n") else b""))

    return change_file


TEXT_DAMAGES: dict[str, FileChange] = {
    "NUL characters": _add_to_texts("a\0b"),
    "lone surrogates": _add_to_texts("a\ud83d"),
}
"""Changes of texts that leave valid JSON: nobody has to report them, but everybody must cope with them."""


def list_field_damages(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield a pointer to each field, and a value of another type as JSON. Of several fields with the same
    name and place, only the first counts.
    """
    seen: set[str] = set()
    for pointer, value in _walk_documents(content):
        name = "/".join(key for key in pointer.split("/") if not key.isdigit())
        if name not in seen:
            seen.add(name)
            yield pointer, json.dumps(_choose_wrong_value(pointer, value))


def damage_field(pointer: str, wrong: str) -> FileChange:
    def change_file(path: Path) -> None:
        content = path.read_bytes()
        number, *keys = pointer.split("/")
        documents = _split_documents(content)
        document = json.loads(documents[int(number)])
        place = document
        for key in keys[:-1]:
            place = place[int(key)] if isinstance(place, list) else place[_unescape(key)]
        last: Any = int(keys[-1]) if isinstance(place, list) else _unescape(keys[-1])
        place[last] = json.loads(wrong)
        documents[int(number)] = json.dumps(document).encode()
        path.write_bytes(b"\n".join(documents) + (b"\n" if content.endswith(b"\n") else b""))

    return change_file


def _split_documents(content: bytes) -> list[bytes]:
    try:
        json.loads(content)
    except ValueError:
        return content.rstrip(b"\n").split(b"\n")
    return [content]


def _walk_documents(content: bytes) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for number, line in enumerate(_split_documents(content)):
        document = json.loads(line)
        kind = str(document.get("type", "")) if isinstance(document, dict) else ""
        shape = kind + str(sorted(document)) if isinstance(document, dict) else kind
        if shape not in seen:
            seen.add(shape)
            yield from _walk(str(number), document, 3)


def _walk(pointer: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    )
    for key, each in entries:
        inner = f"{pointer}/{_escape(str(key))}"
        yield inner, each
        if depth > 1:
            yield from _walk(inner, each, depth - 1)


def _choose_wrong_value(pointer: str, value: Any) -> Any:
    """Return a value of another type, each time another one; None may stand for any value but a list."""
    if value is None:
        return [1]
    others = [each for each in WRONG_VALUES if type(each) is not type(value) and each is not None]
    if isinstance(value, int | float) and not isinstance(value, bool):
        others = [each for each in others if not isinstance(each, bool | int)]
    return others[len(pointer) % len(others)]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
