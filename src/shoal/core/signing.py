"""Mail signatures: a team's own processes sign the mail they post, and readers verify it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName

Verdict: TypeAlias = Literal["verified", "unsigned", "forged"]
"""`verified`: signed with the team's key. `forged`: the signature is of other mail, or invalid."""
KEY_SIZE = 32
_FORM = "shoal mail 1"
_digest = hashlib.sha256


class Seal:
    """Signs mail by HMAC-SHA256 with the team's key over sender, recipient and content.

    The summary is included: it distinguishes a message from a protocol body.
    """

    def __init__(self, team: TeamName, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise ValueError(f"a key has {KEY_SIZE} bytes, not {len(key)}")
        self._key = key
        self._start = _framed(_FORM) + _framed(team)

    def __repr__(self) -> str:
        return "Seal()"  # the key must not appear in logs

    def sealed(self, mail: Mail, to: AgentName) -> Mail:
        return replace(mail, signature=self._signature(mail, to))

    def verdict(self, mail: Mail, to: AgentName) -> Verdict:
        """Verify mail that was found in this inbox."""
        if mail.signature is None:
            return "unsigned"
        given = mail.signature.encode(errors="replace")
        is_ours = hmac.compare_digest(given, self._signature(mail, to).encode())
        return "verified" if is_ours else "forged"

    def _signature(self, mail: Mail, to: AgentName) -> str:
        fields = (mail.id, mail.sender, to, mail.timestamp, mail.text)
        about = b"" if mail.summary is None else _framed(mail.summary)
        # In front, so that it cannot be mistaken for a summary.
        content = (_FYI if mail.fyi else b"") + self._start + b"".join(map(_framed, fields)) + about
        return hmac.digest(self._key, content, _digest).hex()


def _framed(text: str) -> bytes:
    """Encode text with a length prefix, so that no two lists of fields encode alike.

    In UTF-16, in which two surrogate halves equal the character that JSON makes of them in transit.
    """
    raw = text.encode("utf-16-le", "surrogatepass")
    return len(raw).to_bytes(8, "big") + raw


_FYI = _framed("fyi")
