"""Text of PDF files, page by page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

from shoal.core.errors import MissingExtra
from shoal.core.filenames import shown
from shoal.core.tools import Outcome, failed

MOST_PAGES = 20
_LARGEST_OUTPUT = 100_000
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)?)?\s*")


def pdf_text(path: Path, file: BinaryIO, pages: str | None) -> Outcome:
    import logging

    try:
        import pypdf
    except ImportError:
        raise MissingExtra("Reading PDF files", "pdf") from None
    # pypdf's warnings would be printed to the user's terminal; real problems are exceptions.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    file.seek(0)
    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            return failed(f"{shown(path)} is a PDF file locked with a password.")
        count = len(reader.pages)
        chosen = _chosen(pages, count)
        if isinstance(chosen, str):
            return failed(f"{shown(path)}: {chosen}")
        texts = [(number, reader.pages[number - 1].extract_text().strip()) for number in chosen]
    except Exception as error:  # noqa: BLE001 - the reader raises anything for a damaged PDF
        return failed(f"{shown(path)} is a PDF file that cannot be read: {error}")
    return _outcome(path, texts, count)


def _chosen(pages: str | None, count: int) -> range | str:
    """Return the requested page numbers, or what is wrong with the request."""
    if pages is None:
        return range(1, min(count, MOST_PAGES) + 1)
    asked = _RANGE.fullmatch(pages)
    if asked is None:
        return f'pages is {pages[:40]!r}; expected one page as "3" or a range as "1-5".'
    first = int(asked[1])
    last = int(asked[2]) if asked[2] else count if "-" in pages else first
    if not 1 <= first <= last or first > count:
        return f"pages is {pages!r}, and the file has {count} pages."
    if last - first >= MOST_PAGES:
        return f"pages is {pages!r}; at most {MOST_PAGES} pages are read at a time."
    return range(first, min(last, count) + 1)


def _outcome(path: Path, texts: list[tuple[int, str]], count: int) -> Outcome:
    if not any(text for _, text in texts):
        return failed(f"{shown(path)} has no text on these of its {count} pages; they may be pictures.")
    told = "\n\n".join(f"--- page {number} of {count} ---\n{text or '(no text)'}" for number, text in texts)
    if len(told) > _LARGEST_OUTPUT:
        cut = f"[Cut: {_LARGEST_OUTPUT:,} of {len(told):,} characters. Ask for fewer pages.]"
        told = f"{told[:_LARGEST_OUTPUT]}\n{cut}"
    last = texts[-1][0]
    if last < count:
        following = f"{last + 1}-{min(last + MOST_PAGES, count)}"
        told += f'\n[Pages up to {last} of {count}. Go on with pages="{following}".]'
    return Outcome(content=told)
