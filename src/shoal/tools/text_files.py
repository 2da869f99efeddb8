"""Text files for tools: lines for the model, with encoding, byte-order mark and line endings preserved."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from msgspec import Struct

from shoal.core.errors import WorkspaceError
from shoal.tools.tool_texts import format_tool_text

MAX_LINE_CHARACTERS = 2000
_SNIFFED_BYTES = 8192
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_BINARY_KINDS = (
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"OggS", "Ogg sound"),
    (b"ID3", "MP3 sound"),
)


class TextFile(Struct, frozen=True, kw_only=True):
    text: str
    """Lines end with \\n unless the file mixes line endings."""
    encoding: str = "utf-8"
    bom: bytes = b""
    crlf: bool = False

    @property
    def note(self) -> str | None:
        """Note on unusual properties of the file, which edits preserve."""
        properties = []
        if self.encoding != "utf-8":
            properties.append(f"encoded as {self.encoding}")
        if self.bom:
            properties.append("starts with a byte-order mark")
        if self.crlf:
            properties.append("lines end with CRLF")
        return f"[{'; '.join(properties)}]" if properties else None

    def encode_text(self, text: str) -> bytes:
        """Encode another text in this file's format."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            characters = error.object[error.start : error.end]
            raise WorkspaceError(
                format_tool_text(
                    "Write", "not_encodable", encoding=self.encoding, characters=repr(characters)
                )
            ) from None


def parse_text_file(content: bytes) -> TextFile | None:
    """Parse the content as text; None if it is binary."""
    for bom, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(bom):
            try:
                return _build_text_file(content[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                return None
    if is_binary_content(content[:_SNIFFED_BYTES]):
        return None
    try:
        return _build_text_file(content.decode(), "utf-8", b"")
    except UnicodeDecodeError:
        return _build_text_file(content.decode("latin-1"), "latin-1", b"")


def _build_text_file(text: str, encoding: str, bom: bytes) -> TextFile:
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    return TextFile(text=text.replace("\r\n", "\n") if crlf else text, encoding=encoding, bom=bom, crlf=crlf)


def is_binary_content(start: bytes) -> bool:
    if any(start.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS):
        return False
    if b"\0" in start:
        return True
    controls = len(start) - len(start.translate(None, _BINARY_CONTROLS))
    return controls > len(start) // 10


def describe_binary_file_kind(start: bytes) -> str:
    return next((kind for magic, kind in _BINARY_KINDS if start.startswith(magic)), "a binary file")


def split_lines(text: str) -> list[str]:
    """Split into lines like an editor: only \\n ends a line, and the last one needs no end."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def format_numbered_lines(lines: Iterable[str], first: int) -> str:
    return "\n".join(f"{number:6}\t{shorten_long_line(line)}" for number, line in enumerate(lines, first))


def shorten_long_line(line: str, full_length: int | None = None) -> str:
    """Shorten a line that is too long for a model; `full_length` is its original length."""
    line = line.removesuffix("\r")
    length = len(line) if full_length is None else full_length
    if length <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]}… [line cut: {MAX_LINE_CHARACTERS:,} of {length:,} characters shown]"
