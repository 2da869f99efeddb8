"""Parser for the resources that an agent needs from a machine of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from shoal.core.agents.subagents import ResourceRequest
from shoal.wire.field_parsers import InvalidFrontMatterFieldError, describe_field_value

_KEYS = ("cpus", "memory", "gpus", "labels")
_MAX_COUNT = 100_000
_MAX_BYTES = 1 << 50
_SMALLEST_SHARE = 0.0001
"""Smallest share of a processor that Ray counts."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{letter}{ending}": 1 << (10 * power)
    for power, letter in enumerate("KMGT", 1)
    for ending in ("I", "IB", "")
}
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]{0,3})\s*")
_LABEL_NAME = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,200}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def parse_resource_request(value: Any) -> ResourceRequest:
    """Parse `{cpus, memory, gpus, labels}`. Raises `InvalidFrontMatterFieldError` with the key."""
    if not isinstance(value, Mapping):
        raise InvalidFrontMatterFieldError(
            f"expected a mapping with {', '.join(_KEYS)}, got {describe_field_value(value)}"
        )
    for key in value:
        if key not in _KEYS:
            matches = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {matches[0]}?" if matches else f"known keys: {', '.join(_KEYS)}"
            raise InvalidFrontMatterFieldError(f"unknown key {key!r}; {hint}")
    given = {key: each for key, each in value.items() if each is not None}
    return ResourceRequest(
        cpus=_parse_share("cpus", given["cpus"]) if "cpus" in given else None,
        memory=_parse_bytes(given.get("memory", 0)),
        gpus=_parse_share("gpus", given.get("gpus", 0)),
        labels=_parse_labels(given.get("labels", {})),
    )


def _parse_share(key: str, value: Any) -> float:
    number = _parse_number(value)
    if number is None or not 0 <= number <= _MAX_COUNT:
        raise InvalidFrontMatterFieldError(f"{key}: expected a number such as 0.5 or 2, got {value!r}")
    if number > 1 and number != int(number):
        raise InvalidFrontMatterFieldError(
            f"{key}: {value} is invalid because Ray allows fractions only below 1. Above 1, use an integer"
        )
    if 0 < number < _SMALLEST_SHARE:
        raise InvalidFrontMatterFieldError(f"{key}: {value} is less than {_SMALLEST_SHARE}")
    return number


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _parse_bytes(value: Any) -> int:
    found = None if isinstance(value, bool) else _SIZE.fullmatch(str(value))
    unit = None if found is None else _UNITS.get(found[2].upper())
    if found is None or unit is None or (size := float(found[1]) * unit) > _MAX_BYTES:
        raise InvalidFrontMatterFieldError(
            f"memory: expected bytes, or a size such as 512 MiB or 4 GB, got {value!r}"
        )
    return int(size)


def _parse_labels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidFrontMatterFieldError(
            f"labels: expected a mapping of names to values, got {describe_field_value(value)}"
        )
    for name, each in value.items():
        if not isinstance(name, str) or _LABEL_NAME.fullmatch(name) is None:
            raise InvalidFrontMatterFieldError(f"labels: {name!r} is not a label name")
        if not isinstance(each, str) or _LABEL_VALUE.fullmatch(each) is None:
            # A value such as !fast would be an operator to Ray.
            raise InvalidFrontMatterFieldError(
                f"labels: {name}: {each!r} is not a label value; use letters, digits, '-', '_' and '.'"
            )
    return dict(value)
