"""Checks whether mail is from its claimed sender, and so whether it is obeyed."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.bodies import Body
from shoal.core.errors import BadName
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, RESERVED, AgentName, TeamName, agent_name
from shoal.core.record import Mailboxes
from shoal.core.signing import Seal, Verdict
from shoal.wire.bodies import body_of

TrustUnsigned: TypeAlias = Literal["never", "ask", "always"]
"""Each value trusts more mail than the one before."""
_OURS_ALONE = RESERVED - {LEAD_NAME}
"""Senders that no other program may use, whatever is trusted."""


class Received(Struct, frozen=True, kw_only=True):
    """Mail with its parsed body and whether it is trusted."""

    mail: Mail
    body: Body | None = None
    """Body to act on; None for text and for an untrusted body."""
    believed: bool = True
    """True if it is from its claimed sender."""


class Verifier:
    """Authenticates the senders of one team's mail.

    A Shoal process has the team's `key`. A process that a foreign lead started has none, and `trusted`
    names that lead. Unsigned mail from a name in `trusted` is accepted.
    """

    def __init__(
        self,
        team: TeamName,
        key: bytes | None,
        *,
        trusted: Container[AgentName] = (),
        policy: TrustUnsigned = "ask",
    ) -> None:
        self._seal = None if key is None else Seal(team, key)
        self._trusted = trusted
        self.policy = policy

    def verdict(self, mail: Mail, to: AgentName) -> Verdict:
        return "unsigned" if self._seal is None else self._seal.verdict(mail, to)

    def believes(self, mail: Mail, to: AgentName) -> bool:
        match self.verdict(mail, to):
            case "verified":
                return True
            case "unsigned":
                trusts = self.policy == "always" or mail.sender in self._trusted
                return trusts and mail.sender not in _OURS_ALONE
            case "forged":
                return False

    def obeyed(self, mail: Mail, to: AgentName) -> Body | None:
        """Return the body if the mail is trusted without asking anybody."""
        return body_of(mail) if self.believes(mail, to) else None


class ForeignPrograms:
    """Container of the member names that foreign programs run, as our own files mark them."""

    def __init__(self, boxes: Mailboxes) -> None:
        self._boxes = boxes

    def __contains__(self, name: object) -> bool:
        return is_name(name) and self._boxes.is_foreign(AgentName(str(name)))


def is_name(text: object) -> bool:
    """Return True if a sender, which may be any text, is a valid agent name."""
    try:
        return isinstance(text, str) and agent_name(text) == text
    except BadName:
        return False
