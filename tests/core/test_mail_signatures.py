"""Signatures of team mail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_signatures import KEY_SIZE, MailSigner

AT = "2026-02-13T10:11:35.247Z"
SIGNER = MailSigner("crew", b"k" * KEY_SIZE)
MAIL = MailMessage(id="m1", sender="ann", text="hello", timestamp=AT)
texts = st.text(st.characters(exclude_categories=()))


def test_signed_mail_is_verified_for_its_recipient():
    signed = SIGNER.sign_mail(MAIL, "bob")
    assert SIGNER.verify_mail(signed, "bob") == "verified"
    assert SIGNER.verify_mail(MAIL, "bob") == "unsigned"
    # Read mark and colour are not signed.
    assert SIGNER.verify_mail(replace(signed, read=True, color="red"), "bob") == "verified"


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
        {"signature": SIGNER.sign_mail(replace(MAIL, id="m2"), "bob").signature},
    ],
    ids=str,
)
def test_a_signature_on_changed_mail_is_forged(change):
    assert SIGNER.verify_mail(replace(SIGNER.sign_mail(MAIL, "bob"), **change), "bob") == "forged"


@pytest.mark.spec("USR-11")
def test_a_signature_is_valid_for_one_inbox_team_and_key():
    signed = SIGNER.sign_mail(MAIL, "bob")
    assert SIGNER.verify_mail(signed, "ann") == "forged"
    assert MailSigner("crew2", b"k" * KEY_SIZE).verify_mail(signed, "bob") == "forged"
    assert MailSigner("crew", b"l" * KEY_SIZE).verify_mail(signed, "bob") == "forged"


@given(texts, texts, st.none() | texts, texts, texts, st.none() | texts)
def test_no_two_messages_have_the_same_signature(
    ident, text, summary, other_ident, other_text, other_summary
):
    one = SIGNER.sign_mail(replace(MAIL, id=ident, text=text, summary=summary), "bob")
    other = replace(one, id=other_ident, text=other_text, summary=other_summary)
    same = (_encode_utf16(ident), _encode_utf16(text), _encode_utf16(summary)) == (
        _encode_utf16(other_ident),
        _encode_utf16(other_text),
        _encode_utf16(other_summary),
    )
    assert (SIGNER.verify_mail(other, "bob") == "verified") == same


def _encode_utf16(text):
    """Encode the text: JSON joins the two halves of a surrogate pair."""
    return text if text is None else text.encode("utf-16-le", "surrogatepass")


def test_a_short_key_is_refused_and_repr_hides_the_key():
    with pytest.raises(ValueError, match="32 bytes"):
        MailSigner("crew", b"short")
    assert "kkk" not in repr(SIGNER)


@pytest.mark.spec("USR-11")
def test_an_fyi_flag_cannot_become_a_summary_or_vice_versa():
    with_summary = SIGNER.sign_mail(replace(MAIL, summary="fyi"), "bob")
    assert SIGNER.verify_mail(replace(with_summary, summary=None, fyi=True), "bob") == "forged"
    fyi_mail = SIGNER.sign_mail(replace(MAIL, fyi=True), "bob")
    assert SIGNER.verify_mail(fyi_mail, "bob") == "verified"
    assert SIGNER.verify_mail(replace(fyi_mail, fyi=False), "bob") == "forged"
    assert SIGNER.verify_mail(replace(fyi_mail, fyi=False, summary="fyi"), "bob") == "forged"
