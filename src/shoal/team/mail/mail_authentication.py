"""Checks whether mail is from its claimed sender, and therefore whether it is acted on."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.errors import InvalidName
from shoal.core.names import (
    LEAD_NAME,
    RESERVED_NAMES,
    USER_NAME,
    AgentName,
    TeamName,
    fold_name,
    map_to_inbox_name,
    parse_agent_name,
)
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import MailBody
from shoal.core.teams.mail_signatures import MailSigner, SignatureVerdict
from shoal.core.teams.team_storage import MailboxStore
from shoal.wire.mail_body_codec import get_authorized_mail_body

TrustUnsigned: TypeAlias = Literal["never", "ask", "always"]
"""Each value trusts more mail than the one before."""
_OWN_SENDERS = RESERVED_NAMES - {LEAD_NAME}
"""Senders that no other program may use, whatever is trusted."""


class InboundMail(Struct, frozen=True, kw_only=True):
    """Mail with its parsed body and whether it is trusted."""

    mail: MailMessage
    body: MailBody | None = None
    """Body to act on; None for text and for an untrusted body."""
    trusted: bool = True
    """True if it is from its claimed sender."""


class MailSenderAuthenticator:
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
        self._signer = None if key is None else MailSigner(team, key)
        self._trusted = trusted
        self._typed_ids: set[str] = set()
        self.policy = policy

    def trust_typed_mail(self, mail_id: str) -> None:
        """Trust the mail with this id: a person typed it into this process, which has no key to sign it."""
        self._typed_ids.add(mail_id)

    def check_signature(self, mail: MailMessage, to: AgentName) -> SignatureVerdict:
        return "unsigned" if self._signer is None else self._signer.verify_mail(mail, to)

    def is_trusted(self, mail: MailMessage, to: AgentName, verdict: SignatureVerdict | None = None) -> bool:
        """Return True if the mail is from its claimed sender; `verdict` is the result of an earlier check."""
        match verdict or self.check_signature(mail, to):
            case "verified":
                return True
            case "unsigned" if mail.sender == USER_NAME and mail.id in self._typed_ids:
                return True
            case "unsigned":
                is_accepted = self.policy == "always" or mail.sender in self._trusted
                return is_accepted and fold_name(mail.sender) not in _OWN_SENDERS
            case "forged":
                return False

    def read_trusted_body(self, mail: MailMessage, to: AgentName) -> MailBody | None:
        """Return the body if the mail is trusted without asking anybody."""
        return get_authorized_mail_body(mail) if self.is_trusted(mail, to) else None


class ForeignMemberNameLookup:
    """Container of the member names that foreign programs run, as our own files mark them."""

    def __init__(self, boxes: MailboxStore) -> None:
        self._mailboxes = boxes

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            return self._mailboxes.is_foreign_inbox(map_to_inbox_name(name))
        except InvalidName:
            return False


def is_valid_agent_name(text: object) -> bool:
    """Return True if a sender, which may be any text, is a valid agent name."""
    try:
        return isinstance(text, str) and parse_agent_name(text) == text
    except InvalidName:
        return False
