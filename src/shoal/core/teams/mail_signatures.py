"""Mail signatures: a team's own processes sign the mail they post, and readers verify it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage

SignatureVerdict: TypeAlias = Literal["verified", "unsigned", "forged"]
"""`verified`: signed with the team's key. `forged`: the signature is of other mail, or invalid."""
KEY_SIZE = 32
_FORMAT_VERSION = "shoal mail 1"
_digest = hashlib.sha256


class MailSigner:
    """Signs mail by HMAC-SHA256 with the team's key over sender, recipient and content.

    The summary is included: it distinguishes a message from a protocol body.
    """

    def __init__(self, team: TeamName, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise ValueError(f"a key must have {KEY_SIZE} bytes, not {len(key)}")
        self._key = key
        self._start = _encode_length_prefixed(_FORMAT_VERSION) + _encode_length_prefixed(team)

    def __repr__(self) -> str:
        return "MailSigner()"  # the key must not appear in logs

    def sign_mail(self, mail: MailMessage, to: AgentName) -> MailMessage:
        return replace(mail, signature=self._compute_signature(mail, to))

    def verify_mail(self, mail: MailMessage, to: AgentName) -> SignatureVerdict:
        """Verify mail that was found in this inbox."""
        if mail.signature is None:
            return "unsigned"
        signature = mail.signature.encode(errors="replace")
        is_ours = hmac.compare_digest(signature, self._compute_signature(mail, to).encode())
        return "verified" if is_ours else "forged"

    def _compute_signature(self, mail: MailMessage, to: AgentName) -> str:
        texts = (mail.id, mail.sender, to, mail.timestamp, mail.text)
        # Without a call for each field: each message is signed and verified.
        fields = [text.encode("utf-16-le", "surrogatepass") for text in texts]
        summary_part = b"" if mail.summary is None else _encode_length_prefixed(mail.summary)
        # In front, so that it cannot be mistaken for a summary.
        content = (
            (_FYI if mail.fyi else b"")
            + self._start
            + b"".join([len(field).to_bytes(8, "big") + field for field in fields])
            + summary_part
        )
        return hmac.digest(self._key, content, _digest).hex()


def _encode_length_prefixed(text: str) -> bytes:
    """Encode text with a length prefix, so that no two lists of fields encode alike.

    Uses UTF-16, in which two surrogate halves equal the character that JSON turns them into in transit.
    """
    raw = text.encode("utf-16-le", "surrogatepass")
    return len(raw).to_bytes(8, "big") + raw


_FYI = _encode_length_prefixed("fyi")
