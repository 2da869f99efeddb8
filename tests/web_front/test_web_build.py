"""The web view in the package is the one that its sources make."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "shoal" / "surfaces" / "web" / "static"
NOT_BUILT = "web/ and the built files differ: run `make web` and commit what it writes"


def compute_source_digest() -> str:
    """Compute the digest in the same way as web/build.mjs."""
    names = [str(path.relative_to(WEB).as_posix()) for path in (WEB / "src").rglob("*") if path.is_file()]
    names += ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    return found.hexdigest()


def test_the_built_script_and_styles_match_the_sources():
    for name in ("app.js", "app.css"):
        first = (STATIC / name).read_text(encoding="utf-8").splitlines()[0]
        assert first == f"/*! sources sha256:{compute_source_digest()}", NOT_BUILT
    assert (STATIC / "index.html").read_bytes() == (WEB / "src" / "index.html").read_bytes(), NOT_BUILT


def test_the_built_script_contains_the_licences_of_its_libraries():
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    assert "It contains Preact:\nThe MIT License (MIT)" in script
    assert "Permission is hereby granted" in script


def test_the_page_has_no_inline_script_or_style_and_requests_no_other_host():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|src=.?http|href=.?http", page) == []
    assert "@import" not in (STATIC / "app.css").read_text(encoding="utf-8")
    assert "http" not in (STATIC / "app.css").read_text(encoding="utf-8")


def test_the_lock_file_names_no_registry():
    packages = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert len(packages) > 3
    assert [name for name, facts in packages.items() if "resolved" in facts] == []
    assert all("integrity" in facts for name, facts in packages.items() if name)
