"""Text of PDF files, page by page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

from shoal.core.conversation.tools import ToolOutput, create_tool_error_output
from shoal.core.errors import MissingPackageExtra
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_count_with_noun
from shoal.tools.tool_texts import format_tool_text

MAX_PAGES = 20
_MAX_OUTPUT_CHARACTERS = 100_000
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)?)?\s*")


def read_pdf_text(path: Path, file: BinaryIO, pages: str | None) -> ToolOutput:
    import logging

    try:
        import pypdf
    except ImportError:
        raise MissingPackageExtra("Reading PDF files", "pdf") from None
    # pypdf's warnings would be printed to the user's terminal; real problems are exceptions.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    file.seek(0)
    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            return create_tool_error_output(
                format_tool_text("Read", "pdf_locked", path=escape_filename(path))
            )
        count = len(reader.pages)
        page_numbers = _parse_page_range(pages, count)
        if isinstance(page_numbers, str):
            return create_tool_error_output(f"{escape_filename(path)}: {page_numbers}")
        texts = [(number, reader.pages[number - 1].extract_text().strip()) for number in page_numbers]
    except Exception as error:  # noqa: BLE001 - the reader raises anything for a damaged PDF
        return create_tool_error_output(
            format_tool_text("Read", "pdf_damaged", path=escape_filename(path), error=error)
        )
    return _format_pdf_pages(path, texts, count)


def _parse_page_range(pages: str | None, count: int) -> range | str:
    """Return the requested page numbers, or what is wrong with the request."""
    if pages is None:
        return range(1, min(count, MAX_PAGES) + 1)
    match = _RANGE.fullmatch(pages)
    if match is None:
        return format_tool_text("Read", "pdf_range", pages=repr(pages[:40]))
    first = int(match[1])
    last = int(match[2]) if match[2] else count if "-" in pages else first
    if not 1 <= first <= last or first > count:
        return format_tool_text(
            "Read", "pdf_short", pages=repr(pages), count=format_count_with_noun(count, "page")
        )
    if last - first >= MAX_PAGES:
        return format_tool_text("Read", "pdf_long", pages=repr(pages), maximum=MAX_PAGES)
    return range(first, min(last, count) + 1)


def _format_pdf_pages(path: Path, texts: list[tuple[int, str]], count: int) -> ToolOutput:
    if not any(text for _, text in texts):
        return create_tool_error_output(
            format_tool_text(
                "Read", "pdf_no_text", path=escape_filename(path), count=format_count_with_noun(count, "page")
            )
        )
    content = "\n\n".join(
        f"--- page {number} of {count} ---\n{text or '(no text)'}" for number, text in texts
    )
    if len(content) > _MAX_OUTPUT_CHARACTERS:
        notice = format_tool_text(
            "Read", "pdf_cut", shown=f"{_MAX_OUTPUT_CHARACTERS:,}", total=f"{len(content):,}"
        )
        content = f"{content[:_MAX_OUTPUT_CHARACTERS]}\n{notice}"
    last = texts[-1][0]
    if last < count:
        next_pages = f"{last + 1}-{min(last + MAX_PAGES, count)}"
        content += f"\n{format_tool_text('Read', 'pdf_more', last=last, count=count, next=next_pages)}"
    return ToolOutput(content=content)
