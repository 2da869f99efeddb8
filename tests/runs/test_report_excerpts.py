"""A report of an agent that is too long for a conversation: an excerpt there, all of it in a file."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from shoal.core.ids import AgentId
from shoal.runs.stored_report import excerpt_and_store_long_report
from shoal.stores.files.sessions.result_files import FileResultStore


@pytest.mark.parametrize(
    ("tokens", "limit"), [(0, 200), (449, 200), (450, 200), (451, 204), (500, 400), (1000, 2400)]
)
@pytest.mark.parametrize("extra", [-1, 0, 1, 5000])
def test_a_report_is_shown_whole_up_to_the_limit_and_stored_beyond_it(
    tmp_path: Path, tokens: int, limit: int, extra: int
) -> None:
    text = "".join(chr(0x4E00 + number) for number in range(limit + extra))
    report = excerpt_and_store_long_report(
        text, AgentId("ann"), "c1", FileResultStore(tmp_path), tokens=tokens
    )
    assert (report.size, report.digest) == (len(text), sha256(text.encode()).hexdigest())
    if extra <= 0:
        assert (report.excerpt, report.path) == (text, None)
        return
    assert report.path == tmp_path / "ann-c1.md"
    assert report.path.read_text() == text
    found = re.fullmatch(
        r"(.*)\n\[… ([\d,]+) of ([\d,]+) characters are omitted here …\]\n(.*)", report.excerpt
    )
    assert found is not None
    head, omitted, size, tail = found.groups()
    assert text.startswith(head)
    assert text.endswith(tail)
    assert (len(head), len(tail)) == (limit * 3 // 4, limit // 4)
    assert int(omitted.replace(",", "")) == len(text) - len(head) - len(tail)
    assert int(size.replace(",", "")) == len(text)
