"""The table `readonly.txt`, read when the first command is judged."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import cast, get_args

from msgspec.structs import replace

from shoal.policy.shell.readonly_usage import FlagStyle, OperandKind, ReadOnlyCommandUsageSpec

_HEAD = re.compile(
    rf"(.+): ({'|'.join(get_args(OperandKind))})(?: ({'|'.join(filter(None, get_args(FlagStyle)))}))?"
    r"(?: needs (.+))?"
)


@cache
def load_readonly_command_table() -> dict[str, ReadOnlyCommandUsageSpec]:
    """Return the commands of the table by name, with their subcommands inside."""
    return parse_readonly_command_table(Path(__file__).with_name("readonly.txt").read_text(encoding="utf-8"))


def parse_readonly_command_table(text: str) -> dict[str, ReadOnlyCommandUsageSpec]:
    groups: dict[str, str] = {}
    root = ReadOnlyCommandUsageSpec(subs={})
    for head, body in _parse_readonly_table_entries(text):
        flags = " ".join(groups.get(flag, flag) for flag in body.split())
        if head.startswith("@"):
            groups[head] = flags
            continue
        match = _HEAD.fullmatch(head)
        if match is None:
            raise ValueError(f"readonly.txt: {head!r} does not specify the kind of its operands.")
        for name in match[1].split(", "):
            any_flag, *listed = flags.split() if flags.startswith("*") else ("",)
            usage = ReadOnlyCommandUsageSpec(
                flags=None if any_flag else flags,
                excluded=tuple(flag[1:] for flag in listed if flag.startswith("!")),
                file_flags=tuple(flag[:-1] for flag in listed if flag.endswith(":")),
                value_flags=tuple(flag[:-1] for flag in listed if flag.endswith("=")),
                operands=cast("OperandKind", match[2]),
                style=cast("FlagStyle", match[3] or ""),
                needs=match[4] or "",
            )
            _add_readonly_table_entry(root, name.split(), usage)
    return root.subs


def _parse_readonly_table_entries(text: str) -> list[tuple[str, str]]:
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


def _add_readonly_table_entry(
    root: ReadOnlyCommandUsageSpec, path: list[str], usage: ReadOnlyCommandUsageSpec
) -> None:
    *parents, leaf = path
    parent = root
    for name in parents:
        parent = parent.subs.setdefault(name, ReadOnlyCommandUsageSpec(alone=False))
    existing = parent.subs.get(leaf)
    parent.subs[leaf] = replace(usage, subs=existing.subs if existing else {})
