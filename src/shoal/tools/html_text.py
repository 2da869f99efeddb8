"""Converts a web page to Markdown-like text. Uses the standard library only and runs as a script.

`python -I -S html_text.py URL < page.html`: a page that is slow to parse then blocks a subprocess that can be
killed, not ours.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_HIDDEN_TAGS = {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select"}
_BLOCK_TAGS = {
    *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "html", "main", "nav", "p", "section", "summary"),
    *("table", "thead", "tbody", "tfoot", "caption", "head"),
}
_INLINE_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "del": "~~", "s": "~~"}
_HEADING = re.compile(r"h([1-6])")
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-([\w+#-]+)")
_SPACE = re.compile(r"\s+")
_EMPTY_MARKS = re.compile(r"\*\*\s*\*\*|``")

Attributes = list[tuple[str, str | None]]


class _HtmlToTextParser(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.blocks: list[tuple[str, bool]] = []
        """Text, and True if it follows the previous block without a blank line."""
        self._url = url
        self._line: list[str] = []
        self._hidden: list[str] = []
        self._in_title = False
        self._heading = ""
        self._item_mark = ""
        """Mark of a list item that has no text yet."""
        self._lists: list[int] = []
        """Number of the last item of each open list; -1 for unordered lists."""
        self._after_item = False
        self._quotes = 0
        self._code_language: str | None = None
        """Language of an open code block, "" if unknown."""
        self._links: list[tuple[str, int]] = []
        self._row: list[str] | None = None
        self._cell_open = False
        self._rows = 0

    # Parser callbacks

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if self._hidden:
            if tag == self._hidden[0]:
                self._hidden.append(tag)
            return
        if tag in _HIDDEN_TAGS:
            self._hidden.append(tag)
            return
        attributes = {name: value or "" for name, value in attrs}
        if self._code_language is not None:
            self._code_language = self._code_language or _find_code_language(attributes)
        elif tag in _INLINE_MARKS:
            self._line.append(_INLINE_MARKS[tag])
        elif tag == "a":
            self._links.append((attributes.get("href", ""), len(self._line)))
        elif tag == "img":
            self._add_image(attributes)
        elif tag == "title":
            self._in_title = not self.title
        else:
            self._open_block(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[0]:
                self._hidden.pop()
            return
        if tag == "pre":
            self._end_code_block()
        elif self._code_language is not None:
            return
        elif tag in _INLINE_MARKS:
            self._line.append(_INLINE_MARKS[tag])
        elif tag == "a":
            self._end_link()
        elif tag == "title":
            self._in_title = False
        else:
            self._close_block(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._in_title:
            self.title += data
        elif self._code_language is not None:
            self._line.append(data)
        else:
            self._line.append(_SPACE.sub(" ", data))

    # Blocks

    def _open_block(self, tag: str, attributes: dict[str, str]) -> None:
        if heading := _HEADING.fullmatch(tag):
            self._flush_line()
            self._heading = "#" * int(heading[1]) + " "
        elif tag in ("ul", "ol", "menu"):
            self._flush_line()
            start = attributes.get("start", "1")
            self._lists.append((int(start) if start.isdecimal() else 1) - 1 if tag == "ol" else -1)
        elif tag == "li":
            self._flush_line()
            self._item_mark = self._take_list_item_mark()
        elif tag == "pre":
            self._flush_line()
            self._code_language = _find_code_language(attributes)
        elif tag == "br":
            self._line.append("\n")
        elif tag == "hr":
            self._flush_line()
            self._add_block("---")
        elif tag in ("tr", "td", "th"):
            self._open_table_row_or_cell(tag)
        elif tag in _BLOCK_TAGS:
            self._flush_line()
            self._quotes += tag == "blockquote"
            self._rows = 0 if tag == "table" else self._rows

    def _close_block(self, tag: str) -> None:
        if _HEADING.fullmatch(tag):
            self._flush_line()
            self._heading = ""
        elif tag in ("ul", "ol", "menu"):
            self._flush_line()
            if self._lists:
                self._lists.pop()
        elif tag in ("td", "th"):
            self._close_table_cell()
        elif tag in ("tr", "table"):
            self._close_table_row()
            self._flush_line()
        elif tag in _BLOCK_TAGS or tag == "li":
            self._flush_line()
            self._item_mark = "" if tag == "li" else self._item_mark
            self._quotes = max(0, self._quotes - (tag == "blockquote"))

    def _flush_line(self) -> None:
        """End the current line."""
        if self._row is not None and self._cell_open:
            self._line.append(" ")
            return
        lines = "".join(self._line).split("\n")
        self._line.clear()
        self._links = [(url, 0) for url, _ in self._links]
        text = "\n".join(_EMPTY_MARKS.sub("", " ".join(line.split())) for line in lines).strip()
        if not text:
            return
        if self._lists and not self._heading:
            indent = "  " * (len(self._lists) - 1)
            item_mark, self._item_mark = self._item_mark, ""
            text = indent + (item_mark or "  ") + text.replace("\n", f"\n{indent}  ")
            self._add_block(text, is_tight=self._after_item)
            self._after_item = True
        else:
            self._add_block(self._heading + text)

    def _add_block(self, text: str, *, is_tight: bool = False) -> None:
        if self._quotes:
            text = "\n".join("> " * self._quotes + line for line in text.split("\n"))
        self.blocks.append((text, is_tight))
        self._after_item = False

    def _take_list_item_mark(self) -> str:
        if not self._lists or self._lists[-1] < 0:
            return "- "
        self._lists[-1] += 1
        return f"{self._lists[-1]}. "

    def _end_code_block(self) -> None:
        if self._code_language is not None:
            code = "".join(self._line).strip("\n")
            self._line.clear()
            if code.strip():
                self._add_block(f"```{self._code_language}\n{code}\n```")
            self._code_language = None

    # Tables

    def _open_table_row_or_cell(self, tag: str) -> None:
        if tag == "tr":
            self._close_table_row()
            self._flush_line()
            self._row = []
        else:
            self._close_table_cell()
            if self._row is None:
                self._row = []
            self._line.clear()
            self._cell_open = True

    def _close_table_cell(self) -> None:
        if self._row is not None and self._cell_open:
            self._row.append(" ".join("".join(self._line).split()).replace("|", "\\|"))
            self._line.clear()
            self._links.clear()
            self._cell_open = False

    def _close_table_row(self) -> None:
        self._close_table_cell()
        row, self._row = self._row, None
        if not row or not any(row):
            return
        if len(row) == 1:
            self._add_block(row[0])
            return
        self._rows += 1
        self._add_block(f"| {' | '.join(row)} |", is_tight=self._rows > 1)
        if self._rows == 1:
            self._add_block("|" + " --- |" * len(row), is_tight=True)

    # Inline elements

    def _end_link(self) -> None:
        if not self._links:
            return
        href, start = self._links.pop()
        text = " ".join("".join(self._line[start:]).split())
        target = urljoin(self._url, href.strip()) if href and not href.startswith("#") else ""
        if text and target.startswith(("http://", "https://", "mailto:")):
            self._line[start:] = [f"[{text}]({target})"]

    def _add_image(self, attributes: dict[str, str]) -> None:
        alt = " ".join(attributes.get("alt", "").split())
        if alt:
            self._line.append(f"[picture: {alt}]")

    def build_text(self) -> str:
        self.close()
        self._end_code_block()
        self._close_table_row()
        self._flush_line()
        sections = [f"Title: {' '.join(self.title.split())}"] if self.title.strip() else []
        for text, is_tight in self.blocks:
            if is_tight and sections:
                sections[-1] += f"\n{text}"
            else:
                sections.append(text)
        return "\n\n".join(sections)


def _find_code_language(attributes: dict[str, str]) -> str:
    found = _LANGUAGE.search(attributes.get("class", ""))
    return found[1] if found else ""


def html_to_text(html: str, url: str) -> str:
    parser = _HtmlToTextParser(url)
    parser.feed(html)
    return parser.build_text()


if __name__ == "__main__":
    sys.stdout.write(html_to_text(sys.stdin.read(), sys.argv[1]))
