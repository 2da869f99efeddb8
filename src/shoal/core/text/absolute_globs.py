"""Absolute glob patterns, which name the directory to search themselves."""

from __future__ import annotations

import posixpath


def split_absolute_glob(pattern: str) -> tuple[str, str]:
    """Split an absolute pattern into its leading directory without wildcards and the rest."""
    parts = posixpath.normpath(pattern).lstrip("/").split("/")
    fixed_count = 0
    while fixed_count < len(parts) - 1 and not set(parts[fixed_count]) & set("*?[{"):
        fixed_count += 1
    return "/" + "/".join(parts[:fixed_count]), "./" + "/".join(parts[fixed_count:])
