"""Text files with bytes of another encoding."""

from __future__ import annotations

import pytest

from shoal.core.text.decoded_text import decode_text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"plain", ("plain", False)),
        ("\ufeffcafé".encode(), ("café", False)),
        ("café au lait".encode("latin-1"), ("caf\ufffd au lait", True)),
        ("a \ufffd of the author".encode(), ("a \ufffd of the author", False)),
    ],
)
def test_only_invalid_bytes_are_replaced(content: bytes, expected: tuple[str, bool]) -> None:
    assert decode_text(content) == expected


def test_a_character_that_the_limit_cut_off_is_left_out() -> None:
    cut = "café".encode()[:-1]
    assert decode_text(cut, is_truncated=True) == ("caf", False)
    assert decode_text(cut) == ("caf\ufffd", True)
