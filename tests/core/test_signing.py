"""The seal of a team: it is on one envelope, and on no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.mail import Mail
from shoal.core.signing import KEY_SIZE, Seal

AT = "2026-02-13T10:11:35.247Z"
SEAL = Seal("crew", b"k" * KEY_SIZE)
MAIL = Mail(id="m1", sender="ann", text="hello", timestamp=AT)
texts = st.text(st.characters(exclude_categories=()))


def test_what_the_team_sealed_is_verified_for_whom_it_was_sealed():
    sealed = SEAL.sealed(MAIL, "bob")
    assert SEAL.verdict(sealed, "bob") == "verified"
    assert SEAL.verdict(MAIL, "bob") == "unsigned"
    # Where it stands and how it looks is not part of what is said.
    assert SEAL.verdict(replace(sealed, read=True, color="red"), "bob") == "verified"


@pytest.mark.spec("USR-11")
@pytest.mark.parametrize(
    "change",
    [
        {"id": "m2"},
        {"sender": "team-lead"},
        {"text": "hello!"},
        {"timestamp": "2026-02-13T10:11:35.248Z"},
        {"summary": ""},
        {"fyi": True},
        {"signature": ""},
        {"signature": "é" * 64},
        {"signature": "\ud800"},
        {"signature": SEAL.sealed(replace(MAIL, id="m2"), "bob").signature},
    ],
    ids=str,
)
def test_a_seal_on_anything_else_is_forged(change):
    assert SEAL.verdict(replace(SEAL.sealed(MAIL, "bob"), **change), "bob") == "forged"


@pytest.mark.spec("USR-11")
def test_a_seal_is_of_one_inbox_one_team_and_one_key():
    sealed = SEAL.sealed(MAIL, "bob")
    assert SEAL.verdict(sealed, "ann") == "forged"
    assert Seal("crew2", b"k" * KEY_SIZE).verdict(sealed, "bob") == "forged"
    assert Seal("crew", b"l" * KEY_SIZE).verdict(sealed, "bob") == "forged"


@given(texts, texts, st.none() | texts, texts, texts, st.none() | texts)
def test_no_two_envelopes_have_the_same_seal(ident, text, summary, other_ident, other_text, other_summary):
    one = SEAL.sealed(replace(MAIL, id=ident, text=text, summary=summary), "bob")
    other = replace(one, id=other_ident, text=other_text, summary=other_summary)
    same = (_whole(ident), _whole(text), _whole(summary)) == (
        _whole(other_ident),
        _whole(other_text),
        _whole(other_summary),
    )
    assert (SEAL.verdict(other, "bob") == "verified") == same


def _whole(text):
    """Two halves of a surrogate pair are one letter to JSON."""
    return text if text is None else text.encode("utf-16-le", "surrogatepass")


def test_a_key_is_long_enough_and_is_not_shown():
    with pytest.raises(ValueError, match="32 bytes"):
        Seal("crew", b"short")
    assert "kkk" not in repr(SEAL)


@pytest.mark.spec("USR-11")
def test_words_for_information_cannot_become_a_summary_or_the_other_way():
    told = SEAL.sealed(replace(MAIL, summary="fyi"), "bob")
    assert SEAL.verdict(replace(told, summary=None, fyi=True), "bob") == "forged"
    quiet = SEAL.sealed(replace(MAIL, fyi=True), "bob")
    assert SEAL.verdict(quiet, "bob") == "verified"
    assert SEAL.verdict(replace(quiet, fyi=False), "bob") == "forged"
    assert SEAL.verdict(replace(quiet, fyi=False, summary="fyi"), "bob") == "forged"
