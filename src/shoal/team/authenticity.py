"""Whether mail is from who it says it is from, and so whether it is obeyed."""

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
"""Each lets more be obeyed than the one before."""
_OURS_ALONE = RESERVED - {LEAD_NAME}
"""No other program speaks as these, whatever is trusted."""


class Received(Struct, frozen=True, kw_only=True):
    """Mail as its owner gets it."""

    mail: Mail
    body: Body | None = None
    """What is to be obeyed; None for words, and for a body that is not."""
    believed: bool = True
    """Whether it is from who it says it is from."""


class Verifier:
    """Of one team's mail. A process of ours has the team's `key`; one that a foreign lead started has none,
    and `trusted` names that lead. Unsigned mail of those in `trusted` counts as theirs.
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
        """The body that counts without anybody being asked."""
        return body_of(mail) if self.believes(mail, to) else None


class ForeignPrograms:
    """The members of a team that other programs run. Who started one entered it so, in a place of ours."""

    def __init__(self, boxes: Mailboxes) -> None:
        self._boxes = boxes

    def __contains__(self, name: object) -> bool:
        return is_name(name) and self._boxes.is_foreign(AgentName(str(name)))


def is_name(text: object) -> bool:
    """Whether a sender, which may be any text of a file, could be an agent's name."""
    try:
        return isinstance(text, str) and agent_name(text) == text
    except BadName:
        return False
