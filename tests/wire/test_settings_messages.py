"""Words for values of a wrong type in settings."""

from __future__ import annotations

import pytest

from shoal.wire.settings_codec import describe_schema_mismatch


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Expected `object`, got `str`", "expected an object, got a string"),
        ("Expected `float | null`, got `array`", "expected a number or null, got a list"),
        ("Expected `int` >= 0", "expected an integer >= 0"),
        ("Invalid enum value 'x'", "invalid enum value 'x'"),
    ],
)
def test_a_wrong_type_is_described_in_words_of_json(reason: str, words: str) -> None:
    assert describe_schema_mismatch(reason) == words
