"""The end of the complete lines of a file is found wherever the last newline is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.stores.files.access import line_files
from shoal.stores.files.access.line_files import find_end_of_complete_lines, truncate_partial_last_line


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 16])
def test_a_partial_last_line_is_found_and_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(line_files, "_TAIL_CHUNK", chunk)
    path = tmp_path / "lines"
    contents = (b"", b"\n", b"a", b"\na", b"a\n", b"a\nb", b"\n\n", b"a\nbb\nccc", b"a\n\nccc", b"aaaa\n")
    for content in contents:
        path.write_bytes(content)
        with path.open("r+b") as file:
            complete = content.rfind(b"\n") + 1
            assert find_end_of_complete_lines(file.fileno(), len(content)) == complete, content
            assert truncate_partial_last_line(file.fileno()) == complete
        assert path.read_bytes() == content[:complete]
