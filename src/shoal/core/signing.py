"""The seal of a team: what its own processes put on the mail they post, so that its readers know it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName

Verdict: TypeAlias = Literal["verified", "unsigned", "forged"]
"""`verified`: the team's seal is on it. `forged`: it bears one that is another envelope's, or none at all."""
KEY_SIZE = 32
_FORM = "shoal mail 1"
_digest = hashlib.sha256


class Seal:
    """HMAC-SHA256 with the team's key over all that says who tells whom what.

    The summary counts too: it tells a message from a body that is obeyed.
    """

    def __init__(self, team: TeamName, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise ValueError(f"a key has {KEY_SIZE} bytes, not {len(key)}")
        self._key = key
        self._start = _framed(_FORM) + _framed(team)

    def __repr__(self) -> str:
        return "Seal()"  # the key must not meet a log

    def sealed(self, mail: Mail, to: AgentName) -> Mail:
        return replace(mail, signature=self._signature(mail, to))

    def verdict(self, mail: Mail, to: AgentName) -> Verdict:
        """Of mail that was found in this inbox."""
        if mail.signature is None:
            return "unsigned"
        given = mail.signature.encode(errors="replace")
        is_ours = hmac.compare_digest(given, self._signature(mail, to).encode())
        return "verified" if is_ours else "forged"

    def _signature(self, mail: Mail, to: AgentName) -> str:
        fields = (mail.id, mail.sender, to, mail.timestamp, mail.text)
        about = b"" if mail.summary is None else _framed(mail.summary)
        # In front, where it cannot be taken for a summary.
        content = (_FYI if mail.fyi else b"") + self._start + b"".join(map(_framed, fields)) + about
        return hmac.digest(self._key, content, _digest).hex()


def _framed(text: str) -> bytes:
    """Its length before it, so that no two lists of fields read alike.

    In UTF-16, where two halves of a surrogate pair are the letter that JSON makes of them on the way.
    """
    raw = text.encode("utf-16-le", "surrogatepass")
    return len(raw).to_bytes(8, "big") + raw


_FYI = _framed("fyi")
