"""External program in Shoal's teams: the lead of teams it creates, or a member of a team it joins."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.teams.team_lookup import find_team_name
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import Clock, format_iso_time
from shoal.core.errors import AgentRequestRefused, InboxNotFound, TeamNotFound
from shoal.core.ids import IdGenerator
from shoal.core.names import (
    LEAD_NAME,
    AgentName,
    TaskId,
    TeamName,
    map_to_inbox_name,
    parse_agent_name,
    parse_team_name,
)
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.mail_envelopes import fit_mail_to_kind
from shoal.core.teams.mail_signatures import MailSigner, SignatureVerdict
from shoal.core.teams.roster import EXTERNAL_MEMBER_TYPE, NewMember, RosterEntry, TeamRoster
from shoal.stores.files.home.home_paths import to_possible_session_id
from shoal.stores.files.locks.pid_locks import ExternalMemberLock, is_session_running
from shoal.team.mail.broadcast import post_to_all
from shoal.wire.mail_body_codec import encode_mail_body, get_authorized_mail_body

MAX_BATCH_MESSAGES = 50
MAX_BATCH_CHARS = 100_000
"""Maximum characters per batch of messages; a longer message comes alone."""


class ExternalMemberIdentity(Struct, frozen=True, kw_only=True):
    """Name of the program in one team."""

    team: TeamName
    name: AgentName

    @property
    def is_lead(self) -> bool:
        return self.name == LEAD_NAME


class MailWithSignatureVerdict(Struct, frozen=True, kw_only=True):
    mail: MailMessage
    verdict: SignatureVerdict
    kind: str
    """`message`, or the type of a protocol message."""


class ExternalMember:
    """Team access of an external program. Its mail is signed with the team's key."""

    def __init__(self, store: TeamStore, *, home: Path, clock: Clock, ids: IdGenerator, cwd: Path) -> None:
        self._store = store
        self._home = home
        self._clock = clock
        self._ids = ids
        self._cwd = cwd
        self._identities: dict[TeamName, ExternalMemberIdentity] = {}
        self._locks: dict[ExternalMemberIdentity, ExternalMemberLock] = {}
        self._unmarked: dict[ExternalMemberIdentity, tuple[str, ...]] = {}
        self.session = ids.new_uuid()
        """Lead session id of the teams it creates."""
        self.attempts: dict[tuple[TeamName, TaskId], str] = {}
        """Attempt ids of the tasks it holds."""

    # Identity

    async def join_team(self, team: str, name: str) -> ExternalMemberIdentity:
        """Take over a member or the lead, or join as a new member. Raises `AgentRequestRefused`."""
        roster = await self.read_team(team)
        identity = ExternalMemberIdentity(team=roster.name, name=parse_agent_name(name))
        entry = roster.find_member(identity.name)
        self._lock_inbox(identity)
        if identity.is_lead:
            self._refuse_live_led_team(roster)
        elif entry is None:
            await self._add_to_roster(identity)
        elif entry.agent_type != EXTERNAL_MEMBER_TYPE:
            raise AgentRequestRefused(
                format_session_notice("name_of_agent", name=identity.name, team=identity.team)
            )
        self._identities[identity.team] = identity
        await self._reclaim_tasks(identity)
        return identity

    def get_identity(self, team: str | None) -> ExternalMemberIdentity:
        """Return the identity in the named team, or in the only one. Raises `AgentRequestRefused`."""
        is_named = team is not None and bool(team.strip())
        if not is_named and len(self._identities) == 1:
            return next(iter(self._identities.values()))
        teams = ", ".join(self._identities) or "none"
        if team is None or not is_named:
            if not self._identities:
                raise AgentRequestRefused(format_session_notice("in_no_team"))
            raise AgentRequestRefused(format_session_notice("which_team", teams=teams))
        identity = self._identities.get(TeamName(team)) or self._identities.get(
            TeamName(map_to_inbox_name(team).lower())
        )
        if identity is None:
            raise AgentRequestRefused(format_session_notice("not_in_team", team=team, teams=teams))
        return identity

    def list_identities(self) -> tuple[ExternalMemberIdentity, ...]:
        return tuple(self._identities.values())

    # Teams

    async def create_team(self, name: str, description: str | None) -> TeamRoster:
        lead = NewMember(name=LEAD_NAME, agent_type=LEAD_NAME, model="", cwd=str(self._cwd), prompt="")
        team = await self._store.rosters.create_team(
            parse_team_name(name), lead=lead, session=self.session, description=description
        )
        identity = self._identities[team.name] = ExternalMemberIdentity(team=team.name, name=LEAD_NAME)
        self._lock_inbox(identity)
        return team

    async def read_team(self, name: str) -> TeamRoster:
        """Return the team. Raises `TeamNotFound`."""
        found = await find_team_name(self._store, name)
        roster = None if found is None else await self._store.rosters.read_team_roster(found)
        if roster is None:
            teams = ", ".join(await self._store.rosters.list_teams()) or "none"
            raise TeamNotFound(format_session_notice("unknown_team", team=name, teams=teams))
        return roster

    async def delete_team(self, identity: ExternalMemberIdentity) -> None:
        """Delete the team. Raises `TeamHasActiveMembers`, and `AgentRequestRefused` for other members."""
        if not identity.is_lead:
            raise AgentRequestRefused(format_session_notice("lead_deletes_team", team=identity.team))
        await self._store.rosters.delete_team(identity.team)
        await self._store.close_team_stores(identity.team)
        del self._identities[identity.team]
        self._locks.pop(identity).release()

    async def add_member(self, identity: ExternalMemberIdentity, new_member: NewMember) -> RosterEntry:
        """Add a member that Shoal will run; its prompt is its first message."""
        if not identity.is_lead:
            raise AgentRequestRefused(format_session_notice("lead_starts_members", team=identity.team))
        return await self._store.add_member(identity.team, new_member)

    async def remove_member(self, team: TeamName, name: AgentName) -> None:
        """Remove a member that has ended, and release its tasks."""
        await self._store.open_board(team).release_owner_tasks(name)
        await self._store.rosters.remove_member(team, name)

    # Mail

    async def send_mail(
        self, identity: ExternalMemberIdentity, to: str, text: str, summary: str, *, fyi: bool = False
    ) -> tuple[MailPostReceipt, ...]:
        team = await self.read_team(identity.team)
        others = [member.name for member in team.members if member.name != identity.name]
        named = team.resolve_member(to)
        recipients = others if to == "*" else [] if named is None else [named.name]
        if not set(recipients) <= set(others) or not recipients:
            raise AgentRequestRefused(
                format_session_notice(
                    "unknown_recipient",
                    recipient=repr(to),
                    team=team.name,
                    names=", ".join(others) or "only you",
                )
            )
        entry = team.find_member(identity.name)
        color = None if entry is None else entry.color

        async def post(recipient: AgentName) -> MailPostReceipt:
            mail = self._create_mail(identity, text, summary=summary or None, color=color, fyi=fyi)
            mail = fit_mail_to_kind(mail, "broadcast" if to == "*" else "message", from_lead=identity.is_lead)
            try:
                return await self._store.post_mail(team.name, recipient, mail)
            except InboxNotFound as error:
                raise AgentRequestRefused(
                    format_session_notice("no_mailbox", recipient=recipient, team=team.name, error=error)
                ) from error

        return await post_to_all(recipients, post) if to == "*" else (await post(recipients[0]),)

    async def request_shutdown(self, identity: ExternalMemberIdentity, to: str, reason: str) -> str:
        """Ask a member to shut down; return the request id. The answer comes by mail."""
        if not identity.is_lead:
            raise AgentRequestRefused(format_session_notice("lead_asks_for_shutdown"))
        team = await self.read_team(identity.team)
        entry = team.resolve_member(to)
        if entry is None:
            raise AgentRequestRefused(format_session_notice("unknown_member", team=team.name, name=to))
        name = entry.name
        body = ShutdownRequestMail(
            request_id=f"shutdown-{self._ids.new_short_id()}@{name}",
            sender=identity.name,
            reason=reason,
            timestamp=format_iso_time(self._clock.now()),
        )
        mail = fit_mail_to_kind(
            self._create_mail(identity, encode_mail_body(body)), ShutdownRequestMail, from_lead=True
        )
        await self._store.post_mail(team.name, name, mail)
        return body.request_id

    async def take_mail(
        self, identity: ExternalMemberIdentity, *, wait: float, limit: int
    ) -> tuple[MailWithSignatureVerdict, ...]:
        """Return the oldest unread mail; wait for some if there is none.

        Messages of the previous call are marked as read now, when the program shows that it is alive. A
        program that dies before that gets them again.
        """
        mailboxes = self._store.open_mailboxes(identity.team)
        await self.read_team(identity.team)
        await mailboxes.open_inbox(identity.name, foreign=not identity.is_lead)
        if delivered := self._unmarked.pop(identity, ()):
            await mailboxes.mark_read(identity.name, delivered)
        mail = await mailboxes.take_unread(identity.name, limit=min(limit, MAX_BATCH_MESSAGES))
        if not mail and wait > 0:
            try:
                async with self._clock.deadline(wait):
                    await mailboxes.wait_for_mail(identity.name)
            except TimeoutError:
                return ()
            mail = await mailboxes.take_unread(identity.name, limit=min(limit, MAX_BATCH_MESSAGES))
        verified = tuple(self._verify_mail(identity, each) for each in _limit_mail_batch(mail))
        self._unmarked[identity] = tuple(message.mail.id for message in verified)
        if identity.is_lead:
            for message in verified:
                if message.kind == "shutdown_approved" and message.verdict != "forged":
                    await self.remove_member(identity.team, message.mail.sender)
        return verified

    def _verify_mail(self, identity: ExternalMemberIdentity, mail: MailMessage) -> MailWithSignatureVerdict:
        body = get_authorized_mail_body(mail)
        return MailWithSignatureVerdict(
            mail=mail,
            verdict=MailSigner(identity.team, self._store.read_signing_key(identity.team)).verify_mail(
                mail, identity.name
            ),
            kind="message" if body is None else str(body.__struct_config__.tag),
        )

    def _create_mail(
        self,
        identity: ExternalMemberIdentity,
        text: str,
        *,
        summary: str | None = None,
        color: str | None = None,
        fyi: bool = False,
    ) -> MailMessage:
        return MailMessage(
            id=self._ids.new_uuid(),
            sender=identity.name,
            text=text,
            timestamp=format_iso_time(self._clock.now()),
            summary=summary,
            color=color,
            fyi=fyi,
        )

    # Joining

    def _lock_inbox(self, identity: ExternalMemberIdentity) -> None:
        # An inbox has one reader.
        if identity not in self._locks:
            self._locks[identity] = ExternalMemberLock(self._home, identity.team, identity.name)

    def _refuse_live_led_team(self, team: TeamRoster) -> None:
        if is_session_running(self._home, to_possible_session_id(team.lead_session_id)):
            raise AgentRequestRefused(format_session_notice("lead_is_running", team=team.name))

    async def _add_to_roster(self, identity: ExternalMemberIdentity) -> None:
        new_member = NewMember(
            name=identity.name,
            agent_type=EXTERNAL_MEMBER_TYPE,
            model="",
            cwd=str(self._cwd),
            prompt="",
            backend_type="process",
            tmux_pane_id="process",
        )
        member = await self._store.rosters.add_member(identity.team, new_member)
        if member.name != identity.name:
            await self._store.rosters.remove_member(identity.team, member.name)
            raise AgentRequestRefused(
                format_session_notice("name_taken", name=identity.name, team=identity.team)
            )
        # It never keeps a lead from deleting the team: nobody can tell whether the program is running.
        await self._store.rosters.update_member(identity.team, identity.name, is_active=False)
        await self._store.open_mailboxes(identity.team).open_inbox(identity.name, foreign=True)
        text = f"{identity.name}, another program, has joined the team and can receive mail."
        await self.send_mail(identity, LEAD_NAME, text, "a guest joined", fyi=True)

    async def _reclaim_tasks(self, identity: ExternalMemberIdentity) -> None:
        board = self._store.open_board(identity.team)
        for task_id in await board.reclaim_owner_tasks(identity.name):
            task = await board.get(task_id)
            if task is not None and task.claim_attempt is not None:
                self.attempts[identity.team, task_id] = task.claim_attempt


def _limit_mail_batch(mail: tuple[MailMessage, ...]) -> tuple[MailMessage, ...]:
    size = 0
    for number, message in enumerate(mail):
        size += len(message.text)
        if size > MAX_BATCH_CHARS:
            return mail[: max(1, number)]
    return mail
