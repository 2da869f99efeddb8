"""The table `readonly.txt`, read when the first command is judged."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import cast, get_args

from shoal.policy.shell.options import Operands, Reader

_HEAD = re.compile(rf"(.+): ({'|'.join(get_args(Operands))})(?: needs (.+))?")


@cache
def readers() -> dict[str, Reader]:
    """Return the commands of the table by name, with their subcommands inside."""
    return parsed_table(Path(__file__).with_name("readonly.txt").read_text(encoding="utf-8"))


def parsed_table(text: str) -> dict[str, Reader]:
    groups: dict[str, str] = {}
    root = Reader(subs={})
    for head, body in _entries(text):
        flags = " ".join(groups.get(flag, flag) for flag in body.split())
        if head.startswith("@"):
            groups[head] = flags
            continue
        match = _HEAD.fullmatch(head)
        if match is None:
            raise ValueError(f"readonly.txt: {head!r} does not say what its operands are.")
        for name in match[1].split(", "):
            _add(root, name.split(), match[2], None if flags == "*" else flags, match[3] or "")
    return root.subs


def _entries(text: str) -> list[tuple[str, str]]:
    """Parse entry heads, which may span several lines, and the indented lines under them."""
    entries: list[tuple[str, str]] = []
    open_head = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(" "):
            head, body = entries.pop()
            entries.append((head, f"{body} {line}"))
            continue
        open_head = f"{open_head} {line}".strip()
        if open_head.startswith("@") or _HEAD.fullmatch(open_head):
            entries.append((open_head, ""))
            open_head = ""
    return entries


def _add(root: Reader, path: list[str], operands: str, flags: str | None, needs: str) -> None:
    *parents, last = path
    at = root
    for name in parents:
        at = at.subs.setdefault(name, Reader(alone=False))
    known = at.subs.get(last)
    at.subs[last] = Reader(
        flags=flags, operands=cast("Operands", operands), needs=needs, subs=known.subs if known else {}
    )
