"""Escaping of file names, so that any name can be displayed, sent as JSON and converted back."""

from __future__ import annotations

import os
import re
from pathlib import PurePath

from shoal.core.text.lazy_patterns import compile_on_first_use

_UNSHOWABLE = compile_on_first_use("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Only what `escape_filename` escapes: it cannot produce a slash or dot.
_ESCAPED = compile_on_first_use(r"\\x([01][0-9a-f]|7f|[89a-f][0-9a-f])")


def escape_filename(path: PurePath | str) -> str:
    r"""Escape control characters and bytes that are not UTF-8 as `\x1b`, `\xff`."""
    text = str(path)
    return _UNSHOWABLE.sub(_escape_matched_filename_character, text) if _UNSHOWABLE.search(text) else text


def unescape_filename(text: str) -> str:
    """Return the name that `escape_filename` turned into this text; ambiguous for names with a backslash."""
    if "\\x" not in text:
        return text
    raw = _ESCAPED.sub(lambda found: os.fsdecode(bytes((int(found[1], 16),))), text)
    return os.fsdecode(os.fsencode(raw))


def _escape_matched_filename_character(found: re.Match[str]) -> str:
    try:
        raw = os.fsencode(found[0])
    except UnicodeEncodeError:
        return f"\\u{ord(found[0]):04x}"
    return "".join(f"\\x{byte:02x}" for byte in raw)
